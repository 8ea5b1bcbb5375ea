"""Window assigners: they give the windows that each event lies in, as ranges of windows numbered per group.

Each kind of windows has its own, in its room in ``streamq/windows``; executors get no other part of the kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import codes, first_places, ints
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.event import RE
from streamq.runtime.groups import Holds, ToCome, no_holds
from streamq.time import INFINITY, MINUS_INFINITY, Grid

if TYPE_CHECKING:
    from streamq.runtime.time.progress_rule import Cti, MissingRows


@dataclass(frozen=True)
class Ranges:
    """Events (by row), the windows ``low .. high`` of ``owner`` in which each lies, and a function that gives their lifetimes.

    An owner, which belongs to one group, has its own numbering of windows; an event may occur under several owners.
    """

    event: Ints
    owner: Ints
    low: Ints
    high: Ints
    where: Callable[[Ints, Ints], tuple[Ints, Ints]]

    def some(self) -> Ranges:
        return self.take(self.low <= self.high)

    def take(self, which: Ints | Mask) -> Ranges:
        """Return some of the ranges, by place or mask; one may occur repeatedly."""
        return Ranges(self.event[which], self.owner[which], self.low[which], self.high[which], self.where)


class Assigner(ABC):
    """The assignment of the events of groups ``g`` to windows of one kind."""

    is_piecewise: bool = False
    """True if windows are the pieces between changes: a change ends one of them, and leaves earlier ones unchanged."""

    counts_events: bool = False
    """True if windows go by numbers of events: those of a chain are consecutive, and a row of them stands for their number."""

    inner_keys: tuple[str, ...] = ()
    """The keys, among the evaluator's, by which the members of one window are grouped."""

    where: str = ""
    """The boolean column that is true of the members, among the events that windows are made of; "": all are members."""

    @property
    def has_chains(self) -> bool:
        """True if some settled events stay together in the same windows for good, as :meth:`chains` tells."""
        return True

    @property
    def order_columns(self) -> tuple[str, ...]:
        """The columns of the payload that decide which windows an event is in; by default none."""
        return ()

    @property
    def grid(self) -> Grid | None:
        """The grid of the windows, which are then reported one by one; None: they lie on no grid."""
        return None

    @property
    def cti(self) -> Cti:
        """The CTI rule of results that live on their windows, if corrections would hold back progress."""
        from streamq.runtime.time.progress_rule import Cti

        return Cti.EARLIEST_WINDOW

    def wanted(self, *, grouped: bool) -> MissingRows | None:
        """Return the rows that a window waits for when no progress can close it; None: progress closes it."""
        return None

    @abstractmethod
    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Return each event's windows that end after ``since``; ranges may be empty.

        On a grid an endless event has windows without limit. There ``upto`` bounds the windows of all events, and an endless
        event has none if ``upto`` is INFINITY. Kinds whose events all have a limited number of windows ignore ``upto``.
        """

    @abstractmethod
    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        """Mark the events in windows that end at or after c - 1."""

    def holds(self, g: Ints, table: pa.Table, rows: pa.Table, c: int) -> Holds:
        """Return the starts of windows that are not final at c, among those in ``rows`` and those to come, by group.

        None if these are known from c alone.
        """
        return no_holds()

    def chains(self, g: Ints, table: pa.Table, c: int) -> Ints:
        """Return a number for each of these events, which no longer change at CTI c, the same for those that stay together.

        Events of one number are in the same windows from now on, of those that end at or after c - 1. One event from their least
        start to their greatest end would be in these windows, and no others would change if it replaced them; if windows are
        pieces, one from their greatest start to their least end; if windows count events, one that counts as all of them. By
        default each event has a number of its own.
        """
        return np.arange(len(g))

    def basic_windows(self, starts: Ints) -> Ints | None:
        """Return a number for points with these starts, the same for those between two ends of windows; None if they may move.

        Such points are in the same windows, and late together, as the CTI is rounded down to an end of a window.
        """
        return None

    def heads(self, table: pa.Table, number: Ints) -> Ints:
        """Return, by number of a chain, the event whose columns a row of the chain has; by default the one that comes first."""
        return first_places(number)

    def latest_cti(self, c: int) -> int:
        """Return the CTI to send at c if no group holds it back."""
        return c

    def to_come(self, g: Ints, table: pa.Table, upto: int) -> ToCome:
        """Return the groups of events with windows that :meth:`ranges` leaves out because they start at ``upto`` or later.

        By default these are the groups of the events that live beyond ``upto``, each with the instant of :meth:`next_start`.
        """
        later = g[ints(table, RE) > upto]
        return ToCome(later, np.full(len(later), self.next_start(upto)))

    def next_start(self, t: int) -> int:
        """Return a bound on the start of the first window from ``t`` on: none starts before it; by default ``t``."""
        return t


class RangeAssigner(Assigner):
    """An assigner of fixed windows, which do not depend on events."""

    def chains(self, g: Ints, table: pa.Table, c: int) -> Ints:
        """Return equal numbers for events in the same range of windows that end at or after c - 1.

        An event in several ranges, or in none, has a number of its own.
        """
        ranges = self.ranges(g, table, max(MINUS_INFINITY, c - 2), INFINITY).some()
        number = np.arange(len(g))
        is_only = np.bincount(ranges.event, minlength=len(g))[ranges.event] == 1
        of, names = ranges.event[is_only], ("owner", "low", "high")
        same, first = codes(pa.table({name: getattr(ranges, name)[is_only] for name in names}), names)
        number[of] = of[first[same]]
        return number
