"""Application time (Flink's event time): the two time axes, and durations and instants as 64-bit integers of ticks.

This module converts durations and instants as users write them (``"10 minutes"``, ``timedelta``, ``datetime``, integers) to
ticks, and ticks to text. All lengths and instants are in ticks: microseconds since 1970 (UTC) on a timestamp axis, the
column's own unit on an integer axis.

A grid of windows has the interval of each window, and the windows that contain an instant; an interval ``[a, b)`` contains a
and not b. ``streamq/runtime/grid_ranges.py`` does the same for arrays and columns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from numbers import Integral
from typing import Any, Final, Protocol
from zoneinfo import available_timezones

import numpy as np

from streamq.errors import TimeError, nearest

TIMESTAMP: Final = "timestamp"
"""The axis of timestamps: a tick is one microsecond since 1970-01-01 UTC."""
INTEGER: Final = "integer"
"""The axis of integral columns: a tick is one unit of the column."""

INFINITY: Final = 2**63 - 1
"""The end of a lifetime that has no end yet; users see NULL, or None."""
MINUS_INFINITY: Final = -(2**63)
"""The CTI of a source that has not made progress yet."""
FIRST_INSTANT: Final = MINUS_INFINITY + 1
"""The first instant of both axes."""

Duration = str | int | timedelta
"""A length of time as users write it; :func:`ticks` defines the forms for each axis."""

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
"""The units in which durations are shown, largest first."""
_MANY: Final = 10_000
"""The number of one unit from which on a duration is shown in several units."""
_UNITS: Final = ("microseconds", "ms", "seconds", "minutes", "hours", "days", "weeks")
"""The names of units in messages."""
_SHORT: Final = ", ".join(unit for unit in _MICROSECONDS if len(unit) <= 3 and unit != "day")
"""The short forms of units, as messages list them."""
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*,?")


def checked_zone(zone: Any, verb: str) -> str:
    """Return the name of a time zone; raise TimeError for what is none."""
    if isinstance(zone, str) and zone in available_timezones():
        return zone
    near = nearest(zone, sorted(available_timezones())) if isinstance(zone, str) else ""
    hint = near or "Write a name of the tz database, such as 'Europe/Berlin' or 'UTC'."
    raise TimeError(verb, "no such time zone", f"found {zone!r}", hint)


def plain_integer(value: Any) -> Any:
    """Convert an integer of another library, such as NumPy, to a Python integer; return any other value unchanged."""
    return int(value) if type(value) not in (int, bool) and isinstance(value, Integral) else value


def check_microseconds(value: Any, verb: str) -> None:
    """Raise TimeError for an instant or duration of pandas or NumPy that has digits below a microsecond; NaT has none."""
    if value != value:
        return
    if isinstance(value, np.datetime64 | np.timedelta64):
        kind = "datetime64" if isinstance(value, np.datetime64) else "timedelta64"
        is_finer = bool(value.astype(f"{kind}[us]") != value)
    else:
        is_finer = bool(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0))
    if is_finer:
        raise TimeError(verb, "digits below a microsecond", f"found {value}", "Round it to microseconds first.")


def ticks(duration: Duration, axis: str, verb: str = "duration") -> int:
    """Return a duration in ticks of an axis.

    On a timestamp axis, where a tick is a microsecond, a duration has a unit: ``"10 minutes"``, ``"1 hour 30 minutes"`` or a
    ``timedelta``. On an integer axis it is an integer number of ticks. 0 is 0 on both. Raises TimeError if unit and axis do
    not fit, and for values that :func:`length` refuses; ``verb`` is the verb that the user called.
    """
    duration = plain_integer(duration)
    if isinstance(duration, int) and not isinstance(duration, bool) and axis == TIMESTAMP and duration != 0:
        raise TimeError(
            verb,
            "a duration without a unit on a timestamp axis",
            f"found {duration!r}",
            f"Write '{duration} seconds' or a timedelta.",
        )
    if axis == INTEGER and isinstance(duration, str) and re.fullmatch(r"\s*[+-]?\d+\s*", duration):
        hint = f"Write {int(duration)}, without quotes."
        raise TimeError(verb, "a string as a duration on an integer axis", f"found {duration!r}", hint)
    if axis == INTEGER and isinstance(duration, str | timedelta):
        raise TimeError(
            verb,
            "a duration with a unit on an integer axis",
            f"found {str(duration)!r}",
            "Give an integer number of ticks.",
        )
    return length(duration, verb)


def length(duration: Duration, verb: str = "duration") -> int:
    """Return a duration in ticks when the axis is not known yet: microseconds if it has a unit, an integer unchanged.

    It may be negative. Raises TimeError for a value that is no duration, for one finer than a microsecond, and for one of 2^62
    ticks or more.
    """
    duration = plain_integer(duration)
    if isinstance(duration, bool) or not isinstance(duration, str | int | timedelta):
        raise TimeError(
            verb, "not a duration", f"found {duration!r}", "Write '10 minutes', a timedelta or integer ticks."
        )
    if isinstance(duration, int):
        return _bounded(duration, verb)
    if isinstance(duration, timedelta):
        check_microseconds(duration, verb)
        return _bounded(duration // timedelta(microseconds=1), verb)
    return _bounded(_parse(duration, verb), verb)


def instant_ticks(instant: int | datetime | None, axis: str, verb: str = "until") -> int | None:
    """Return an instant in ticks of an axis: a datetime on a timestamp axis, an integer on an integer axis; None stays None.

    A datetime without a time zone is UTC. Raises TimeError for an instant that does not fit the axis, lies beyond its ends or is
    finer than a microsecond.
    """
    if instant is None:
        return None
    # pandas' NaT is a datetime, and no instant
    if isinstance(instant, datetime) and axis == TIMESTAMP and instant == instant:
        check_microseconds(instant, verb)
        moment = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    instant = plain_integer(instant)
    if isinstance(instant, int) and not isinstance(instant, bool) and axis != TIMESTAMP:
        if not MINUS_INFINITY < instant < INFINITY:
            raise TimeError(verb, "an instant beyond the time axis", f"found {instant!r}")
        return instant
    axis_name = "a timestamp axis" if axis == TIMESTAMP else "an integer axis"
    raise TimeError(verb, "an instant that does not fit the time axis", f"found {instant!r} on {axis_name}")


def _parse(text: str, verb: str) -> int:
    """Return a text such as ``"1 hour 30 minutes"`` in microseconds; raise TimeError, with a hint, for any other."""
    position, total = 0, 0
    while position < len(text):
        part = _PART.match(text, position)
        unit = part.group(2).lower() if part else ""
        size = _MICROSECONDS.get(unit) or _MICROSECONDS.get(unit.removesuffix("s"))
        if part is None or size is None:
            # a month or a year has no fixed length, and one letter is not near to any unit
            is_guessed = len(unit) > 1 and unit.removesuffix("s") not in ("month", "year")
            hint = (nearest(unit, _UNITS) if is_guessed else "") or f"Units: {', '.join(_UNITS)}; in short {_SHORT}."
            if re.fullmatch(r"\s*[+-]?\d+\s*", text):
                hint = f"Write '{int(text)} seconds', or {int(text)} without quotes on an integer axis."
            raise TimeError(verb, "not a duration", f"found {text!r}", hint)
        whole, _, fraction = part.group(1).partition(".")
        value = int(whole) * size
        if fraction:
            parts = int(fraction) * size
            if parts % 10 ** len(fraction):
                raise TimeError(verb, "a duration finer than a microsecond", f"found {text!r}")
            value += -(parts // 10 ** len(fraction)) if whole.startswith("-") else parts // 10 ** len(fraction)
        total += value
        position = part.end()
    if not text.strip():
        raise TimeError(verb, "an empty duration", "", "Write '10 minutes'.")
    return total


def _bounded(value: int, verb: str) -> int:
    if abs(value) >= 2**62:
        raise TimeError(verb, "a duration longer than the time axis", f"found {value} ticks")
    return value


def saturating_add(a: int, b: int) -> int:
    """Return ``a + b``, at most INFINITY and at least the first instant; an infinite ``a`` stays as it is."""
    if a in (INFINITY, MINUS_INFINITY):
        return a
    return max(FIRST_INSTANT, min(INFINITY, a + b))


def show_ticks(value: int, axis: str) -> str:
    """Return an instant as text: ISO 8601 in UTC on a timestamp axis, the number on an integer axis, ``inf`` or ``-inf``.

    Beyond the years of Python's datetime it is the number of microseconds, as ``"... us"``.

    >>> show_ticks(-60_000_000_000_000_000, "timestamp")
    '0068-09-03T13:20:00.000000Z'
    """
    if value == INFINITY:
        return "inf"
    if value == MINUS_INFINITY:
        return "-inf"
    if axis == INTEGER:
        return str(value)
    try:
        # strftime writes years before 1000 without zeros in front
        return (datetime(1970, 1, 1) + timedelta(microseconds=value)).isoformat(timespec="microseconds") + "Z"
    except OverflowError:
        return f"{value} us"


def instant_label(t: int, axis: str) -> str:
    """Return an instant as readers see it: ``2024-05-01 12:00:00``, in UTC, or a number; ``inf``: no end."""
    text = show_ticks(t, axis)
    return text.replace("T", " ").removesuffix("Z").removesuffix(".000000") if axis == TIMESTAMP else text


def show_duration(value: int, axis: str) -> str:
    """Return a duration as text: the number on an integer axis, else the number with a unit.

    The unit is the largest that divides the duration, as ``"90 minutes"``; if the number would be too long to read, there are
    several units, as ``"1 hour 1 microsecond"``.
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


