"""Places of events and instants in their groups, in numpy; windows of every kind are numbered by them.

Events are ordered by start, then by columns, then by end. ``g`` are numbers of groups; ``group, at`` are the distinct pairs of a
group and an instant, in order, and a place is an index into these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.plan.partial import COUNT
from streamq.runtime.arrow.columnar import ints
from streamq.runtime.arrow.values import Ints, Mask, column_ranks, distinct
from streamq.runtime.event import LE, RE
from streamq.time import FIRST_INSTANT, INFINITY


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
