"""Hopping windows, which lie on a grid; tumbling windows are hopping windows with ``hop == size``. And calendar windows: the
days, weeks, months or years of a time zone, with its clock changes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamq.errors import TimeError, nearest
from streamq.plan.footprint import Retention
from streamq.runtime.arrow.columnar import ints
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluators.assigner import Assigner, RangeAssigner, Ranges, WindowTraits, groups_to_come
from streamq.runtime.grid_ranges import grid_lifetimes, grid_range
from streamq.runtime.groups import ToCome
from streamq.runtime.time.endpoints import Bound
from streamq.time import (
    FIRST_INSTANT,
    INFINITY,
    MINUS_INFINITY,
    TIMESTAMP,
    Duration,
    Grid,
    checked_zone,
    show_duration,
    ticks,
)
from streamq.windows.batch_events import (
    ENDS,
    INDEX,
    SQL,
    STARTS,
    UNTIL,
    BatchEvents,
    TickSql,
    in_windows,
    window_lifetime,
)
from streamq.windows.window import W, Window, WindowKindVerbs


@dataclass(frozen=True)
class Hopping(Window):
    """Hopping windows: window i is ``[offset + i*hop, offset + i*hop + size)``, for every integer i, negative ones too.

    ``size`` and ``hop`` are positive. With ``hop == size`` they are tumbling windows; with ``hop < size`` (Flink: sliding)
    neighbours overlap, with ``hop > size`` there are gaps. Flink's assigners go by an event's timestamp, a grid goes by its
    *lifetime*: the event is in every window that it overlaps, not only in those that contain its start.
    """

    size: int
    hop: int
    offset: int = 0

    name = "hopping"
    bound = Bound.ENDLESS

    @classmethod
    def from_arguments(cls, size: Duration, hop: Duration, offset: Duration, axis: str, verb: str) -> Hopping:
        """Return windows of these durations; TimeError for a size or hop below 1 tick, or what does not fit the axis."""
        for name, duration in (("size", size), ("hop", hop)):
            if ticks(duration, axis, verb) <= 0:
                raise TimeError(verb, f"{name} must be positive", f"found {duration!r}")
        return cls(ticks(size, axis, verb), ticks(hop, axis, verb), ticks(offset, axis, verb))

    @property
    def grid(self) -> Grid:
        """The grid that the windows are."""
        return Grid(self.size, self.hop, self.offset)

    @property
    def traits(self) -> WindowTraits:
        return WindowTraits(ends=self.grid)

    def _retention(self, longest: int, keys: tuple[str, ...], *, condenses: bool) -> Retention:
        return Retention(self.size + self.hop + longest)

    def shown(self, axis: str) -> str:
        shown = f"size={show_duration(self.size, axis)}, hop={show_duration(self.hop, axis)}"
        return shown + (f", offset={show_duration(self.offset, axis)}" if self.offset else "")

    def assigner(self, names: Sequence[str]) -> Assigner:
        return HoppingAssigner(self.traits, self.grid)

    def copies(self, events: BatchEvents) -> tuple[DataFrame, list[str]]:
        """Return the events copied into their windows, and the columns of the interval, or the number if nothing reads it."""
        df = in_windows(events, self.grid)
        if not events.reads_bounds:
            return df, [INDEX]
        start, end = window_lifetime(self.grid)
        return df.withColumns({STARTS: start, ENDS: end}), [STARTS, ENDS]


class HoppingVerbs(WindowKindVerbs[W]):
    """The verbs for hopping windows."""

    def hopping_window(
        self, size: Duration, hop: Duration, offset: Duration = 0, *, clip_input: str = "full", stamp: str | None = None
    ) -> W:
        """The windows ``[offset + i*hop, offset + i*hop + size)`` for every integer i.

        ``size``, ``hop`` and ``offset`` are durations with a unit on a timestamp axis, integer ticks on an integer axis;
        size and hop may be any positive durations. An event is a member of every window its lifetime overlaps; a window
        without a member yields nothing; a result row lives on its window. Raises TimeError for durations that do not fit.

        All window verbs take ``clip_input``, how members' lifetimes are cut before a time-sensitive aggregate reads them
        ("full", "left", "right", "none"), and ``stamp``, where a result lives: "align" (on its window) or "point_at_end" (the
        tick at the window's end). Words that do not exist or fit raise PlanError. (docs/concepts.md, "Windows"; Liarou et al.,
        Enhanced Stream Processing in a DBMS Kernel, section 3.)

        ::

            events   a [1,4)  b [3,8)     size 4, hop 2
            windows  [-2,2):a  [0,4):ab  [2,6):ab  [4,8):b  [6,10):b

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.hopping_window(4, 2).select(n=sq.count()).show()
        n  start  end
        1     -2    2
        2      0    4
        2      2    6
        1      4    8
        1      6   10
        """
        return self._in_windows(
            Hopping.from_arguments(size, hop, offset, self._axis, "hopping_window"),
            "hopping_window",
            clip_input,
            stamp,
        )

    def tumbling_window(
        self, size: Duration, offset: Duration = 0, *, clip_input: str = "full", stamp: str | None = None
    ) -> W:
        """Hopping windows that do not overlap: ``hop = size``; the arguments and errors are those of :meth:`hopping_window`.

        ::

            events   a [1,4)  b [3,8)   size 4
            windows  [0,4):ab  [4,8):b

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.tumbling_window(4).select(n=sq.count()).show()
        n  start  end
        2      0    4
        1      4    8
        """
        return self._in_windows(
            Hopping.from_arguments(size, size, offset, self._axis, "tumbling_window"),
            "tumbling_window",
            clip_input,
            stamp,
        )


@dataclass(frozen=True)
class HoppingAssigner(RangeAssigner):
    """Assigns events to hopping windows by the grid."""

    grid: Grid

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        low, high = grid_range(self.grid, table, since, upto)
        return Ranges(np.arange(len(g)), g, low, high, lambda _, index: grid_lifetimes(self.grid, index))

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        # first_ending_after(x): windows with RE > x; those that end at c - 1 count for points at the end
        least = self.grid.start(self.grid.first_ending_after(c - 2))
        return ints(table, RE) > min(c - 1, least)

    def latest_cti(self, c: int) -> int:
        return self.grid.start(self.grid.first_ending_after(c))

    def to_come(self, g: Ints, table: pa.Table, upto: int) -> ToCome:
        return groups_to_come(g, table, upto, self.grid.next_start(upto))


DAY = 86_400_000_000
"""Ticks of 24 hours."""

FIRST_MONDAY = -3
"""The day, counted from 1970-01-01, on which week 0 begins: Monday, 1969-12-29."""

CYCLE = 146_097
"""The number of days in 400 years, after which the calendar repeats, weekdays included."""

UNITS = ("day", "week", "month", "quarter", "year")
MONTHS = {"month": 1, "quarter": 3, "year": 12}
"""The number of months in a unit, for units made of months."""

_PERIOD = re.compile(r"\s*(?:(\d+)\s+)?([a-zA-Z]+?)s?\s*")


@dataclass(frozen=True)
class Calendar(Window):
    """Calendar windows: periods of ``n`` days, weeks, months or years by the clocks of a time zone.

    A window begins at midnight of its first day by those clocks: where they skip midnight, when it would have been; where they
    show it twice, at the first. It lasts until the next window begins, so windows leave no gap and do not overlap: what clocks
    show again after that first midnight is part of the new day, and a day that a zone skipped has no length and no window.
    Weeks begin on Mondays. Windows are counted from 1970-01-01 (weeks: from the week of that day): three months are the quarters
    of a year.
    """

    n: int
    unit: str
    zone: str

    name = "calendar"
    bound = Bound.ENDLESS
    traits = WindowTraits()

    @classmethod
    def from_arguments(cls, period: Any, zone: Any, axis: str) -> Calendar:
        """Return windows of a period such as ``"1 month"``; raise TimeError for other texts, unknown zones, an integer axis."""
        if axis != TIMESTAMP:
            hint = "On an integer axis nobody knows which day it is: take a tumbling_window."
            raise TimeError("calendar_window", "no calendar on an integer axis", f"found {period!r}", hint)
        words = _PERIOD.fullmatch(period) if isinstance(period, str) else None
        n, unit = (int(words[1] or 1), words[2].lower()) if words else (0, "")
        if n < 1 or unit not in UNITS:
            near = nearest(unit, UNITS) if len(unit) > 1 and unit not in UNITS else ""
            hint = "Write '1 day', '2 weeks', '1 month', '1 quarter' or '1 year'; shorter ones are tumbling windows."
            wrong = "not a period of the calendar"
            raise TimeError("calendar_window", wrong, f"found {period!r}", near or hint)
        return cls(n, unit, checked_zone(zone, "calendar_window"))

    @property
    def _is_daily(self) -> bool:
        return (self.n, self.unit) == (1, "day")

    def shown(self, axis: str) -> str:
        return f"{self.n} {self.unit}{'' if self.n == 1 else 's'}, zone={self.zone}"

    def assigner(self, names: Sequence[str]) -> Assigner:
        skipped = skipped_days(self.zone) if self._is_daily else ()
        return CalendarAssigner(self.traits, self.n, self.unit, self.zone, skipped)

    def copies(self, events: BatchEvents) -> tuple[DataFrame, list[str]]:
        """Return the events copied into the windows that they overlap, and the columns of the interval.

        If there is a bound, windows start before it.
        """
        df, last = events.with_lifetimes(), RE
        if events.is_bounded:
            df, last = events.bounded(df, Bound.ENDLESS), f"least({RE}, {UNTIL})"
        low, high = self._number(TickSql(LE)), self._number(TickSql(last) - 1)
        df = df.withColumns({"__lo": low.column, "__hi": high.column})
        df = df.where(F.col("__lo") <= F.col("__hi"))
        df = df.withColumn("__i", F.explode(F.sequence("__lo", "__hi"))).drop("__lo", "__hi", UNTIL)
        starts, ends = self._start(TickSql("__i")), self._start(TickSql("__i") + 1)
        df = df.withColumns({STARTS: starts.column, ENDS: ends.column})
        # a day that the zone skipped has no window
        return df.drop("__i").where(F.col(STARTS) < F.col(ENDS)), [STARTS, ENDS]

    def _number(self, t: TickSql) -> TickSql:
        """Return the number of the window that contains an instant."""
        local = TickSql(f"unix_micros(from_utc_timestamp(timestamp_micros({t.text}), '{self.zone}'))")
        day = SQL.quotient(local, DAY)
        if self.unit in MONTHS:
            on = f"date_from_unix_date(cast({day.text} as int))"
            month = TickSql(f"cast((year({on}) - 1970) * 12 + month({on}) - 1 as bigint)")
            number = SQL.quotient(month, self.n * MONTHS[self.unit])
        elif self.unit == "week":
            number = SQL.quotient(day - FIRST_MONDAY, self.n * 7)
        else:
            number = SQL.quotient(day, self.n)
        # clocks that are set back may show the previous day again
        after = SQL.choose(t < self._start(number + 1), 0, 1)
        before = SQL.choose(t < self._start(number), 1, 0)
        return number + after - before

    def _start(self, number: TickSql) -> TickSql:
        """Return the start of a window."""
        if self.unit in MONTHS:
            month = number * (self.n * MONTHS[self.unit])
            year, of_year = SQL.quotient(month, 12) + 1970, SQL.remainder(month, 12) + 1
            first = f"make_date(cast({year.text} as int), cast({of_year.text} as int), 1)"
            day = TickSql(f"cast(unix_date({first}) as bigint)")
        elif self.unit == "week":
            day = number * (self.n * 7) + FIRST_MONDAY
        else:
            day = number * self.n
        return TickSql(f"unix_micros(to_utc_timestamp(timestamp_micros({(day * DAY).text}), '{self.zone}'))")


class CalendarVerbs(WindowKindVerbs[W]):
    """The verb for calendar windows."""

    def calendar_window(self, period: str, *, zone: str, clip_input: str = "full", stamp: str | None = None) -> W:
        """The days, weeks, months, quarters or years of a time zone, as ``"1 month"`` or ``"2 weeks"``, with its clock changes.

        ``zone``: a name of the tz database. A window begins at midnight of its first day there and lasts until the next one
        begins, so a day has 23 or 25 hours where clocks change; weeks begin on Mondays, and windows are counted from 1970. Where
        clocks skip midnight, a day begins when it would have been. Where they show midnight twice, it begins at the first, and
        what they show again of the day before is part of the new day (America/St_Johns until 2010). A day that a zone repeats is
        one window of up to 48 hours (America/Sitka, 1867); a day that it skips has none (Pacific/Apia, 30 December 2011).
        An event is a member of every window its lifetime overlaps. Raises TimeError.

        ::

            events   3 [31 March 21:00, 22:30)   5 [2 April 10:00, 11:00)     months of Europe/Berlin, where 22:00 UTC is midnight
            windows  [28 February 23:00, 31 March 22:00): 3   [31 March 22:00, 30 April 22:00): 3 5

        >>> import datetime as dt
        >>> import streamq as sq
        >>> march, april = dt.datetime(2026, 3, 31, 21), dt.datetime(2026, 4, 2, 10)
        >>> s = sq.events([(march, march + dt.timedelta(minutes=90), {"v": 3}), (april, april + dt.timedelta(hours=1), {"v": 5})])
        >>> s.calendar_window("1 month", zone="Europe/Berlin").select(total=sq.sum("v")).show()
        total                start                  end
            3  2026-02-28 23:00:00  2026-03-31 22:00:00
            8  2026-03-31 22:00:00  2026-04-30 22:00:00
        """
        return self._in_windows(Calendar.from_arguments(period, zone, self._axis), "calendar_window", clip_input, stamp)


@dataclass(frozen=True)
class CalendarAssigner(RangeAssigner):
    """Assigns events to calendar windows by number: window 0 contains 1970-01-01; ``skipped``: windows of no length."""

    n: int
    unit: str
    zone: str
    skipped: tuple[int, ...] = ()

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Return each event's windows that end after ``since`` and start before ``upto``, by number.

        An event without an end has none unless ``upto`` bounds it.

        A range is cut in two where the zone skipped a day.
        """
        le, re = ints(table, LE), ints(table, RE)
        last = np.minimum(re, upto)
        # a lifetime without an end, and no bound: its last window is unknown
        is_bounded = last < INFINITY
        low = self._number(le)
        high = np.where(is_bounded, self._number(np.where(is_bounded, last - 1, le)), low - 1)
        if since > MINUS_INFINITY:
            low = np.maximum(low, self._number(np.array([since]))[0])
        event = np.arange(len(g))
        for day in self.skipped:
            around = (low <= day) & (day <= high)
            event, low, high = (
                np.concatenate([event, event[around]]),
                np.concatenate([low, np.full(int(around.sum()), day + 1)]),
                np.concatenate([np.where(around, day - 1, high), high[around]]),
            )
        return Ranges(event, g[event], low, high, lambda _, index: (self._starts(index), self._starts(index + 1)))

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        return ints(table, RE) > min(c - 1, self._window_of(c - 2))

    def latest_cti(self, c: int) -> int:
        return self._window_of(c)

    def to_come(self, g: Ints, table: pa.Table, upto: int) -> ToCome:
        is_instant = FIRST_INSTANT < upto < INFINITY - 1
        start = int(self._starts(self._number(np.array([upto - 1])) + 1)[0]) if is_instant else upto
        return groups_to_come(g, table, upto, start)

    def _window_of(self, t: int) -> int:
        """Return the start of the window that contains an instant; an infinite instant itself."""
        if t >= INFINITY - 1 or t <= FIRST_INSTANT:
            return t
        return int(self._starts(self._number(np.array([t])))[0])

    def _number(self, t: Ints) -> Ints:
        """Return the numbers of the windows that contain instants."""
        day = t // DAY
        if self.unit in MONTHS:
            month = day.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
            about = month // (self.n * MONTHS[self.unit])
        elif self.unit == "week":
            about = (day - FIRST_MONDAY) // (self.n * 7)
        else:
            about = day // self.n
        # a zone's day differs from that of UTC by one at most
        return about - 1 + (self._starts(about) <= t) + (self._starts(about + 1) <= t)

    def _starts(self, number: Ints) -> Ints:
        """Return the starts of windows, kept on the axis."""
        numbers, place = np.unique(number, return_inverse=True)
        starts = [_midnight(self._first_day(i), self.zone) for i in numbers.tolist()]
        return np.array(starts, np.int64)[place.reshape(-1)]

    def _first_day(self, number: int) -> int:
        """Return the first day of a window, counted from 1970-01-01."""
        if self.unit in MONTHS:
            return int(np.datetime64(number * self.n * MONTHS[self.unit], "M").astype("datetime64[D]").astype(np.int64))
        return number * self.n * 7 + FIRST_MONDAY if self.unit == "week" else number * self.n


