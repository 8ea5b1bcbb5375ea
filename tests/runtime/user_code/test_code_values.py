"""Events of a part of the rows are those that a call with these rows alone gets."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

from streamq.runtime.user_code.code_values import read_frame, read_series, read_values

AT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
COLUMNS = {
    "integers": pa.array([1, 2, 3, 4, 5]),
    "some NULL": pa.array([1, None, 3, 4, 5], pa.int32()),
    "floats": pa.array([1.0, None, 3.0, 4.0, 5.0], pa.float32()),
    "booleans": pa.array([True, False, True, None, True]),
    "texts": pa.array(["a", None, "c", "d", "e"]),
    "instants": pa.array([AT, None, AT, AT, AT], pa.timestamp("us", "UTC")),
    "local": pa.array([dt.datetime(2024, 1, 1)] * 5, pa.timestamp("us")),
    "days": pa.array([AT.date(), AT.date(), None, None, AT.date()]),
    "decimals": pa.array([Decimal("1.5"), None, Decimal(3), Decimal(4), Decimal(5)], pa.decimal128(5, 2)),
    "lists": pa.array([[1], [2, 3], None, [], [5]]),
    "only NULL": pa.nulls(5, pa.float64()),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_part_of_a_column_is_a_series_of_its_own(name: str) -> None:
    column = COLUMNS[name]
    part = read_series({"v": column})
    for first, end in [(0, 2), (2, 3), (3, 5)]:
        ((values,), (expected,)) = (
            part(first, end),
            read_series({"v": column.slice(first, end - first)})(0, end - first),
        )
        pd.testing.assert_series_equal(values, expected, check_index_type="exact")
        assert list(values.index) == list(range(end - first))


def test_a_module_may_write_to_its_events() -> None:
    part = read_series({"v": pa.array([1.0, 2.0, 3.0])})
    (first,), (rest,) = part(0, 1), part(1, 3)
    first[0] = 9.0
    assert list(rest) == [2.0, 3.0]


def test_other_readers_read_parts_one_by_one() -> None:
    columns = {"v": pa.array([1, 2, 3]), "w": pa.array(["a", "b", "c"])}
    assert read_values(columns)(1, 3) == [(2, "b"), (3, "c")]
    pd.testing.assert_frame_equal(read_frame(columns)(1, 3), pd.DataFrame({"v": [2, 3], "w": ["b", "c"]}))
