"""The room of calendar windows."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from streamq.errors import sentence
from streamq.testing.arrival import DAY
from streamq.testing.oracle.grids import bound
from streamq.testing.oracle.run import Run, TooMuch
from streamq.testing.oracle.values import listed
from streamq.testing.payload_values import EPOCH
from streamq.testing.program_text import string
from streamq.testing.scale import Bounds
from streamq.testing.windows.room import Members, WindowRoom, one_of
from streamq.windows import Calendar

EARLIEST, LATEST = -50_000_000_000_000_000, 200_000_000_000_000_000
"""Instants in the years 385 and 8307; between them every window is within Python's calendar."""

MOST = 10_000
"""The greatest number of windows of a case; more are refused."""


class CalendarRoom(WindowRoom[Calendar]):
    """The room of :class:`Calendar`.

    Random queries have no calendar windows: their data span a few ticks, or windows of a few ticks too many days.
    """

    kind = Calendar
    weight = 0
    arguments = {
        ("calendar_window", "period"): one_of("1 day", "2 days", "1 week", "2 weeks", "1 month", "1 quarter"),
        ("calendar_window", "zone"): one_of("UTC", "Europe/Berlin", "America/Havana", "Asia/Kolkata"),
    }

    def members(self, window: Calendar, source: Members, run: Run) -> str:
        """Return a table of events, joined with the windows that overlap them.

        Windows are enumerated by days or months in the zone's local time; raises TooMuch as :func:`_windows`.
        """
        least = run.value(f"SELECT min(le) FROM {source.events}")
        last = run.value(f"SELECT max(least(re, {bound(source.events, run)})) FROM {source.events}")
        windows = [] if least is None else list(_windows(window, least, last))
        rows = ", ".join(f"({start}, {end})" for start, end in windows) or "(0, 0)"
        table = run.table(f"SELECT w_le::BIGINT AS w_le, w_re::BIGINT AS w_re FROM (VALUES {rows}) t(w_le, w_re)")
        return run.table(
            f"SELECT {listed('0 AS w', 'w_le', 'w_re', 'a.*')} FROM {source.events} a JOIN {table} ON le < w_re AND re > w_le"
        )

    def written(self, window: Calendar, axis: str) -> tuple[str, list[str]]:
        plural = "" if window.n == 1 else "s"
        return "calendar", [string(f"{window.n} {window.unit}{plural}"), f"zone={string(window.zone)}"]

    def lengths(self, window: Calendar) -> Iterator[int]:
        days = {"day": 1, "week": 7, "month": 30, "quarter": 91, "year": 365}[window.unit]
        yield window.n * days * DAY

    def bounds(self, window: Calendar) -> Iterator[Bounds]:
        yield CalendarBounds(window)

    def recurrences(self, window: Calendar) -> Iterator[int]:
        yield from self.lengths(window)


@dataclass(frozen=True)
class CalendarBounds:
    """The midnights at which the windows of a calendar begin and end, by the clocks of its zone."""

    window: Calendar

    def around(self, near: int, many: int) -> Iterator[int]:
        if EARLIEST < near < LATEST:
            windows = (bounds for bounds in _windows(self.window, near, LATEST) if bounds[1] > near)
            for start, end in itertools.islice(windows, many):
                yield from (start, end)


def _windows(window: Calendar, least: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the windows, as start and end in ticks, from about two days before the instant ``least`` until ``last``.

    Windows that a clock change leaves empty are left out. Raises TooMuch for more than MOST, or an instant beyond the calendar.
    """
    first = _date(least) - dt.timedelta(days=2)
    begins = _begin(window, first)
    for _ in range(MOST):
        following = _after(window, begins)
        start, end = _instant(begins, window.zone), _instant(following, window.zone)
        if start >= last:
            return
        if start < end:
            yield start, end
        begins = following
    raise TooMuch(sentence("oracle", "too many windows", f"more than {MOST}"))


def _date(ticks: int) -> dt.date:
    """Return the day of an instant in UTC; raise TooMuch for one beyond Python's calendar."""
    try:
        return (EPOCH + dt.timedelta(microseconds=ticks)).date()
    except OverflowError as error:
        raise TooMuch(sentence("oracle", "an instant beyond the calendar", f"found {ticks}")) from error


def _begin(window: Calendar, day: dt.date) -> dt.date:
    """Return the first day of the window that contains a day."""
    match window.unit:
        case "day":
            return day - dt.timedelta(days=(day - EPOCH.date()).days % window.n)
        case "week":
            monday = dt.date(1969, 12, 29)
            return day - dt.timedelta(days=(day - monday).days % (7 * window.n))
    months = window.n * {"month": 1, "quarter": 3, "year": 12}[window.unit]
    return _month((day.year * 12 + day.month - 1 - 1970 * 12) // months * months)


def _after(window: Calendar, first: dt.date) -> dt.date:
    """Return the first day of the next window."""
    if window.unit in ("day", "week"):
        return first + dt.timedelta(days=window.n * (7 if window.unit == "week" else 1))
    months = window.n * {"month": 1, "quarter": 3, "year": 12}[window.unit]
    return _month((first.year - 1970) * 12 + first.month - 1 + months)


def _month(number: int) -> dt.date:
    """Return the first day of a month; months are numbered from January 1970."""
    return dt.date(1970 + number // 12, number % 12 + 1, 1)


def _instant(day: dt.date, zone: str) -> int:
    midnight = dt.datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone))
    return (midnight - EPOCH) // dt.timedelta(microseconds=1)
