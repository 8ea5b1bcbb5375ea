"""Kernels of operators whose rows are parts of left events: left, semi and anti join, and clip.

The rows of a left event depend on it and on right events of its group: of a join on those that overlap it, of clip on the
first that starts after it. So a kernel computes the rows of new left events, and of the held ones whose rows new right events
change, before and after these. A new right start of clip, or one that is taken back, changes the left events that begin
before it and whose rows end there or later; so a left event of clip is held together with the end of its row.

State: left and right events in bins by group, of joins also the lifetimes of the left ones by start, and the rows that wait.
Cost: the pairs of new left events, and of those that a new right event meets; the right events of their groups; for new right
events the left ones of their groups whose rows may change. Once most events of a bin are settled, all its groups are read, to
forget the events that are no longer needed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, with_column
from streamq.runtime.arrow.values import Mask, distinct
from streamq.runtime.deltas import (
    LE,
    RE,
    WEIGHT,
    cancelling_deltas,
    history_of,
    net_deltas,
    net_retractions,
    unit_weights,
    weighted,
)
from streamq.runtime.evaluator import Evaluator
from streamq.runtime.evaluators.joins import ClipEvaluator, JoinEvaluator
from streamq.runtime.groups import distinct_hashes, number_groups
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.kernels.recompute import input_basket, new_deltas
from streamq.runtime.state.baskets import BinSizes, KernelBaskets
from streamq.runtime.state.group_bins import GroupBins
from streamq.runtime.state.time_bins import TimeBins, unsettled_rows
from streamq.runtime.time.progress_rule import ProgressRule, Release
from streamq.time import INFINITY, MINUS_INFINITY

E = TypeVar("E", bound=Evaluator)

LEFT, RIGHT, LIFETIMES = input_basket(0), input_basket(1), "lifetimes"


STARTING, SETTLING = "starting", "settling"
"""The baskets of rows that wait until they have started, and until they are settled."""


class WaitingRows:
    """The rows that wait, in baskets of a kernel's state: until they have started, until they are settled, or none."""

    def __init__(self, state: KernelBaskets, release: Release):
        """Open the rows that wait for a release: PAST_START, PAST_END, or AT_ONCE."""
        self.release = release
        self.starting, self.settling = TimeBins(state, STARTING), unsettled_rows(state, SETTLING)

    def advance(self, change: pa.Table | None, clock: Clock) -> pa.Table | None:
        """Add deltas, and take out those that go at this progress, added up; None if there are none.

        Rows that start go by the watermark, those that settle by the CTI.
        """
        fresh = [] if change is None or not change.num_rows else [change]
        if self.release is Release.PAST_END:
            going = self.settling.advance(fresh, clock.c)
        else:
            going = self.starting.advance(fresh, INFINITY if self.release is Release.AT_ONCE else clock.m)
        return None if going is None else net_deltas(going)

    def change_release(self, rows: pa.Table | None, clock: Clock) -> pa.Table | None:
        """Let rows go by this release from now on, after another one in an earlier run; return the deltas to send for it.

        ``rows`` are all that are not settled, those that wait among them. Of those that have been sent, some are taken back to
        wait until they have started; all wait until they are settled, to be sent once more, if rows go by the end.
        """
        waiting = [t for t in (self.starting.take(INFINITY), self.settling.take(INFINITY)) if t is not None]
        if self.release is Release.AT_ONCE or rows is None:
            return concat(waiting) if waiting else None
        sent = net_deltas(concat([rows, *map(cancelling_deltas, waiting)]))
        if self.release is Release.PAST_END:
            self.settling.append(concat([*waiting, sent]))
            return None
        too_early = sent.filter(pa.array(~self.release.lets_go(sent, clock.m)))
        for table in (*waiting, too_early):
            self.starting.append(table)
        return cancelling_deltas(too_early)

    @property
    def due(self) -> int | None:
        """The progress at which the next row goes: INFINITY if only the end of the input lets it go, None if none waits."""
        return (self.settling if self.release is Release.PAST_END else self.starting).due


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
        if self.final:
            return Release.PAST_END
        return Release.AT_ONCE if self.early else Release.PAST_START

    @property
    def progress_rule(self) -> ProgressRule:
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
        return Output(table, cti, totals, waiting.due, evaluated=evaluated)

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


