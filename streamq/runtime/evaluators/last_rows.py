"""The evaluator of ``last_rows``: an event lives while the latest rows window of its group has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import ints, with_columns
from streamq.runtime.evaluator import SettledProgress
from streamq.runtime.evaluators.numbering import OrderedRows, event_order
from streamq.runtime.event import LE, RE
from streamq.runtime.groups import GROUP_NUMBER
from streamq.runtime.values import Ints, Mask
from streamq.time import INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule


@dataclass(frozen=True)
class LastRowsEvaluator(SettledProgress):
    """Events live from the last row of the first rows window that has them to the last row of the first later one without them.

    Window j of a group has the ``n`` events from place ``j * step`` on, in the order of start and ``order``.
    """

    keys: tuple[str, ...]
    n: int
    step: int
    order: tuple[str, ...]

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        """The keys."""
        return (self.keys,)

    @property
    def progress_rule(self) -> ProgressRule:
        """Rows are final once they are settled; the last ones of a key end with later ones."""
        from streamq.runtime.progress_rule import SETTLED, EndlessRow

        return replace(SETTLED, endless=EndlessRow.LATER_ROWS)

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Return the events that a complete window has, unless a later one without them is complete at the same instant.

        Old ends are ignored; the end is INFINITY until a window without the event is complete.
        """
        rows = self._ordered(inputs[0])
        first = np.maximum(self._first_window_to(rows.place), 0)
        start = self._complete_from(rows, first)
        end = self._complete_from(rows, rows.place // self.step + 1)
        lives = (start < end) & (end > since)
        events = inputs[0].take(pa.array(rows.row[lives]))
        return with_columns(events, {LE: start[lives], RE: end[lives]})

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Keep the events of the latest window complete before c, those since, and before them those of windows it overlaps.

        The windows that an event has entered before are counted from the first one, so those must be there. Rows are dropped by
        whole steps, so that numbers stay right.
        """
        ordered = self._ordered(inputs[0])
        latest = self._first_window_to(ordered.place_since(c)) - 1
        first = np.maximum(latest - (self.n - 1) // self.step, 0)
        is_needed = np.empty(len(ordered.row), bool)
        is_needed[ordered.row] = ordered.place >= first * self.step
        return [is_needed]

    def _ordered(self, table: pa.Table) -> OrderedRows:
        group = ints(table, GROUP_NUMBER)
        return OrderedRows.of(event_order(table, group, self.order)[0], group, table)

    def _first_window_to(self, place: Ints) -> Ints:
        """Return the first window whose last row has this place or a later one; it is below 0 if window 0 has."""
        windows: Ints = -((self.n - 1 - place) // self.step)
        return windows

    def _complete_from(self, rows: OrderedRows, window: Ints) -> Ints:
        """Return the start of the last row of each row's window; INFINITY if that has not come."""
        last = window * self.step + self.n - 1
        events = rows.events
        return np.where(last < events, rows.start_at(rows.head, np.minimum(last, events - 1)), INFINITY)


__all__ = ["LastRowsEvaluator"]
