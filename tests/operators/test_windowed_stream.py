"""The windows other than hopping, what is reported of open lifetimes, and how members are clipped and results stamped."""

from __future__ import annotations

import datetime as dt

import streamq as sq
from tests.judged import answer, counts, members, spans

# sliding


def test_sliding_extends_lifetimes_and_sets_those_of_points() -> None:
    assert counts(spans((1, 3), (4, 5)).sliding_window(3)) == [(1, 4, 1), (4, 6, 2), (6, 8, 1)]
    assert counts(spans((1, 3), (4, 5)).to_points().sliding_window(3)) == [(1, 4, 1), (4, 7, 1)]
    assert counts(spans((1, 2), (3, 4)).sliding_window(2)) == [(1, 3, 1), (3, 4, 2), (4, 6, 1)], "declared intervals"


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
