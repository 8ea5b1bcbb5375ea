"""Lifetimes of what windows give: open ones, the bound, clipping, stamps, the ends of the axis."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.options import Options
from streamq.compiler.results import Egress, Results
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.errors import StreamqWarning
from streamq.plan.node import number_sources
from streamq.run.rehearsal import Rehearsal
from streamq.testing.arrival import Item
from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.table import table
from streamq.testing.trial import check
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows import Landmark
from tests.judged import answer, counts, members, spans

LEAST = -(2**63) + 1


# open lifetimes, until, clipping, stamps


def test_until_bounds_hopping_windows_by_their_starts() -> None:
    s = spans((1, None, "a"), (2, 12, "b"))
    assert members(s.tumbling_window(5)) == [(0, 5, "a b"), (5, 10, "a b"), (10, 15, "a b")]
    assert members(s.tumbling_window(5), until=5) == [(0, 5, "a b")], "a window that starts at until is not before it"
    assert members(s.tumbling_window(5), until=6) == [(0, 5, "a b"), (5, 10, "a b")]
    assert members(s.tumbling_window(5), until=16)[-1] == (15, 20, "a")


def test_until_bounds_landmark_windows_by_their_last_hops() -> None:
    """Over endless lifetimes: the last hop starts before until; by default it holds the last finite endpoint, or m."""

    def bounds(s: sq.Stream, until: int | None = None, period: int | None = None) -> list[tuple[int, int]]:
        rows = s.landmark_window(5, start=0, period=period, stamp="align").select(n=sq.count())
        return [(start, end) for start, end, _ in answer(rows, until)]

    endless, ended = (1, None, {"k": "a"}), (2, 5, {"k": "b"})
    assert bounds(sq.events([endless]), until=10) == [(0, 5), (0, 10)]
    assert bounds(sq.events([endless]), until=11) == [(0, 5), (0, 10), (0, 15)]
    assert bounds(sq.events([endless]), until=13, period=12) == [(0, 5), (0, 10), (0, 12), (12, 17)]
    assert bounds(sq.events([endless, ended])) == bounds(sq.events([ended])) == [(0, 5), (0, 10)]
    items = [sq.insert(1, None, k="a"), sq.cti(10)]
    assert bounds(sq.events(items)) == [(0, 5), (0, 10), (0, 15)]


@pytest.mark.parametrize(
    ("name", "ticks"),
    [
        ("declared", 5), ("to_points", 5), ("to_points_at_end", 5), ("set_duration", 5), ("shift", 5), ("where", 5), ("join", 5),
        ("rows_window", 5), ("interval", 6), ("extend", 7),
    ],
)  # fmt: skip
def test_a_sliding_window_sets_the_lifetimes_of_points_and_extends_others(name: str, ticks: int) -> None:
    """Points are those whose type says so, declared or derived; an interval of one tick is extended like others."""
    s = sq.events([(1, 2, {"k": "a", "v": 1})])
    points = s.to_points()
    derived = {
        "declared": sq.points(pa.table({"at": [1], "v": [1]}), time="at"), "to_points": points, "interval": s,
        "to_points_at_end": s.to_points_at_end(), "set_duration": s.set_duration(1), "shift": points.shift(3),
        "where": points.where(sq.col("v") > 0).select("v"), "join": s.join(points.select("k"), on="k"),
        "rows_window": s.rows_window(1).select(n=sq.count()), "extend": points.extend(1),
    }[name]  # fmt: skip
    ((start, end, _),) = answer(derived.sliding_window(5).select(n=sq.count()))
    assert end - start == ticks


@pytest.mark.parametrize(
    ("clip", "lasts"), [("full", (3, 5)), ("left", (18, 15)), ("right", (3, 8)), ("none", (18, 18))]
)
def test_clipping_changes_what_a_time_sensitive_aggregate_reads(clip: str, lasts: tuple[int, int]) -> None:
    """One event [2,20) in the windows [0,5) and [5,10): how long it counts for."""
    s = sq.events([(2, 20, {"v": 1.0})]).tumbling_window(5, clip_input=clip)
    rows = answer(s.select(mean=sq.time_weighted_avg("v"), n=sq.count()), until=6)
    assert rows == [(0, 5, pytest.approx(lasts[0] / 5), 1), (5, 10, pytest.approx(lasts[1] / 5), 1)]


def test_the_window_is_known_wherever_the_row_lives() -> None:
    s = spans((1, 4), (3, 8))
    for stamp in ("align", "point_at_end"):
        bounds = s.tumbling_window(5, stamp=stamp).select(
            a=sq.window_start(), b=sq.window_end(), long=sq.window_end() - sq.window_start(), n=sq.count()
        )
        assert [r[2:] for r in answer(bounds)] == [(0, 5, 5, 2), (5, 10, 5, 1)]
    both = s.count_window(2).select(a=sq.window_start(), b=sq.window_end())
    assert answer(both) == [(4, 5, 1, 4)]


def test_a_bound_is_known_as_long_as_the_lifetime_is_a_windows() -> None:
    s = spans((1, 4), (3, 8))
    top = s.tumbling_window(5).top_k(1, by="e")
    assert answer(top.select("e", a=sq.window_start())) == [(0, 5, "e1", 0), (5, 10, "e1", 5)]
    pairs = s.windowed_join(s.select(f=sq.lit("e")), size=5)
    assert [r[2] for r in answer(pairs.where(sq.col("e") == "e0").select(a=sq.window_start()))] == [0, 0]


def test_windows_at_the_ends_of_the_axis_are_cut_there() -> None:
    far = spans((LEAST, LEAST + 4), (INFINITY - 5, INFINITY - 1))
    assert counts(far.tumbling_window(10)) == [(LEAST, LEAST + 7, 1), (INFINITY - 7, None, 1)]
    assert counts(far.tumbling_window(10, stamp="point_at_end")) == [(LEAST + 7, LEAST + 8, 1)]
    assert members(far.tumbling_window(10)) == [(LEAST, LEAST + 7, "e0"), (INFINITY - 7, None, "e1")]
    assert counts(far.session_window(10)) == [(LEAST, LEAST + 13, 1), (INFINITY - 5, None, 1)]
    assert counts(far.snapshot_window()) == [(LEAST, LEAST + 4, 1), (INFINITY - 5, INFINITY - 1, 1)]
    assert counts(far.sliding_window(10)) == [(LEAST, LEAST + 14, 1), (INFINITY - 5, None, 1)]
    late, early = far.where(sq.start() > 0), far.where(sq.start() < 0)
    for until in (INFINITY - 1, None):
        assert counts(late.landmark_window(4, start=INFINITY - 6, stamp="align"), until) == [
            (INFINITY - 6, INFINITY - 2, 1),
            (INFINITY - 6, None, 1),
        ]
    assert counts(late.landmark_window(4, start=-7, period=10, stamp="align"), INFINITY - 1)[-1][1:] == (None, 1)
    assert counts(early.landmark_window(4, start=3, period=10, stamp="align"))[0] == (LEAST, LEAST + 4, 1)


def test_windows_before_the_axis_begin_at_its_first_instant_and_what_follows_sees_them_whole() -> None:
    s = spans((LEAST, LEAST + 3), (LEAST + 2, LEAST + 40))
    windows = s.hopping_window(20, 10).select(n=sq.count())
    assert answer(windows)[:3] == [(LEAST, LEAST + 7, 2), (LEAST, LEAST + 17, 2), (LEAST + 7, LEAST + 27, 1)]
    with pytest.warns(StreamqWarning, match="overlapping windows"):
        snapshots = counts(windows.snapshot_window())
    assert snapshots[:2] == [(LEAST, LEAST + 7, 2), (LEAST + 7, LEAST + 17, 2)]
    assert counts(windows.per_window())[:2] == [(LEAST, LEAST + 7, 1), (LEAST, LEAST + 17, 1)]


def test_windows_a_tick_apart_are_numbered_from_the_first_instant_on() -> None:
    run = Rehearsal(spans((LEAST, LEAST + 1), (LEAST + 1, LEAST + 2)).hopping_window(20, 1).select(n=sq.count()))
    run.arrive(intervals1=1)
    run.arrive(intervals1=1)
    assert [(r["start"], r["end"], r["n"]) for r in run.finish().to_pylist()][-2:] == [
        (LEAST, LEAST + 20, 2), (LEAST + 1, LEAST + 21, 1),
    ]  # fmt: skip


# Windows on a grid in a stream: events are combined by basic window before the shuffle, and lateness goes by ends of windows.

EMPTY = pa.table({"t": pa.array([], pa.int64()), "k": pa.array([], pa.string()), "v": pa.array([], pa.int64())})
HOPPING = sq.points(EMPTY, time="t", name="s").group_by("k").hopping_window(20, 5)
MERGED = HOPPING.select(n=sq.count(), most=sq.max("v"))
COUNTED = HOPPING.select(middle=sq.median("v"))


@pytest.mark.parametrize(("query", "rows"), [(MERGED, 2), (COUNTED, 3)])
def test_events_of_a_basic_window_are_one_row_before_the_shuffle(query: sq.Stream, rows: int) -> None:
    """Those of one value, where values are counted."""
    (stage,) = compile_stages(Results((query.plan,)), Options()).stages
    (hosted,) = stage.hosted
    _, argument, *_ = hosted.channels[0].columns
    events = pa.table({"k": ["a", "a", "a", "b"], argument: [1, 1, 2, 2], "__le": [1, 2, 3, 4]})
    assert hosted.kernel.combine(0, events).num_rows == rows


@pytest.mark.parametrize("clip", ["full", "none"])
@pytest.mark.parametrize(("size", "hop"), [(6, 2), (10, 10)])
def test_what_is_left_of_a_late_event_is_weighed_and_listed_from_the_same_instant(
    size: int, hop: int, clip: str
) -> None:
    lives = sq.intervals(
        table("a bigint, b bigint, v bigint", []), "a", "b", name="s", progress=sq.generate(0), late="adjust"
    )
    windows = lives.hopping_window(size, hop, clip_input=clip)
    plan, _ = number_sources(windows.select(load=sq.time_weighted_avg("v"), all=sq.collect("v")).plan)
    rows = (1, 3, 1), (9, 12, 2), (0, 30, 4), (4, 15, 8), (8, 9, 16), (31, 33, 1), (7, 40, 32)
    arrival = [("s", Item("insert", start, end, payload={"v": v})) for start, end, v in rows]
    check(Case(plan, tuple(arrival), (2, 3, 2)), [Execution()])


# Points in landmark windows: added up by group and hop before the shuffle, late by the ends of windows.
POINTS = sq.points(EMPTY, time="t", name="s", progress=sq.generate(0))
SUMS = {"n": sq.count(), "total": sq.sum("v")}


def program(query: sq.Stream, *, early: bool = False) -> StagedPlan:
    output = OutputForm.CHANGELOG if early else OutputForm.FINAL
    root, _ = number_sources(Results((query.plan,)))
    return compile_stages(root, Options(egresses=(Egress(output),), early=early))


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
    assert not program(query).judging["s"].reason
    longer = POINTS.set_duration(2).landmark_window(5, start=0).select(**SUMS)
    assert program(longer).judging["s"].reason
    (stage,) = program(query, early=True).stages
    events = pa.table({stage.channels[0].columns[0]: [1, 2], "__le": [1, 2]})
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
        numbers, ends = window.assigner(()).basic_windows(starts), window.traits.ends
        assert numbers is not None and ends is not None
        for c in range(-40, 60):
            end = ends.floor_to_end(c)
            assert end <= c
            assert end == MINUS_INFINITY or ends.floor_to_end(end) == end
            for number in np.unique(numbers):
                assert len(set(starts[numbers == number] < end)) == 1
    edges = np.array([-(2**63) + 2, 2**62], np.int64)
    assert len(set(Landmark(5, 2**62).assigner(()).basic_windows(edges).tolist())) == 2
