"""Window assigners: they give the windows that each event lies in, as ranges of windows numbered per group.

Each kind of windows has its own, in its room in ``streamq/windows``; executors get no other part of the kind. Windows are
numbered by places of events and instants in their groups: events are ordered by start, then by columns, then by end. ``g`` are
numbers of groups; ``group, at`` are the distinct pairs of a group and an instant, in order, and a place is an index into these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.plan.partial import COUNT
from streamq.runtime.arrow.columnar import codes, first_places, ints
from streamq.runtime.arrow.values import Ints, Mask, column_ranks, distinct
from streamq.runtime.deltas import LE, RE
from streamq.runtime.groups import Holds, ToCome, no_holds
from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY, Grid, WindowEnds

if TYPE_CHECKING:
    from streamq.runtime.time.progress_rule import Cti


def distinct_pairs(g: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Return the distinct pairs of a group and an instant, ordered by group, then instant."""
    order = np.lexsort((at, g))
    g, at = g[order], at[order]
    new = is_new_pair(g, at)
    return g[new], at[new]


def running_max(group: Ints, values: Ints) -> Ints:
    """Return the greatest value so far in each row's group; rows are ordered by group. There is at least one."""
    finite = values[values < INFINITY]
    least, most = (int(finite.min()), int(finite.max()) + 1) if len(finite) else (0, 0)
    width = most - least + 1
    if (int(group[-1]) + 1) * width < 1 << 62:
        base = group * width
        reached = np.maximum.accumulate(base + np.where(values < INFINITY, values - least, width - 1)) - base
        return np.where(reached == width - 1, INFINITY, reached + least)
    every = distinct(values)
    base = group * len(every)
    greatest: Ints = every[np.maximum.accumulate(base + np.searchsorted(every, values)) - base]
    return greatest


def distance_behind(t: Ints | int, mark: Ints) -> Ints:
    """Return ``t - mark``, at most ``INFINITY - 1``; a difference below the axis becomes ``FIRST_INSTANT``."""
    with np.errstate(over="ignore"):
        distance = t - mark
    distance = np.where((t >= mark) & ((distance < 0) | (distance == INFINITY)), INFINITY - 1, distance)
    return np.where((t < mark) & (distance > 0), FIRST_INSTANT, distance)


def is_new_pair(a: Ints, b: Ints) -> Mask:
    """Mark the ordered pairs that differ from the pair before them; the first is marked."""
    new = np.ones(len(a), bool)
    new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    return new


def find_places(group: Ints, at: Ints, g: Ints, t: Ints) -> Ints:
    """Return the place of each (g, t) among the ordered pairs, which contain it."""
    every = distinct(at)
    m = len(every) + 1
    return np.searchsorted(group * m + np.searchsorted(every, at), g * m + np.searchsorted(every, t))


def group_bounds(group: Ints, g: Ints) -> tuple[Ints, Ints]:
    """Return the first and last place of each group among ordered places; a group without places has a last below its first."""
    return np.searchsorted(group, g, "left"), np.searchsorted(group, g, "right") - 1


def run_bounds(values: Ints) -> tuple[Ints, Ints]:
    """Return, for each of some sorted values, the first and last place of the values equal to it."""
    heads = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    ends = np.append(heads, len(values))[1:]
    return np.repeat(heads, ends - heads), np.repeat(ends - 1, ends - heads)


def first_place(group: Ints, wanted: Mask, g: Ints) -> Ints:
    """Return the first wanted place of each group; for a group without one, some place past its last."""
    first, last = group_bounds(group, g)
    places = np.flatnonzero(wanted)
    place = np.searchsorted(places, first)
    return (
        np.where(place < len(places), places[np.minimum(place, max(len(places) - 1, 0))], last + 1)
        if len(places)
        else last + 1
    )


def event_order(table: pa.Table, group: Ints, names: Sequence[str]) -> tuple[Ints, Ints]:
    """Return row numbers in the order of group, start, ``names`` and end, and a number that rises with each of these but the end.

    Columns are compared only where starts are equal.
    """
    le = ints(table, LE)
    is_sorted = ((group[1:] > group[:-1]) | ((group[1:] == group[:-1]) & (le[1:] >= le[:-1]))).all()
    order = np.arange(len(le)) if is_sorted else np.lexsort((le, group))
    is_new = is_new_pair(group[order], le[order])
    is_tied = ~is_new
    is_tied[:-1] |= ~is_new[1:]
    if is_tied.any():
        rows, number = order[is_tied], np.cumsum(is_new)[is_tied]
        tied = table.take(pa.array(rows))
        ranks = column_ranks(tied, names)
        place = np.lexsort((ints(tied, RE), *reversed(ranks), number))
        order[is_tied] = rows[place]
        differs = np.zeros(len(place), bool)
        for rank in ranks:
            differs[1:] |= rank[place][1:] != rank[place][:-1]
        is_new[is_tied] |= differs
    return order, np.cumsum(is_new) - 1


