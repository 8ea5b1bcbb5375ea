"""Functions and casts that have no form in DuckDB's SQL, defined a value at a time in plain Python, after Spark's documentation.

Nothing here is the product's. Instants are ticks and dates are days since 1970; other values are Python's. A definition is not
called for NULLs. One that fails as Spark does, by ANSI rules, raises Refused.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import partial
from typing import Any

from pyspark.sql import types as t

SECOND, DAY = 10**6, 86_400 * 10**6
ERA = 146_097
"""The days of 400 years, after which the calendar repeats itself."""

INTEGRAL: Mapping[type[t.DataType], int] = {t.ByteType: 8, t.ShortType: 16, t.IntegerType: 32, t.LongType: 64}
"""The integral types, and their bits."""

INSTANTS = (t.TimestampType, t.TimestampNTZType)
DEFINED_KINDS = (
    *INTEGRAL, *INSTANTS, t.BooleanType, t.FloatType, t.DoubleType, t.StringType, t.BinaryType, t.DateType, t.DecimalType,
)  # fmt: skip
"""The types of operands and results that definitions take and give."""


class Refused(Exception):
    """Raised for values that Spark refuses."""


def whole(value: int, bits: int) -> int:
    """Return an integer; raise Refused if it has more than so many bits."""
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise Refused(f"{value} has more than {bits} bits")
    return value


# texts


def _part(text: Any, position: int, length: int = 2**31 - 1) -> Any:
    """Return the characters from a place on, counted from 1, or from the end if it is negative; 0 is the first."""
    begin = position - 1 if position > 0 else 0 if position == 0 else len(text) + position
    places = [i for i in range(len(text)) if begin <= i < begin + length]
    return text[places[0] : places[-1] + 1] if places else text[:0]


def _filling(missing: int, by: str) -> str:
    return "".join(by[i % len(by)] for i in range(missing)) if by else ""


def _trimmed(text: str, of: str = " ", *, front: bool = True, back: bool = True) -> str:
    """Return a text without those of its first and last characters that are among ``of``."""
    while front and text and text[0] in of:
        text = text[1:]
    while back and text and text[-1] in of:
        text = text[:-1]
    return text


# dates


def _date(days: int) -> tuple[int, dt.date]:
    """Return the year of a day, and a date like it within the years of Python: some eras earlier or later."""
    eras, rest = divmod(days, ERA)
    date = dt.date(1970, 1, 1) + dt.timedelta(days=rest)
    return date.year + 400 * eras, date


def _first_of(days: int, months: int) -> int:
    """Return the first day of the span of so many months, counted from January, in which a day is."""
    _, date = _date(days)
    first = date.replace(month=(date.month - 1) // months * months + 1, day=1)
    return days - (date - first).days


def _next_month(days: int) -> int:
    first = _first_of(days, 1)
    return _first_of(first + 31, 1)


def _wrapped(days: int) -> int:
    """Return a number of days as a Java int, which overflows silently."""
    return (days + 2**31) % 2**32 - 2**31


LONGER = {"YEAR": 12, "YYYY": 12, "YY": 12, "QUARTER": 3, "MONTH": 1, "MM": 1, "MON": 1}
SHORTER = {
    "DAY": DAY, "DD": DAY, "HOUR": 3600 * SECOND, "MINUTE": 60 * SECOND, "SECOND": SECOND, "MILLISECOND": 1000,
    "MICROSECOND": 1,
}  # fmt: skip


def _truncated(unit: str, ticks: int) -> int | None:
    """Return the start of the unit in which an instant is; None for a unit that there is not."""
    unit, days = unit.upper(), ticks // DAY
    if unit in LONGER:
        return _first_of(days, LONGER[unit]) * DAY
    if unit == "WEEK":
        return (days - _date(days)[1].weekday()) * DAY
    return ticks - ticks % SHORTER[unit] if unit in SHORTER else None


# numbers


def _to_whole(value: float, rounded: Callable[[Any], int]) -> int:
    """Return a number rounded to a bigint; 0 for NaN."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        raise Refused("infinity is no bigint")
    return whole(rounded(value), 64)


