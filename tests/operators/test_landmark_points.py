"""Points in landmark windows: added up by group and hop before the shuffle, late by the ends of windows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.egress import Egress
from streamq.compiler.options import Options
from streamq.compiler.results import Results, rewritten
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.compiler.strategy import JudgePlace
from streamq.plan.node import number_sources
from streamq.testing.arrival import Item
from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.trial import check
from streamq.time import MINUS_INFINITY
from streamq.windows import Landmark

EMPTY = pa.table({"t": pa.array([], pa.int64()), "k": pa.array([], pa.string()), "v": pa.array([], pa.int64())})
POINTS = sq.points(EMPTY, time="t", name="s", progress=sq.generate(0))
SUMS = {"n": sq.count(), "total": sq.sum("v")}


def program(query: sq.Stream, *, early: bool = False) -> StagedPlan:
    output = OutputForm.CHANGELOG if early else OutputForm.FINAL
    root, _ = number_sources(Results((query.plan,)))
    return compile_stages(rewritten(root), Options(egresses=(Egress(output),), early=early))


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (POINTS.group_by("k").landmark_window(5, start=0).select(**SUMS), 2),
        (POINTS.group_by("k").landmark_window(5, period=12).select(**SUMS), 3),
        (POINTS.landmark_window(5, start=0).select(middle=sq.median("v")), 4),
        (POINTS.landmark_window(5, start=0).select(all=sq.collect("v")), 5),
        (POINTS.set_duration(2).landmark_window(5, start=0).select(**SUMS), 5),
    ],
)
def test_points_of_a_hop_are_one_row_before_the_shuffle(query: sq.Stream, rows: int) -> None:
    """Those of a value, where values are counted; a landmark begins a hop; members that are read, and intervals, stay."""
    (stage,) = program(query).stages[-1:]
    (channel,) = stage.channels
    starts = [10, 11, 12, 14, 16]
    columns = {"k": ["a"] * 4 + ["b"], "__le": starts, "__re": [t + 2 for t in starts]}
    events = pa.table({name: columns.get(name, [1, 1, 2, 3, 4]) for name in channel.columns})
    kernel = stage.hosted[0].kernel
    assert kernel.combine(0, events).num_rows == rows


def test_their_kernel_judges_points_and_early_rows_are_not_combined() -> None:
    """Intervals are judged in a stage of their own: a late one must not decide how far windows go."""
    query = POINTS.landmark_window(5, start=0).select(**SUMS)
    assert program(query).strategy.judging["s"].at is JudgePlace.FIRST_KERNEL
    longer = POINTS.set_duration(2).landmark_window(5, start=0).select(**SUMS)
    assert program(longer).strategy.judging["s"].at is JudgePlace.STAGE
    events = pa.table({"__arg0": [1, 2], "__le": [1, 2]})
    (stage,) = program(query, early=True).stages
    assert stage.hosted[0].kernel.combine(0, events) is events


@pytest.mark.parametrize("period", [None, 12])
@pytest.mark.parametrize("output", [OutputForm.FINAL, OutputForm.CHANGELOG])
def test_a_hop_is_late_as_a_whole(period: int | None, output: OutputForm) -> None:
    """At 8 the point of 6 is not late, that of 4 is, as a window ended at 5; two late ones of a hop count twice."""
    query = POINTS.group_by("k").landmark_window(5, start=0, period=period).select(**SUMS)
    plan, _ = number_sources(query.plan)
    arrival = [("s", Item("insert", t, t + 1, payload={"k": "a", "v": t})) for t in (1, 2, 8, 6, 4, 3, 14, 13, 11, 30)]
    check(Case(plan, tuple(arrival), (3, 3, 3, 1)), [Execution(output=output, buckets=3, restart=True)])


def test_ends_and_basic_windows_agree() -> None:
    """Points of one number lie on the same side of every end, also before the first landmark, and at the edges of the axis."""
    for window in (Landmark(5, 3), Landmark(5, -7, 12), Landmark(4, 2, 4), Landmark(7, 1, 3)):
        starts = np.arange(-40, 40)
        numbers = window.assigner(()).basic_windows(starts)
        assert numbers is not None
        for c in range(-40, 60):
            end = window.fixed_ends.floor_to_end(c)
            assert end <= c
            assert end == MINUS_INFINITY or window.fixed_ends.floor_to_end(end) == end
            for number in np.unique(numbers):
                assert len(set(starts[numbers == number] < end)) == 1
    edges = np.array([-(2**63) + 2, 2**62], np.int64)
    assert len(set(Landmark(5, 2**62).assigner(()).basic_windows(edges).tolist())) == 2
