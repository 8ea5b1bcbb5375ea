"""Values for people: what Python has as Python's, what it does not have as text."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from streamq.runtime.rendering import python_rows, python_values

LEAST, MOST = -(2**63), 2**63 - 1
UTC = pa.timestamp("us", tz="UTC")
LAST, FIRST = 253_402_300_799_999_999, -62_135_596_800_000_000
"""The last and the first microsecond that Python has."""


@pytest.mark.parametrize(
    ("kind", "ticks", "shown"),
    [
        (UTC, LAST, dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC)),
        (UTC, LAST + 1, "+10000-01-01 00:00:00+00:00"),
        (UTC, FIRST, dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
        (UTC, FIRST - 1, "0000-12-31 23:59:59.999999+00:00"),
        (UTC, MOST, "+294247-01-10 04:00:54.775807+00:00"),
        (UTC, LEAST, "-290308-12-21 19:59:05.224192+00:00"),
        (pa.timestamp("us"), LAST + 1, "+10000-01-01 00:00:00"),
        (pa.date32(), 2_932_896, dt.date(9999, 12, 31)),
        (pa.date32(), 2_932_897, "+10000-01-01"),
        (pa.date32(), -719_162, dt.date(1, 1, 1)),
        (pa.date32(), -719_163, "0000-12-31"),
    ],
    ids=str,
)
def test_instants_and_days_that_python_does_not_have_are_text(kind: pa.DataType, ticks: int, shown: object) -> None:
    assert python_values(pa.array([None, ticks], kind)) == [None, shown]


def test_at_any_depth() -> None:
    kind = pa.struct([("l", pa.list_(UTC)), ("m", pa.map_(pa.date32(), UTC))])
    far, near = "+10000-01-01 00:00:00+00:00", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    rows = [{"l": [0]}, {"l": [LAST + 1, None, 0], "m": [(0, LAST + 1)]}, None, {"l": []}]
    table = pa.table({"x": pa.array(rows, kind), "n": [1, 2, 3, 4]})
    assert python_rows(table.slice(1)) == [
        {"x": {"l": [far, None, near], "m": [(dt.date(1970, 1, 1), far)]}, "n": 2},
        {"x": None, "n": 3},
        {"x": {"l": [], "m": None}, "n": 4},
    ]
    assert python_rows(table.slice(4)) == []


@pytest.mark.parametrize("ticks", [[0, None], [LAST + 1, LEAST]])
def test_a_dictionary_of_instants(ticks: list[int | None]) -> None:
    array = pa.array(ticks, UTC)
    assert python_values(array.dictionary_encode()) == python_values(array)
    assert python_values(pa.array([["a"], None])) == [["a"], None]
