"""Casts by Spark's ANSI rules on Arrow arrays: a value that does not fit is an error, never NULL.

Left to Spark: double and float to string or decimal, because the digits depend on its Java; string to float; string to
timestamp.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.plan.spark_types import FLOATING, INTEGRAL
from streamq.runtime.arrow.arrow_types import (
    BITS,
    CAST_OVERFLOW,
    INVALID,
    OUT_OF_RANGE,
    Outcome,
    RowError,
    arrow_type,
    fault_list,
    from_numpy,
    is_null,
    rowwise,
    to_numpy,
)

SECOND, DAY = 1_000_000, 86_400_000_000
_QUOTIENT = Context(prec=200)
"""Enough digits to round a quotient of two 38-digit numbers correctly."""
_WIDE = Context(prec=100)
_BLANK = "".join(map(chr, range(33))) + "\x7f"
_REAL = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)", re.ASCII)
_HEX = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?", re.ASCII)
_SPECIAL = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), float("inf")),
    **dict.fromkeys(("-inf", "-infinity"), float("-inf")),
    "nan": float("nan"),
}
# any script's digits, as Java's BigDecimal
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?")
_DATE = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")

Numbers = (*INTEGRAL, *FLOATING)


def cast(array: pa.Array, kind: DataType, to: DataType) -> Outcome:
    """Return the values in another type, and faults for those that do not fit; ``can_cast(kind, to)`` must hold."""
    if kind == to:
        return array, []
    if isinstance(kind, t.NullType):
        return pa.nulls(len(array), arrow_type(to)), []
    convert = _cast_function(kind, to)
    assert convert is not None, (kind, to)
    return convert(array, kind, to)


def can_cast(kind: DataType, to: DataType) -> bool:
    """Return True if a cast here gives Spark's answer."""
    return kind == to or isinstance(kind, t.NullType) or _cast_function(kind, to) is not None


