"""The kernel of windows: a sum may overflow over the members so far, if it does not over those of a window that is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.errors import StreamqError
from streamq.run.batch.answers import local_answer
from streamq.runtime.deltas import LE, RE, WEIGHT
from tests.programs import compiled
from tests.window_modules import WINDOWS

FAR = 1_000
"""More ticks than any window has: no row is final before the end."""

GREAT = {"bigint": 2**63 - 1, "decimal(38,0)": 9 * 10**37}


def events(kind: str, values: list[tuple[int, int]]) -> Any:
    """An event of three ticks with each start and value."""
    return t.table(f"start bigint, end bigint, v {kind}", [(at, at + 3, value) for at, value in values])


def sums(tables: Iterable[Any]) -> Counter[tuple[Any, ...]]:
    totals = Counter[tuple[Any, ...]]()
    for row in (row for table in tables for row in table.to_pylist()):
        totals[row["x"], row[LE], row[RE]] += row[WEIGHT]
    return +totals


def check_as_at_once(window: str, output: OutputForm, kind: str, aggregate: Any, values: list[tuple[int, int]]) -> None:
    """Values that come one by one have the result that they have together, in final rows and a changelog."""
    s = sq.intervals(events(kind, []), start="start", end="end", name="s", progress=sq.generate(FAR))
    stream = WINDOWS[window](s).select(x=aggregate)
    live, deltas = LocalRun(compiled(stream.plan, output, buckets=1)), []
    for value in values:
        deltas.append(live.batch({"s": events(kind, [value])}))
        live = live.restart()
    deltas.append(live.finish(FAR))
    expected = sums([local_answer(stream.plan, {"s": events(kind, values)}, until=FAR).deltas])
    assert sums(deltas) == expected and expected


OVERFLOWING = [window for window in WINDOWS if window != "rows"]
IN_TURN = [(window, (OutputForm.FINAL, OutputForm.CHANGELOG)[i % 2]) for i, window in enumerate(OVERFLOWING)]
"""Windows of time, each with one of both outputs, whose kernel is the same."""


@pytest.mark.slow
@pytest.mark.parametrize(("window", "output"), IN_TURN)
@pytest.mark.parametrize("kind", GREAT)
def test_a_sum_overflows_only_in_a_window_that_is_sent(window: str, output: OutputForm, kind: str) -> None:
    great = GREAT[kind]
    check_as_at_once(window, output, kind, sq.sum("v"), [(1, great), (1, great), (1, -1), (1, -great), (2, 0)])


@pytest.mark.slow
@pytest.mark.parametrize(("window", "output"), IN_TURN)
def test_a_mean_of_decimals_overflows_only_in_a_window_that_is_sent(window: str, output: OutputForm) -> None:
    kind, great = "decimal(38,0)", GREAT["decimal(38,0)"]
    check_as_at_once(window, output, kind, sq.avg("v"), [(1, great), (1, 4), (1, -great), (2, 0)])


@pytest.mark.parametrize("window", ["snapshot", "session", "landmark"])
def test_a_sum_that_is_sent_early_overflows(window: str) -> None:
    great = GREAT["bigint"]
    s = sq.intervals(events("bigint", []), start="start", end="end", name="s", progress=sq.generate(FAR))
    live = LocalRun(compiled(WINDOWS[window](s).select(x=sq.sum("v")).plan, "changelog", early=True, buckets=1))
    live.batch({"s": events("bigint", [(1, great)])})
    with pytest.raises(StreamqError, match="sum: overflow of int64"):
        live.batch({"s": events("bigint", [(1, great)])})
