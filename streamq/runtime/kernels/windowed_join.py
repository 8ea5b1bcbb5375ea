"""Kernel of the windowed join: it pairs a member once, when its first window is sent, with all members before it.

A member's windows are a range of numbers. Two members share those in which their ranges overlap, so the kernel is an inner join
of ranges, which are read, paired and forgotten as lifetimes are. A pair gives a row for each of its windows when that is due.

State: members whose first window is to come, by it; the others, until their windows are final (:mod:`joined_events`); pairs with
windows to come. Cost: the pairs of members whose first window is due, of late ones and of those taken back; the members of their
groups in the bins that they are read from; a row for each pair in a window that is due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, with_column
from streamq.runtime.deltas import cancelling_deltas, net_retractions
from streamq.runtime.evaluators.joins import WindowedJoinEvaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.kernels.inner_join import JoinedEvents, new_side, side_basket
from streamq.runtime.state.baskets import SIZES, BinSizes, KernelBaskets
from streamq.runtime.state.time_bins import TimeBins
from streamq.runtime.time.endpoints import Bound, Endpoint, announced_endpoints, bound_at_end
from streamq.runtime.time.progress_rule import ProgressRule
from streamq.time import INFINITY, MINUS_INFINITY

WAITING = ("waiting0", "waiting1")
"""The baskets, one a side, of the members whose first window is to come."""

PAIRS = "pairs"
"""The basket of pairs, with the range of windows that are to come as lifetime."""


@dataclass(frozen=True)
class WindowedJoinKernel(UncombinedKernel):
    """A kernel of a windowed join.

    evaluator: the grid and the pair condition; inputs: each side's columns beside lifetimes; result: the columns of a row. A
    window is sent once the watermark has reached its end; ``final``: once it is final; ``early``: at once. infinite: lifetimes
    may never end.
    """

    evaluator: WindowedJoinEvaluator
    inputs: tuple[pa.Schema, pa.Schema]
    result: tuple[str, ...]
    final: bool = False
    early: bool = False
    infinite: bool = False
    sizes: BinSizes = SIZES
    """The sizes at which bins are split by group."""

    @property
    def progress_rule(self) -> ProgressRule:
        """The evaluator's rule, with rows that go by the kernel's release."""
        return self.evaluator.progress_rule.released(final=self.final, early=self.early)

    @property
    def _sends_at_once(self) -> bool:
        """True if rows are sent before the watermark reaches them."""
        return self.early and not self.final

    def announce(self, port: int, table: pa.Table) -> list[Endpoint] | None:
        """Return the endpoints of these deltas; None if there are no deltas, or no lifetime is endless."""
        return announced_endpoints(table) if self.infinite else None

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the windows that are due, and what changes in those sent before that are not final.

        Late events are counted; at the end of the stream the state is emptied.
        """
        totals, grid, pairing = Totals(), self.evaluator.window, self.evaluator.pairing
        first, least = grid.first_ending_after(clock.c_before), grid.first_ending_after(clock.c)
        sent, last = int(state.values.get("sent", MINUS_INFINITY)), self._last_due(state, clock)
        coming = ComingWindows(state, self.evaluator, first, sent)
        members = JoinedEvents(state, pairing, (*pairing.left, *pairing.right), self.sizes)
        if clock.form_changed and self.final:
            # windows that were sent before they were final are sent again once they are
            sent = first - 1 if abs(first) < INFINITY else first
            coming.take_back(members.pairs_beyond(_past(sent)), sent)
        out = coming.take_back(members.pairs_beyond(_past(last)), last) if last < sent else []
        arrived = [new_side(arrivals, port, schema.names, totals) for port, schema in enumerate(self.inputs)]
        begun = [self._begun(state, basket, new, first, last) for basket, new in zip(WAITING, arrived, strict=True)]
        out += coming.send(members.new_pairs(begun), last)
        state.values["sent"] = last
        if clock.c != INFINITY:
            members.hold([table if table is None else _with_windows_from(table, least) for table in begun])
        members.forget(least)
        due = self._due(state, coming)
        if clock.c == INFINITY:
            for basket in (*WAITING, PAIRS):
                state.drop_basket(basket)
        table = net_retractions(concat([rows.select([*self.result, LE, RE, WEIGHT]) for rows in out])) if out else None
        cti = self.evaluator.cti(clock.by_port or (clock.c,), INFINITY)
        return Output(table if table is not None and table.num_rows else None, cti, totals, due)

    def _last_due(self, state: KernelBaskets, clock: Clock) -> int:
        """Return the number of the last window to be sent, also of endless lifetimes; INFINITY: all are.

        Announced endpoints are added to the state.
        """
        grid = self.evaluator.window
        bound = bound_at_end(state, clock, Bound.ENDLESS if self.infinite else Bound.NONE)
        progress = clock.c if self.final else clock.m
        if clock.c == INFINITY or progress == INFINITY or self._sends_at_once:
            return grid.last_starting_before(bound)
        return MINUS_INFINITY if progress == MINUS_INFINITY else grid.first_ending_after(progress) - 1

    def _begun(
        self, state: KernelBaskets, basket: str, arrived: pa.Table | None, first: int, last: int
    ) -> pa.Table | None:
        """Return the deltas of a side's members whose first window is due, with their ranges; None if there are none.

        Those that have arrived and begin later wait. Those without a window from ``first`` on are left out.
        """
        waiting = TimeBins(state, basket, LE, then=RE)
        fresh = [] if arrived is None else [_with_windows_from(self.evaluator.ranges(arrived), first)]
        return waiting.advance(fresh, _past(last))

    def _due(self, state: KernelBaskets, coming: ComingWindows) -> int | None:
        """Return the least end of a window that may send a row; None if no pair or member waits for one.

        A member whose first window is to come has a pair from then on at the earliest, and only with a member of the other side.
        """
        if self._sends_at_once:
            return None
        begins = [TimeBins(state, basket, LE, then=RE).least for basket in WAITING]
        of_sides = [coming.sent if state.bins(side_basket(port)) else least for port, least in enumerate(begins)]
        number = min(coming.next, max(min(begins), *of_sides))
        return None if number == INFINITY else self.evaluator.window.end(number)


