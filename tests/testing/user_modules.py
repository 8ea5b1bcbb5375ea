"""Modules as users write them: right ones of every shape, and wrong ones, each by the law that it breaks."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pandas as pd
import pytest

# modules


class Total:
    """An exact sum of integers: what is added can be taken off again."""

    def initial(self) -> tuple[int, int]:
        return 0, 0

    def add(self, state: tuple[int, int], values: pd.Series) -> tuple[int, int]:
        return state[0] + int(values.sum()), state[1] + int(values.count())

    def remove(self, state: tuple[int, int], values: pd.Series) -> tuple[int, int]:
        return state[0] - int(values.sum()), state[1] - int(values.count())

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]

    def result(self, state: tuple[int, int]) -> int | None:
        return state[0] if state[1] else None


class Values:
    """A mean of floats that can lose some: it keeps them, and adds up what is left."""

    def initial(self) -> Counter[float]:
        return Counter()

    def add(self, state: Counter[float], values: pd.Series) -> Counter[float]:
        return state + Counter(values.dropna())

    def remove(self, state: Counter[float], values: pd.Series) -> Counter[float]:
        return state - Counter(values.dropna())

    def merge(self, a: Counter[float], b: Counter[float]) -> Counter[float]:
        return a + b

    def result(self, state: Counter[float]) -> float | None:
        kept = pd.Series(sorted(state.elements()), dtype="float64")
        return float(kept.mean()) if len(kept) else None


class Longest:
    """Spark's Aggregator, over two arguments; it changes its buffer, as it may."""

    zero: dict[str, Any] = {"text": None, "n": -1}

    def reduce(self, buffer: dict[str, Any], row: tuple[str | None, int | None]) -> dict[str, Any]:
        text, n = row
        if text is not None and n is not None:
            self._better(buffer, text, n)
        return buffer

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        if b["text"] is not None:
            self._better(a, b["text"], b["n"])
        return a

    def finish(self, buffer: dict[str, Any]) -> str | None:
        return buffer["text"]

    def _better(self, buffer: dict[str, Any], text: str, n: int) -> None:
        if (n, text) > (buffer["n"], buffer["text"] or ""):
            buffer["text"], buffer["n"] = text, n


def middle(values: pd.Series) -> Any:
    return values.median()


def latest(values: pd.Series) -> Any:
    return values.iloc[-1]


# wrong modules, each by the law it breaks


class SubtractsFloats(Total):
    def initial(self) -> Any:
        return 0.0, 0

    def add(self, state: Any, values: pd.Series) -> Any:
        return state[0] + values.sum(), state[1] + values.count()

    def remove(self, state: Any, values: pd.Series) -> Any:
        return state[0] - values.sum(), state[1] - values.count()


class StartsAtOne(Total):
    def initial(self) -> Any:
        return 1, 0


class LeftWins(Values):
    """Of two states the left one counts."""

    remove = None  # type: ignore[assignment]

    def merge(self, a: Any, b: Any) -> Any:
        return a or b


class MeanOfMeans:
    """Right while events are added, wrong when states are merged: the mean of means is no mean."""

    def initial(self) -> Any:
        return 0, 0

    def add(self, state: Any, values: pd.Series) -> Any:
        return state[0] + values.sum(), state[1] + values.count()

    def merge(self, a: Any, b: Any) -> Any:
        if not a[1] or not b[1]:
            return a if a[1] else b
        return (a[0] / a[1] + b[0] / b[1]) / 2, 1

    def result(self, state: Any) -> Any:
        return state[0] / state[1] if state[1] else None


class RunningMean(MeanOfMeans):
    """Weighs every part alike."""

    merge = None

    def add(self, state: Any, values: pd.Series) -> Any:
        mean = values.dropna().mean() if values.count() else None
        return state if mean is None else (mean if not state[1] else (state[0] + mean) / 2, 1)


class Appends:
    """Changes the state that it is given."""

    def initial(self) -> list[float]:
        return []

    def add(self, state: list[float], values: pd.Series) -> list[float]:
        state.extend(values.dropna())
        return state

    def result(self, state: list[float]) -> float | None:
        return max(state, default=None)


class KeepsOnSelf(Total):
    """Keeps its sum beside the state."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, state: Any, values: pd.Series) -> Any:
        self.total += int(values.sum())
        return self.total, state[1] + 1


class EveryThird(Total):
    """Wrong in every third result: a law that is broken now and holds when it is tried again."""

    def __init__(self) -> None:
        self.calls = 0

    def result(self, state: Any) -> Any:
        self.calls += 1
        return self.calls % 3


class WrongOnce(Total):
    """Wrong in one call of all."""

    def __init__(self) -> None:
        self.calls = 0

    def result(self, state: Any) -> Any:
        self.calls += 1
        return state[0] + (self.calls == 200)


def ready_after_a_call() -> Any:
    """A function that begins in its first call, which has another result."""
    calls: list[int] = []

    def counted(values: pd.Series) -> int:
        calls.append(1)
        return len(values) if len(calls) > 1 else 0

    return counted


def relative_to_the_first() -> Any:
    """A function that keeps the values of its first call, and repeats each call as it was."""
    first: dict[str, int] = {}

    def relative(values: pd.Series) -> int:
        return len(values) - first.setdefault("length", len(values))

    return relative


def class_that_is_loaded() -> Any:
    """A class whose first object loads what all have."""

    class Loaded(Total):
        factor = 0

        def result(self, state: Any) -> Any:
            own, type(self).factor = type(self).factor, 1
            return state[1] * own

    return Loaded


class CountsNullsIn(Total):
    """Counts NULLs when they come, and not when they go."""

    def add(self, state: Any, values: pd.Series) -> Any:
        return state[0] + int(values.sum()), state[1] + len(values)

    def result(self, state: Any) -> Any:
        return state[0] / state[1] if state[1] else None


class RefusesZero:
    """Raises as it adds, with a message of its own."""

    def initial(self) -> float:
        return 0.0

    def add(self, state: float, values: pd.Series) -> float:
        if not (values.abs() > 0).all():
            raise ValueError("no zeros")
        return state + float((1 / values).sum())

    def merge(self, a: float, b: float) -> float:
        return a + b

    def result(self, state: float) -> float:
        return state


class ForgetsNulls(MeanOfMeans):
    """Divides by how many values there are, and there may be none."""

    merge = None

    def add(self, state: Any, values: pd.Series) -> Any:
        return state[0] + int(values.sum()), state[1] + int(values.count())

    def result(self, state: Any) -> float:
        return state[0] / state[1]


class TakesTheLast(Total):
    """Depends on the order of arrival."""

    remove = merge = None  # type: ignore[assignment]

    def add(self, state: Any, values: pd.Series) -> Any:
        return (int(values.dropna().iloc[-1]), 1) if values.count() else state


def clips(values: pd.Series) -> Any:
    """Changes its argument."""
    values[values > 1] = 1
    return values.sum()


def at_random(values: pd.Series) -> float:
    return random.random()


@pytest.mark.slow
class DistinctBySet:
    """How many different values there are; of two equal ones that go with the first."""

    def initial(self) -> frozenset[Any]:
        return frozenset()

    def add(self, state: frozenset[Any], values: Any) -> frozenset[Any]:
        return state | {v for v in values.tolist() if v == v}

    def remove(self, state: frozenset[Any], values: Any) -> frozenset[Any]:
        return state - set(values.tolist())

    def result(self, state: frozenset[Any]) -> int:
        return len(state)
