"""Texts as values of Spark's types: each is the value that Spark's readers of CSV and JSON make of it.

Arrow computes those that it reads as Spark does, a column at a time; Python computes the others, each text once.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from streamq.runtime.arrow.arrow_types import BITS, arrow_type
from streamq.runtime.arrow.values import Mask


class Unclear(Exception):
    """Raised where Spark reads another value, or might, and where only Spark reads; the text says what was found.

    ``hint``: what to do if Spark does not read it either.
    """

    def __init__(self, observed: str, hint: str = "") -> None:
        super().__init__(observed)
        self.hint = hint


INSTANT = pa.timestamp("us", tz="UTC")

DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = rf"{DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?"
ZONE = r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])"
FRACTIONAL = r"-?[0-9]+(\.[0-9]+)?"

PLAIN: Mapping[type[t.DataType], str] = {
    **dict.fromkeys(BITS, "-?[0-9]+"),
    **dict.fromkeys((t.FloatType, t.DoubleType), rf"{FRACTIONAL}([eE][+-]?[0-9]+)?"),
    t.BooleanType: "true|false",
    t.DecimalType: FRACTIONAL,
    t.DateType: DAY,
    t.TimestampType: f"{TIME}{ZONE}?",
    t.TimestampNTZType: TIME,
}
"""The texts of each type that Arrow reads as Spark does, or refuses."""

SIGNS: Mapping[type[t.DataType], bytes] = {
    **dict.fromkeys(BITS, b"0123456789-"),
    **dict.fromkeys((t.FloatType, t.DoubleType), b"0123456789-+.eE"),
    t.BooleanType: b"truefals",
    t.DecimalType: b"0123456789-.",
    t.DateType: b"0123456789-",
    **dict.fromkeys((t.TimestampType, t.TimestampNTZType), b"0123456789-:. TZ"),
}
"""The characters of each type: of these alone Arrow reads each text as Spark does, or refuses it."""


def typed_texts(texts: pa.Array, kind: t.DataType) -> tuple[pa.Array, Mask]:
    """Return the values of texts, and a mask of those that are malformed, which are NULL.

    Raises Unclear for a text that Spark reads by rules that are its own.
    """
    right = np.zeros(len(texts), bool)
    if isinstance(kind, t.StringType):
        return texts, right
    if (values := plain_values(texts, kind)) is not None:
        return values, right
    pattern = f"^({PLAIN[type(kind)]})$"
    is_plain = pc.match_substring_regex(texts, pattern)
    nothing = pa.scalar(None, pa.string())
    odd = texts
    try:
        values = _by_arrow(pc.if_else(is_plain, texts, nothing), kind)
        odd = pc.if_else(is_plain, nothing, texts)
    except pa.ArrowInvalid:
        values = pa.nulls(len(texts), arrow_type(kind))
    encoded = odd.dictionary_encode()
    meanings: list[Any] = []
    is_wrong = []
    for text in encoded.dictionary.to_pylist():
        try:
            meanings.append(text_value(text, kind))
            is_wrong.append(False)
        except (ValueError, ArithmeticError):
            meanings.append(None)
            is_wrong.append(True)
    others = pa.array(meanings, arrow_type(kind)).take(encoded.indices)
    wrong = pc.fill_null(pa.array(is_wrong, pa.bool_()).take(encoded.indices), False)
    return pc.coalesce(values, others), wrong.to_numpy(zero_copy_only=False)


def plain_values(texts: pa.Array, kind: t.DataType) -> pa.Array | None:
    """Return the values of texts of a type if each is written in the type's signs alone, and Arrow reads all; else None."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), arrow_type(kind))
    _, offsets, characters = texts.buffers()
    if characters is None:
        return None
    first, last = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    codes = np.frombuffer(characters, np.uint8)[first:last]
    if not IS_SIGN[type(kind)][codes].all():
        return None
    count = len(texts) - texts.null_count
    if isinstance(kind, t.TimestampType | t.TimestampNTZType):
        # Arrow takes shorter forms of times, too
        zones = int(np.count_nonzero(codes == ord("Z")))
        if any(np.count_nonzero(codes == ord(sign)) != 2 * count for sign in "-:"):
            return None
        if zones not in (0, count) or (zones and isinstance(kind, t.TimestampNTZType)):
            return None
    try:
        if isinstance(kind, t.TimestampType):
            return _in_bounds((texts if zones else texts.cast(pa.timestamp("us"))).cast(INSTANT), kind)
        return _by_arrow(texts, kind)
    except pa.ArrowInvalid:
        return None