class ComingWindows:
    """The windows to come of pairs, by the number of the next one; those from ``first`` on are not final.

    A row for a window is made when it is sent. So a pair costs as much as the rows that it sends, however many windows it shares.
    The windows up to ``sent`` have been sent.
    """

    def __init__(self, state: KernelBaskets, evaluator: WindowedJoinEvaluator, first: int, sent: int):
        self.bins = TimeBins(state, PAIRS, LE, then=RE)
        self.evaluator, self.first, self.sent = evaluator, first, sent

    def send(self, new: Sequence[pa.Table], last: int) -> list[pa.Table]:
        """Return the rows of the windows up to ``last`` that are to be sent, in tables, and hold what comes after them.

        ``new`` are deltas of pairs, which also change windows that have been sent. ``last`` is at least the last one of these.
        """
        pairs = [net_retractions(concat(new))] if new else []
        rows = [self.evaluator.windows(table, self.first, self.sent) for table in pairs]
        coming = [self._coming(table, self.sent) for table in pairs]
        if last > self.sent:
            held = self.bins.take(_past(last))
            coming += [] if held is None else [held]
            rows += [self.evaluator.windows(table, self.first, last) for table in coming]
            coming = [self._coming(table, last) for table in coming]
            self.sent = last
        for table in coming:
            self.bins.append(table)
        return [table for table in rows if table.num_rows]

    def take_back(self, pairs: Sequence[pa.Table], last: int) -> list[pa.Table]:
        """Return retractions of the windows after ``last`` that have been sent, in tables; they are to come again.

        ``pairs`` are all that have windows after ``last``.
        """
        self.bins.take(INFINITY)
        coming = [self._coming(net_retractions(table), last) for table in pairs]
        rows = [self.evaluator.windows(cancelling_deltas(table), self.first, self.sent) for table in coming]
        for table in coming:
            self.bins.append(table)
        self.sent = last
        return rows

    @property
    def next(self) -> int:
        """The number of the next window of a pair; INFINITY if there is none."""
        return self.bins.least

    def _coming(self, pairs: pa.Table, last: int) -> pa.Table:
        """Return the pairs that have windows after ``last``, with the range of these."""
        later = pairs.filter(pa.array(ints(pairs, RE) > _past(last)))
        return with_column(later, LE, np.maximum(ints(later, LE), _past(last)))


def _past(last: int) -> int:
    """Return the number of the window after ``last``, which may be infinite."""
    return last if last in (INFINITY, MINUS_INFINITY) else last + 1


def _with_windows_from(ranges: pa.Table, first: int) -> pa.Table:
    """Return the ranges that have a window from number ``first`` on."""
    return ranges.filter(pa.array(ints(ranges, RE) > first))
