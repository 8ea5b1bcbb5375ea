"""Functions of dates and times, in UTC."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import (
    DAYS,
    INSTANT,
    STRING,
    WHOLE,
    BuiltIn,
    cast_operand,
    in_arrow,
    overflow_checked,
    types_accepted,
    with_constant,
)
from streamq.plan.function import ArrowForm, Compute, Operand, Value
from streamq.plan.spark_types import INTEGRAL
from streamq.runtime.arrow.arrow_casts import DAY, SECOND
from streamq.runtime.arrow.arrow_types import Outcome, arrow_type, from_numpy, is_null, to_numpy


def _days(operand: Value) -> Any:
    return to_numpy(cast_operand(operand, t.DateType())).astype(np.int64)


def _of_days(function: Callable[[Any], Any]) -> ArrowForm:
    """Return the Arrow form of a function of dates: ``function`` takes and returns numpy integers, days since 1970 at first."""

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        return from_numpy(function(_days(operands[0])).astype(np.int32), is_null(operands[0].array), kind)

    return ArrowForm(types_accepted(DAYS), compute)


def _of_clock(unit: int, size: int) -> ArrowForm:
    """Return the Arrow form of a part of the time of day: ticks in whole ``unit``, modulo ``size``."""

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        ticks = to_numpy(cast_operand(operands[0], t.TimestampType())).astype(np.int64)
        return from_numpy((ticks // unit % size).astype(np.int32), is_null(operands[0].array), kind)

    return ArrowForm(types_accepted(DAYS), compute)


def _months(days: Any) -> Any:
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first(months: Any) -> Any:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _monday(days: Any) -> Any:
    return days - (days + 3) % 7


def _year(days: Any) -> Any:
    return _months(days) // 12 + 1970


def _new_year(days: Any) -> Any:
    return _first(_months(days) // 12 * 12)


def _iso_week(days: Any) -> Any:
    """Return the week of the year by ISO 8601: weeks begin on Monday, and week 1 has the year's first Thursday."""
    thursday = _monday(days) + 3
    return (thursday - _new_year(thursday)) // 7 + 1


_TRUNCATED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), _new_year),
    "QUARTER": lambda days: _first(_months(days) // 3 * 3),
    **dict.fromkeys(("MONTH", "MM", "MON"), lambda days: _first(_months(days))),
    "WEEK": _monday,
}
_UNITS = {
    **dict.fromkeys(("DAY", "DD"), DAY), "HOUR": 3600 * SECOND, "MINUTE": 60 * SECOND, "SECOND": SECOND,
    "MILLISECOND": 1000, "MICROSECOND": 1,
}  # fmt: skip