def _round(value: Any, places: int = 0) -> Any:
    """Return a number rounded half away from 0, as its shortest text has it, also to tens and hundreds."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    unit = Fraction(10) ** -places
    exact = Fraction(Decimal(repr(value)))
    rounded = math.floor(abs(exact) / unit + Fraction(1, 2)) * unit * (1 if exact >= 0 else -1)
    return int(rounded) if isinstance(value, int) else float(rounded)


def _half_even(value: float) -> float:
    return math.copysign(float(round(value)), value) if math.isfinite(value) else float(value)


def _sign(value: float) -> float:
    return float(value) if value == 0 or math.isnan(value) else math.copysign(1.0, value)


TEXTS: dict[str, Callable[..., Any]] = {
    "upper": str.upper,
    "lower": str.lower,
    "length": len,
    "char_length": len,
    "octet_length": lambda a: len(a.encode() if isinstance(a, str) else a),
    "btrim": _trimmed,
    "trim": _trimmed,
    "ltrim": lambda a, of=" ": _trimmed(a, of, back=False),
    "rtrim": lambda a, of=" ": _trimmed(a, of, front=False),
    "substring": _part,
    "left": lambda a, n: _part(a, 1, n),
    "right": lambda a, n: _part(a, -min(n, len(a))) if n > 0 and a else a[:0],
    "replace": lambda a, part, by="": by.join(a.split(part)) if part else a,
    "reverse": lambda a: "".join(reversed(a)),
    "repeat": lambda a, n: "".join([a] * n),
    "instr": lambda a, part: 1 + a.find(part),
    "lpad": lambda a, n, by=" ": _filling(n - len(a), by) + _part(a, 1, n),
    "rpad": lambda a, n, by=" ": _part(a, 1, n) + _filling(n - len(a), by),
}

NUMBERS: dict[str, Callable[..., Any]] = {
    "floor": lambda a: _to_whole(a, math.floor),
    "ceil": lambda a: _to_whole(a, math.ceil),
    "round": _round,
    "rint": _half_even,
    "signum": _sign,
}

DATES: dict[str, Callable[..., Any]] = {
    "date_add": lambda days, n: _wrapped(days + n),
    "date_sub": lambda days, n: _wrapped(days - n),
    "datediff": lambda end, start: end - start,
    "dayofyear": lambda days: _date(days)[1].timetuple().tm_yday,
    "last_day": lambda days: _next_month(days) - 1,
    "quarter": lambda days: (_date(days)[1].month + 2) // 3,
    "weekday": lambda days: _date(days)[1].weekday(),
    "weekofyear": lambda days: _date(days)[1].isocalendar()[1],
    "to_date": lambda days: days,
    "unix_date": lambda days: days,
    "date_from_unix_date": lambda days: days,
}
"""Functions of dates; an instant among their operands counts as its day."""

INSTANTS_OF: dict[str, Callable[..., Any]] = {
    "date_trunc": _truncated,
    "unix_seconds": lambda ticks: ticks // SECOND,
    "unix_millis": lambda ticks: ticks // 1000,
    "timestamp_seconds": lambda n: whole(n * SECOND, 64),
    "timestamp_millis": lambda n: whole(n * 1000, 64),
}
"""Functions of instants; a date among their operands counts as its midnight."""

SAME = {
    "ucase": "upper", "lcase": "lower", "character_length": "char_length", "substr": "substring", "ceiling": "ceil",
    "sign": "signum", "date_diff": "datediff",
}  # fmt: skip
"""Other names of functions."""

SCALARS: Mapping[str, Callable[..., Any]] = {**TEXTS, **NUMBERS, **DATES, **INSTANTS_OF}
"""The definitions by the names of functions."""


# casts


def show_date(days: int) -> str:
    """Return a date as Spark shows it; years beyond 9999 have a sign."""
    year, date = _date(days)
    sign = "" if 0 <= year <= 9999 else "-" if year < 0 else "+"
    return f"{sign}{abs(year):04d}-{date:%m-%d}"


def show_instant(ticks: int) -> str:
    """Return an instant in UTC as Spark shows it, without zeros at the end of its fraction."""
    days, rest = divmod(ticks, DAY)
    time = (dt.datetime(2000, 1, 1) + dt.timedelta(microseconds=rest)).time()
    fraction = f"{time.microsecond:06d}"
    while fraction.endswith("0"):
        fraction = fraction[:-1]
    return f"{show_date(days)} {time:%H:%M:%S}" + (f".{fraction}" if fraction else "")


BLANKS = "".join(chr(i) for i in (*range(33), 127))
DATE = re.compile(r"(?P<sign>[+-]?)(?P<year>\d{4,7})(-(?P<month>\d\d?)(-(?P<day>\d\d?)([ T].*)?)?)?", re.A | re.S)


def read_date(text: str) -> int:
    """Return the day of a text: a year, with a month or a month and a day, and whatever comes after a blank or T."""
    match = DATE.fullmatch(text.strip(BLANKS))
    if match is None:
        raise Refused(f"{text!r} is no date")
    year = int(match["sign"] + match["year"])
    eras, place = divmod(year, 400)
    try:
        date = dt.date(2000 + place, int(match["month"] or 1), int(match["day"] or 1))
    except ValueError as error:
        raise Refused(f"{text!r} is no date") from error
    return whole((date - dt.date(1970, 1, 1)).days + (eras - 5) * ERA, 32)


def _to_instant(seconds: float) -> int:
    """Return a number of seconds as an instant, in ticks."""
    if not math.isfinite(seconds * 1e6):
        raise Refused(f"{seconds} is no instant")
    # Spark multiplies in doubles, and the greatest bigint is a double away from 2^63
    ticks = math.trunc(seconds * 1e6)
    return min(ticks, 2**63 - 1) if ticks == 2**63 else whole(ticks, 64)


def _saturated(seconds: int) -> int:
    return min(max(seconds * SECOND, -(2**63)), 2**63 - 1)


def definition_of_cast(kind: t.DataType, to: t.DataType) -> Callable[[Any], Any] | None:
    """Return the definition of a cast; None if there is none."""
    match kind, to:
        case (t.DateType(), t.StringType()):
            return show_date
        case (t.TimestampType() | t.TimestampNTZType(), t.StringType()):
            return show_instant
        case (t.StringType(), t.DateType()):
            return read_date
        case (t.StringType(), t.BinaryType()):
            return str.encode
        case (t.DecimalType(), t.StringType()):
            return lambda value: format(value, "f")
        case (t.TimestampType(), _) if type(to) in INTEGRAL:
            bits = INTEGRAL[type(to)]
            return lambda ticks: whole(ticks // SECOND, bits)
        case (t.TimestampType(), t.DoubleType()):
            return lambda ticks: ticks / 1e6
        case (t.DoubleType(), t.TimestampType()):
            return _to_instant
        case (_, t.TimestampType()) if type(kind) in INTEGRAL:
            return _saturated
        case (t.TimestampType(), t.TimestampNTZType()) | (t.TimestampNTZType(), t.TimestampType()):
            return lambda ticks: ticks
        case (t.TimestampNTZType(), t.DateType()):
            return lambda ticks: ticks // DAY
        case (t.DateType(), t.TimestampNTZType()):
            return lambda days: days * DAY
        case (_, t.DecimalType()) if isinstance(kind, t.BooleanType):
            return lambda value: _rescaled(Decimal(value), to)
    return None


def _rescaled(value: Decimal, to: t.DecimalType) -> Decimal:
    """Return a decimal with the digits of a type; raise Refused if it has too many before the point."""
    rounded = value.quantize(Decimal(1).scaleb(-to.scale), ROUND_HALF_UP, Context(prec=100))
    if abs(rounded) >= Decimal(10) ** (to.precision - to.scale):
        raise Refused(f"{value} is no {to.simpleString()}")
    return rounded


def _divided(dividend: Decimal, divisor: Decimal, to: t.DecimalType) -> Decimal:
    """Return a quotient of decimals, rounded half up; raise Refused for a divisor of 0."""
    if divisor == 0:
        raise Refused("division by zero")
    return _rescaled(Context(prec=100, rounding=ROUND_HALF_UP).divide(dividend, divisor), to)


def definition_of_call(name: str, kinds: list[t.DataType], result: t.DataType) -> Callable[..., Any] | None:
    """Return the definition of a function over operands of these types, with a result of this type; None if there is none."""
    name = SAME.get(name, name)
    if name == "/" and isinstance(result, t.DecimalType) and all(isinstance(kind, t.DecimalType) for kind in kinds):
        return partial(_divided, to=result)
    if name not in SCALARS:
        return None
    define = SCALARS[name]
    if name == "round" and type(result) in INTEGRAL:
        bits = INTEGRAL[type(result)]
        return lambda *values: whole(define(*values), bits)
    if name in DATES:
        return lambda *values: define(*(_in_days(v, kind) for v, kind in zip(values, kinds, strict=True)))
    if name in INSTANTS_OF:
        return lambda *values: define(*(_in_ticks(v, kind) for v, kind in zip(values, kinds, strict=True)))
    return define


def _in_days(value: Any, kind: t.DataType) -> Any:
    return value // DAY if isinstance(kind, INSTANTS) else value


def _in_ticks(value: Any, kind: t.DataType) -> Any:
    return value * DAY if isinstance(kind, t.DateType) else value


DEFINED = frozenset({*SCALARS, *SAME})
"""The functions that are defined here."""


__all__ = ["DEFINED", "DEFINED_KINDS", "INSTANTS", "Refused", "definition_of_call", "definition_of_cast"]
