"""Base of the kernels of operators whose rows are parts of left events: left, semi and anti join, and clip.

The rows of a left event depend on it and on right events of its group. So a kernel computes the rows of new left events, and of
the held ones whose rows new right events change, before and after these.

State: left and right events in bins by group, and the rows that wait. Once most events of a bin are settled, all its groups are
read, to forget the events that are no longer needed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

from streamq.runtime.active_groups import input_basket
from streamq.runtime.columnar import concat, ints
from streamq.runtime.deltas import history_of, net_retractions, weighted
from streamq.runtime.evaluator import Evaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.groups import distinct_hashes, number_groups
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.kernels.recompute import new_deltas
from streamq.runtime.release import Release
from streamq.runtime.state.baskets import BinSizes, KernelBaskets
from streamq.runtime.state.group_bins import GroupBins
from streamq.runtime.state.waiting import WaitingRows
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule

E = TypeVar("E", bound=Evaluator)

LEFT, RIGHT = input_basket(0), input_basket(1)


@dataclass(frozen=True, eq=False)
class Change:
    """The changes of a micro-batch.

    rows: the deltas of the rows, None if there are none; left, right: those of the events in state, with the hashes of their
    groups; evaluated: the number of events looked at.
    """

    rows: pa.Table | None
    left: pa.Table
    right: pa.Table
    evaluated: int


@dataclass(frozen=True)
class LeftRowsKernel(UncombinedKernel, Generic[E]):
    """A kernel of one evaluator whose rows are parts of left events.

    inputs: each side's columns beside lifetimes; result: the columns of a row. A row is sent once the watermark has reached it;
    ``final``: once it is final; ``early``: at once.
    """

    evaluator: E
    inputs: tuple[pa.Schema, pa.Schema]
    result: tuple[str, ...]
    final: bool = False
    early: bool = False
    sizes: BinSizes = field(default_factory=BinSizes)
    """The sizes at which the bins of events are treated otherwise."""

    @property
    def release(self) -> Release:
        """The progress that lets a row go."""
        if self.final:
            return Release.PAST_END
        return Release.AT_ONCE if self.early else Release.PAST_START

    @property
    def progress_rule(self) -> ProgressRule:
        """The evaluator's rule, with rows that go by the kernel's release."""
        return self.evaluator.progress_rule.released(final=self.final, early=self.early)

    @property
    def _pointwise(self) -> tuple[int, ...]:
        """The ports whose events are points at their starts; kernels with such override it."""
        return ()

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the changes of the rows that go by now, hold new events, and forget those that are no longer needed.

        Late events are counted; at the end of the stream the state is emptied.
        """
        totals = Totals()
        left, right = new_deltas(arrivals, self.inputs, self.evaluator.group_columns, totals, self._pointwise)
        bins = GroupBins(state, self.sizes)
        bins.open(distinct_hashes([left, right]), clock.c, rule=self.release.name)
        waiting = WaitingRows(state, self.release)
        change_of_form = waiting.change_release(self._rows_held(bins, clock), clock) if clock.form_changed else None
        change = self._change(bins, left, right, clock)
        evaluated = change.evaluated
        if clock.c == INFINITY:
            bins.drop([LEFT, RIGHT])
        elif bins.opened:
            for basket, new in ((LEFT, change.left), (RIGHT, change.right)):
                bins.append(basket, new)
            evaluated += self._forget(bins, (change.left, change.right), clock.c)
            bins.close([LEFT, RIGHT], clock.c)
        table = waiting.advance(change.rows, clock)
        if change_of_form is not None:
            table = net_retractions(concat([change_of_form, *([] if table is None else [table])]))
        held = self._least_start(state, left, clock.c)
        progress = clock.by_port or (clock.c, clock.c)
        cti = self.evaluator.cti(progress, held) if clock.c != MINUS_INFINITY else MINUS_INFINITY
        cti = state.values["cti"] = max(cti, int(state.values.get("cti", MINUS_INFINITY)))
        return Output(
            table if table is not None and table.num_rows else None, cti, totals, waiting.due, evaluated=evaluated
        )

    def _rows_held(self, bins: GroupBins, clock: Clock) -> pa.Table | None:
        """Return the rows of the events in state that were not settled before; None if there are none. All bins are open."""
        left, right = (bins.events(basket) for basket in (LEFT, RIGHT))
        if left is None:
            return None
        if right is None:
            right = pa.schema([*self.inputs[1], *((name, pa.int64()) for name in (LE, RE))]).empty_table()
        rows = weighted(self._rows_of(left, right), 1).select([*self.result, LE, RE, WEIGHT])
        return rows.filter(pa.array(ints(rows, RE) >= clock.c_before))

    @abstractmethod
    def _rows_of(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Return the rows of left events in state; ``right`` are all right events in state."""

    @abstractmethod
    def _change(self, bins: GroupBins, left: pa.Table, right: pa.Table, clock: Clock) -> Change:
        """Return what new deltas change, if there are any."""

    def _least_start(self, state: KernelBaskets, left: pa.Table, c: int) -> int:
        """Return the least start of a left event by which the CTI is held back, INFINITY if it is not; kernels override it."""
        return INFINITY

    def _forget(self, bins: GroupBins, new: Sequence[pa.Table], c: int) -> int:
        """Take out the events that are no longer needed of the bins that are read as a whole; return the number looked at.

        ``new`` has the columns of each side.
        """
        whole = [bins.read_whole(basket) for basket in (LEFT, RIGHT)]
        histories = [history_of(some.slice(0, 0) if t is None else t) for t, some in zip(whole, new, strict=True)]
        if not any((ints(table, LE) < c).any() for table in histories):
            return 0
        histories = number_groups(histories, self.evaluator.group_columns)
        needed = self.evaluator.needed(histories, histories[0], c)
        for basket, history, some, is_needed in zip((LEFT, RIGHT), histories, new, needed, strict=True):
            gone = history.filter(pa.array(~is_needed))
            bins.append(basket, weighted(gone, -1).select(some.column_names))
        return sum(table.num_rows for table in histories)


__all__ = ["LEFT", "RIGHT", "Change", "LeftRowsKernel"]
