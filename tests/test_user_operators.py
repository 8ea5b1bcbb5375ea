"""udo: operators of a user's own, where their rows live, and how they fail."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import Row as SparkRow

import streamq as sq

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


def test_instants_of_an_axis() -> None:
    """Of every type that stands for one, and an end that is infinite."""

    @sq.udo("x int", time_sensitive=True)
    def own(events: Any, window: Any) -> Any:
        yield from [(np.int32(1), 4.0, 1), (2, None, 2), (3, float("nan"), 3), (4, pd.NaT, 4)]

    rows = S.tumbling_window(20).select(own("v")).to_arrow().to_pylist()
    assert sorted((r["start"], r["end"]) for r in rows) == [(1, 4), (2, None), (3, None), (4, None)]

    noon = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    late = noon + dt.timedelta(hours=1)

    @sq.udo("x int", time_sensitive=True)
    def moments(events: Any, window: Any) -> Any:
        yield from [(window.start, late, 1), (np.datetime64("2024-05-01T12:00"), late.replace(tzinfo=None), 2)]

    answer = sq.events([(noon, late, {"v": 1})]).tumbling_window("1 hour").select(moments("v")).to_arrow()
    assert {(r["start"], r["end"]) for r in answer.to_pylist()} == {(noon, late)}
