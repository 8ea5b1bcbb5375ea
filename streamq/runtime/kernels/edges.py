"""Edges into deltas: per key, the edges that can still matter are kept; a batch's effect is the difference of lifetimes.

An edge that comes again, equal as a whole to one that is held, is left out before it is judged: key, instant and edge name it.

A late edge stands in its chain where its own time puts it, and acts from c on: an event lives until the first instant at
which an edge after its start acts. A start that was dropped takes the end that belongs to it with it.

State: per key its open start and every edge at or after c; its last edge, where a late one may still act, for it decides
whether that one has an effect; and of what was dropped the last edge, until its end has come. Cost: a sort of the keys a batch
touches. CTI: c; if the edge that closes an event brings its payload, the least open start, for that changes what was said from
there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.choices import CountReason
from streamq.runtime.basket import KernelBaskets
from streamq.runtime.columnar import codes, concat, ints, net_deltas, with_column
from streamq.runtime.deltas import weighted
from streamq.runtime.event import LE, OPENS, RE
from streamq.runtime.kernel import (
    Arrival,
    Clock,
    Judge,
    Output,
    Totals,
    UncombinedKernel,
    remembered_judge,
)
from streamq.runtime.lateness import count_duplicates, count_invalid, count_late, error_of_rows, judgement
from streamq.runtime.repetitions import repetitions
from streamq.runtime.values import Ints, Mask, column_ranks
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule

TIE = "two edges of one key at one instant"
GHOST = "__ghost"
"""True for an edge that was dropped; such a start is held, for the end that belongs to it goes with it."""
SINCE = "__since"
"""From when on an edge acts: its time, or the c that it came behind."""


@dataclass(frozen=True)
class EdgesKernel(UncombinedKernel):
    """key: the columns that make a chain; from_end: a closed event carries the end row's payload."""

    key: tuple[str, ...]
    from_end: bool

    @property
    def progress_rule(self) -> ProgressRule:
        """Events go on as they come; the edge that closes one may change what it brought from its start on."""
        from streamq.runtime.progress_rule import Cti, ProgressRule

        return ProgressRule(Cti.OPEN_EDGE if self.from_end else Cti.INPUT)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Lifetimes after this batch less lifetimes before it, as deltas."""
        totals = Totals()
        judge = remembered_judge(state, arrivals)
        held = state.read_all("edges")
        if held is None and not arrivals:
            return Output(None, clock.c, totals)
        fresh = [self._judged(self._once(a, held, judge, totals)) for a in arrivals]
        every = [t for t in (held, *fresh) if t is not None]
        names = every[0].column_names
        old = np.concatenate([np.full(t.num_rows, t is held) for t in every])
        edges = concat([t.select(names) for t in every])
        edges, old, number = self._ordered(edges, old)
        tie = self._ties(edges, number)
        count_invalid(edges.filter(pa.array(tie)), judge, TIE, totals)
        edges, old, number = edges.filter(pa.array(~tie)), old[~tie], number[~tie]
        chains = _Chains.from_edges(edges, number)
        self._count_late(edges, ~old, chains, judge, totals)
        touched = np.isin(number, number[~old])
        before = self._lifetimes(edges.filter(pa.array(old & touched)), number[old & touched], -1)
        after = self._lifetimes(edges.filter(pa.array(touched)), number[touched], 1)
        self._keep(state, edges, chains, judge, clock, totals)
        cti = clock.c
        if self.from_end and cti != INFINITY:
            # the edge that closes an event brings another payload, from its start on
            cti = int(chains.since[chains.open_at(cti)].min(initial=cti))
        deltas = net_deltas(concat([before, after]))
        return Output(deltas if deltas.num_rows else None, cti, totals)

    def _ordered(self, edges: pa.Table, old: Mask) -> tuple[pa.Table, Mask, Ints]:
        """By key, time, ends before starts; among ties what was there first, then by payload."""
        number, _ = codes(edges, self.key)
        rest = [n for n in edges.column_names if n not in (*self.key, LE, OPENS, GHOST, SINCE)]
        opens = edges.column(OPENS).to_numpy()
        order = np.lexsort([*reversed(column_ranks(edges, rest)), ~old, opens, ints(edges, LE), number])
        return edges.take(pa.array(order)), old[order], number[order]

    def _ties(self, edges: pa.Table, number: Ints) -> Mask:
        time, opens = ints(edges, LE), edges.column(OPENS).to_numpy()
        tie = np.zeros(len(time), bool)
        tie[1:] = (number[1:] == number[:-1]) & (time[1:] == time[:-1]) & (opens[1:] == opens[:-1])
        return tie

    def _lifetimes(self, edges: pa.Table, number: Ints, weight: int) -> pa.Table:
        chains = _Chains.from_edges(edges, number)
        starts = np.flatnonzero(chains.opens & chains.chained & (chains.until > chains.since))
        rows = starts
        if self.from_end:
            by = chains.closed_by[starts]
            rows = np.where((by >= 0) & ~chains.opens[by], by, starts)
        events = edges.take(pa.array(rows)).drop_columns([OPENS, GHOST, SINCE])
        events = with_column(with_column(events, LE, chains.since[starts]), RE, chains.until[starts])
        return weighted(events, weight)

    def _count_late(self, edges: pa.Table, fresh: Mask, chains: _Chains, judge: Judge, totals: Totals) -> None:
        """Count the late edges of this micro-batch: those that change something from c on are adjusted, the others dropped."""
        late = fresh & (chains.since > chains.time)
        if not late.any():
            return
        # an end needs an event that goes on
        goes_on = chains.after_start & (~fresh | (chains.since < chains.since.max()))[chains.before]
        acts = chains.chained & (chains.until > chains.since) & (chains.opens | goes_on)
        if self.from_end:
            # where another edge ends the event at the same instant, what this one brings is its payload
            acts |= ~chains.opens & chains.closes
        for mask, reason in ((late & ~acts, CountReason.DROPPED), (late & acts, CountReason.ADJUSTED)):
            count_late(edges, mask, reason, judge, int(chains.since[mask].max(initial=MINUS_INFINITY)), totals)

    def _keep(
        self, state: KernelBaskets, edges: pa.Table, chains: _Chains, judge: Judge, clock: Clock, totals: Totals
    ) -> None:
        """Keep what can still matter; an end that no start can reach any more is no event."""
        c, counted_before, counted = clock.c, max(clock.c_before, clock.counted_before), max(clock.c, clock.counted)
        promised = min(counted, clock.promised)
        time, opens = chains.time, chains.opens
        # the others were counted before, or as late
        over = (time < counted) & (time >= counted_before) & (chains.since == time)
        lost = over & chains.chained & ~opens & ~chains.after_start
        # the event that it would end is gone before it has begun to act: it goes with its start
        is_idle = over & chains.chained & ~opens & chains.after_start & ~chains.closes
        # its start may still come by the source's own word: it is late by the level
        late = (over & chains.orphaned) | (lost & (time >= promised)) | is_idle
        count_late(edges, late, CountReason.DROPPED, judge, None, totals)
        count_invalid(edges.filter(pa.array(lost & ~late)), judge, "an end without an open start", totals)
        if c == INFINITY:
            for bin in state.bins("edges"):
                state.drop("edges", bin)
            return
        ghost = chains.ghost | (chains.orphaned & (time < c))
        is_open = chains.open_at(c)
        # what comes late acts if it belongs between its key's last edge and c
        acts_from = judge.late.acts_from(promised)
        last = chains.last(chains.chained & (time < c)) & (time >= acts_from)
        dropped = chains.last(time < c) & ghost & (opens | np.isin(chains.number, chains.number[is_open]))
        closing = chains.chained & ~opens & (chains.since >= c)
        is_needed = (time >= c) | is_open | closing | last | dropped
        # it takes no start that is dropped from the end that belongs to it
        is_needed &= ~(lost & ~late & (time < acts_from))
        state.replace("edges", "0", with_column(edges, GHOST, ghost).filter(pa.array(is_needed)))

    def _once(self, arrival: Arrival, held: pa.Table | None, judge: Judge, totals: Totals) -> Arrival:
        """The edges that say something new; of those of one key and instant that differ the first one is one."""
        table = arrival.table
        whose = [*self.key, LE, OPENS]
        repeated, contrary = repetitions(table, held, whose, [n for n in table.column_names if n not in whose])
        count_duplicates(table.filter(pa.array(repeated)), judge, totals)
        count_invalid(table.filter(pa.array(contrary)), judge, TIE, totals)
        return replace(arrival, table=table.filter(pa.array(~(repeated | contrary))))

    def _judged(self, arrival: Arrival) -> pa.Table:
        """Edges with whether they were dropped, and from when on they act."""
        table, judge, time = arrival.table, arrival.judge, ints(arrival.table, LE)
        if judge is None:
            return with_column(with_column(table, GHOST, np.zeros(len(time), bool)), SINCE, time)
        error = error_of_rows(judge, table, arrival.promised)
        verdict = judgement(judge, time, arrival.c, arrival.promised, error)
        return with_column(with_column(table, GHOST, verdict.is_dropped), SINCE, verdict.acting_from(time))


@dataclass(frozen=True)
class _Chains:
    """Edges by key and time, as arrays; ``number`` numbers the keys.

    chained: those that make chains; orphaned: ends that do not, for the start that they belong to was dropped. Of an edge of
    a chain ``before`` is the position of the one before it, ``closed_by`` of that after it which acts first; -1: none.
    """

    number: Ints
    time: Ints
    since: Ints
    opens: Mask
    ghost: Mask
    chained: Mask
    orphaned: Mask
    before: Ints
    closed_by: Ints

    @staticmethod
    def from_edges(edges: pa.Table, number: Ints) -> _Chains:
        """Chains of edges in order."""
        time, since = ints(edges, LE), ints(edges, SINCE)
        opens, ghost = edges.column(OPENS).to_numpy(), edges.column(GHOST).to_numpy()
        orphaned = np.zeros(len(number), bool)
        # what was dropped acts from c on only, too
        behind = (number[1:] == number[:-1]) & (since[1:] >= since[:-1])
        orphaned[1:] = behind & ghost[:-1] & opens[:-1] & ~ghost[1:] & ~opens[1:]
        chained = ~ghost & ~orphaned
        at = np.flatnonzero(chained)
        follows = np.flatnonzero(number[at[1:]] == number[at[:-1]])
        before = np.full(len(number), -1)
        before[at[follows + 1]] = at[follows]
        # of what acts at one instant an end comes first: an event that it ends has its payload
        order = np.lexsort((opens[at], since[at]))
        rank = np.empty(len(at), np.int64)
        rank[order] = np.arange(len(at))
        # the least rank from here on: any of a later key is greater than those of this one
        least = np.minimum.accumulate((number[at] * len(at) + rank)[::-1])[::-1]
        closed_by = np.full(len(number), -1)
        closed_by[at[follows]] = at[order[least[follows + 1] - number[at[follows]] * len(at)]]
        return _Chains(
            number,
            time,
            since,
            opens=opens,
            ghost=ghost,
            chained=chained,
            orphaned=orphaned,
            before=before,
            closed_by=closed_by,
        )

    @property
    def until(self) -> Ints:
        """Until when what an edge of a chain begins goes on."""
        return np.where(self.closed_by < 0, INFINITY, self.since[self.closed_by])

    @property
    def closes(self) -> Mask:
        """The edges that end an event."""
        of = self.closed_by[self.opens & self.chained & (self.until > self.since)]
        closes = np.zeros(len(self.number), bool)
        closes[of[of >= 0]] = True
        return closes

    @property
    def after_start(self) -> Mask:
        """The edges of chains that follow a start."""
        return (self.before >= 0) & self.opens[self.before]

    def open_at(self, c: int) -> Mask:
        """The starts whose event does not end before c."""
        return self.opens & self.chained & (self.until >= c)

    def last(self, of: Mask) -> Mask:
        """The last of each key among some edges."""
        is_last = np.zeros(len(of), bool)
        at = np.flatnonzero(of)
        is_last[at[np.append(self.number[at][1:] != self.number[at][:-1], True)[: len(at)]]] = True
        return is_last
