"""Session windows, chains of events that follow one another within a gap; and snapshots, in which no event starts or ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from streamq.errors import TimeError
from streamq.plan.footprint import Footprint, Retention
from streamq.plan.schema import quote
from streamq.runtime.arrow.columnar import codes, ints
from streamq.runtime.arrow.values import Ints, Mask, distinct
from streamq.runtime.deltas import LE, RE, WAKES
from streamq.runtime.evaluators.assigner import Assigner, Ranges, WindowTraits, distinct_pairs, find_places, running_max
from streamq.runtime.groups import GROUP_NUMBER, Holds, ToCome, least_by_group
from streamq.runtime.time.progress_rule import Cti, saturating
from streamq.time import INFINITY, MINUS_INFINITY, Duration, show_duration, ticks
from streamq.windows.batch_events import ENDS, STARTS, BatchEvents
from streamq.windows.window import W, Window, WindowKindVerbs


@dataclass(frozen=True)
class Session(Window):
    """Session windows: the longest chains of a group's events that follow one another within ``gap``.

    An event belongs to the session if it starts before L + gap, where L is the last instant at which an earlier event of the
    session is alive. The window is ``[least start, L + gap)``. ``gap`` is at least two ticks.
    """

    gap: int

    name = "session"
    traits = WindowTraits()

    @classmethod
    def from_arguments(cls, gap: Duration, axis: str) -> Session:
        """Return sessions with a gap; raise TimeError for a gap of fewer than two ticks, or one that does not fit the axis."""
        if ticks(gap, axis, "session_window") < 2:
            raise TimeError("session_window", "gap must be at least two ticks", f"found {gap!r}")
        return cls(ticks(gap, axis, "session_window"))

    def footprint(self, longest: int | None, keys: tuple[str, ...], *, condenses: bool) -> Footprint:
        return replace(
            super().footprint(longest, keys, condenses=condenses),
            cti="the least start of a session not final",
            keeps="events of sessions not final",
        )

    def _retention(self, longest: int, keys: tuple[str, ...], *, condenses: bool) -> Retention | None:
        """Return a bound where the settled events of a session are one row: a session may go on for ever."""
        return Retention(longest + self.gap) if condenses else None

    def shown(self, axis: str) -> str:
        return f"gap={show_duration(self.gap, axis)}"

    def assigner(self, names: Sequence[str]) -> Assigner:
        return SessionAssigner(self.traits, self.gap)

    def copies(self, events: BatchEvents) -> tuple[DataFrame, list[str]]:
        """Return each event with the interval of its session, and the columns of the interval."""
        keys = [quote(k) for k in events.keys]
        order = Over.partitionBy(*keys).orderBy(LE)
        before = F.max(RE).over(order.rangeBetween(Over.unboundedPreceding, -1))

        def till(re: Column) -> Column:
            end = F.coalesce(F.try_add(re, F.lit(self.gap - 1)), F.lit(INFINITY))
            return F.when(re == INFINITY, F.lit(INFINITY)).otherwise(end)

        new = F.when(before.isNull() | (F.col(LE) >= till(before)), F.col(LE))
        df = events.with_lifetimes().withColumn("__new", new)
        df = df.withColumn(STARTS, F.max("__new").over(order.rangeBetween(Over.unboundedPreceding, Over.currentRow)))
        last = F.max(RE).over(Over.partitionBy(*keys, STARTS))
        return df.withColumn(ENDS, till(last)).drop("__new"), [STARTS, ENDS]


class SessionVerbs(WindowKindVerbs[W]):
    """The verb for session windows."""

    def session_window(self, gap: Duration, *, clip_input: str = "full", stamp: str | None = None) -> W:
        """Maximal chains of events that each start before the last instant alive + ``gap``, where the session ends.

        ``gap`` is at least two ticks, else TimeError is raised. An event without end keeps its session open for ever.

        ::

            events   3 [1,2)  5 [4,5)  1 [20,21)   gap 5
            windows  [1,9):3 5  [20,25):1

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5}), (20, 21, {"v": 1})])
        >>> s.session_window(5).select(n=sq.count()).show()
        n  start  end
        2      1    9
        1     20   25
        """
        return self._in_windows(Session.from_arguments(gap, self._axis), "session_window", clip_input, stamp)


@dataclass(frozen=True)
class SessionAssigner(Assigner):
    """Assigns events to sessions, which are the chains of their group's events."""

    gap: int

    @property
    def cti(self) -> Cti:
        return Cti.SESSION

    def _sessions(self, g: Ints, table: pa.Table) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the row numbers of events in the order of group and LE, in that order their sessions, and the sessions' bounds.

        Sessions of all groups are numbered together, from 0 on; by number there are two arrays, of starts and of ends.
        """
        le, re = ints(table, LE), ints(table, RE)
        order = np.lexsort((le, g))
        g, le, re = g[order], le[order], re[order]
        if not len(order):
            return order, order, order, order
        alive = running_max(g, re)
        new = np.ones(len(order), bool)
        new[1:] = (g[1:] != g[:-1]) | (le[1:] >= saturating(alive[:-1], self.gap - 1))
        number = np.cumsum(new) - 1
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(order)) - 1
        return order, number, le[first], saturating(alive[last], self.gap - 1)

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Return the session of each event, or an empty range if it has ended by ``since``; ``upto`` bounds nothing."""
        order, number, start, end = self._sessions(g, table)
        low = np.where(end[number] > since, number, number + 1) if len(order) else number
        return Ranges(order, g[order], low, number, lambda _, index: (start[index], end[index]))

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        """Mark the events of sessions that end at or after c - 1."""
        order, number, _, end = self._sessions(g, table)
        is_needed = np.zeros(len(order), bool)
        is_needed[order] = end[number] >= c - 1
        return is_needed

    def chains(self, g: Ints, table: pa.Table, c: int) -> Ints:
        """Return the numbers of the sessions that these events alone would be: nothing parts them, others only join them."""
        order, number, _, _ = self._sessions(g, table)
        chains = np.empty(len(order), np.int64)
        chains[order] = number
        return chains

    def holds(self, g: Ints, table: pa.Table, rows: pa.Table, c: int) -> Holds:
        """Return the starts of the sessions that end after c, each until its end."""
        order, number, start, end = self._sessions(g, table)
        is_open = end > c
        of = np.zeros(len(start), np.int64)
        of[number] = g[order]
        return Holds(of[is_open], start[is_open], end[is_open])


