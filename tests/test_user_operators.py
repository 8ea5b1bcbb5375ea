"""udo: operators of a user's own, where their rows live, and how they fail."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row as SparkRow

import streamq as sq
from streamq.errors import ModuleFailed, PlanError, TypeMismatch

S = sq.events([(1, 4, {"k": "a", "v": 2}), (3, 8, {"k": "b", "v": 6}), (6, 7, {"k": "a", "v": 1})])
Row = tuple[Any, ...]


def rows(query: sq.Stream) -> list[Row]:
    table = query.to_arrow()
    return sorted(zip(*(table.column(n).to_pylist() for n in ("start", "end", *query.columns)), strict=True), key=str)


@sq.udo("v bigint", time_sensitive=True)
def lifetimes(events: pd.DataFrame, window: Any) -> Iterator[Row]:
    """Each member with the lifetime that the window shows."""
    for event in events.itertuples():
        yield event.start, event.end, event.v


def test_rows_may_be_tuples_dictionaries_values_or_a_frame() -> None:
    tuples = sq.udo("v bigint, twice bigint", name="t")(lambda v: [(int(x), int(2 * x)) for x in v])
    dictionaries = sq.udo("v bigint, twice bigint", name="d")(lambda v: [{"twice": 2 * x, "v": x} for x in v])
    frame = sq.udo("v bigint, twice bigint", name="f")(lambda v: pd.DataFrame({"v": v, "twice": 2 * v}))
    plain = sq.udo("v bigint", name="p")(list)
    expected = [(0, 5, 2, 4), (0, 5, 6, 12), (5, 10, 1, 2), (5, 10, 6, 12)]
    for operator in (tuples, dictionaries, frame):
        assert rows(S.tumbling_window(5).select(operator("v"))) == expected
    assert rows(S.tumbling_window(5).select(plain("v"))) == [row[:3] for row in expected]


def test_named_tuples_go_by_their_names() -> None:
    swapped = sq.udo("v bigint, twice bigint", name="swapped")(
        lambda v: pd.DataFrame({"twice": 2 * v, "v": v}).itertuples(index=False)
    )
    expected = [(0, 5, 2, 4), (0, 5, 6, 12), (5, 10, 1, 2), (5, 10, 6, 12)]
    assert rows(S.tumbling_window(5).select(swapped("v"))) == expected
    spark = sq.udo("v bigint, twice bigint", name="rows")(lambda v: [SparkRow(twice=2 * x, v=x) for x in v.tolist()])
    assert rows(S.tumbling_window(5).select(spark("v"))) == expected
    timed = sq.udo("v bigint", name="timed", time_sensitive=True)(
        lambda events, window: events[["v", "end", "start"]].itertuples(index=False)
    )
    assert rows(S.tumbling_window(20).select(timed("v"))) == [(1, 4, 2), (3, 8, 6), (6, 7, 1)]
    assert "a row has Index, v, start, end instead of start, end, v (write itertuples(index=False))" in failure(
        lambda events, window: events.itertuples()
    )


def test_no_row_is_a_result_too() -> None:
    large = sq.udo("v bigint", name="large")(lambda v: list(v[v > 5]) if len(v) < 2 else None)
    assert rows(S.tumbling_window(5).select(large("v"))) == []
    assert rows(S.group_by("k").tumbling_window(5).select(large("v"))) == [(0, 5, "b", 6), (5, 10, "b", 6)]


@pytest.mark.parametrize(
    ("stamp", "clip", "expected"),
    [
        (None, "full", [(1, 4, 2), (3, 5, 6), (5, 8, 6), (6, 7, 1)]),
        ("unchanged", "left", [(1, 4, 2), (3, 8, 6), (5, 8, 6), (6, 7, 1)]),
        ("clip", "none", [(1, 4, 2), (3, 5, 6), (5, 8, 6), (6, 7, 1)]),
        ("align", "none", [(0, 5, 2), (0, 5, 6), (5, 10, 1), (5, 10, 6)]),
        ("point_at_end", "full", [(10, 11, 1), (10, 11, 6), (5, 6, 2), (5, 6, 6)]),
    ],
)
def test_where_rows_live(stamp: str | None, clip: str, expected: list[Row]) -> None:
    window = S.tumbling_window(5, clip_input=clip, stamp=stamp)
    assert rows(window.select(lifetimes("v"))) == expected


def test_a_row_without_a_lifetime_lives_on_its_window() -> None:
    some = sq.udo("v bigint", name="some", time_sensitive=True)(
        lambda events, window: [(window.start, None, 1), {"v": 2}, 3, (window.start, window.end, 4)]
    )
    assert rows(S.tumbling_window(20).select(some("v"))) == [(0, 20, 2), (0, 20, 3), (0, 20, 4), (0, None, 1)]


def test_instants_of_a_timestamp_axis_come_back_as_they_went() -> None:
    noon = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    s = sq.points(pa.table({"at": [noon, noon + dt.timedelta(minutes=5)], "v": [1, 2]}), time="at")
    later = sq.udo("v bigint", name="later", time_sensitive=True)(
        lambda events, window: [(e.start + pd.Timedelta(minutes=1), window.end, e.v) for e in events.itertuples()]
    )
    hour, minute = dt.timedelta(hours=1), dt.timedelta(minutes=1)
    assert rows(s.tumbling_window("1 hour").select(later("v"))) == [
        (noon + minute, noon + hour, 1),
        (noon + 6 * minute, noon + hour, 2),
    ]


def test_a_class_makes_rows_of_its_state() -> None:
    @sq.udo("k string, n int")
    class Counts:
        def initial(self) -> dict[str, int]:
            return {}

        def add(self, state: dict[str, int], k: pd.Series) -> dict[str, int]:
            return {name: state.get(name, 0) + int((k == name).sum()) for name in {*state, *k}}

        def remove(self, state: dict[str, int], k: pd.Series) -> dict[str, int]:
            return {name: left for name, n in state.items() if (left := n - int((k == name).sum()))}

        def result(self, state: dict[str, int]) -> Any:
            return sorted(state.items())

    query = S.hopping_window(4, 2).select(Counts("k"))
    assert rows(query) == [
        (-2, 2, "a", 1), (0, 4, "a", 1), (0, 4, "b", 1), (2, 6, "a", 1), (2, 6, "b", 1), (4, 8, "a", 1), (4, 8, "b", 1),
        (6, 10, "a", 1), (6, 10, "b", 1),
    ]  # fmt: skip


def failure(code: Any, returns: str = "v bigint", stamp: str | None = None, clip: str = "full", **options: Any) -> str:
    operator = sq.udo(returns, name="own", time_sensitive=True, **options)(code)
    with pytest.raises(ModuleFailed) as raised:
        S.tumbling_window(5, stamp=stamp, clip_input=clip).select(operator("v")).to_arrow()
    return str(raised.value)


def test_what_is_no_row_of_it_fails() -> None:
    assert "own: it failed; a row of 2 values, (1, 2), instead of start, end, v; window [0, 5)" in failure(
        lambda events, window: [(1, 2)]
    )
    assert "a row has w instead of start, end, v" in failure(lambda events, window: [{"w": 1}])
    assert "'x' is no bigint" in failure(lambda events, window: [(1, 2, "x")])
    assert "'soon' is no instant" in failure(lambda events, window: [("soon", 2, 1)])
    assert "7 is no collection of rows (return a list of rows)" in failure(lambda events, window: 7)
    for one in (lambda events, window: (1, 2, 3), lambda events, window: next(events.itertuples())):
        assert "is one row (return a list of rows); window" in failure(one)
    assert "2 rows for a window, declared one_output_per_group" in failure(
        lambda events, window: [1, 2], properties=[sq.one_output_per_group]
    )

    def raises(events: pd.DataFrame, window: Any) -> Iterator[Row]:
        yield 1, 2, 3
        raise KeyError("a generator's")

    assert 'KeyError: "a generator\'s"; window [0, 5)' in failure(raises)


def test_what_would_end_the_program_fails_like_any_error() -> None:
    def leaves(events: pd.DataFrame, window: Any) -> Iterator[Row]:
        yield 1, 2, 3
        sys.exit("enough")

    assert "own: it failed; SystemExit: enough; window [0, 5)" in failure(leaves)


def test_a_lifetime_that_the_stamp_does_not_allow_fails() -> None:
    before = failure(lambda events, window: [(window.start - 1, window.end, 1)])
    assert "a row that starts at -1, before its window, under stamp='unchanged': (-1, 5, 1); window [0, 5)" in before
    assert "a row with no lifetime, under stamp='unchanged': (3, 3, 1); window" in failure(
        lambda events, window: [(3, 3, 1)]
    )
    outside = failure(lambda events, window: [(window.end, window.end + 1, 1)], stamp="clip")
    assert "a row with no lifetime in its window, under stamp='clip'" in outside


def test_where_it_cannot_stand_is_said_at_the_line() -> None:
    plain = sq.udo("v bigint", name="plain")(list)
    window = S.tumbling_window(5)
    with pytest.raises(
        PlanError, match=r"select: plain makes rows of its own; found n beside it. Write .select\(plain\(v\)\)"
    ):
        window.select(plain("v"), n=sq.count())
    with pytest.raises(
        PlanError, match=r"found x=plain\(v\). Its rows have the columns v: write .select\(plain\(v\)\)"
    ):
        window.select(x=plain("v"))
    with pytest.raises(PlanError, match=r"found plain\(v\) beside it. .* other aggregates or operators in a select"):
        window.select(plain("v"), plain("v"))
    inside: tuple[Any, ...] = (plain("v") + 1, lambda e: plain(e.v))
    for call in (lambda: window.select(plain("v").alias("x")), *(lambda v=v: window.select(x=v) for v in inside)):
        with pytest.raises(PlanError, match="select: plain makes rows of its own; found x=plain"):
            call()
    with pytest.raises(
        PlanError, match=r"select: plain is of a window's events; there is no window. Make a window first"
    ):
        S.select(plain("v"))
    for stamp in ("unchanged", "clip", "time_bound"):
        with pytest.raises(PlanError, match=f"plain: stamp '{stamp}' is for operators .*; it is not time-sensitive"):
            S.tumbling_window(5, stamp=stamp).select(plain("v"))
    with pytest.raises(PlanError, match="lifetimes: stamp 'time_bound' is a promise of the operator; it makes none"):
        S.tumbling_window(5, stamp="time_bound").select(lifetimes("v"))
    with pytest.raises(PlanError, match="plain: an aggregate of an aggregate"):
        window.select(plain(sq.sum("v")))
    with pytest.raises(PlanError, match="a payload column called 'end'"):
        sq.udo("end bigint")(list)
    with pytest.raises(TypeMismatch, match="udo: not the columns of rows; found 'bigint'"):
        sq.udo("bigint")(list)
