"""Application time (Flink's event time): the two time axes, and durations and instants as 64-bit integers of ticks.

What users write, ``"10 minutes"``, a ``timedelta``, a ``datetime`` or an integer, becomes ticks here, and ticks become text.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from numbers import Integral
from typing import Any, Final

from streamq.errors import TimeError, nearest, sentence

TIMESTAMP: Final = "timestamp"
"""The axis of timestamps: a tick is one microsecond since 1970-01-01 UTC."""
INTEGER: Final = "integer"
"""The axis of integral columns: a tick is one unit of the column."""

INFINITY: Final = 2**63 - 1
"""The end of a lifetime that has no end yet; users see NULL, or None."""
MINUS_INFINITY: Final = -(2**63)
"""The CTI of a source that has not spoken yet."""

Duration = str | int | timedelta
"""A length of time as users write it; :func:`ticks` says what fits which axis."""

_MICROSECONDS: Final = {
    "microsecond": 1, "us": 1,
    "millisecond": 1_000, "ms": 1_000,
    "second": 1_000_000, "sec": 1_000_000, "s": 1_000_000,
    "minute": 60_000_000, "min": 60_000_000,
    "hour": 3_600_000_000, "h": 3_600_000_000,
    "day": 86_400_000_000, "d": 86_400_000_000,
    "week": 604_800_000_000, "w": 604_800_000_000,
}  # fmt: skip
_SHOWN: Final = ("day", "hour", "minute", "second", "millisecond", "microsecond")
"""The units that durations are shown in, from the largest."""
_MANY: Final = 10_000
"""So many of one unit are too many to read."""
_UNITS: Final = ("microseconds", "ms", "seconds", "minutes", "hours", "days", "weeks")
"""The units as messages call them."""
_SHORT: Final = ", ".join(unit for unit in _MICROSECONDS if len(unit) <= 3 and unit != "day")
"""Their short forms, as messages list them."""
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*,?")


def plain_integer(value: Any) -> Any:
    """Return an integer of another library, such as numpy, as Python's own; anything else as it is."""
    return int(value) if type(value) not in (int, bool) and isinstance(value, Integral) else value


def ticks(duration: Duration, axis: str, verb: str = "duration") -> int:
    """Return a duration in ticks of an axis.

    On a timestamp axis, where a tick is a microsecond, a duration has a unit: ``"10 minutes"``, ``"1 hour 30 minutes"`` or a
    ``timedelta``. On an integer axis it is an integer number of ticks. 0 is 0 on both. Raises TimeError where unit and axis
    do not fit, and for what :func:`length` refuses; ``verb`` is what the user has called.
    """
    duration = plain_integer(duration)
    if isinstance(duration, int) and not isinstance(duration, bool) and axis == TIMESTAMP and duration != 0:
        raise TimeError(
            sentence(
                verb,
                "a duration without a unit on a timestamp axis",
                f"found {duration!r}",
                f"Write '{duration} seconds' or a timedelta.",
            )
        )
    if axis == INTEGER and isinstance(duration, str) and re.fullmatch(r"\s*[+-]?\d+\s*", duration):
        hint = f"Write {int(duration)}, without quotes."
        raise TimeError(sentence(verb, "a string as a duration on an integer axis", f"found {duration!r}", hint))
    if axis == INTEGER and isinstance(duration, str | timedelta):
        raise TimeError(
            sentence(
                verb,
                "a duration with a unit on an integer axis",
                f"found {str(duration)!r}",
                "Give an integer number of ticks.",
            )
        )
    return length(duration, verb)