IS_SIGN: Mapping[type[t.DataType], Mask] = {
    kind: np.isin(np.arange(256), np.frombuffer(signs, np.uint8)) for kind, signs in SIGNS.items()
}
"""The signs of each type as a mask of all bytes."""


def _by_arrow(texts: pa.Array, kind: t.DataType) -> pa.Array:
    """Return the values of texts as Arrow reads them, instants in UTC where they have no zone; raise pa.ArrowInvalid."""
    if not isinstance(kind, t.TimestampType):
        return _in_bounds(texts.cast(arrow_type(kind)), kind)
    nothing = pa.scalar(None, pa.string())
    has_zone = pc.match_substring_regex(texts, f"{ZONE}$")
    zoned = pc.if_else(has_zone, texts, nothing).cast(INSTANT)
    local = pc.if_else(has_zone, nothing, texts).cast(pa.timestamp("us"))
    return _in_bounds(pc.coalesce(zoned, local.cast(INSTANT)), kind)


def _in_bounds(values: pa.Array, kind: t.DataType) -> pa.Array:
    """Return values; raise pa.ArrowInvalid for times outside of the years that Python has."""
    if isinstance(kind, t.DateType | t.TimestampType | t.TimestampNTZType):
        bounds = pc.min_max(values.cast(pa.timestamp("us")).cast(pa.int64()))
        if bounds["min"].is_valid and not FIRST <= bounds["min"].as_py() <= bounds["max"].as_py() <= LAST:
            raise pa.ArrowInvalid("outside of the years 1 to 9999")
    return values


FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond of the years 1 to 9999, from 1970."""


def text_value(text: str, kind: t.DataType) -> Any:
    """Return the value that Spark reads in a text; raise ValueError or ArithmeticError if there is none.

    Raises Unclear for a text that Spark reads by rules that are its own.
    """
    return VALUES[type(kind)](text, kind)


def _integer(text: str, kind: t.DataType) -> int:
    if not re.fullmatch("[+-]?[0-9]+", text):
        if re.fullmatch(r"[+-]?\d+", text):
            raise Unclear(f"{text!r}, digits of another script")
        raise ValueError(text)
    half = 1 << BITS[type(kind)] - 1
    if not -half <= int(text) < half:
        raise ValueError(text)
    return int(text)


JAVA_BLANKS = "".join(map(chr, range(33)))
"""The characters that Java's trim takes off."""

DECIMAL = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
HEXADECIMAL = r"[+-]?0[xX][0-9a-fA-F.]+[pP][+-]?[0-9]+[fFdD]?"


def _float(text: str, kind: t.DataType) -> float:
    trimmed = text.strip(JAVA_BLANKS)
    if text in ("Inf", "-Inf") or re.fullmatch("[+-]?(NaN|Infinity)", trimmed):
        return float(trimmed)
    if re.fullmatch(HEXADECIMAL, trimmed):
        raise Unclear(f"{text!r}, a hexadecimal number with a point")
    if not re.fullmatch(f"{DECIMAL}[fFdD]?", trimmed):
        raise ValueError(text)
    # Arrow rounds once, to the type
    number: float = pa.scalar(trimmed.rstrip("fFdD")).cast(arrow_type(kind)).as_py()
    return number


def _decimal(text: str, kind: t.DataType) -> Decimal:
    assert isinstance(kind, t.DecimalType)
    if not re.fullmatch(DECIMAL, text):
        if re.fullmatch(DECIMAL.replace("[0-9]", r"\d"), text):
            raise Unclear(f"{text!r}, digits of another script")
        raise ValueError(text)
    return Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, Context(prec=kind.precision))


def _truth(text: str, kind: t.DataType) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


SPARK_BLANKS = f"{JAVA_BLANKS}\x7f"
"""The characters that Spark takes off a time."""