class WindowEnds(Protocol):
    """The ends of fixed windows, which do not depend on events."""

    @property
    def n(self) -> int:
        """The number of windows that contain one instant: the greatest, or of windows that grow the mean, rounded up.

        It is INFINITY for windows that never stop growing.
        """

    @property
    def hops(self) -> Grid | None:
        """A grid of windows that end where these end, each a hop after the one before; None if the distances differ."""

    def floor_to_end(self, t: int) -> int:
        """Return the latest instant, at or before t, at which a window ends; MINUS_INFINITY without one; an infinite t itself."""


@dataclass(frozen=True)
class Grid:
    """A grid of windows; window i is ``[offset + i*hop, offset + i*hop + size)``, for every integer i, also negative.

    ``size`` and ``hop`` are positive. With ``hop < size`` neighbours overlap, with ``hop > size`` there are gaps.
    """

    size: int
    hop: int
    offset: int = 0

    @property
    def n(self) -> int:
        """The greatest number of windows that contain one instant: size / hop, rounded up."""
        return -(-self.size // self.hop)

    @property
    def hops(self) -> Grid:
        return self

    @property
    def divides(self) -> bool:
        """True if hop divides size, so that windows consist of basic windows that are one hop long."""
        return self.size % self.hop == 0

    def start(self, index: int) -> int:
        """Return the start of window ``index``, at most the end of the time axis and at least its first instant."""
        return max(FIRST_INSTANT, min(INFINITY, self.offset + index * self.hop))

    def end(self, index: int) -> int:
        """Return the end of window ``index``, at most the end of the time axis and at least its first instant."""
        return max(FIRST_INSTANT, min(INFINITY, self.offset + index * self.hop + self.size))

    def first_ending_after(self, t: int) -> int:
        """Return the number of the first window that ends after t, at least FIRST_INSTANT; for an infinite t, t itself."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return max(FIRST_INSTANT, (t - self.offset - self.size) // self.hop + 1)

    def last_starting_before(self, t: int) -> int:
        """Return the number of the last window that starts before t, at least FIRST_INSTANT; for an infinite t, t itself."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return max(FIRST_INSTANT, (t - 1 - self.offset) // self.hop)

    def next_start(self, t: int) -> int:
        """Return the start of the first window that starts at instant t or later; for an infinite t, t itself."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return self.start(self.last_starting_before(t) + 1)

    def floor_to_end(self, t: int) -> int:
        """Return the latest instant, at or before t, at which a window ends; for an infinite t, t itself."""
        if t in (INFINITY, MINUS_INFINITY):
            return t
        return self.end(self.first_ending_after(t) - 1)
