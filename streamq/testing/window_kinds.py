"""The rooms of windows: the oracle's definition and the generator of each kind.

Windows on a grid are found by the starts that a range of instants can have; others depend on events.
"""

from __future__ import annotations

import datetime as dt
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from streamq.plan.schema import Schema
from streamq.testing.arrival import DAY, EPOCH, Bounds, GridBounds, instant_at
from streamq.testing.intent import Draw
from streamq.testing.oracle.run import Run, TooMuch
from streamq.testing.oracle.values import listed, order_of, same
from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY, TIMESTAMP, Grid
from streamq.windows import KINDS, Calendar, Count, Hopping, Landmark, Rows, Session, Snapshot, Window

W = TypeVar("W", bound=Window)

Argument = Callable[[str], st.SearchStrategy[Any]]
"""A function from the stream's time axis to the strategy for an argument of a verb."""


def one_of(*values: Any) -> Argument:
    """Return an argument that is one of these values on any axis."""
    return lambda axis: st.sampled_from(values)


def lengths_of_time(least: int, most: int) -> Argument:
    """Return an argument that is a length of ``least`` to ``most`` ticks: an integer or, on the timestamp axis, a timedelta."""

    def drawn(axis: str) -> st.SearchStrategy[Any]:
        many = st.integers(least, most)
        return many.map(lambda n: dt.timedelta(microseconds=n)) if axis == TIMESTAMP else many

    return drawn


@dataclass(frozen=True)
class Members:
    """The oracle's table of events of ``schema``, with the columns ``groups`` of their group, and the payload as ``p0, ...``."""

    events: str
    groups: Sequence[str]
    schema: Schema

    @property
    def partition_clause(self) -> str:
        """The PARTITION BY clause of the groups for SQL's window functions; empty without groups."""
        return f"PARTITION BY {', '.join(self.groups)}" if self.groups else ""


class WindowRoom(ABC, Generic[W]):
    """One kind of windows: its definition, generator and lengths. Defining a subclass registers it."""

    kind: ClassVar[type[Window]]

    arguments: ClassVar[Mapping[tuple[str, str], Argument]] = {}
    """The arguments of the verbs, by verb and name, whose generator depends on the verb."""

    @abstractmethod
    def members(self, window: W, source: Members, run: Run) -> str:
        """Return a table of events, each once for each of its windows, with ``w`` (the window's number), ``w_le``, ``w_re``."""

    def complete(self, draw: Draw, verb: str, arguments: dict[str, Any], open: Any) -> None:
        """Draw arguments that depend on each other, if the verb makes such windows, and set them in ``arguments``.

        ``open`` is the value of an argument that is left open; one that keeps it is drawn by itself later.
        """

    def lengths(self, window: W) -> Iterator[int]:
        """Yield the window's lengths of time, in ticks."""
        yield from ()

    def recurrences(self, window: W) -> Iterator[int]:
        """Yield the distances, in ticks, at which an endless lifetime gives row after row."""
        yield from ()

    def grids(self, window: W) -> Iterator[Grid]:
        """Yield the grids on which windows begin and end."""
        yield from ()

    def bounds(self, window: W) -> Iterator[Bounds]:
        """Yield the instants at which windows begin and end, if they do not depend on events; by default those of the grids."""
        yield from map(GridBounds, self.grids(window))

    def last_end(self, window: W, c: int) -> int:
        """Return the instant to which a CTI is rounded when only such windows read a source: the CTI, if it is not rounded."""
        return c

    def instants(self, window: W, axis: str) -> Iterator[int]:
        """Yield the instants among the window's parameters, in ticks."""
        yield from ()


@cache
def rooms() -> dict[type[Window], WindowRoom[Any]]:
    """Return the rooms by kind, in the order of the kinds."""
    there = {room.kind: room() for room in WindowRoom.__subclasses__()}
    return {kind: there[kind] for kind in KINDS}


def room_of(window: Window) -> WindowRoom[Any]:
    """Return the room of a window."""
    return rooms()[type(window)]


MOST_WINDOWS = 1_000_000
"""The greatest length of a lifetime, in hops; longer ones are refused."""


