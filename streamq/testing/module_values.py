"""Values on which modules are checked: a few edge cases of each type, the plainest first, to which failures shrink."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from streamq.errors import PlanError, sentence
from streamq.runtime.arrow.arrow_types import BITS

NAN, INF = float("nan"), float("inf")

PLAIN_FLOATS = (1.0, 0.0, 2.5, -0.25, None, 7.0, NAN, INF, -INF, -0.0, 2.0**60)
"""Floats whose sums, and sums of squares, are exact or differ by rounding only, in any order: no great ones cancel out."""

HUGE_FLOATS = {DoubleType: (1e16, None, NAN, INF, -INF, -1e308, 1e308), FloatType: (1e16, None, NAN, INF, -INF, 3e38)}
"""Floats that a running sum cannot remove again: adding one loses the digits of small values, or all digits."""

TEXTS = ("a", "", "b", None, "aa", "B", "é", "e\u0301", "ß", " a", "日本", "\uffff", "😀")

_DAYS = (dt.date(1970, 1, 1), None, dt.date(2000, 2, 29), dt.date(1969, 12, 31), dt.date(1900, 1, 1))
_TIMES = (0, None, 1, -1, 951_782_400_000_000)


def values_of(kind: DataType, huge: bool = False) -> st.SearchStrategy[Any]:
    """Return the strategy for values of a type, with None for NULL; ``huge``: floats beside which sums lose small values.

    Raises PlanError for a type without values.
    """
    if isinstance(kind, ArrayType):
        return st.none() | st.lists(values_of(kind.elementType, huge), max_size=3)
    return st.sampled_from(_values(kind, huge))


def _values(kind: DataType, huge: bool) -> Sequence[Any]:
    """Return the values of a type that is not an array, the plainest first; ``huge`` as for :func:`values_of`.

    Raises PlanError for a type without values.
    """
    match kind:
        case DoubleType() | FloatType():
            return HUGE_FLOATS[type(kind)] if huge else PLAIN_FLOATS
        case DecimalType(precision=precision, scale=scale):
            units = (100, 0, 1, None, -250, 333, 10 ** min(precision, 9) - 1)
            return [None if n is None else Decimal(n).scaleb(-scale) for n in units if n is None or n < 10**precision]
        case BooleanType():
            return (True, False, None)
        case StringType():
            return TEXTS
        case BinaryType():
            return (b"a", b"", None, b"\x00", b"\xff")
        case DateType():
            return _DAYS
        case TimestampType() | TimestampNTZType():
            zone = dt.UTC if isinstance(kind, TimestampType) else None
            epoch = dt.datetime(1970, 1, 1, tzinfo=zone)
            return [None if n is None else epoch + dt.timedelta(microseconds=n) for n in _TIMES]
    if type(kind) in BITS:
        # sums of a few dozen of the greatest still fit the type, but lose their last digits as floats
        return (1, 0, 2, None, -3, 7, 2 ** (BITS[type(kind)] - 7) + 1)
    raise PlanError(
        sentence("check_module", f"no values of type {kind.simpleString()}", "", "Give a strategy: values=st.text().")
    )
