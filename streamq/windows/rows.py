"""Rows windows: a fixed number of consecutive events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamq.errors import check_whole_number, column_names
from streamq.plan.footprint import Footprint, Retention
from streamq.runtime.arrow.columnar import first_places
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.evaluators.assigner import Assigner, Ranges
from streamq.runtime.evaluators.numbering import OrderedRows, event_order, is_new_pair, run_bounds
from streamq.runtime.groups import Holds, no_holds
from streamq.runtime.time.tick_arithmetic import saturating
from streamq.time import INFINITY
from streamq.windows.window import W, Window, WindowKindVerbs

if TYPE_CHECKING:
    from streamq.runtime.time.progress_rule import Cti, MissingRows


@dataclass(frozen=True)
class Rows(Window):
    """Rows windows: n consecutive events of a group, in the order of start, then ``order_by``; one begins every ``step`` events.

    Window j has the events ``j*step .. j*step + n - 1`` as its members, counted from 0, and lasts from the start of the first
    until one tick after the start of the last. Where events are equal in start and ``order_by``, the rest of the payload decides.
    On a stream the settled events of a group from one window's beginning to the next are one row, if ``step`` is above 1 and all
    results merge, one for each of their values under medians and distinct counts, or the best of them: DataCell's basic windows
    (section 3).
    """

    n: int
    step: int
    order_by: tuple[str, ...]

    name = "rows"
    by_places = True
    by_numbers = True

    @classmethod
    def from_arguments(cls, n: Any, step: Any, order_by: Any, verb: str = "rows_window", called: str = "n") -> Rows:
        """Return windows of n rows; raise PlanError for numbers that are not whole or below 1, or a bad ``order_by``.

        ``verb`` and ``called``, the name of its argument ``n``, are the names for errors.
        """
        check_whole_number(verb, called, n)
        check_whole_number(verb, "step", step)
        return cls(n, step, column_names(order_by, verb, "order_by"))

    def footprint(self, longest: int | None, keys: tuple[str, ...], *, condenses: bool) -> Footprint:
        return replace(
            super().footprint(longest, keys, condenses=condenses),
            cti="the start of the first row of the earliest incomplete window",
            keeps="events of windows not final, or still to come",
            opens="parts of a group that rows touch or with a window due: the events of windows not final",
            for_good="the last rows of each group, which windows to come contain" if keys else "",
        )

    def _retention(self, longest: int, keys: tuple[str, ...], *, condenses: bool) -> Retention:
        return Retention(longest, self.n + self.step, keys)

    @property
    def windows_of_a_point(self) -> int:
        return -(-self.n // self.step)

    @property
    def by_starts(self) -> bool:
        return True

    def order(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return ``order_by``, then the rest of the payload, which orders ties."""
        return (*self.order_by, *(n for n in names if n not in self.order_by))

    def shown(self, axis: str) -> str:
        by = f", order_by={', '.join(self.order_by)}" if self.order_by else ""
        return f"{self.n} rows, step={self.step}{by}"

    def assigner(self, names: Sequence[str]) -> Assigner:
        return RowsAssigner(self.n, self.step, self.order(names))


class RowsVerbs(WindowKindVerbs[W]):
    """The verb for rows windows."""

    def rows_window(
        self,
        n: int,
        step: int = 1,
        *,
        order_by: str | Sequence[str] = (),
        clip_input: str = "full",
        stamp: str | None = None,
    ) -> W:
        """Windows of ``n`` events in the order of (start, ``order_by``), every ``step`` events.

        From the first start to the last start + 1 tick; ``order_by`` names columns, the least value comes first, and ties go by
        the rest of the payload, then by the ends.
        Results are points at the window's end unless ``stamp="align"``. Raises PlanError, and UnknownColumn or TypeMismatch for
        ``order_by``.

        ::

            events   3 at 1  5 at 4  1 at 9           n = 2
            windows  [1,5):3 5  [4,10):5 1  reported at 5 and 10

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5}), (9, 10, {"v": 1})])
        >>> s.rows_window(2).select(total=sq.sum("v")).show()
        total  start  end
            8      5    6
            6     10   11
        """
        window = Rows.from_arguments(n, step, order_by)
        return self._in_windows(lambda axis: window, "rows_window", clip_input, stamp)


