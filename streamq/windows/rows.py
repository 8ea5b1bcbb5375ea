"""Rows windows: a fixed number of consecutive events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamq.choices import Stamp
from streamq.errors import check_whole_number, column_names
from streamq.plan.schema import quote
from streamq.runtime.columnar import ints
from streamq.runtime.evaluators.assigner import Assigner, Ranges
from streamq.runtime.evaluators.numbering import first_place, group_bounds
from streamq.runtime.event import LE, RE
from streamq.runtime.groups import Holds, no_holds
from streamq.runtime.lifetimes import saturating
from streamq.runtime.values import Ints, Mask, column_ranks
from streamq.time import INFINITY
from streamq.windows.batch_events import ENDS, NUMBER, STARTS, BatchEvents, ranged
from streamq.windows.kind_verbs import W, WindowKindVerbs
from streamq.windows.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamq.runtime.progress_rule import Cti, MissingRows


@dataclass(frozen=True)
class Rows(Window):
    """Rows windows: n consecutive events of a group, in the order of start, then ``order_by``; one begins every ``step`` events.

    Window j has the events ``j*step .. j*step + n - 1`` as its members, counted from 0, and lasts from the start of the first
    until one tick after the start of the last. Where events are equal in start and ``order_by``, the rest of the payload decides.

    CTI: the start of the first row of the earliest incomplete window
    Final: windows that end at or before c
    State: events of windows not final, or still to come
    Opens: parts of a group that rows touch or with a window due: the events of windows not final
    """

    n: int
    step: int
    order_by: tuple[str, ...]

    name = "rows"
    default_stamp = Stamp.POINT_AT_END
    by_places = True
    by_numbers = True

    @classmethod
    def from_arguments(cls, n: Any, step: Any, order_by: Any) -> Rows:
        """Return windows of n rows; raise PlanError for numbers that are not whole or below 1, or a bad ``order_by``."""
        check_whole_number("rows_window", "n", n)
        check_whole_number("rows_window", "step", step)
        return cls(n, step, column_names(order_by, "rows_window", "order_by"))

    @property
    def overlap(self) -> bool:
        return self.n > self.step

    @property
    def windows_of_a_point(self) -> int:
        return -(-self.n // self.step)

    @property
    def by_starts(self) -> bool:
        return True

    def order(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return ``order_by``, then the rest of the payload, which orders ties."""
        return (*self.order_by, *(n for n in names if n not in self.order_by))

    def equal_starts(self, stamp: Stamp) -> bool:
        return True

    def shown(self, axis: str) -> str:
        by = f", order_by={', '.join(self.order_by)}" if self.order_by else ""
        return f"{self.n} rows, step={self.step}{by}"

    def assigner(self, names: Sequence[str]) -> Assigner:
        return RowsAssigner(self.n, self.step, self.order(names))

    def copies(self, events: BatchEvents) -> tuple[DataFrame, list[str]]:
        """Return the events copied into their windows, and the columns of number and interval.

        Windows are distinguished by their numbers, because two may have one interval. Windows of fewer than ``n`` events are left
        out.
        """
        from pyspark.sql import Window as Over
        from pyspark.sql import functions as F

        keys, n, step = [quote(k) for k in events.keys], self.n, self.step
        order = Over.partitionBy(*keys).orderBy(LE, *(quote(name) for name in self.order(events.schema.names)), RE)
        last = F.lead(LE, n - 1).over(order) + 1
        place = F.row_number().over(order).cast("bigint") - 1
        rows = events.with_lifetimes().withColumns({"__place": place, ENDS: last})
        windows = rows.where((F.col("__place") % step == 0) & F.col(ENDS).isNotNull())
        windows = windows.select(
            *keys, (F.col("__place") / step).cast("bigint").alias(NUMBER), F.col(LE).alias(STARTS), ENDS
        )
        low = F.greatest(F.lit(0), F.ceil((F.col("__place") - (n - 1)) / step)).cast("bigint")
        high = F.floor(F.col("__place") / step).cast("bigint")
        rows = rows.withColumns({"__lo": low, "__hi": high}).drop("__place", ENDS).where("__lo <= __hi")
        return ranged(keys, rows, windows), [NUMBER, STARTS, ENDS]


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

        From the first start to the last start + 1 tick; ties go by the rest of the payload,
        then by the ends.
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
    """Assigns events to rows windows by their places in their group's order of LE, ``order_by``, RE."""

    n: int
    step: int
    order_by: tuple[str, ...]

    @property
    def cti(self) -> Cti:
        from streamq.runtime.progress_rule import Cti

        return Cti.FIRST_ROW

    def wanted(self, *, grouped: bool) -> MissingRows:
        from streamq.runtime.progress_rule import MissingRows

        return MissingRows(self.n, "", grouped)

    def _ordered(self, g: Ints, table: pa.Table) -> tuple[Ints, Ints]:
        """Return the row numbers sorted by group, LE, ``order_by``, RE, and in that order the place of each in its group, from 0.

        RE comes last, so that an end that moves does not reorder settled events: it is greater than their ends anyway.
        """
        order = np.lexsort((ints(table, RE), *reversed(column_ranks(table, self.order_by)), ints(table, LE), g))
        first, _ = group_bounds(g[order], g[order])
        return order, np.arange(len(order)) - first

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Return each event's complete windows that end after ``since``; ``upto`` bounds nothing.

        An owner is a group, by the place of its first event among all events in order; its windows are numbered from 0 on.
        """
        order, number = self._ordered(g, table)
        g, le, n, step = g[order], ints(table, LE)[order], self.n, self.step
        first, last = group_bounds(g, g)
        asked = first_place(g, le >= since, g) - first
        low = np.maximum(-((n - 1 - np.maximum(number, asked)) // step), 0)
        high = np.minimum(number, last - first + 1 - n) // step

        def where(owner: Ints, index: Ints) -> tuple[Ints, Ints]:
            start = owner + index * step
            return le[start], le[start + n - 1] + 1

        return Ranges(order, first, low, high, where)

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        """Mark the events from the first row of the earliest window that ends at or after c - 1, rounded down to whole steps."""
        order, number = self._ordered(g, table)
        first, last = group_bounds(g[order], g[order])
        le = ints(table, LE)[order]
        # the last row of a window that is not final has LE >= c - 2; rows are dropped by whole steps, so that numbers stay right
        gone = np.zeros(len(order), np.int64)
        np.add.at(gone, first, (le < c - 2).astype(np.int64))
        settled = gone[first]
        earliest = np.maximum(-((self.n - 1 - settled) // self.step), 0) * self.step
        earliest = np.minimum(earliest, (last - first + 1) // self.step * self.step)
        is_needed = np.empty(len(order), bool)
        is_needed[order] = number >= np.minimum(earliest, settled // self.step * self.step)
        return is_needed

    def holds(self, g: Ints, table: pa.Table, rows: pa.Table, c: int) -> Holds:
        """Return the first row of each group's earliest incomplete window, if it has come, until the group's next row is past."""
        order, _ = self._ordered(g, table)
        if not len(order):
            return no_holds()
        g = g[order]
        first, _ = group_bounds(g, g)
        le = ints(table, LE)[order]
        past = np.zeros(len(order), np.int64)
        np.add.at(past, first, (le < c).astype(np.int64))
        heads = np.unique(first)
        # the first window without its last row, and its first row, if that has come
        j = np.maximum(-((self.n - 1 - past[heads]) // self.step), 0)
        begun = j * self.step < past[heads]
        to_come = le >= c
        return Holds(
            np.concatenate([g[heads[begun]], g[to_come]]),
            np.concatenate([le[(heads + j * self.step)[begun]], np.full(int(to_come.sum()), INFINITY)]),
            np.concatenate([np.full(int(begun.sum()), INFINITY), saturating(le[to_come], 1)]),
        )


__all__ = ["Rows"]
