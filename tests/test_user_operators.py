"""udo: operators of a user's own, by every form of rows and where these live; the oracle judges each answer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import Row as SparkRow

import streamq as sq
from tests.judged import answer

S = sq.events([(1, 4, {"k": "a", "v": 2}), (3, 8, {"k": "b", "v": 6}), (6, 7, {"k": "a", "v": 1})])
Row = tuple[Any, ...]


def rows(query: sq.Stream) -> list[Row]:
    return sorted(answer(query), key=str)


def frame(v: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({"twice": 2 * v, "v": v})


TWICE = {
    "tuples": lambda v: [(int(x), int(2 * x)) for x in v],
    "dictionaries": lambda v: ({"twice": 2 * x, "v": x} for x in v),
    "a frame": frame,
    "named tuples": lambda v: frame(v).itertuples(index=False),
    "Spark's rows": lambda v: [SparkRow(twice=2 * x, v=x) for x in v.tolist()],
}


@pytest.mark.parametrize("form", TWICE)
def test_rows_go_by_place_or_by_name(form: str) -> None:
    operator = sq.udo("v bigint, twice bigint", name="twice")(TWICE[form])
    expected = [(0, 5, 2, 4), (0, 5, 6, 12), (5, 10, 1, 2), (5, 10, 6, 12)]
    assert rows(S.tumbling_window(5).select(operator("v"))) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (lambda v: [1.0, float("nan"), np.float64(3)], [(0, 20, 1.0), (0, 20, 3.0), (0, 20, None)]),
        (lambda v: None, []),
        (lambda v: list(v[v > 9].astype(float)), []),
    ],
)
def test_rows_of_one_column_are_values_and_there_may_be_none(code: Any, expected: list[Row]) -> None:
    assert rows(S.tumbling_window(20).select(sq.udo("x double", name="own")(code)("v"))) == expected


@sq.udo("v bigint", time_sensitive=True)
def lifetimes(events: pd.DataFrame, window: Any) -> Iterator[Row]:
    """Each member with the lifetime that the window shows."""
    for event in events.itertuples():
        yield event.start, event.end, event.v


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


def timed(rows: Any) -> sq.Stream:
    return S.tumbling_window(20).select(sq.udo("v bigint", name="timed", time_sensitive=True)(rows)("v"))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # a row without a lifetime lives on its window
        (
            lambda events, window: [(window.start, None, 1), {"v": 2}, 3, (window.start, window.end, 4)],
            [(0, 20, 2), (0, 20, 3), (0, 20, 4), (0, None, 1)],
        ),
        (
            lambda events, window: events[["v", "end", "start"]].itertuples(index=False),
            [(1, 4, 2), (3, 8, 6), (6, 7, 1)],
        ),
        (
            lambda events, window: [(np.int32(1), 4.0, 1), (2, None, 2), (3, float("nan"), 3), (4, pd.NaT, 4)],
            [(1, 4, 1), (2, None, 2), (3, None, 3), (4, None, 4)],
        ),
    ],
)
def test_lifetimes_of_rows(code: Any, expected: list[Row]) -> None:
    assert rows(timed(code)) == expected


@pytest.mark.parametrize(
    "shown",
    [
        lambda at: at,
        lambda at: at.tz_localize(None),
        lambda at: at.to_pydatetime(),
        lambda at: np.datetime64(at.tz_localize(None)),
    ],
)
def test_instants_of_rows_are_timestamps_with_a_time_zone_or_without(shown: Any) -> None:
    @sq.udo("i bigint", time_sensitive=True, name="late_half")
    def late_half(events: pd.DataFrame, window: Any) -> Any:
        return [(shown(window.start + window.duration / 2), shown(window.end), 0), (shown(window.start), pd.NaT, 1)]

    at = [dt.datetime(1970, 1, 1, 0, 0, second, tzinfo=dt.UTC) for second in (0, 1, 2)]
    s = sq.events([(at[0], at[1], {"v": 2})])
    assert answer(s.tumbling_window("2 seconds").select(late_half("v"))) == [(at[0], None, 1), (at[1], at[2], 0)]
