"""Integer arithmetic that checks for overflow, as Spark does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.runtime.arrow_types import BITS, OVERFLOW, Outcome, RowError, arrow_type, rowwise


def overflow_message(kind: DataType) -> str:
    """Return Spark's message for a result that does not fit the type."""
    return OVERFLOW.format(to=kind.simpleString())


def overflow_checked(
    strict: Callable[..., pa.Array], exact: Callable[..., Any], kind: DataType, *arrays: pa.Array
) -> Outcome:
    """Return the result of Arrow's function ``strict``; rows that overflow are NULL and faults.

    Only if ``strict`` fails, ``exact``, Python's function of integers, computes row by row to find those rows. For an
    instant or a duration as ``kind`` the arrays and the result hold ticks, as bigint.
    """
    try:
        return strict(*arrays), []
    except pa.ArrowInvalid:
        bits = 64 if pa.types.is_temporal(arrow_type(kind)) else BITS[type(kind)]

    def bounded(*row: int) -> int:
        result = exact(*row)
        if not -(1 << bits - 1) <= result < 1 << bits - 1:
            raise RowError
        return result

    integral = {8: t.ByteType, 16: t.ShortType, 32: t.IntegerType, 64: t.LongType}[bits]()
    return rowwise(bounded, integral, overflow_message(kind), *arrays)
