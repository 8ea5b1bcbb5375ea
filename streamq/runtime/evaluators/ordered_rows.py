"""Rows in the order of their groups and events, with the place of each event in its group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.plan.partial import COUNT
from streamq.runtime.columnar import ints
from streamq.runtime.evaluators.numbering import run_bounds
from streamq.runtime.event import LE
from streamq.runtime.values import Ints


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
    def of(row: Ints, g: Ints, table: pa.Table) -> OrderedRows:
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


__all__ = ["OrderedRows"]
