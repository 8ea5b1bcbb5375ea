"""Modules that the first queries call: functions, aggregates and operators as a user writes them first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import streamq as sq


@sq.uda("double", name="change")
def change(values: Any) -> float | None:
    """Return the last value of a window minus the first; None if one is missing."""
    return None if values.isna().any() else float(values.iloc[-1] - values.iloc[0])


median = sq.uda("double", name="median_of_numpy", properties=[sq.order_insensitive])(np.median)


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


@sq.uda("bigint", name="summed")
class Summed:
    """The sum, in the shape of Spark's Aggregator, over a buffer that changes."""

    def zero(self) -> list[int]:
        return [0]

    def reduce(self, buffer: list[int], value: int | None) -> list[int]:
        buffer[0] += value or 0
        return buffer

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        a[0] += b[0]
        return a

    def finish(self, buffer: list[int]) -> int:
        return buffer[0]


@sq.uda("double", name="weighted", time_sensitive=True, columns=["payload"])
def weighted(events: Any, window: Any) -> float:
    """The mean of the payloads by how long they live."""
    return float((events.payload * (events.end - events.start)).sum() / window.duration)


@sq.udso("n bigint", name="numbered", initial=[0])
def numbered(count: list[int], value: float | None) -> tuple[list[int], list[int]]:
    """The number of an event in its group."""
    count[0] += 1
    return count, [count[0]]


@sq.uda("double", name="change_of_all", on_error="quarantine")
def change_of_all(values: Any) -> float:
    """Return how far the last value of a window is from the first; fails where a value is NULL."""
    if values.isna().any():
        raise ValueError("a value is NULL")
    return float(values.iloc[-1] - values.iloc[0])


@sq.udf("double", takes="series", name="share")
def share(a: Any, b: Any) -> Any:
    """Return a as a part of b."""
    return a / b


@sq.udf("string", name="size")
def size(value: float | None, limit: float = 10) -> str | None:
    """Return "large" for a value above the limit, else "small"."""
    return None if value is None else "large" if value > limit else "small"


@sq.udf("double", name="inverse", on_error="quarantine")
def inverse(value: float) -> float:
    """One divided by a value."""
    return 1 / value


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


@sq.udo(
    "k string, rise double", name="rises_at_once", properties=[sq.filters_on("k"), sq.time_bound], time_sensitive=True
)
def rises_at_once(events: Any, window: Any) -> Iterator[Any]:
    """Each event that has more than the one before it of its key, as soon as it is there."""
    for key, of_key in events.groupby("k"):
        for before, now in zip(of_key[:-1].itertuples(), of_key[1:].itertuples(), strict=True):
            if now.v > before.v:
                yield now.start, now.end, key, now.v - before.v


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


@sq.udso("rise double", name="rise_of", initial=None)
def rise_of(last: float | None, value: float | None, least: float = 0.0) -> tuple[float | None, list[float] | None]:
    """Return how much a value is above the one before it, if by ``least`` or more."""
    rise = None if last is None or value is None else value - last
    return value, None if rise is None or not rise >= least else [rise]


@sq.udf("double", name="part_of_ten")
def part_of_ten(value: float | None) -> float | None:
    """Return ten divided by a value; fails where that is zero."""
    return None if value is None else 10 / value