@dataclass(frozen=True)
class RowsAssigner(Assigner):
    """Assigns events to rows windows by their places in their group's order of LE, ``order_by``, RE.

    RE comes last, so that an end that moves does not reorder settled events: it is greater than their ends anyway.

    A window is final once its last event is settled. So a row that stands for several events, which are settled, lies in the
    windows that are not final with all of them, if none begins in its midst; and the last event of such a window is a row.
    """

    n: int
    step: int
    order_by: tuple[str, ...]

    counts_events = True

    @property
    def has_chains(self) -> bool:
        """True unless a window begins at every event."""
        return self.step > 1

    @property
    def order_columns(self) -> tuple[str, ...]:
        return self.order_by

    @property
    def cti(self) -> Cti:
        from streamq.runtime.time.progress_rule import Cti

        return Cti.FIRST_ROW

    def wanted(self, *, grouped: bool) -> MissingRows:
        from streamq.runtime.time.progress_rule import MissingRows

        return MissingRows(self.n, "", grouped)

    def _ordered(self, g: Ints, table: pa.Table) -> OrderedRows:
        return OrderedRows.in_order(event_order(table, g, self.order_by)[0], g, table)

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Return each row's complete windows that end after ``since``; ``upto`` bounds nothing.

        An owner is a group, by the place of its first row among all rows in order; its windows are numbered from 0 on. A final
        window has no events that matter, and ends too early, if a row stands for its last event and others.
        """
        rows, n, step = self._ordered(g, table), self.n, self.step
        low = np.maximum(-((n - 1 - np.maximum(rows.place, rows.place_since(since))) // step), 0)
        high = np.minimum(rows.place, rows.events - n) // step

        def where(owner: Ints, index: Ints) -> tuple[Ints, Ints]:
            first = index * step
            return rows.start_at(owner, first), rows.start_at(owner, first + n - 1) + 1

        return Ranges(rows.row, rows.head, low, high, where)

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        """Mark the rows from the first one of the earliest window that ends at or after c - 1, rounded down to whole steps."""
        rows, step = self._ordered(g, table), self.step
        # the last row of a window that is not final has LE >= c - 2; rows are dropped by whole steps, so that numbers stay right
        settled = rows.place_since(c - 2)
        earliest = np.maximum(-((self.n - 1 - settled) // step), 0)
        is_needed = np.empty(len(rows.row), bool)
        is_needed[rows.row] = rows.place >= np.minimum(earliest, settled // step) * step
        return is_needed

    def chains(self, g: Ints, table: pa.Table, c: int) -> Ints:
        """Return equal numbers for the events from one place at which a window begins up to the next.

        Events that nothing orders keep numbers of their own if such a place parts them: as rows they could not be ordered.
        """
        order, tie = event_order(table, g, self.order_by)
        rows = OrderedRows.in_order(order, g, table)
        chain = np.cumsum(is_new_pair(rows.head, rows.place // self.step)) - 1
        first, last = run_bounds(tie)
        chains = np.empty(len(order), np.int64)
        chains[order] = np.where(chain[first] == chain[last], chain, len(order) + np.arange(len(order)))
        return chains

    def heads(self, table: pa.Table, number: Ints) -> Ints:
        """Return the first events in order."""
        order, _ = event_order(table, number, self.order_by)
        return order[first_places(number[order])]

    def holds(self, g: Ints, table: pa.Table, rows: pa.Table, c: int) -> Holds:
        """Return the first row of each group's earliest incomplete window, if it has come, until the group's next row is past."""
        if not len(g):
            return no_holds()
        ordered = self._ordered(g, table)
        past = ordered.place_since(c)
        # the first window without its last row, and its first row, if that has come
        begins = np.maximum(-((self.n - 1 - past) // self.step), 0) * self.step
        begun = (ordered.head == np.arange(len(g))) & (begins < past)
        held = ordered.start_at(ordered.head[begun], begins[begun])
        is_to_come = ordered.start >= c
        to_come = ordered.start[is_to_come]
        return Holds(
            np.concatenate([ordered.group[begun], ordered.group[is_to_come]]),
            np.concatenate([held, np.full(len(to_come), INFINITY)]),
            np.concatenate([np.full(len(held), INFINITY), saturating(to_come, 1)]),
        )
