"""Modules that the first queries call: functions, aggregates and operators as a user writes them first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import streamq as sq


@sq.uda("double", name="change")
def change(values: Any) -> float | None:
    """Return the last value of a window minus the first; None if one is missing."""
    return None if values.isna().any() else float(values.iloc[-1] - values.iloc[0])


@sq.udo("k string, rise double", name="rises", properties=[sq.filters_on("k")], time_sensitive=True)
def rises(events: Any, window: Any) -> Iterator[Any]:
    """Each event that has more than the one before it of its key."""
    for key, of_key in events.groupby("k"):
        for before, now in zip(of_key[:-1].itertuples(), of_key[1:].itertuples(), strict=True):
            if now.v > before.v:
                yield now.start, now.end, key, now.v - before.v


@sq.udso("delta double", name="delta", initial=None)
def delta(last: float | None, value: float | None) -> tuple[float | None, list[float] | None]:
    """Return a value minus the one before it; no row if one of them is missing."""
    return value, None if last is None or value is None else [value - last]


@sq.uda("bigint", name="running_total")
class Total:
    """The sum of the values, which changes by what comes and goes."""

    def initial(self) -> int:
        return 0

    def add(self, state: int, values: Any) -> int:
        return state + int(values.sum())

    def remove(self, state: int, values: Any) -> int:
        return state - int(values.sum())

    def result(self, state: int) -> int:
        return state


@sq.udso("n bigint", name="numbered", initial=[0])
def numbered(count: list[int], value: float | None) -> tuple[list[int], list[int]]:
    """The number of an event in its group."""
    count[0] += 1
    return count, [count[0]]


@sq.udf("string", name="size")
def size(value: float | None, limit: float = 10) -> str | None:
    """Return "large" for a value above the limit, else "small"."""
    return None if value is None else "large" if value > limit else "small"


@sq.uda("bigint", name="above")
class Above:
    """Counts the values above a limit."""

    def __init__(self, limit: int = 0):
        self.limit = limit

    def initial(self) -> int:
        return 0

    def add(self, state: int, values: Any) -> int:
        return state + int((values > self.limit).sum())

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, state: int) -> int:
        return state


@sq.uda("double", name="load_above", time_sensitive=True, columns=["payload"])
def load_above(events: Any, window: Any, limit: float = 0.0) -> float:
    """Return the time that payloads above a limit live, added up, as a part of the window."""
    high = events[events.payload > limit]
    return float((high.end - high.start).sum() / window.duration)


@sq.udso("ratio double", name="ratio", initial=None, on_error="quarantine")
def ratio(last: float | None, value: float) -> tuple[float | None, list[float] | None]:
    """Return a value divided by the one before it; fails where the value is NULL or the divisor zero."""
    return value, None if last is None else [value / last]


@sq.udf("string", takes="series", name="city_of")
def city_of(k: Any) -> Any:
    """The city of a key, missing for other keys."""
    return k.map({"a": "Ulm", "b": "Bonn"})


@sq.udf("double", name="part_of_ten")
def part_of_ten(value: float | None) -> float | None:
    """Return ten divided by a value; fails where that is zero."""
    return None if value is None else 10 / value
