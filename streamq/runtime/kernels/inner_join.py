"""Kernels of inner joins: of two streams, and of the members of windows.

A join joins each side's new events with the other side's held and new events. A windowed join pairs a member once, when its first
window is sent, with all members before it: a member's windows are a range of numbers, and two members share those in which their
ranges overlap, so it is an inner join of ranges. A pair gives a row for each of its windows when that is due.

State: each side's events, in bins of time by length of life, and by group where these are large, so that a micro-batch reads
only bins that its events can overlap; a bin is dropped once all its events have ended. Cost: the pairs of new events, and the
events of their groups in the bins that they are read from. In windows: also members whose first window is to come, and pairs with
windows to come; the pairs are those of members whose first window is due, of late ones and of those taken back.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, with_column
from streamq.runtime.arrow.values import Mask
from streamq.runtime.deltas import LE, RE, WEIGHT, cancelling_deltas, net_deltas, net_retractions
from streamq.runtime.evaluators.joins import JoinEvaluator, WindowedJoinEvaluator
from streamq.runtime.groups import GroupHashes, distinct_hashes, number_groups, with_hashes
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.state.baskets import SIZES, BinSizes, KernelBaskets
from streamq.runtime.state.bins import Bins
from streamq.runtime.state.time_bins import TimeBins
from streamq.runtime.time.endpoints import Bound, Endpoint, announced_endpoints, bound_at_end
from streamq.runtime.time.lateness import weighted_events
from streamq.runtime.time.progress_rule import AT_ONCE, ProgressRule
from streamq.time import INFINITY, MINUS_INFINITY

Sides = Sequence[pa.Table | None]
"""The deltas of the left and of the right side; None: a side has none."""


class JoinedEvents:
    """The events that an inner join holds; ``result`` are the columns of a pair beside its lifetime.

    Bins that exceed ``sizes`` are split by group.
    """

    def __init__(self, state: KernelBaskets, evaluator: JoinEvaluator, result: Sequence[str], sizes: BinSizes):
        self.state, self.evaluator, self.result, self.sizes = state, evaluator, result, sizes

    def new_pairs(self, fresh: Sides) -> list[pa.Table]:
        """Return the deltas of the pairs that new deltas make with each other and with the events held, in tables."""
        left, right = fresh
        held = [self._overlapping(0, right), self._overlapping(1, left)]
        others = [t for t in (held[1], right) if t is not None]
        pairs = [] if left is None or not others else self._pairs(left, concat(others))
        return pairs if right is None or held[0] is None else [*pairs, *self._pairs(held[0], right)]

    def pairs_beyond(self, instant: int) -> list[pa.Table]:
        """Return the pairs of the events held that end after an instant, in tables."""
        bins = self._bins(0)
        tables = [t for bin in bins if bins.span(bin)[1] > instant and (t := bins.read(bin)) is not None]
        left = [some for t in tables if (some := net_deltas(t.filter(pa.array(ints(t, RE) > instant)))).num_rows]
        if not left or (right := self._overlapping(1, concat(left))) is None:
            return []
        pairs = self._pairs(concat(left), right)
        return [some for t in pairs if (some := t.filter(pa.array(ints(t, RE) > instant))).num_rows]

    def hold(self, fresh: Sides) -> None:
        for port, table in enumerate(fresh):
            if table is not None:
                self._bins(port).hold(table)

    def forget(self, c: int) -> None:
        for port in (0, 1):
            self._bins(port).forget(c)

    def _bins(self, port: int) -> Bins:
        columns = self.evaluator.group_columns[port]
        return Bins(self.state, side_basket(port), net_deltas, columns, self.sizes)

    def _pairs(self, left: pa.Table, right: pa.Table) -> list[pa.Table]:
        """Return the deltas of the pairs of two sides, as one table or, without pairs, none.

        A pair's weight is the product of its events' weights.
        """
        left, right = number_groups([left, right], self.evaluator.group_columns)
        at, of = self.evaluator.pairs(left, right)
        if not len(at):
            return []
        weight = ints(left, WEIGHT)[at] * ints(right, WEIGHT)[of]
        pairs = self.evaluator.paired(left, right, at, of)
        return [with_column(pairs.select([*self.result, LE, RE]), WEIGHT, weight)]

    def _overlapping(self, port: int, fresh: pa.Table | None) -> pa.Table | None:
        """Return the events that a side holds of the groups of new events, in the bins that one of these can overlap.

        ``fresh`` are the new events of the other side. Events that overlap none of them are included. None if there are no new
        events, or none in these bins.
        """
        if fresh is None:
            return None
        le, re = ints(fresh, LE), ints(fresh, RE)
        first, last = le.min(), re.max()
        hashed = functools.cache(lambda: with_hashes(fresh, self.evaluator.group_columns[1 - port]))

        def reached_groups(is_reached: Mask) -> GroupHashes:
            """Return the hashes of the groups of some new events."""
            return distinct_hashes([hashed().filter(pa.array(is_reached))])

        tables = []
        bins = self._bins(port)
        for bin in bins:
            low, high = bins.span(bin)
            if first < high and last > low and (is_reached := (re > low) & (le < high)).any():
                rows = bins.read_groups(bin, partial(reached_groups, is_reached))
                tables.append(net_deltas(rows) if rows is not None and bins.is_split(bin) else rows)
        some = [table for table in tables if table is not None and table.num_rows]
        return concat(some) if some else None


def side_basket(port: int) -> str:
    return f"side{port}"


@dataclass(frozen=True)
class InnerJoinKernel(UncombinedKernel):
    """A kernel of an inner join.

    evaluator: the pair condition; inputs: each side's columns beside lifetimes; result: the columns of a pair.
    """

    evaluator: JoinEvaluator
    inputs: tuple[pa.Schema, pa.Schema]
    result: tuple[str, ...]
    sizes: BinSizes = SIZES
    """The sizes at which bins are split by group."""

    @property
    def progress_rule(self) -> ProgressRule:
        return AT_ONCE

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the pairs that the micro-batch adds and retracts, hold its events, and forget those that have settled.

        Late events are counted.
        """
        totals = Totals()
        fresh = [new_side(arrivals, port, self.inputs[port].names, totals) for port in (0, 1)]
        events = JoinedEvents(state, self.evaluator, self.result, self.sizes)
        out = events.new_pairs(fresh)
        if clock.c != INFINITY:
            events.hold(fresh)
        events.forget(clock.c)
        table = net_deltas(concat(out)) if out else None
        return Output(table, clock.c, totals)


def new_side(arrivals: Sequence[Arrival], port: int, columns: Sequence[str], totals: Totals) -> pa.Table | None:
    """Return a port's new deltas, without those dropped as late; None if there are none. Late ones are counted."""
    names = [*columns, LE, RE, WEIGHT]
    tables = [t.select(names) for a in arrivals if a.port == port and (t := weighted_events(a, totals)).num_rows]
    return concat(tables) if tables else None


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
        return self.evaluator.progress_rule.released(final=self.final, early=self.early)

    @property
    def _sends_at_once(self) -> bool:
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
        members.forget(_past(least))
        due = self._due(state, coming)
        if clock.c == INFINITY:
            for basket in (*WAITING, PAIRS):
                state.drop_basket(basket)
        table = net_retractions(concat([rows.select([*self.result, LE, RE, WEIGHT]) for rows in out])) if out else None
        cti = self.evaluator.cti(clock.by_port or (clock.c,), INFINITY)
        return Output(table, cti, totals, due)

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
        of_sides = [coming.sent if side_basket(port) in state.names() else least for port, least in enumerate(begins)]
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
