"""Session windows: chains of events that follow one another within a gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.errors import TimeError, sentence
from streamq.plan.footprint import Footprint, Retention
from streamq.plan.schema import quote
from streamq.runtime.arrow.columnar import ints
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.evaluators.assigner import Assigner, Ranges
from streamq.runtime.evaluators.numbering import running_max
from streamq.runtime.event import LE, RE
from streamq.runtime.groups import Holds
from streamq.runtime.time.tick_arithmetic import saturating
from streamq.time import INFINITY, Duration, show_duration, ticks
from streamq.windows.batch_events import ENDS, STARTS, BatchEvents
from streamq.windows.window import W, Window, WindowKindVerbs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamq.runtime.time.progress_rule import Cti


@dataclass(frozen=True)
class Session(Window):
    """Session windows: the longest chains of a group's events that follow one another within ``gap``.

    An event belongs to the session if it starts before L + gap, where L is the last instant at which an earlier event of the
    session is alive. The window is ``[least start, L + gap)``. ``gap`` is at least two ticks.
    """

    gap: int

    name = "session"

    @classmethod
    def from_arguments(cls, gap: Duration, axis: str) -> Session:
        """Return sessions with a gap; raise TimeError for a gap of fewer than two ticks, or one that does not fit the axis."""
        if ticks(gap, axis, "session_window") < 2:
            raise TimeError(sentence("session_window", "gap must be at least two ticks", f"found {gap!r}"))
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
        return SessionAssigner(self.gap)

    def copies(self, events: BatchEvents) -> tuple[DataFrame, list[str]]:
        """Return each event with the interval of its session, and the columns of the interval."""
        from pyspark.sql import Window as Over
        from pyspark.sql import functions as F

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
        return self._in_windows(lambda axis: Session.from_arguments(gap, axis), "session_window", clip_input, stamp)


@dataclass(frozen=True)
class SessionAssigner(Assigner):
    """Assigns events to sessions, which are the chains of their group's events."""

    gap: int

    @property
    def cti(self) -> Cti:
        from streamq.runtime.time.progress_rule import Cti

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