def hopping_windows(grid: Grid, events: str, run: Run) -> str:
    """Create the table of a grid's windows, with ``w_le`` and ``w_re``: for each event those it may overlap, and some more.

    They are without repetitions, start before :func:`bound`, and are cut at the ends of the axis. Raises TooMuch for a lifetime,
    up to that bound, of more than MOST_WINDOWS hops.
    """
    size, hop, offset = grid.size, grid.hop, grid.offset
    until = bound(events, run)
    last = f"least(re, {until})"
    if (run.value(f"SELECT max({last}::HUGEINT - le) FROM {events}") or 0) > MOST_WINDOWS * hop:
        hint = "Use lifetimes of the query's own lengths: leave the pattern out, or make it shorter."
        raise TooMuch("oracle", "too many windows", f"a lifetime is longer than {MOST_WINDOWS} hops", hint)
    low, high = f"(le::HUGEINT - {offset} - {size}) // {hop} - 2", f"({last}::HUGEINT - {offset}) // {hop} + 2"
    start = f"{offset} + i * {hop}::HUGEINT"
    return run.table(f"""
        SELECT DISTINCT CAST(greatest({FIRST_INSTANT}, {start}) AS BIGINT) AS w_le,
            CAST(greatest({FIRST_INSTANT}, least({INFINITY}, {start} + {size})) AS BIGINT) AS w_re
        FROM (SELECT DISTINCT unnest(range(CAST({low} AS BIGINT), CAST({high} AS BIGINT))) AS i FROM {events})
        WHERE {start} < {until}""")  # fmt: skip


def bound(events: str, run: Run, always: bool = False) -> int:
    """Return the instant before which windows and pieces must start.

    This is the caller's ``until``. Without it, if a lifetime has no end, or if ``always``, it is the greatest instant of the
    input or the CTI that its input has reached, whichever is later (``always``: one tick later); else infinity.
    """
    if run.until is not None:
        return run.until
    is_endless, finite = f"re = {INFINITY}", f"CASE WHEN re < {INFINITY} THEN re ELSE le END"
    ((has_endless, latest),) = run.rows(f"SELECT bool_or({is_endless}), max({finite}) FROM {events}")
    last = max((t for t in (latest, run.reach) if t is not None), default=0)
    if always:
        return last + 1
    return last if has_endless else INFINITY


EARLIEST, LATEST = -50_000_000_000_000_000, 200_000_000_000_000_000
"""Instants in the years 385 and 8307; between them every window is within Python's calendar."""

MOST = 10_000
"""The greatest number of windows of a case; more are refused."""


class CalendarRoom(WindowRoom[Calendar]):
    """The room of :class:`Calendar`.

    Random queries have no calendar windows: their data span a few ticks, or windows of a few ticks too many days.
    """

    kind = Calendar
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

    def edges_near(self, near: int, many: int) -> Iterator[int]:
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
    raise TooMuch("oracle", "too many windows", f"more than {MOST}")


def _date(ticks: int) -> dt.date:
    """Return the day of an instant in UTC; raise TooMuch for one beyond Python's calendar."""
    try:
        return (EPOCH + dt.timedelta(microseconds=ticks)).date()
    except OverflowError as error:
        raise TooMuch("oracle", "an instant beyond the calendar", f"found {ticks}") from error