DATE_PARTS = r"(?P<sign>[+-]?)(?P<year>[0-9]{4,7})(-(?P<month>[0-9]{1,2})(-(?P<day>[0-9]{1,2})"
SPARKS_DATE = re.compile(rf"{DATE_PARTS}([ T].*)?)?)?", re.DOTALL)
CLOCK = r"(?P<hour>[0-9]{1,2})(:(?P<minute>[0-9]{1,2})(:(?P<second>[0-9]{1,2})(\.(?P<fraction>[0-9]*))?(?P<zone>[^0-9.].*)?)?)?"
SPARKS_TIME = re.compile(rf"{DATE_PARTS}([ T]{CLOCK})?)?)?", re.DOTALL)
OFFSET = re.compile(
    r"(?P<sign>[+-])((?P<hours>[0-9]{1,2})(:(?P<minutes>[0-9]{1,2}))?|(?P<hh>[0-9]{2})(?P<mm>[0-9]{2}))"
)
SPARKS_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9~/._+:-]+|[+-][0-9]{2}:?[0-9]{2}:?[0-9]{2}")


def _day(text: str, parts: re.Match[str] | None) -> dt.date:
    """Return the day of a time; raise ValueError if there is none, and Unclear outside of the years that Python has."""
    if parts is None:
        raise ValueError(text)
    year, month, day = int(parts["year"]), int(parts["month"] or 1), int(parts["day"] or 1)
    if parts["sign"] == "-" or not 1 <= year <= 9999:
        if not (1 <= month <= 12 and 1 <= day <= calendar.monthrange(2000 + year % 400, month)[1]):
            raise ValueError(text)
        raise Unclear(f"{text!r}, outside of the years 1 to 9999")
    return dt.date(year, month, day)


def _date(text: str, kind: t.DataType) -> dt.date:
    return _day(text, SPARKS_DATE.fullmatch(text.strip(SPARK_BLANKS)))


def _instant(text: str, kind: t.DataType) -> dt.datetime:
    """Return an instant, in UTC without a zone, or a local time, which has none."""
    trimmed = text.strip(SPARK_BLANKS)
    has_zones = isinstance(kind, t.TimestampType)
    if has_zones and re.match(r"T?[0-9]{1,2}:|T[0-9]", trimmed):
        raise Unclear(f"{text!r}, a time without a day")
    parts = SPARKS_TIME.fullmatch(trimmed)
    if parts is None or len(parts["year"]) > 6 or (parts["zone"] and not has_zones):
        raise ValueError(text)
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
    time = dt.time(hour, minute, second, int(f"{(parts['fraction'] or '')[:6]:0<6}"))
    offset = _offset(text, parts["zone"] or "Z")
    local = dt.datetime.combine(_day(text, parts), time)
    try:
        return (local - offset).replace(tzinfo=dt.UTC) if has_zones else local
    except OverflowError as error:
        raise Unclear(f"{text!r}, outside of the years 1 to 9999") from error


def _offset(text: str, zone: str) -> dt.timedelta:
    """Return the offset of a zone; raise ValueError if it is none, and Unclear for one that has a name."""
    zone = zone.removeprefix(" ")
    if zone in ("Z", "UTC"):
        return dt.timedelta()
    parts = OFFSET.fullmatch(zone)
    if parts is None:
        if SPARKS_ZONE.fullmatch(zone.strip()):
            raise Unclear(f"{text!r}, a zone by its name, or with seconds")
        raise ValueError(text)
    hours, minutes = int(parts["hours"] or parts["hh"]), int(parts["minutes"] or parts["mm"] or 0)
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        raise ValueError(text)
    return dt.timedelta(hours=hours, minutes=minutes) * (-1 if parts["sign"] == "-" else 1)


VALUES: Mapping[type[t.DataType], Callable[[str, t.DataType], Any]] = {
    **dict.fromkeys(BITS, _integer),
    **dict.fromkeys((t.FloatType, t.DoubleType), _float),
    t.DecimalType: _decimal,
    t.BooleanType: _truth,
    t.StringType: lambda text, kind: text,
    t.DateType: _date,
    **dict.fromkeys((t.TimestampType, t.TimestampNTZType), _instant),
}
"""The functions that make a value of a text, by its type."""
