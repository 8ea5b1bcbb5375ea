"""Kernels of joins: inner ones, of two streams and of the members of windows; and those whose rows are parts of left events.

An inner join joins each side's new events with the other side's held and new events. A windowed join pairs a member once, when
its first window is sent, with all members before it: a member's windows are a range of numbers, and two members share those in
which their ranges overlap, so it is an inner join of ranges. A pair gives a row for each of its windows when that is due.
State: each side's events, in bins of time by length of life, and by group where these are large, so that a micro-batch reads
only bins that its events can overlap; a bin is dropped once all its events have ended. Cost: the pairs of new events, and the
events of their groups in the bins that they are read from. In windows: also members whose first window is to come, and pairs with
windows to come; the pairs are those of members whose first window is due, of late ones and of those taken back.

Left, semi and anti join, and clip: the rows of a left event depend on it and on right events of its group, of a join on those
that overlap it, of clip on the first that starts after it. So a kernel computes the rows of new left events, and of the held ones
whose rows new right events change, before and after these. A new right start of clip, or one that is taken back, changes the left
events that begin before it and whose rows end there or later; so a left event of clip is held together with the end of its row.
State: left and right events in bins by group, of joins also the lifetimes of the left ones by start, and the rows that wait.
Cost: the pairs of new left events, and of those that a new right event meets; the right events of their groups; for new right
events the left ones of their groups whose rows may change. Once most events of a bin are settled, all its groups are read, to
forget the events that are no longer needed.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
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
from streamq.runtime.evaluators.joins import ClipEvaluator, JoinEvaluator, WindowedJoinEvaluator
from streamq.runtime.groups import GroupHashes, distinct_hashes, number_groups, with_hashes
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.kernels.recompute import input_basket, new_deltas
from streamq.runtime.state.baskets import SIZES, BinSizes, KernelBaskets
from streamq.runtime.state.bins import Bins
from streamq.runtime.state.group_bins import GroupBins
from streamq.runtime.state.time_bins import TimeBins, unsettled_rows
from streamq.runtime.time.endpoints import Bound, Endpoint, announced_endpoints, bound_at_end
from streamq.runtime.time.lateness import weighted_events
from streamq.runtime.time.progress_rule import AT_ONCE, ProgressRule, Release
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
