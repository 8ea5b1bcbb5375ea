"""The windows other than hopping, what is reported of open lifetimes, and how members are clipped and results stamped."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import streamq as sq
from streamq.errors import PlanError, TimeError, TypeMismatch, UnknownColumn
from streamq.testing.table import table
from tests.judged import answer, counts, members, spans

# sliding


def test_sliding_extends_lifetimes_and_sets_those_of_points() -> None:
    assert counts(spans((1, 3), (4, 5)).sliding_window(3)) == [(1, 4, 1), (4, 6, 2), (6, 8, 1)]
    assert counts(spans((1, 3), (4, 5)).to_points().sliding_window(3)) == [(1, 4, 1), (4, 7, 1)]
    assert counts(spans((1, 2), (3, 4)).sliding_window(2)) == [(1, 3, 1), (3, 4, 2), (4, 6, 1)], "declared intervals"
    with pytest.raises(TimeError, match="sliding_window: the duration must be positive; found 0"):
        spans((1, 2)).sliding_window(0)


# count


def test_count_windows_go_by_distinct_starts() -> None:
    """Ties are members together: more than n events; fewer than n starts make no window."""
    s = spans((1, 9, "p"), (4, 5, "q"), (4, 20, "r"), (9, 10, "s"))
    assert members(s.count_window(1, stamp="align")) == [(1, 2, "p"), (4, 5, "q r"), (9, 10, "s")]
    assert members(s.count_window(2, stamp="align")) == [(1, 5, "p q r"), (4, 10, "q r s")]
    assert members(s.count_window(2)) == [(5, 6, "p q r"), (10, 11, "q r s")]
    assert members(s.count_window(4)) == []


def test_count_windows_by_end_leave_out_what_has_none() -> None:
    s = spans((1, 9, "p"), (4, 5, "q"), (0, 9, "r"), (9, 12, "s"), (2, None, "t"))
    assert members(s.count_window(2, by="end", stamp="align")) == [(5, 10, "r p q"), (9, 13, "r p s")]
    assert members(s.count_window(1, by="end")) == [(6, 7, "q"), (10, 11, "r p"), (13, 14, "s")]
    assert members(spans((1, None)).count_window(1, by="end")) == []


# rows


def test_rows_windows_cut_ties_by_the_order() -> None:
    s = spans((1, 9, "c"), (1, 2, "a"), (1, 5, "b"), (7, 8, "d"))
    assert members(s.rows_window(2, order_by="e", stamp="align")) == [(1, 2, "a b"), (1, 2, "b c"), (1, 8, "c d")]
    assert members(s.rows_window(2, 2, order_by="e")) == [(2, 3, "a b"), (8, 9, "c d")]
    assert members(s.rows_window(1, 3)) == [(2, 3, "a"), (8, 9, "d")]
    assert members(s.rows_window(5)) == []


def test_rows_windows_by_another_column_and_the_rest_of_the_payload() -> None:
    s = sq.events([(1, 2, {"e": e, "v": v}) for e, v in (("a", 2), ("b", 1), ("c", None), ("d", 1))])
    assert sorted(members(s.rows_window(2, 2, order_by="v", stamp="align"))) == [(1, 2, "a d"), (1, 2, "b c")]
    twice = sq.events([(1, 2, {"e": "a"}), (1, 9, {"e": "a"}), (3, 4, {"e": "b"})])
    assert members(twice.rows_window(2)) == [(2, 3, "a a"), (4, 5, "a b")], "equal rows differ in nothing that counts"


# session


def test_the_least_gap_is_two_ticks() -> None:
    assert members(spans((1, 2, "a"), (2, 3, "b"), (4, 5, "c")).session_window(2)) == [(1, 4, "a b"), (4, 6, "c")]
    with pytest.raises(TimeError, match="session_window: gap must be at least two ticks; found 1"):
        spans((1, 2)).session_window(1)


# landmark


def test_a_single_landmark_forgets_nothing_and_sees_nothing_before_itself() -> None:
    s = spans((1, 2, "a"), (5, 6, "b"), (-4, 3, "c"))
    assert members(s.landmark_window(4, start=2, stamp="align")) == [(2, 6, "c b"), (2, 10, "c b")]
    assert members(s.landmark_window(4, start=100)) == []


def test_landmarks_on_a_timestamp_axis_start_at_the_epoch() -> None:
    day = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    s = sq.events([(day + dt.timedelta(hours=1), None, {"e": "a"}), (day, day + dt.timedelta(hours=2), {"e": "b"})])
    windows = members(s.landmark_window("12 hours", period="1 day", stamp="align"))
    assert windows == [(day, day + dt.timedelta(hours=12), "b a")]
    moved = members(s.landmark_window("2 hours", start=day + dt.timedelta(hours=1), stamp="align"))
    assert moved == [(day + dt.timedelta(hours=1), day + dt.timedelta(hours=3), "b a")]


def test_errors() -> None:
    s = spans((1, 4))
    words = "'full', 'left', 'right' or 'none'"
    with pytest.raises(PlanError, match=f"^tumbling_window: clip_input is {words}; found 'both'.$"):
        s.tumbling_window(5, clip_input="both")
    with pytest.raises(PlanError, match="^sliding_window: stamp is 'align', .*; found 'aling'. Did you mean 'align'"):
        s.sliding_window(5, stamp="aling")
    with pytest.raises(
        PlanError, match="stamp 'unchanged' is for operations that give their own lifetimes; .* Say 'align'"
    ):
        s.tumbling_window(5, stamp="unchanged").select(n=sq.count())
    with pytest.raises(PlanError, match="count_window: by is 'start' or 'end'; found 'mid'"):
        s.count_window(2, by="mid")
    for clip in ("left", "full"):
        with pytest.raises(PlanError, match=f"count_window: windows of ends clip right or not at all; found '{clip}'"):
            s.count_window(2, by="end", clip_input=clip)
    for n in (0, 1.5):
        with pytest.raises(PlanError, match=f"count_window: n is a whole number of at least 1; found {n}"):
            s.count_window(n)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="rows_window: step is a whole number of at least 1; found 0"):
        s.rows_window(2, 0)
    with pytest.raises(UnknownColumn, match="rows_window: no column 'z'; there are: e"):
        s.rows_window(2, order_by="z")
    with pytest.raises(TypeMismatch, match="rows_window: cannot order by column 'xs'; found map<string,bigint>"):
        sq.points(table("at bigint, xs map<string,bigint>", [(1, {"a": 1})]), time="at").rows_window(2, order_by="xs")
    with pytest.raises(PlanError, match="landmark_window: no landmark. Say start=..., period=..., or both"):
        s.landmark_window(5)
    for hop, period, name in ((0, 5, "hop"), (5, 0, "period"), (-1, 5, "hop")):
        with pytest.raises(TimeError, match=f"landmark_window: {name} must be positive"):
            s.landmark_window(hop, period=period)
    with pytest.raises(TimeError, match="landmark_window: an instant that does not fit the time axis; .* integer axis"):
        s.landmark_window(5, start=dt.datetime(2024, 1, 1))
    with pytest.raises(PlanError, match="select: a group without a window; .* Write s.group_by"):
        s.group_by("e").select(n=sq.count())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("count", r"select: a text instead of an aggregate; found n='count'. Write n=sq.count\(\).$"),
        ("count(*)", r"found n='count\(\*\)'. Write n=sq.count\(\)."),
        ("avg( e )", r"Write n=sq.avg\('e'\)."),
        ("collect", r"Write n=sq.collect\(...\)."),
        ("e", r"found n='e'. Write n=sq.max\('e'\) or another aggregate of the column, n=sq.lit\('e'\) for the text."),
        ("hourly", r"found n='hourly'. Write n=sq.lit\('hourly'\) for the text."),
        (("e", "mean"), r"a tuple instead of an aggregate; found n=\('e', 'mean'\). Write n=sq.avg\('e'\)."),
        ({"e": "sum"}, "a dict instead of an aggregate"),
        (len, r"a function instead of an aggregate; found n=len. Write n=sq.count\(\)."),
        (set, r"found n=set. Write n=sq.collect\(...\)."),
        (sq.max, r"a function instead of an aggregate; found n=max. Write n=sq.max\(...\)."),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_what_may_be_meant_as_an_aggregate_is_no_constant(given: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        spans((1, 4)).tumbling_window(5).agg(n=given)


def test_aggregates_as_pandas_and_spark_name_them_by_position() -> None:
    windows = spans((1, 4)).tumbling_window(5)
    with pytest.raises(UnknownColumn, match=r"select: no column 'count'; there are: e. Write n=sq.count\(\)."):
        windows.agg("count")
    with pytest.raises(PlanError, match=r"a dictionary .* Write e=sq.sum\('e'\). Write n=sq.count\(\).$"):
        windows.agg({"e": "sum", "*": "count"})


def test_constants_beside_aggregates() -> None:
    windows = spans((1, 4)).tumbling_window(5)
    assert windows.agg(n=sq.count(), hours=1, ok=True, of=sq.lit("hourly")).to_arrow().to_pylist() == [
        {"n": 1, "hours": 1, "ok": True, "of": "hourly", "start": 0, "end": 5}
    ]


# members of windows of rows


def test_members_are_filtered_and_grouped_after_rows_are_counted() -> None:
    """
    rows      a3  b5  a1  a4      n = 2, step = 2
    windows   [1,5): a3 b5   [9,13): a1 a4
    """
    s = sq.events(
        [(at, at + 1, {"k": k, "v": v}) for at, k, v in ((1, "a", 3), (4, "b", 5), (9, "a", 1), (12, "a", 4))]
    )
    windows = s.rows_window(2, 2)
    few = windows.where(sq.col("v") > 1)
    wanted = [(5, 6, "a", 3), (5, 6, "b", 5), (13, 14, "a", 4)]
    for either in (few.group_by("k"), windows.group_by("k").where(lambda e: e.v > 1)):
        assert answer(either.select(s=sq.sum("v"))) == wanted
    assert answer(few.where(sq.lit(None)).select(n=sq.count())) == []
    assert answer(few.where(sq.col("k") == "b").select(n=sq.count())) == [(5, 6, 1)], (
        "windows without members have no row"
    )
    assert answer(windows.group_by(odd=sq.col("v") % 2).select(n=sq.count())) == [
        (5, 6, 1, 2),
        (13, 14, 0, 1),
        (13, 14, 1, 1),
    ]
    assert answer(few.group_by("k").top_k(1, by="v")) == [(5, 6, "a", 3, 1), (5, 6, "b", 5, 1), (13, 14, "a", 4, 1)]
    in_groups = s.group_by("k").rows_window(3).where(sq.col("v") != 3)
    assert answer(in_groups.group_by(odd=sq.col("v") % 2).select(n=sq.count())) == [
        (13, 14, "a", 0, 1),
        (13, 14, "a", 1, 1),
    ]
    applied = s.group_by("k").apply(lambda g: g.rows_window(3).group_by(odd=sq.col("v") % 2).select(n=sq.count()))
    assert answer(applied) == [(13, 14, "a", 0, 1), (13, 14, "a", 1, 2)]


def test_what_members_of_windows_cannot_be_filtered_or_grouped_by() -> None:
    s = sq.events([(1, 2, {"k": "a", "v": 3})])
    with pytest.raises(
        PlanError, match="where: only a rows window filters its members; found hopping windows. Write it before"
    ):
        s.tumbling_window(4).where(sq.col("v") > 1)
    with pytest.raises(PlanError, match="group_by: only a rows window groups its members; found count windows"):
        s.count_window(4).group_by("k")
    with pytest.raises(UnknownColumn, match="no column 'x'"):
        s.rows_window(4).group_by("x")
    with pytest.raises(TypeMismatch):
        s.rows_window(4).where(sq.col("v") + 1)
    with pytest.raises(PlanError, match="a column called 'v'; the stream has one. Give the key another name"):
        s.rows_window(4).group_by(v=sq.col("v") % 2)
    with pytest.raises(PlanError, match="the members are grouped already; by k"):
        s.rows_window(4).group_by("k").group_by("v")
    with pytest.raises(PlanError, match="column 'v' is neither aggregated nor a key"):
        s.rows_window(4).group_by("k").select(x=sq.col("v"))