@dataclass(frozen=True)
class OrderedRows:
    """The rows of a table in the order of their groups and events, as arrays; a row is one event, or several consecutive ones.

    ``row`` is its number in the table. ``head`` is the index of the first row of its group, and ``last`` that of the last.
    ``start`` is that of its first event. ``upto`` has the number of events before each row, over all groups, and at its end that
    of all events.
    """

    row: Ints
    group: Ints
    head: Ints
    last: Ints
    start: Ints
    upto: Ints

    @staticmethod
    def in_order(row: Ints, g: Ints, table: pa.Table) -> OrderedRows:
        """Return the rows of a table in the order ``row``; ``g`` are their groups, in the table's order.

        Without a column of counts each row is one event.
        """
        count = ints(table, COUNT)[row] if COUNT in table.column_names else np.ones(len(row), np.int64)
        head, last = run_bounds(g[row])
        return OrderedRows(row, g[row], head, last, ints(table, LE)[row], np.concatenate([[0], np.cumsum(count)]))

    @property
    def place(self) -> Ints:
        """The place of each row's first event in its group, from 0 on."""
        return self.upto[:-1] - self.upto[self.head]

    @property
    def events(self) -> Ints:
        """The number of events of each row's group."""
        return self.upto[self.last + 1] - self.upto[self.head]

    def place_since(self, since: int) -> Ints:
        """Return, for each row, the place of the first event of its group in a row that starts at ``since`` or later.

        That is the place of the next event to come if there is no such row.
        """
        earlier = np.concatenate([[0], np.cumsum(self.start < since)])
        first = self.head + earlier[self.last + 1] - earlier[self.head]
        return self.upto[first] - self.upto[self.head]

    def start_at(self, head: Ints, place: Ints) -> Ints:
        """Return the start of the row with the event at a place of the group with this head."""
        return self.start[np.searchsorted(self.upto, self.upto[head] + place, "right") - 1]


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


@dataclass(frozen=True)
class CountMeasure:
    """The numbers that windows go by: of the rows of a group, or of its distinct instants, ``n`` a window, one every ``step``.

    distinct: the instants that are counted, "start" or "end"; "": rows are, in the order of start, then of the columns
    ``order_by``. inner_keys: the keys, among an operator's, by which the members of one window are grouped. where: the boolean
    column that is true of the members, among the rows that are counted; "": all are members.
    """

    n: int
    step: int = 1
    distinct: str = ""
    order_by: tuple[str, ...] = ()
    inner_keys: tuple[str, ...] = ()
    where: str = ""


BY_TIME = CountMeasure(0)
"""No numbers: windows go by the lifetimes of events."""


@dataclass(frozen=True)
class WindowTraits:
    """The traits of windows that decide how operators over them are computed; a kind and its assigner have the same.

    ends: the fixed ends to which a CTI is rounded down; None if the ends depend on events, or the CTI is not rounded.
    counting: the numbers that windows go by: an event alone does not tell which windows it is in.
    is_piecewise: windows are the pieces between the endpoints of a group's events: their ends move with them, a change leaves the
    pieces before it unchanged, and events of one lifetime, as a group of their own, have that lifetime as their window.
    """

    ends: WindowEnds | None = None
    counting: CountMeasure = BY_TIME
    is_piecewise: bool = False

    @property
    def grid(self) -> Grid | None:
        """The grid that windows lie on, by which they are split into basic windows and reported; None if they lie on none."""
        return self.ends if isinstance(self.ends, Grid) else None

    @property
    def counts_rows(self) -> bool:
        """True if windows go by the places of rows in an order, which includes the whole payload."""
        return self.counting.n > 0 and not self.counting.distinct

    @property
    def windows_of_a_point(self) -> int:
        """The number of windows with an event of one instant, as ``WindowEnds`` has it; above 1 windows of a group overlap."""
        if self.counting.n:
            return -(-self.counting.n // self.counting.step)
        return 1 if self.ends is None else self.ends.n

    def outer_keys(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the keys, among ``keys``, of the groups that have windows of their own."""
        return tuple(key for key in keys if key not in self.counting.inner_keys)


def head_events(table: pa.Table, number: Ints, traits: WindowTraits) -> Ints:
    """Return, by number of a chain, the event whose columns a row of the chain has: the first, in the order of rows counted."""
    if not traits.counts_rows:
        return first_places(number)
    order, _ = event_order(table, number, traits.counting.order_by)
    return order[first_places(number[order])]


def groups_to_come(g: Ints, table: pa.Table, upto: int, start: int) -> ToCome:
    """Return the groups of the events that live beyond ``upto``, each with ``start``, before which no window to come begins."""
    later = g[ints(table, RE) > upto]
    return ToCome(later, np.full(len(later), start))


@dataclass(frozen=True)
class Assigner(ABC):
    """The assignment of the events of groups ``g`` to windows of one kind."""

    traits: WindowTraits

    @property
    def cti(self) -> Cti:
        """The CTI rule of results that live on their windows, if corrections would hold back progress."""
        from streamq.runtime.time.progress_rule import Cti

        return Cti.EARLIEST_WINDOW

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
        pieces, one from their greatest start to their least end; if windows count rows, one that counts as all of them: chains
        are consecutive. By default each event has a number of its own.
        """
        return np.arange(len(g))

    def basic_windows(self, starts: Ints) -> Ints | None:
        """Return a number for points with these starts, the same for those between two ends of windows; None if they may move.

        Such points are in the same windows, and late together, as the CTI is rounded down to an end of a window.
        """
        return None

    def latest_cti(self, c: int) -> int:
        """Return the CTI to send at c if no group holds it back."""
        return c

    def to_come(self, g: Ints, table: pa.Table, upto: int) -> ToCome:
        """Return the groups of events with windows that :meth:`ranges` leaves out because they start at ``upto`` or later.

        By default these are the groups of the events that live beyond ``upto``.
        """
        return groups_to_come(g, table, upto, upto)


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