@dataclass(frozen=True)
class LeftJoinKernel(LeftRowsKernel[JoinEvaluator]):
    """A kernel of a left, semi or anti join."""

    def _rows_of(self, left: pa.Table, right: pa.Table) -> pa.Table:
        histories = number_groups([left, right], self.evaluator.group_columns)
        return self.evaluator.rows(histories, MINUS_INFINITY, INFINITY)

    def _change(self, bins: GroupBins, left: pa.Table, right: pa.Table, clock: Clock) -> Change:
        if not left.num_rows + right.num_rows:
            return Change(None, left, right, 0)
        ours, theirs = self.evaluator.group_columns
        held = bins.read(RIGHT)
        before = right.slice(0, 0) if held is None else held
        met = bins.read(LEFT, distinct_hashes([right])) if right.num_rows else None
        met = left.slice(0, 0) if met is None else met.filter(pa.array(ints(met, RE) >= clock.c_before))
        tables = [unit_weights(left), history_of(met), history_of(before), history_of(concat([before, right])), right]
        new, met, before, now, fresh = number_groups(tables, (ours, ours, theirs, theirs, theirs))
        met = met.take(pa.array(distinct(self.evaluator.pairs(met, fresh)[0])))
        is_insert = ints(new, WEIGHT) > 0
        inserted, retracted = (new.filter(pa.array(some)).select(met.column_names) for some in (is_insert, ~is_insert))
        parts = [(concat([inserted, met]), now, 1), (retracted, now, -1), (met, before, -1)]
        rows = [
            weighted(self.evaluator.rows([some, others], MINUS_INFINITY, INFINITY), sign).select(
                [*self.result, LE, RE, WEIGHT]
            )
            for some, others, sign in parts
            if some.num_rows
        ]
        change = net_deltas(concat(rows)) if rows else None
        return Change(change, left, right, sum(table.num_rows for table in tables))

    def _least_start(self, state: KernelBaskets, left: pa.Table, c: int) -> int:
        living = left.select([LE, RE, WEIGHT]).filter(pa.array(ints(left, RE) > c))
        lifetimes = unsettled_rows(state, LIFETIMES)
        lifetimes.advance([net_deltas(living)], c if c == INFINITY else c + 1)
        return lifetimes.least_value


OWN_END = "__own_end"
"""The column of the end that a left event has by itself, beside that of its row."""


@dataclass(frozen=True)
class ClipKernel(LeftRowsKernel[ClipEvaluator]):
    """A kernel of clip.

    ends_move: ends of left events may still move. If so, an event stays until its own end is settled, with the start that cuts
    it; else it is forgotten once its row is settled.
    """

    ends_move: bool = False

    @property
    def _pointwise(self) -> tuple[int, ...]:
        return (1,)

    def _rows_of(self, left: pa.Table, right: pa.Table) -> pa.Table:
        return self._stored(left)

    def _change(self, bins: GroupBins, left: pa.Table, right: pa.Table, clock: Clock) -> Change:
        left = left.append_column(OWN_END, left.column(RE))
        if not left.num_rows + right.num_rows:
            return Change(None, left, right, 0)
        right = net_deltas(right)
        held = bins.read(RIGHT)
        starts = history_of(right if held is None else concat([held, right]))
        rows, settled = self._held_rows(bins, left, right, clock.c_before)
        ours, theirs = self.evaluator.group_columns
        new, rows, now, fresh = number_groups([left, rows, starts, right], (ours, ours, theirs, theirs))
        moved = rows.filter(pa.array(self._is_met(rows, fresh)))
        parts = [self._clipped(new, now), weighted(self._clipped(moved, now), 1), weighted(moved, -1)]
        change = net_deltas(concat([part.select(left.column_names) for part in parts]))
        past = starts.slice(0, 0) if self.ends_move else starts.filter(pa.array(ints(starts, LE) < clock.c))
        return Change(
            net_deltas(change.select([*self.result, LE, RE, WEIGHT])),
            concat([self._stored(change), settled]),
            net_deltas(concat([right, weighted(past, -1).select(right.column_names)])),
            sum(table.num_rows for table in (left, rows, starts, right)),
        )

    def _held_rows(self, bins: GroupBins, left: pa.Table, right: pa.Table, c_before: int) -> tuple[pa.Table, pa.Table]:
        """Return the held left events of the groups of new starts whose rows were not settled, by the lifetimes of their rows.

        Also the deltas that take out those of these groups that are no longer needed. ``left`` has the columns.
        """
        held = bins.read(LEFT, distinct_hashes([right])) if right.num_rows else None
        if held is None:
            return left.slice(0, 0).drop_columns([WEIGHT]), left.slice(0, 0)
        is_needed = ints(held, RE) >= c_before
        rows = self._stored(held.filter(pa.array(is_needed)))
        rows = history_of(rows.filter(pa.array(ints(rows, RE) >= c_before)))
        settled = cancelling_deltas(held.filter(pa.array(~is_needed)))
        return rows, net_deltas(settled).select(left.column_names)

    def _is_met(self, rows: pa.Table, fresh: pa.Table) -> Mask:
        """Mark the rows that end at another instant because of new starts: an earlier one, or one that was taken back."""
        is_insert = ints(fresh, WEIGHT) > 0
        first, lost = (self.evaluator.cuts(rows, fresh.filter(pa.array(some))) for some in (is_insert, ~is_insert))
        end = ints(rows, RE)
        return (first < end) | (lost <= end)

    def _clipped(self, events: pa.Table, starts: pa.Table) -> pa.Table:
        """Return left events by the lifetimes of their rows, which end at the first of these starts or by themselves."""
        end = np.minimum(ints(events, OWN_END), self.evaluator.cuts(events, starts))
        return with_column(events, RE, end)

    def _stored(self, events: pa.Table) -> pa.Table:
        """Return left events as they are stored, or back: their lifetimes last as long as they are needed.

        That is as long as their rows, or their own lifetimes if ends move; the other end is in OWN_END.
        """
        if not self.ends_move:
            return events
        return with_column(with_column(events, RE, ints(events, OWN_END)), OWN_END, ints(events, RE))