@dataclass(frozen=True)
class Snapshot(Window):
    """Snapshot windows: ``[t_j, t_j+1)`` between consecutive distinct starts and ends of a group's events.

    Inside a window no event of the group starts or ends, so its members are the same at every instant.
    """

    name = "snapshot"
    traits = WindowTraits(is_piecewise=True)

    def footprint(self, longest: int | None, keys: tuple[str, ...], *, condenses: bool) -> Footprint:
        return replace(
            super().footprint(longest, keys, condenses=condenses),
            cti="c, under a time-sensitive aggregate the start of the earliest window not final",
            final="windows that end before c",
            keeps="events not settled, and those alive since the endpoint before c",
        )

    def _retention(self, longest: int, keys: tuple[str, ...], *, condenses: bool) -> Retention:
        return Retention(longest)

    def shown(self, axis: str) -> str:
        return "every change"

    def assigner(self, names: Sequence[str]) -> Assigner:
        return SnapshotAssigner(self.traits)


class SnapshotVerbs(WindowKindVerbs[W]):
    """The verb for snapshot windows."""

    def snapshot_window(self, *, clip_input: str = "full", stamp: str | None = None) -> W:
        """The stretches in which nothing starts or ends: ``[t_j, t_j+1)`` between consecutive endpoints of the group.

        ::

            events   a [1,5)  b [3,8)
            windows  [1,3):a  [3,5):ab  [5,8):b

        >>> import streamq as sq
        >>> s = sq.events([(1, 5, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.snapshot_window().select(n=sq.count()).show()
        n  start  end
        1      1    3
        2      3    5
        1      5    8
        """
        return self._in_windows(Snapshot(), "snapshot_window", clip_input, stamp)


