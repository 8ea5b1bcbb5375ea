"""The batch forms: Spark computes the built-in aggregates alone, but for a few over snapshots; a hint asks for another form."""

from __future__ import annotations

import re

import streamq as sq
from streamq.compiler.batch import read_without_ends
from streamq.compiler.rewriter import rewrite
from streamq.operators import Join
from streamq.operators.operator import BatchForm
from streamq.operators.window_aggregate import WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.footprint import NO_RATES
from streamq.plan.node import nodes
from streamq.testing.table import table
from tests.window_modules import WINDOWS

OF_ONE = (
    "count sum avg min max var var_pop stddev stddev_pop first last count_distinct median collect time_weighted_avg"
)
OF_TWO = "covar covar_pop corr"
AGGREGATES: list[Aggregate] = [sq.count(), sq.percentile("v", 0.9)]
AGGREGATES += [getattr(sq, name)("v") for name in OF_ONE.split()] + [
    getattr(sq, name)("v", "w") for name in OF_TWO.split()
]
"""A median is a percentile."""


def form_of(stream: sq.Stream) -> BatchForm:
    (choice,) = {n.batch_forms(NO_RATES).cheapest.form for n in nodes(stream.plan) if isinstance(n, WindowAggregate)}
    return choice


def test_windows_whose_events_a_copy_would_read_several_times_are_evaluated() -> None:
    """Unless sums tell snapshots apart; a sliding window is a snapshot of longer lifetimes."""
    stream = sq.events([(1, 3, {"k": "a", "v": 1, "w": 2.0})], name="s")
    forms = {
        (window, aggregate.function.name): form_of(over(stream.group_by("k")).select(x=aggregate))
        for window, over in WINDOWS.items()
        for aggregate in AGGREGATES
    }
    sums = {name for (window, name), form in forms.items() if window == "snapshot" and form is BatchForm.DIFFERENCE}
    assert {"count", "sum"} <= sums and not sums & {"max", "median", "collect"}
    for (window, name), form in forms.items():
        reads_often = window in ("snapshot", "sliding", "rows", "count", "ends")
        assert (form is BatchForm.EVALUATED) == (
            reads_often and not (window in ("snapshot", "sliding") and name in sums)
        ), (
            window,
            name,
        )


def test_groups_whose_events_are_in_many_windows_are_evaluated_unless_an_aggregate_copies_them() -> None:
    stream = sq.events([(1, 3, {"k": "a", "v": 1})], name="s")
    many, few, by_k = stream.hopping_window(40, 10), stream.hopping_window(30, 10), stream.group_by("k")
    medians = {"m": sq.median("v"), "s": sq.sum("v")}
    assert form_of(by_k.hopping_window(40, 10).select(**medians)) is BatchForm.EVALUATED
    assert form_of(by_k.hopping_window(30, 10).select(**medians)) is BatchForm.DIRECT
    assert form_of(by_k.hopping_window(40, 10).select(**medians, c=sq.collect("v"))) is BatchForm.DIRECT
    # Spark adds up copies before it sends them, where results merge and an event tells its windows
    landmarks = by_k.landmark_window(10, period=80)
    assert form_of(landmarks.select(**medians)) is BatchForm.EVALUATED
    assert form_of(landmarks.select(s=sq.sum("v"))) is BatchForm.DIRECT
    assert form_of(by_k.landmark_window(10, start=0).select(s=sq.sum("v"))) is BatchForm.EVALUATED
    # one task would have all events
    assert {form_of(windows.select(**medians)) for windows in (many, few)} == {BatchForm.DIRECT}


def joins_evaluated(stream: sq.Stream) -> list[bool]:
    """Of each join, the lowest first, if its evaluator computes it."""
    joins = [node for node in nodes(stream.plan) if isinstance(node, Join)]
    return [join.batch_forms(NO_RATES) is not None for join in joins]


def test_joins_on_no_key_read_twice_only_what_needs_no_state() -> None:
    """Cells of time need the lengths of lifetimes, which the plan knows of points and windows, and a batch else measures."""
    s = sq.events([(1, 3, {"k": "a", "v": 1})], name="s")
    windows = s.to_points().group_by("k").tumbling_window(4).select(v=sq.max("v")).extend(1)
    chain = s
    for _ in range(4):
        chain = chain.join(s, where=lambda a, b: a.v < b.v, suffixes=("", "_r")).select("k", "v")
    assert joins_evaluated(chain) == [False, True, True, True]
    assert joins_evaluated(s.join(s, on="k", suffixes=("", "_r"))) == [True]
    points = s.to_points().select("k", w=sq.col("v"))
    assert joins_evaluated(points.join(s, on="k")) == [False]
    assert joins_evaluated(points.join(s, on="k", how="left")) == [True]
    assert joins_evaluated(s.join(s, on="k", suffixes=("", "_r")).join(points, on="k")) == [True, True]
    assert joins_evaluated(windows.join(windows, on="k", suffixes=("", "_r"))) == [False]
    assert joins_evaluated(windows.join(windows, suffixes=("", "_r")).join(s, suffixes=("", "_s"))) == [False, True]