def _midnight(day: int, zone: str) -> int:
    """Return the midnight with which a day, counted from 1970-01-01, begins in a zone, in ticks, kept on the axis."""
    epoch, last = date(1970, 1, 1).toordinal(), date(9998, 12, 31).toordinal()
    ordinal = day + epoch
    # outside of Python's calendar by the rules of the years 1 to 400, and of the 400 before the last
    if ordinal < 2:
        ordinal = (ordinal - 2) % CYCLE + 2
    elif ordinal > last:
        ordinal = last - (last - ordinal) % CYCLE
    there = datetime.fromordinal(ordinal).replace(tzinfo=ZoneInfo(zone))
    as_utc = datetime.fromordinal(ordinal).replace(tzinfo=UTC)
    offset = as_utc - there.astimezone(UTC)
    ticks = day * DAY - (offset.days * DAY + offset.seconds * 1_000_000 + offset.microseconds)
    return max(FIRST_INSTANT, min(INFINITY, ticks))


@lru_cache(1_000)
def skipped_days(zone: str) -> tuple[int, ...]:
    """Return the days from 1800 to 2100, counted from 1970-01-01, that a zone skipped, as when it crossed the date line."""
    of_zone, epoch = ZoneInfo(zone), date(1970, 1, 1)
    firsts = [date(year, month, 1) for year in range(1800, 2101) for month in range(1, 13)]
    offsets = [datetime(d.year, d.month, d.day, tzinfo=of_zone).utcoffset() or timedelta() for d in firsts]
    changed = [i for i in range(1, len(firsts)) if offsets[i] - offsets[i - 1] > timedelta(hours=20)]
    days = (day for i in changed for day in range((firsts[i - 1] - epoch).days, (firsts[i] - epoch).days + 1))
    return tuple(day for day in days if _midnight(day, zone) == _midnight(day + 1, zone))