def _cast_function(kind: DataType, to: DataType) -> Callable[[pa.Array, DataType, DataType], Outcome] | None:
    """Return the function that casts one type to another; None if Spark is needed."""
    plain = t.StringType()
    match kind, to:
        case (t.BooleanType(), _) if isinstance(to, Numbers):
            return lambda a, _, to: (a.cast(pa.int8()).cast(arrow_type(to)), [])
        case (_, t.BooleanType()) if isinstance(kind, Numbers):
            return lambda a, _, to: (from_numpy(to_numpy(a) != 0, is_null(a), to), [])
        case (_, _) if isinstance(kind, INTEGRAL) and isinstance(to, INTEGRAL):
            return _narrow
        case (_, _) if isinstance(kind, Numbers) and isinstance(to, FLOATING):
            return lambda a, _, to: (a.cast(arrow_type(to), safe=False), [])
        case (_, _) if isinstance(kind, FLOATING) and isinstance(to, INTEGRAL):
            return _truncate
        case (_, t.StringType()) if isinstance(kind, INTEGRAL) and to == plain:
            return lambda a, _, to: (a.cast(pa.string()), [])
        case (t.BooleanType(), t.StringType()) if to == plain:
            return lambda a, _, to: (a.cast(pa.string()), [])
        case (t.StringType(), _) if kind == plain:
            return _from_string(to)
        case (t.DecimalType(), _):
            return _from_decimal(to)
        case (_, t.DecimalType()) if isinstance(kind, (*INTEGRAL, t.BooleanType)):
            return lambda a, _, to: rowwise(lambda x: rescaled(Decimal(x), to), to, _text(OUT_OF_RANGE, to), a)
        case (t.DateType(), t.TimestampType()) | (t.DateType(), t.TimestampNTZType()):
            return lambda a, _, to: (from_numpy(to_numpy(a).astype(np.int64) * DAY, is_null(a), to), [])
        case (t.TimestampType(), t.DateType()) | (t.TimestampNTZType(), t.DateType()):
            return lambda a, _, to: (from_numpy((to_numpy(a) // DAY).astype(np.int32), is_null(a), to), [])
        case (t.TimestampType(), t.TimestampNTZType()) | (t.TimestampNTZType(), t.TimestampType()):
            return lambda a, _, to: (a.view(pa.int64()).view(arrow_type(to)), [])
        case (t.DateType(), t.StringType()) if to == plain:
            return lambda a, _, to: rowwise(_show_date, to, "", a.view(pa.int32()))
        case (t.TimestampType(), t.StringType()) | (t.TimestampNTZType(), t.StringType()) if to == plain:
            return lambda a, _, to: rowwise(_show_timestamp, to, "", a.view(pa.int64()))
        case (t.TimestampType(), _) if isinstance(to, INTEGRAL):
            return lambda a, _, to: _narrow(
                from_numpy(to_numpy(a) // SECOND, is_null(a), t.LongType()), t.LongType(), to
            )
        case (t.TimestampType(), t.DoubleType()):
            return lambda a, _, to: (from_numpy(to_numpy(a) / float(SECOND), is_null(a), to), [])
        case (_, t.TimestampType()) if isinstance(kind, INTEGRAL):
            return _seconds
        case (t.DoubleType(), t.TimestampType()):
            return _fraction
    return None


LAST_RULES = 66 * 365 * DAY
"""About 2036: Arrow knows no change of clocks beyond 2037."""

REPEATING = 130 * 365 * DAY
"""About 2100, from when on clocks change by rules, and no longer by decrees that were announced."""

CYCLE = 146_097 * DAY
"""The 400 years after which days of the week and of the month repeat."""


def local_ticks(ticks: pa.Array, zone: str) -> pa.Array:
    """Return the instants of local times of a time zone, both in microseconds, the latter as if they were in UTC.

    A time that clocks show twice is the first one, and of one that they leave out the clocks have not been changed yet, as in
    Java and in Python: both are read by the offset before the change.
    """
    local = ticks.cast(pa.timestamp("us"))
    instant = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    # of a time that is left out it is the last instant before, so that only its offset counts
    offset = to_numpy(pc.local_timestamp(instant)) - to_numpy(instant)
    values, there = to_numpy(ticks), ZoneInfo(zone)
    for row in np.flatnonzero(values > LAST_RULES):
        since = int(values[row])
        if since > REPEATING + CYCLE:
            since = (since - REPEATING) % CYCLE + REPEATING
        clock = (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=since)).replace(tzinfo=there)
        offset[row] = (clock.utcoffset() or dt.timedelta()) // dt.timedelta(microseconds=1)
    return pa.array(values - offset, mask=is_null(ticks))


def _text(text: str, to: DataType) -> str:
    """Return the message of a fault, a template, with the type that a value was cast to."""
    return text.format(to=to.simpleString())


def _narrow(array: pa.Array, kind: DataType, to: DataType) -> Outcome:
    """Cast an integral type to another; values beyond its range are faults and NULL."""
    values, empty, limit = to_numpy(array), is_null(array), 1 << BITS[type(to)] - 1
    if BITS[type(kind)] <= BITS[type(to)]:
        return array.cast(arrow_type(to)), []
    bad = ((values < -limit) | (values > limit - 1)) & ~empty
    return array.cast(arrow_type(to), safe=False) if not bad.any() else from_numpy(
        np.where(bad, 0, values).astype(f"i{BITS[type(to)] // 8}"), empty | bad, to
    ), fault_list(bad, _text(CAST_OVERFLOW, to))


def saturated(values: Any, bits: int) -> Any:
    """Convert doubles to integers of so many bits as Java does: truncated, NaN to 0, values beyond the range to its limit."""
    limit = 2.0 ** (bits - 1)
    with np.errstate(invalid="ignore"):
        inside = np.where(np.abs(values) < limit, values, 0.0).astype(np.int64)
    return np.where(values >= limit, (1 << bits - 1) - 1, np.where(values <= -limit, -(1 << bits - 1), inside))


def _truncate(array: pa.Array, kind: DataType, to: DataType) -> Outcome:
    """Cast floats to an integral type as Spark does, truncated; NaN and values beyond its range are faults and NULL."""
    values, empty, bits = to_numpy(array).astype(np.float64), is_null(array), BITS[type(to)]
    # As Spark compares: the greatest bigint as a double is 2**63, so 2**63 itself passes and becomes that bigint.
    low, high = float(-(1 << bits - 1)), float((1 << bits - 1) - 1)
    good = (np.floor(values) <= high) & (np.ceil(values) >= low)
    bad = ~good & ~empty
    return from_numpy(
        saturated(np.where(good, values, 0.0), bits).astype(f"i{bits // 8}"), empty | bad, to
    ), fault_list(bad, _text(CAST_OVERFLOW, to))


def _seconds(array: pa.Array, kind: DataType, to: DataType) -> Outcome:
    """Cast integers, which count seconds, to timestamps; those beyond the range become its limits, without a fault."""
    seconds, limit = to_numpy(array).astype(np.int64), (2**63 - 1) // SECOND
    ticks = np.clip(seconds, -limit, limit) * SECOND
    ticks = np.where(seconds > limit, 2**63 - 1, np.where(seconds < -limit, -(2**63), ticks))
    return from_numpy(ticks, is_null(array), to), []


def _fraction(array: pa.Array, kind: DataType, to: DataType) -> Outcome:
    """Cast doubles, which count seconds, to timestamps, truncated to ticks.

    Infinity, NaN and values beyond the range are faults and NULL.
    """
    values, empty = to_numpy(array), is_null(array)
    broken = ~np.isfinite(values) & ~empty
    with np.errstate(all="ignore"):
        product = np.where(broken, 0.0, values) * float(SECOND)
    ticks, faults = _truncate(from_numpy(product, empty, t.DoubleType()), kind, t.LongType())
    return from_numpy(to_numpy(ticks), is_null(ticks) | broken, to), [*fault_list(broken, _text(INVALID, to)), *faults]


def rescaled(value: Decimal, to: DataType) -> Decimal:
    """Return the value with the digits of a decimal type, rounded half up; RowError if it does not fit."""
    assert isinstance(to, t.DecimalType)
    if value and value.adjusted() > 80:
        raise RowError
    if not value or value.adjusted() < -80:
        return Decimal(0).scaleb(-to.scale)
    rounded = value.quantize(Decimal(1).scaleb(-to.scale), ROUND_HALF_UP, _WIDE)
    if rounded and rounded.adjusted() + 1 + to.scale > to.precision:
        raise RowError
    return rounded


def quotient(left: Decimal, right: Decimal, to: DataType) -> Decimal:
    """Return the quotient as Spark computes it: half up to 39 fractional digits, then to a decimal type, or RowError."""
    return rescaled(_QUOTIENT.divide(left, right).quantize(Decimal(1).scaleb(-39), ROUND_HALF_UP, _QUOTIENT), to)


def _from_decimal(to: DataType) -> Callable[[pa.Array, DataType, DataType], Outcome] | None:
    """Return the function that casts decimals to a type; None if Spark is needed."""

    def integral(value: Decimal) -> int:
        """Return the value without its fraction; RowError if it is beyond the type's range."""
        whole = int(value.to_integral_value(ROUND_DOWN))
        limit = 1 << BITS[type(to)] - 1
        if not -limit <= whole < limit:
            raise RowError
        return whole

    if isinstance(to, INTEGRAL):
        return lambda a, _, to: rowwise(integral, to, _text(CAST_OVERFLOW, to), a)
    if isinstance(to, t.DoubleType):
        return lambda a, _, to: rowwise(float, to, "", a)
    if isinstance(to, t.BooleanType):
        return lambda a, _, to: rowwise(bool, to, "", a)
    if isinstance(to, t.DecimalType):
        return lambda a, _, to: rowwise(lambda x: rescaled(x, to), to, _text(OUT_OF_RANGE, to), a)
    if to == t.StringType():
        return lambda a, _, to: rowwise(lambda x: format(x, "f"), to, "", a)
    return None


def _from_string(to: DataType) -> Callable[[pa.Array, DataType, DataType], Outcome] | None:
    """Return the function that casts strings to a type; None if Spark is needed."""

    def integral(text: str) -> int:
        """Return the integer of a text, blanks around it left out; RowError if it is none, or beyond the type's range."""
        stripped = text.strip(_BLANK)
        limit = 1 << BITS[type(to)] - 1
        if not re.fullmatch("[+-]?[0-9]+", stripped) or not -limit <= int(stripped) < limit:
            raise RowError
        return int(stripped)

    def boolean(text: str) -> bool:
        """Return True or False for one of Spark's words, in any case, blanks around it left out; RowError for another text."""
        stripped = text.strip(_BLANK).lower()
        if stripped not in _TRUE and stripped not in _FALSE:
            raise RowError
        return stripped in _TRUE

    def decimal(text: str) -> Decimal:
        """Return the decimal of a text with the type's digits, rounded half up; RowError if it is none or does not fit."""
        stripped = text.strip(_BLANK[:33])
        match = _DECIMAL.fullmatch(stripped)
        if not match or abs(int(match.group(1) or 0)) >= 2**31:
            raise RowError
        return rescaled(Decimal(stripped), to)

    if isinstance(to, INTEGRAL):
        return lambda a, _, to: rowwise(integral, to, _text(INVALID, to), a)
    if isinstance(to, t.DoubleType):
        return lambda a, _, to: rowwise(_real, to, _text(INVALID, to), a)
    if isinstance(to, t.BooleanType):
        return lambda a, _, to: rowwise(boolean, to, _text(INVALID, to), a)
    if isinstance(to, t.DecimalType):
        return lambda a, _, to: rowwise(decimal, to, _text(INVALID, to), a)
    if isinstance(to, t.DateType):
        return _dates
    if isinstance(to, t.BinaryType):
        return lambda a, _, to: (a.cast(pa.binary()), [])
    return None


def _dates(array: pa.Array, kind: DataType, to: DataType) -> Outcome:
    days, faults = rowwise(_days, t.IntegerType(), _text(INVALID, to), array)
    return days.view(pa.date32()), faults


def _real(text: str) -> float:
    """Return the float of a text as Java parses it, or as Spark spells infinity and NaN; RowError if it is none."""
    stripped = text.strip(_BLANK[:33])
    if match := _HEX.fullmatch(stripped):
        try:
            return float.fromhex(match.group(1))
        except OverflowError:
            return float("-inf" if stripped.startswith("-") else "inf")
    if _REAL.fullmatch(stripped):
        return float(stripped.rstrip("fFdD")) if stripped[-1] in "fFdD" else float(stripped)
    if stripped.lower() in _SPECIAL:
        return _SPECIAL[stripped.lower()]
    raise RowError


def _days(text: str) -> int:
    """Return the days since 1970 of a date as Spark parses it; RowError if it is none.

    A missing month or day is the first; text behind a day and a blank or ``T`` is ignored.
    """
    match = _DATE.fullmatch(text.strip(_BLANK))
    if not match:
        raise RowError
    year, month, day = int(match.group(1) + match.group(2)), int(match.group(3) or 1), int(match.group(4) or 1)
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        raise RowError
    first = days_of(year, month, 1)
    following = days_of(year + month // 12, month % 12 + 1, 1)
    if first + day > following or not -(2**31) <= first + day - 1 < 2**31:
        raise RowError
    return first + day - 1


def days_of(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a date of the proleptic Gregorian calendar, of any year."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def _show_date(days: int) -> str:
    """Return a date as Spark shows it, ``2020-01-31``, from its days since 1970; years beyond 0 to 9999 have a sign."""
    date = np.datetime64(days, "D")
    year = int(date.astype("datetime64[Y]").astype(int)) + 1970
    month = int(date.astype("datetime64[M]").astype(int)) % 12 + 1
    day = days - days_of(year, month, 1) + 1
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{shown}-{month:02d}-{day:02d}"


def _show_timestamp(ticks: int) -> str:
    """Return an instant in UTC as Spark shows it, from its ticks; a fraction of a second without the zeros at its end."""
    days, rest = divmod(ticks, DAY)
    seconds, micros = divmod(rest, SECOND)
    shown = f"{_show_date(days)} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{shown}.{micros:06d}".rstrip("0") if micros else shown