def length(duration: Duration, verb: str = "duration") -> int:
    """Return how long a duration is on an axis that is not known yet: with a unit in microseconds, an integer as it is.

    Raises TimeError for what is no duration on any axis, for one finer than a microsecond, and for one longer than the axis.
    """
    duration = plain_integer(duration)
    if isinstance(duration, bool) or not isinstance(duration, str | int | timedelta):
        raise TimeError(
            sentence(verb, "not a duration", f"found {duration!r}", "Write '10 minutes', a timedelta or integer ticks.")
        )
    if isinstance(duration, int):
        return _bounded(duration, verb)
    if isinstance(duration, timedelta):
        return _bounded(duration // timedelta(microseconds=1), verb)
    return _bounded(_parse(duration, verb), verb)


def instant_ticks(instant: int | datetime | None, axis: str, verb: str = "until") -> int | None:
    """Return an instant in ticks of an axis: a datetime on a timestamp axis, an integer on an integer axis; None stays None.

    A datetime without a time zone is UTC. Raises TimeError for an instant that does not fit the axis or lies beyond its ends.
    """
    if instant is None:
        return None
    if isinstance(instant, datetime) and axis == TIMESTAMP:
        moment = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    instant = plain_integer(instant)
    if isinstance(instant, int) and not isinstance(instant, bool) and axis != TIMESTAMP:
        if not MINUS_INFINITY < instant < INFINITY:
            raise TimeError(sentence(verb, "an instant beyond the time axis", f"found {instant!r}"))
        return instant
    axis_name = "a timestamp axis" if axis == TIMESTAMP else "an integer axis"
    raise TimeError(sentence(verb, "an instant that does not fit the time axis", f"found {instant!r} on {axis_name}"))


def _parse(text: str, verb: str) -> int:
    position, total = 0, 0
    while position < len(text):
        part = _PART.match(text, position)
        unit = part.group(2).lower() if part else ""
        size = _MICROSECONDS.get(unit) or _MICROSECONDS.get(unit.removesuffix("s"))
        if part is None or size is None:
            # a month or a year is no fixed length, and of one letter nobody knows which unit it is near to
            is_guessed = len(unit) > 1 and unit.removesuffix("s") not in ("month", "year")
            hint = (nearest(unit, _UNITS) if is_guessed else "") or f"Units: {', '.join(_UNITS)}; in short {_SHORT}."
            if re.fullmatch(r"\s*[+-]?\d+\s*", text):
                hint = f"Write '{int(text)} seconds', or {int(text)} without quotes on an integer axis."
            raise TimeError(sentence(verb, "not a duration", f"found {text!r}", hint))
        whole, _, fraction = part.group(1).partition(".")
        value = int(whole) * size
        if fraction:
            parts = int(fraction) * size
            if parts % 10 ** len(fraction):
                raise TimeError(sentence(verb, "a duration finer than a microsecond", f"found {text!r}"))
            value += -(parts // 10 ** len(fraction)) if whole.startswith("-") else parts // 10 ** len(fraction)
        total += value
        position = part.end()
    if not text.strip():
        raise TimeError(sentence(verb, "an empty duration", "", "Write '10 minutes'."))
    return total


def _bounded(value: int, verb: str) -> int:
    if abs(value) >= 2**62:
        raise TimeError(sentence(verb, "a duration longer than the time axis", f"found {value} ticks"))
    return value


def saturating_add(a: int, b: int) -> int:
    """Return ``a + b``; an infinite ``a`` stays as it is, and a sum beyond the ends of the axis becomes infinite."""
    if a in (INFINITY, MINUS_INFINITY):
        return a
    return max(MINUS_INFINITY, min(INFINITY, a + b))


def show_ticks(value: int, axis: str) -> str:
    """Return an instant as text: ISO 8601 in UTC on a timestamp axis, the number on an integer axis, ``inf`` or ``-inf``."""
    if value == INFINITY:
        return "inf"
    if value == MINUS_INFINITY:
        return "-inf"
    if axis == INTEGER:
        return str(value)
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except OverflowError:
        return f"{value} us"


def show_duration(value: int, axis: str) -> str:
    """Return a duration as text; on an integer axis the number.

    That is in the largest unit that divides it, as ``"90 minutes"``, or if those are too many to read, in several units, as
    ``"1 hour 1 microsecond"``.
    """
    if axis == INTEGER:
        return str(value)
    if value == 0:
        return "0 seconds"
    unit = next(unit for unit in _SHOWN if value % _MICROSECONDS[unit] == 0)
    if -_MANY < value // _MICROSECONDS[unit] < _MANY:
        return _counted(value // _MICROSECONDS[unit], unit)
    parts, rest, sign = [], abs(value), 1 if value > 0 else -1
    for unit in _SHOWN:
        count, rest = divmod(rest, _MICROSECONDS[unit])
        parts += [_counted(sign * count, unit)] * bool(count)
    return " ".join(parts)


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit}" + ("" if count == 1 else "s")