def without_ends(s: sq.Stream) -> dict[str, tuple[sq.Stream, int]]:
    """Queries over ``s`` for rows without an end, and of how many operators a batch then computes the last snapshots alone."""
    last, n = sq.end().is_null(), sq.col("n")
    endless = s.set_duration(None)
    of_k = endless.group_by("k").snapshot_window()
    counts = of_k.select(n=sq.count(), m=sq.median("v"), every=sq.collect("w"))
    of_n = counts.select("n", double=n * 2).group_by("n").snapshot_window().select(t=sq.sum("double"))
    of_z = endless.with_columns(z=sq.col("k") % 2).group_by("k", "z").snapshot_window().select(n=sq.count())
    of_z = of_z.select("n", half=sq.col("z")).group_by("half").snapshot_window().select(most=sq.max("n"))
    best = {ties: of_k.top_k(3, by="v", ties=ties, row_number=ties == "break") for ties in ("keep", "break")}
    some = counts.where(n > 7)
    both = counts.where(last)
    return {
        "of all": (endless.snapshot_window().select(n=sq.count(), most=sq.max("v")).where(last), 1),
        "of groups": (counts.where(last & (n > 7)).select("k", "m", "every"), 1),
        "a filter between": (some.select("k", "n").where(last), 1),
        "of snapshots": (of_n.where(last), 0),
        "of snapshots of more groups": (of_z.where(last), 2),
        "of snapshots of all": (counts.snapshot_window().top_k(1, by="n").where(last), 2),
        "of filtered snapshots": (some.group_by("n").snapshot_window().select(k=sq.sum("k")).where(last), 0),
        "the best": (best["keep"].where(last), 1),
        "with numbers": (best["break"].where(last).select("k", "w", "row_number"), 1),
        "the best of the best": (
            best["keep"].drop("rank").group_by("k").snapshot_window().top_k(1, by="w").where(last),
            2,
        ),
        "read twice": (both.union(counts.where(n > 1)), 0),
        "both without ends": (both.union(counts.where(n > 1).where(last)), 1),
        "lifetimes": (of_k.select(n=sq.time_weighted_avg("v")).where(last), 0),
        "points at ends": (
            endless.group_by("k").snapshot_window(stamp="point_at_end").select(n=sq.count()).where(last),
            0,
        ),
        "what ends": (s.set_duration(3).group_by("k").snapshot_window().select(n=sq.count()).where(last), 0),
    }


def test_the_last_snapshots_are_computed_by_themselves_if_a_filter_reads_no_others() -> None:
    """If no event ends, or if these are such snapshots of more groups, all of whose rows it reads; explain says so."""
    stream = sq.points(table("at bigint, k bigint, v double, w string", []), "at", name="s")
    for name, (query, lasting) in without_ends(stream).items():
        assert len(read_without_ends(rewrite(query.plan).plan)) == lasting, name
        assert query.explanation("incremental").count("the last snapshot of each group") == lasting, name


def test_a_hint_is_for_the_windows_that_can_take_it() -> None:
    """Explain shows of each what was asked for and what costs least; of the others why they do not take it."""
    s = sq.events([(1, 3, {"k": "a", "v": 1})], name="s").to_points().group_by("k")
    both = (
        s.hopping_window(30, 10).select(x=sq.max("v")),
        s.hopping_window(30, 10).select(x=sq.median("v").cast("bigint")),
    )
    forms = re.findall("batch: (.*)", both[0].union(both[1]).explanation("incremental", form="blocks"))
    assert forms == [
        "blocks (as asked, instead of direct (n = 3: too few windows an event for splitting to pay))",
        "direct (Spark aggregates copies of the members; not blocks, as asked: median does not merge)",
    ]
    assert "batch: direct (as asked; n = 3: " in both[0].explanation("incremental", form="direct")


def test_the_best_of_a_basic_window_are_copied_if_events_lie_in_many_windows_or_few_of_them_are_the_best() -> None:
    s = sq.points(table("at bigint, k bigint, v bigint", []), "at", name="s").group_by("k")

    def form(hops: int, k: int = 3, rows: int | None = None) -> str:
        """The form of ``k`` of so many hops, if in a hop each of 10 groups has so many rows."""
        expected = None if rows is None else sq.Expected(rows=10 * rows, every=10, distinct={"k": 10})
        best = s.hopping_window(10 * hops, 10).top_k(k, by="v")
        (shown,) = re.findall("batch: (.*)", best.explanation("incremental", expected=expected))
        return str(shown)

    assert [form(hops).partition(" ")[0] for hops in (1, 4, 5, 60)] == ["direct", "direct", "explode", "explode"]
    assert form(5) == "explode (n = 5: the best of the events in the same windows are copied into them)"
    assert form(3, rows=300) == (
        "explode (n = 3: the best of the events in the same windows are copied into them; "
        "0.01 of the best an event, so it costs: direct 3, explode 2.03)"
    )
    assert form(60, rows=2).endswith("1 of the best an event, so it costs: direct 60, explode 62)")
    in_sessions = s.session_window(5).top_k(3, by="v").explanation("incremental")
    assert "batch: direct (Spark ranks copies of the members)" in in_sessions