@dataclass(frozen=True)
class SnapshotAssigner(Assigner):
    """Assigns events to snapshots by the distinct endpoints of their group."""

    def chains(self, g: Ints, table: pa.Table, c: int) -> Ints:
        """Return equal numbers for events of a group with the same end that start before c - 1.

        No window that ends at or after c - 1 parts them: it starts where the last of them does, or later. Others have numbers of
        their own.
        """
        number, first = codes(pa.table({"g": g, "end": table.column(RE)}), ["g", "end"])
        return np.where(ints(table, LE) < max(MINUS_INFINITY, c - 1), number, len(first) + np.arange(len(g)))

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Return each event's windows that end after ``since`` and start before ``upto``: from LE, or later, to RE, or earlier.

        Windows of all groups are numbered together.
        """
        le, re = ints(table, LE), ints(table, RE)
        n = int(g.max(initial=-1)) + 1
        # the endpoints of each group between which these windows lie: all are of one of its events
        first, last = np.full(n, MINUS_INFINITY), np.full(n, INFINITY)
        for at in (le, re):
            np.maximum.at(first, g[at <= since], at[at <= since])
            np.minimum.at(last, g[at >= upto], at[at >= upto])
        is_there = (le < last[g]) & (re > first[g])
        event = np.flatnonzero(is_there)
        g, le, re = g[event], np.maximum(le[event], first[g[event]]), np.minimum(re[event], last[g[event]])
        inner = [(g[at < last[g]], at[at < last[g]]) for at in (np.where(le > first[g], le, INFINITY), re)]
        some = distinct(g)
        has_first = some[first[some] > MINUS_INFINITY]
        groups, instants = zip(*inner, (has_first, first[has_first]), (some, last[some]), strict=True)
        group, at = distinct_pairs(np.concatenate(groups), np.concatenate(instants))
        low, high = find_places(group, at, g, le), find_places(group, at, g, re) - 1
        return Ranges(event, g, low, high, lambda _, index: (at[index], at[index + 1]))

    def to_come(self, g: Ints, table: pa.Table, upto: int) -> ToCome:
        """Return the groups with windows that start at ``upto`` or later, with the start and end of the first of each.

        A window starts where an event does, or where one ends while another lives on.
        """
        le, re = ints(table, LE), ints(table, RE)
        n = int(g.max(initial=-1)) + 1
        before, later, finite = le < upto, le >= upto, (re >= upto) & (re < INFINITY)
        start = least_by_group(n, (g[later], le[later]), otherwise=INFINITY)
        end = least_by_group(n, (g[finite], re[finite]), otherwise=INFINITY)
        last = np.full(n, MINUS_INFINITY)
        np.maximum.at(last, g[before], re[before])
        if WAKES in table.column_names:
            # of the events for which a row stands one ends with it, others later
            sleeps = ints(table, WAKES) < INFINITY
            np.maximum.at(last, g[sleeps], re[sleeps] + 1)
        start = np.minimum(start, np.where(end < last, end, INFINITY))
        inner = [(g[at > start[g]], at[at > start[g]]) for at in (le, re)]
        group = np.flatnonzero(start < INFINITY)
        end = least_by_group(n, *inner, otherwise=INFINITY)[group]
        first = pa.table({GROUP_NUMBER: group, LE: start[group], RE: end})
        return ToCome(group, start[group], first)

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        """Mark the events that end at or after the last endpoint of their group before c - 1.

        The window from there on may still change. In a group without an event that is alive from that endpoint to c - 1, mark
        the events that end at or after c - 1.
        """
        le, re = ints(table, LE), ints(table, RE)
        # the last window that may change starts at the last endpoint before c - 1, if an event is alive there
        c = c - 1
        least = np.full(int(g.max(initial=0)) + 1, MINUS_INFINITY)
        for at in (le, re):
            before = at < c
            np.maximum.at(least, g[before], at[before])
        alive = np.zeros(len(least), bool)
        alive[g[(le < c) & (re >= c)]] = True
        return re >= np.where(alive, least, c)[g]

    def holds(self, g: Ints, table: pa.Table, rows: pa.Table, c: int) -> Holds:
        """Return the starts of the windows that end at or after c, each until a tick past its end."""
        opened = rows.filter(pa.array(ints(rows, RE) >= c))
        return Holds(ints(opened, GROUP_NUMBER), ints(opened, LE), saturating(ints(opened, RE), 1))