def _date_trunc(operands: Sequence[Value], kind: DataType) -> pa.Array:
    """Return instants truncated to the unit that the first operand, a constant, names; NULL for an unknown unit."""
    unit = operands[0].constant.upper()
    array = cast_operand(operands[1], kind)
    ticks = to_numpy(array)
    if unit in _TRUNCATED:
        return from_numpy(_TRUNCATED[unit](ticks // DAY) * DAY, is_null(array), kind)
    if unit in _UNITS:
        return from_numpy(ticks // _UNITS[unit] * _UNITS[unit], is_null(array), kind)
    return pa.nulls(len(array), arrow_type(kind))


def _shifted_days(sign: int) -> Compute:
    """Return the Arrow form of adding days to a date (``sign`` 1) or subtracting them (-1)."""

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        days, by = _days(operands[0]), to_numpy(cast_operand(operands[1], t.IntegerType())).astype(np.int64)
        return from_numpy(
            (days + sign * by).astype(np.int32), is_null(operands[0].array) | is_null(operands[1].array), kind
        )

    return compute


def _datediff(operands: Sequence[Value], kind: DataType) -> pa.Array:
    """Return the days from the second date to the first."""
    return from_numpy(
        (_days(operands[0]) - _days(operands[1])).astype(np.int32),
        is_null(operands[0].array) | is_null(operands[1].array),
        kind,
    )


def _unix(unit: int) -> ArrowForm:
    """Return the Arrow form of an instant as a number of ``unit`` ticks since 1970, rounded down."""

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        ticks = to_numpy(cast_operand(operands[0], t.TimestampType()))
        return from_numpy(ticks // unit, is_null(operands[0].array), kind)

    return ArrowForm(types_accepted(INSTANT), compute)


def _instant(unit: int) -> ArrowForm:
    """Return the Arrow form of a number of ``unit`` ticks since 1970 as an instant; beyond 64 bits it is a fault."""

    def compute(operands: Sequence[Value], kind: DataType) -> Outcome:
        array = cast_operand(operands[0], t.LongType())
        ticks, faults = overflow_checked(
            pc.multiply_checked, operator.mul, t.LongType(), array, pa.repeat(pa.scalar(unit), len(array))
        )
        return ticks.view(arrow_type(kind)), faults

    return ArrowForm(types_accepted(INTEGRAL), compute)


def _part(name: str, arrow: ArrowForm) -> BuiltIn:
    return BuiltIn(name, result=t.IntegerType(), arrow=arrow)


def _date_type(operands: Sequence[Operand]) -> DataType | None:
    """Return DATE for a call without a format; None with one, because only Spark knows the formats."""
    return t.DateType() if len(operands) == 1 else None


def _viewed(kind: DataType, to: pa.DataType) -> Compute:
    return lambda operands, _: cast_operand(operands[0], kind).view(to)


YEAR = _part("year", _of_days(_year))
QUARTER = _part("quarter", _of_days(lambda days: _months(days) % 12 // 3 + 1))
MONTH = _part("month", _of_days(lambda days: _months(days) % 12 + 1))
DAYOFMONTH = _part("dayofmonth", _of_days(lambda days: days - _first(_months(days)) + 1))
DAY_OF_DATE = replace(DAYOFMONTH, name="day")
DAYOFYEAR = _part("dayofyear", _of_days(lambda days: days - _new_year(days) + 1))
DAYOFWEEK = _part("dayofweek", _of_days(lambda days: (days + 4) % 7 + 1))
WEEKDAY = _part("weekday", _of_days(lambda days: (days + 3) % 7))
WEEKOFYEAR = _part("weekofyear", _of_days(_iso_week))
HOUR = _part("hour", _of_clock(3600 * SECOND, 24))
MINUTE = _part("minute", _of_clock(60 * SECOND, 60))
SECOND_OF_MINUTE = _part("second", _of_clock(SECOND, 60))
LAST_DAY = BuiltIn("last_day", result=t.DateType(), arrow=_of_days(lambda days: _first(_months(days) + 1) - 1))
DATE_TRUNC = in_arrow(
    "date_trunc",
    t.TimestampType(),
    with_constant(types_accepted(STRING, (t.TimestampType, t.DateType)), 0, str),
    _date_trunc,
)
DATE_ADD = in_arrow("date_add", t.DateType(), types_accepted((t.DateType,), WHOLE), _shifted_days(1))
DATE_SUB = in_arrow("date_sub", t.DateType(), types_accepted((t.DateType,), WHOLE), _shifted_days(-1))
DATEDIFF = in_arrow("datediff", t.IntegerType(), types_accepted(DAYS, DAYS), _datediff)
DATE_DIFF = replace(DATEDIFF, name="date_diff")
TO_DATE = in_arrow("to_date", _date_type, types_accepted(DAYS), lambda o, _: cast_operand(o[0], t.DateType()))
UNIX_DATE = in_arrow("unix_date", t.IntegerType(), types_accepted((t.DateType,)), _viewed(t.DateType(), pa.int32()))
DATE_FROM_UNIX_DATE = in_arrow(
    "date_from_unix_date", t.DateType(), types_accepted(WHOLE), _viewed(t.IntegerType(), pa.date32())
)
UNIX_SECONDS = BuiltIn("unix_seconds", result=t.LongType(), arrow=_unix(SECOND))
UNIX_MILLIS = BuiltIn("unix_millis", result=t.LongType(), arrow=_unix(1000))
UNIX_MICROS = BuiltIn("unix_micros", result=t.LongType(), arrow=_unix(1))
TIMESTAMP_SECONDS = BuiltIn("timestamp_seconds", result=t.TimestampType(), arrow=_instant(SECOND))
TIMESTAMP_MILLIS = BuiltIn("timestamp_millis", result=t.TimestampType(), arrow=_instant(1000))
TIMESTAMP_MICROS = BuiltIn("timestamp_micros", result=t.TimestampType(), arrow=_instant(1))
EXTRACT = BuiltIn("extract")