def _begin(window: Calendar, day: dt.date) -> dt.date:
    match window.unit:
        case "day":
            return day - dt.timedelta(days=(day - EPOCH.date()).days % window.n)
        case "week":
            monday = dt.date(1969, 12, 29)
            return day - dt.timedelta(days=(day - monday).days % (7 * window.n))
    months = window.n * {"month": 1, "quarter": 3, "year": 12}[window.unit]
    return _month((day.year * 12 + day.month - 1 - 1970 * 12) // months * months)


def _after(window: Calendar, first: dt.date) -> dt.date:
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


class HoppingRoom(WindowRoom[Hopping]):
    kind = Hopping

    def members(self, window: Hopping, source: Members, run: Run) -> str:
        """Return a table of events, joined with the grid's windows that overlap them and start before the oracle's bound."""
        windows = hopping_windows(window.grid, source.events, run)
        return run.table(
            f"SELECT {listed('0 AS w', 'w_le', 'w_re', 'a.*')} FROM {source.events} a JOIN {windows} ON le < w_re AND re > w_le"
        )

    def lengths(self, window: Hopping) -> Iterator[int]:
        yield from (window.size, window.hop)

    def recurrences(self, window: Hopping) -> Iterator[int]:
        yield window.hop

    def grids(self, window: Hopping) -> Iterator[Grid]:
        yield window.grid

    def last_end(self, window: Hopping, c: int) -> int:
        """Return the greatest end of a window that is not after a CTI."""
        return c - (c - window.offset - window.size) % window.hop


def first_landmarks(axis: str) -> st.SearchStrategy[Any]:
    """Return a strategy for an instant near tick 0."""
    at = st.integers(-5, 9)
    return at.map(lambda n: instant_at(n, axis))


class LandmarkRoom(WindowRoom[Landmark]):
    kind = Landmark
    arguments = {("landmark_window", "start"): first_landmarks, ("landmark_window", "period"): lengths_of_time(2, 15)}

    def last_end(self, window: Landmark, c: int) -> int:
        """Return the greatest end of a window that is not after a CTI; minus infinity before the first one."""
        mark = window.start
        if window.period is not None:
            mark = c - (c - window.start) % window.period
        elif c < window.start + window.hop:
            return MINUS_INFINITY
        return c - (c - mark) % window.hop

    def members(self, window: Landmark, source: Members, run: Run) -> str:
        """Return a table of events, joined with the windows ``[l, l + jH)`` that overlap them.

        The last window is cut at the next landmark; windows are reported while ``l + (j - 1)H`` is before the oracle's bound,
        even if all events end.
        """
        hop, start, period = window.hop, window.start, window.period
        until = bound(source.events, run, always=True)
        if period is None:
            marks, cut = f"(SELECT {start}::HUGEINT AS l)", str(INFINITY)
            most = f"({until} - l) // {hop} + 2"
        else:
            low, high = (f"CAST(({t}::HUGEINT - {start}) // {period} AS BIGINT)" for t in ("le", f"least(re, {until})"))
            number = f"unnest(range({low} - 1, {high} + 2))::HUGEINT"
            marks = f"(SELECT DISTINCT {start} + {period} * {number} AS l FROM {source.events})"
            cut, most = f"l + {period}", f"{period} // {hop} + 2"
        end = f"least(l + j * {hop}, {cut}, {INFINITY})"
        windows = run.table(f"""
            SELECT DISTINCT CAST(l AS BIGINT) AS w_le, CAST({end} AS BIGINT) AS w_re
            FROM (SELECT l, unnest(range(1, CAST({most} AS BIGINT) + 1)) AS j FROM {marks})
            WHERE l >= {MINUS_INFINITY} AND l + (j - 1) * {hop} < least({until}, {cut})""")  # fmt: skip
        return run.table(
            f"SELECT {listed('0 AS w', 'w_le', 'w_re', 'a.*')} FROM {source.events} a JOIN {windows} ON le < w_re AND re > w_le"
        )

    def complete(self, draw: Draw, verb: str, arguments: dict[str, Any], open: Any) -> None:
        """If the period is open, set it, or an open start, to None in some draws; a window without a period must have a start."""
        if verb != "landmark_window" or arguments.get("period") is not open:
            return
        if draw(st.sampled_from([False, False, True])):
            arguments["period"] = None
            arguments["start"] = arguments.get("start") or open
        elif arguments.get("start") is open and draw(st.booleans()):
            arguments["start"] = None

    def lengths(self, window: Landmark) -> Iterator[int]:
        yield from (window.hop, window.period or window.hop)

    def recurrences(self, window: Landmark) -> Iterator[int]:
        yield window.hop

    def grids(self, window: Landmark) -> Iterator[Grid]:
        yield Grid(window.hop, window.period or window.hop, window.start)

    def instants(self, window: Landmark, axis: str) -> Iterator[int]:
        if window.period is None and axis == TIMESTAMP:
            yield window.start


# windows that depend on events


class CountRoom(WindowRoom[Count]):
    kind = Count
    arguments = {("count_window", "by"): one_of("start", "end")}

    def members(self, window: Count, source: Members, run: Run) -> str:
        """Return a table of events, joined with the windows that contain their start or, by "end", their end.

        A window has n different instants of a group, from each of them on, and ends a tick after the last; where fewer follow
        there is none. By "end", endless events are in no window.
        """
        at = "le" if window.by == "start" else "re"
        instants = (
            f"SELECT DISTINCT {listed(f'{at} AS t', *source.groups)} FROM {source.events} WHERE {at} < {INFINITY}"
        )
        last = f"lead(t, {window.n - 1}) OVER ({source.partition_clause} ORDER BY t) + 1 AS w_re"
        windows = run.table(f"SELECT {listed('t AS w_le', last, *source.groups)} FROM ({instants})")
        inside = f"{same(source.groups)} AND a.{at} >= b.w_le AND a.{at} < b.w_re"
        return run.table(
            f"SELECT {listed('0 AS w', 'w_le', 'w_re', 'a.*')} FROM {source.events} a JOIN {windows} b ON {inside}"
        )


class RowsRoom(WindowRoom[Rows]):
    kind = Rows

    def members(self, window: Rows, source: Members, run: Run) -> str:
        """Return a table of events, joined with their windows: n in a row of a group, from each multiple of ``step`` on.

        Events are in the order of start, ``order_by``, the rest of the payload without the condition on members, and end.
        A window lasts from the first one's start to a tick after the last one's; a window with fewer events does not exist.
        """
        names = source.schema.names
        whole = [*window.order_by, *(n for n in names if n not in (*window.order_by, window.where))]
        order = listed("le", *(f"{order_of(source.schema)[names.index(c)]} NULLS FIRST" for c in whole), "re")
        rows = run.table(
            f"SELECT *, row_number() OVER ({source.partition_clause} ORDER BY {order}) - 1 AS place FROM {source.events}"
        )
        last = f"lead(le, {window.n - 1}) OVER ({source.partition_clause} ORDER BY place) + 1 AS w_re"
        windows = run.table(f"""
            SELECT * FROM (SELECT {listed("place AS w", "le AS w_le", last, *source.groups)} FROM {rows})
            WHERE w % {window.step} = 0 AND w_re IS NOT NULL""")  # fmt: skip
        inside = f"{same(source.groups)} AND a.place BETWEEN b.w AND b.w + {window.n - 1}"
        return run.table(f"SELECT b.w, b.w_le, b.w_re, a.* FROM {rows} a JOIN {windows} b ON {inside}")


class SessionRoom(WindowRoom[Session]):
    kind = Session
    arguments = {("session_window", "gap"): lengths_of_time(2, 6)}

    def members(self, window: Session, source: Members, run: Run) -> str:
        """Return a table of events, each with its session.

        A session begins at each start that is a gap or more after the last instants of all earlier events of the group. It has
        the events from there until the next session's start, and ends a gap after the last instant of them all; with
        an endless event, it does not end.
        """
        near = f"{same(source.groups)} AND b.le < a.le AND b.re::HUGEINT - 1 + {window.gap} > a.le"
        heads = run.table(f"""
            SELECT DISTINCT {listed("le AS t", *source.groups)} FROM {source.events} a
            WHERE NOT EXISTS (SELECT 1 FROM {source.events} b WHERE {near})""")  # fmt: skip
        first = f"(SELECT max(b.t) FROM {heads} b WHERE {same(source.groups)} AND b.t <= a.le)"
        rows = run.table(f"SELECT {first} AS w_le, a.* FROM {source.events} a")
        own = f"max(re) OVER (PARTITION BY {listed('w_le', *source.groups)})"
        end = f"CAST(least({INFINITY}, {own}::HUGEINT - 1 + {window.gap}) AS BIGINT)"
        return run.table(f"SELECT 0 AS w, w_le, {end} AS w_re, * EXCLUDE (w_le) FROM {rows}")

    def lengths(self, window: Session) -> Iterator[int]:
        yield window.gap


class SnapshotRoom(WindowRoom[Snapshot]):
    kind = Snapshot
    arguments = {("sliding_window", "duration"): lengths_of_time(1, 6)}

    def members(self, window: Snapshot, source: Members, run: Run) -> str:
        """Return a table of events, joined with the windows that overlap them: from a start or end to the group's next."""
        starts, ends = (f"SELECT {listed(f'{at} AS t', *source.groups)} FROM {source.events}" for at in ("le", "re"))
        end = f"lead(t) OVER ({source.partition_clause} ORDER BY t) AS w_re"
        windows = run.table(f"SELECT {listed('t AS w_le', end, *source.groups)} FROM ({starts} UNION {ends})")
        overlap = f"{same(source.groups)} AND a.le < b.w_re AND a.re > b.w_le"
        return run.table(
            f"SELECT {listed('0 AS w', 'w_le', 'w_re', 'a.*')} FROM {source.events} a JOIN {windows} b ON {overlap}"
        )
