"""Kernel of the inner join of two streams: it joins each side's new events with the other side's held and new events.

State: each side's events, in bins of time by length of life, and by group where these are large, so that a micro-batch reads
only bins that its events can overlap; a bin is dropped once all its events have ended. Cost: the pairs of new events, and the
events of their groups in the bins that they are read from.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, net_deltas, with_column
from streamq.runtime.arrow.values import Mask
from streamq.runtime.evaluators.joins import JoinEvaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.groups import GroupHashes, distinct_hashes, number_groups, with_hashes
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.state.baskets import SIZES, BinSizes, KernelBaskets
from streamq.runtime.state.bins import Bins
from streamq.runtime.time.lateness import weighted_events
from streamq.runtime.time.progress_rule import AT_ONCE, ProgressRule
from streamq.time import INFINITY

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
        """Add new deltas to the events held."""
        for port, table in enumerate(fresh):
            if table is not None:
                self._bins(port).hold(table)

    def forget(self, c: int) -> None:
        """Drop the bins in which all events have ended before ``c``; all if it is INFINITY."""
        for port in (0, 1):
            self._bins(port).forget(c)

    def _bins(self, port: int) -> Bins:
        """Return the bins of a side."""
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
    """Return the name of the basket of a side's events."""
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
        """Pairs are sent at once."""
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
        return Output(table if table is not None and table.num_rows else None, clock.c, totals)


def new_side(arrivals: Sequence[Arrival], port: int, columns: Sequence[str], totals: Totals) -> pa.Table | None:
    """Return a port's new deltas, without those dropped as late; None if there are none. Late ones are counted."""
    names = [*columns, LE, RE, WEIGHT]
    tables = [t.select(names) for a in arrivals if a.port == port and (t := weighted_events(a, totals)).num_rows]
    return concat(tables) if tables else None
