"""Kernel of edge events: turns edges into deltas, the difference of lifetimes before and after a micro-batch.

The edges of a key are in order of time, then of the order columns, then ends before starts. Edges equal in all that, but not in
their payload, are ties: none of them counts, and what was sent for the first to come is taken back. An edge that is delivered
again, equal to one in state, is dropped before it is judged. A late edge takes its place in its key's chain by its own time, and
acts from c on: an event lives until the first instant at which an edge after its start acts. If a start was dropped, the end that
belongs to it is dropped, too.

State: per key its open start and every edge at or after c, ties among them; its last edge, if a late one may still act, because
it decides if that one has an effect; and the last dropped edge, until its end has come. It lies in bins by key. Cost: a
micro-batch sorts the edges of the keys that its own edges have, and of those with an edge that progress passes. CTI: c; if the
edge that closes an event brings its payload, the least open start, because the payload changes from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamq.choices import CountReason
from streamq.runtime.arrow.columnar import codes, concat, ints, with_column
from streamq.runtime.arrow.values import Ints, Mask, column_ranks
from streamq.runtime.deltas import LE, OPENS, RE, beside_names, net_deltas, weighted, without_beside
from streamq.runtime.groups import HASH, distinct_hashes, least_by_group, with_hashes
from streamq.runtime.kernel import Arrival, Clock, Judge, Output, Totals, UncombinedKernel, remembered_judge
from streamq.runtime.kernels.insert_ingress import repeats
from streamq.runtime.state.baskets import BinSizes, KernelBaskets
from streamq.runtime.state.group_bins import GroupBins, agenda_of
from streamq.runtime.time.lateness import count_duplicates, count_invalid, count_late, error_of_rows, judgement
from streamq.runtime.time.progress_rule import Cti, ProgressRule, saturating
from streamq.time import INFINITY, MINUS_INFINITY

EDGES = "edges"
"""The basket of the edges."""
GHOST = "__ghost"
"""True for a dropped edge; a dropped start stays in state, because the end that belongs to it is dropped, too."""
SINCE = "__since"
"""The instant from which an edge acts: its time, or, if it is late, the c at which it came."""


@dataclass(frozen=True)
class EdgesKernel(UncombinedKernel):
    """A kernel that builds events from edges.

    key: the columns whose values identify a chain; from_end: a closed event has the end row's payload; order: the columns by
    which edges of one key and instant act. unmatched: the reason to refuse an end that ends no event; tie: that to refuse edges
    that nothing puts in order.
    """

    key: tuple[str, ...]
    from_end: bool
    order: tuple[str, ...]
    unmatched: str
    tie: str

    @property
    def progress_rule(self) -> ProgressRule:
        """Events are sent as they come; with payloads from ends, a closing edge may change an event from its start on."""
        return ProgressRule(Cti.OPEN_EDGE if self.from_end else Cti.INPUT)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the deltas from the lifetimes before this micro-batch to those after it.

        Repeated, late and invalid edges are counted; under the policies "fail", a late one raises LateEvent, an invalid one
        InvalidEvent. If payloads come from the end, the CTI sent is at most the start of each event that does not end before c.
        """
        totals = Totals()
        judge = remembered_judge(state, arrivals)
        bins, marks = GroupBins(state, BinSizes()), _ProgressMarks.from_clock(clock)
        hashed = [replace(a, table=with_hashes(a.table, self.key)) for a in arrivals]
        touched = distinct_hashes([a.table for a in hashed])
        is_further = marks.second > int(state.values.get("second", MINUS_INFINITY))
        state.values["second"] = marks.second
        bins.open(touched, marks.least, min(marks.greatest, INFINITY - 1), is_further=is_further)
        held = bins.events(EDGES)
        fresh = [self._judged(self._without_repetitions(a, held, judge, totals)) for a in hashed]
        every = [t for t in (held, *fresh) if t is not None]
        deltas = self._deltas(bins, every, held, clock, judge=judge, totals=totals) if every else None
        if clock.c == INFINITY:
            bins.drop([EDGES])
        # the edge that closes an event may change its payload from its start on
        cti = min(clock.c, bins.least("held")) if self.from_end and clock.c != INFINITY else clock.c
        evaluated = sum(t.num_rows for t in (held, *(a.table for a in arrivals)) if t is not None)
        return Output(deltas, cti, totals, evaluated=evaluated)

    def _deltas(
        self,
        bins: GroupBins,
        every: Sequence[pa.Table],
        held: pa.Table | None,
        clock: Clock,
        *,
        judge: Judge,
        totals: Totals,
    ) -> pa.Table | None:
        """Return the change of the lifetimes of the active keys, None if there is none, and write the edges that still matter.

        ``every``: tables of edges, of which ``held`` are those in state.
        """
        names = every[0].column_names
        old = np.concatenate([np.full(t.num_rows, t is held) for t in every])
        edges = concat([t.select(names) for t in every])
        edges, old, number = self._ordered(edges, old)
        touched = np.isin(number, number[~old])
        ties = _Ties.from_places(
            self._places(edges, number), old, is_late=~old & (ints(edges, SINCE) > ints(edges, LE))
        )
        count_invalid(edges.filter(pa.array(ties.fresh)), judge, self.tie, totals)
        counted = old & touched & ~ties.before
        before = self._lifetimes(edges.filter(pa.array(counted)), number[counted], -1)
        tied = edges.filter(pa.array(ties.now & (ints(edges, LE) >= clock.c)))
        edges, number = edges.filter(pa.array(~ties.now)), number[~ties.now]
        old, touched = old[~ties.now], touched[~ties.now]
        chains = self._chains(edges, number)
        self._count_late(edges, ~old, chains, judge, totals)
        after = self._lifetimes(edges.filter(pa.array(touched)), number[touched], 1)
        self._keep(bins, edges, tied, chains, judge, clock, totals)
        deltas = net_deltas(concat([before, after]))
        return deltas if deltas.num_rows else None

    def _ordered(self, edges: pa.Table, old: Mask) -> tuple[pa.Table, Mask, Ints]:
        """Return edges in order, with the mask of those in state and the number of each edge's key.

        The order is by key, place in the chain, edges in state before new ones, and payload.
        """
        number, _ = codes(edges, self.key)
        ranks = column_ranks(edges, [*self.order, *self._compared(edges)])
        by_place, by_payload = ranks[: len(self.order)], ranks[len(self.order) :]
        opens = edges.column(OPENS).to_numpy()
        order = np.lexsort([*reversed(by_payload), ~old, opens, *reversed(by_place), ints(edges, LE), number])
        return edges.take(pa.array(order)), old[order], number[order]

    def _compared(self, edges: pa.Table) -> list[str]:
        """Return the columns in which edges of one place in a chain may differ."""
        aside = (*self.key, LE, OPENS, GHOST, SINCE, HASH, *beside_names(edges))
        return [name for name in edges.column_names if name not in aside]

    def _places(self, edges: pa.Table, number: Ints) -> Ints:
        """Return a number for the place of each of the ordered edges in its chain: time, order columns, and kind."""
        parts = [number, ints(edges, LE), *column_ranks(edges, self.order), edges.column(OPENS).to_numpy()]
        begins = np.zeros(len(number), bool)
        for part in parts:
            begins[1:] |= part[1:] != part[:-1]
        return np.cumsum(begins)

    def _chains(self, edges: pa.Table, number: Ints) -> _Chains:
        return _Chains.from_edges(edges, number, ends_first=not self.order)

    def _lifetimes(self, edges: pa.Table, number: Ints, weight: int) -> pa.Table:
        """Return the lifetimes of the events of ordered edges, without empty ones, as deltas of one weight.

        The payload is the start's; if payloads come from the end, that of the end that closes the event, if one does.
        """
        chains = self._chains(edges, number)
        starts = np.flatnonzero(chains.opens & chains.chained & (chains.end_times > chains.since))
        rows = starts
        if self.from_end:
            by = chains.closed_by[starts]
            rows = np.where((by >= 0) & ~chains.opens[by], by, starts)
        events = without_beside(edges.take(pa.array(rows)).drop_columns([OPENS, GHOST, SINCE, HASH]))
        events = with_column(with_column(events, LE, chains.since[starts]), RE, chains.end_times[starts])
        return weighted(events, weight)

    def _count_late(self, edges: pa.Table, fresh: Mask, chains: _Chains, judge: Judge, totals: Totals) -> None:
        """Count the late edges of this micro-batch: as adjusted if they change the history from c on, else as dropped.

        If payloads come from the end, a late edge that closes an event counts as a change even if its end was the same before.
        """
        late = fresh & (chains.since > chains.time)
        if not late.any():
            return
        # an end acts only on an event that has not ended
        acts = chains.chained & (chains.end_times > chains.since) & (chains.opens | chains.after_start)
        if self.from_end:
            # if another edge ends the event at the same instant, this edge still decides on its payload
            acts |= chains.closes
        for mask, reason in ((late & ~acts, CountReason.DROPPED), (late & acts, CountReason.ADJUSTED)):
            count_late(edges, mask, reason, judge, int(chains.since[mask].max(initial=MINUS_INFINITY)), totals)

    def _keep(
        self,
        bins: GroupBins,
        edges: pa.Table,
        tied: pa.Table,
        chains: _Chains,
        judge: Judge,
        clock: Clock,
        totals: Totals,
    ) -> None:
        """Put the edges that can still matter into state (none at the end of the stream), and count ends that act on no event.

        ``tied``: ties that stay in state, because edges equal to them may still come.

        An end that came on time is counted once the CTI has passed it: as invalid if no start can come before it any more; as
        dropped if its start was dropped, if the source itself may still send its start, or if another edge ends the event first.
        """
        c, counted_before, counted = clock.c, max(clock.c_before, clock.counted_before), max(clock.c, clock.counted)
        promised = min(counted, clock.promised)
        time, opens = chains.time, chains.opens
        # edges before that were counted earlier, and late edges as late
        over = (time < counted) & (time >= counted_before) & (chains.since == time)
        lost = over & chains.chained & ~opens & ~chains.after_start
        # another edge has ended the event before this one acts; nothing is left of an event that ends where it starts
        is_idle = over & chains.chained & ~opens & chains.after_start & ~chains.closes & (time[chains.before] < time)
        # the source's CTI still allows its start: the edge is late by the level only
        late = (over & chains.orphaned) | (lost & (time >= promised)) | is_idle
        count_late(edges, late, CountReason.DROPPED, judge, None, totals)
        count_invalid(edges.filter(pa.array(lost & ~late)), judge, self.unmatched, totals)
        if c == INFINITY:
            return
        ghost = chains.ghost | (chains.orphaned & (time < c))
        is_open = chains.open_at(c)
        # a late edge acts if its time is between its key's last edge and c
        acts_from = judge.late.acts_from(promised)
        last = chains.last(chains.chained & (time < c)) & (time >= acts_from)
        dropped = chains.last(time < c) & ghost & (opens | np.isin(chains.number, chains.number[is_open]))
        closing = chains.chained & ~opens & (chains.since >= c)
        is_needed = (time >= c) | is_open | closing | last | dropped
        # an invalid end must not be the end of a start that is dropped later
        is_needed &= ~(lost & ~late & (time < acts_from))
        needed = concat([with_column(edges, GHOST, ghost).filter(pa.array(is_needed)), tied])
        bins.replace_events(EDGES, needed)
        opened = np.where(is_open & self.from_end, chains.since, INFINITY)[is_needed]
        opened = np.concatenate([opened, np.full(tied.num_rows, INFINITY)])
        bins.write_agenda(_ProgressMarks.from_clock(clock).agenda(needed, opened), [EDGES])
        bins.close([EDGES], None)

    def _without_repetitions(self, arrival: Arrival, held: pa.Table | None, judge: Judge, totals: Totals) -> Arrival:
        """Remove edges that repeat one in ``held`` or another new one; they are counted as duplicates."""
        table = arrival.table
        repeated = repeats(table, held, [*self.key, LE, *self.order, OPENS], self._compared(table))
        count_duplicates(table.filter(pa.array(repeated)), judge, totals)
        return replace(arrival, table=table.filter(pa.array(~repeated)))

    def _judged(self, arrival: Arrival) -> pa.Table:
        """Return edges with two columns: GHOST, true if dropped as late, and SINCE, the instant from which the edge acts.

        Without a judge none is late. Raises LateEvent if the policy is to fail.
        """
        table, judge, time = arrival.table, arrival.judge, ints(arrival.table, LE)
        if judge is None:
            return with_column(with_column(table, GHOST, np.zeros(len(time), bool)), SINCE, time)
        error = error_of_rows(judge, table, arrival.promised)
        verdict = judgement(judge, time, arrival.c, arrival.promised, error)
        return with_column(with_column(table, GHOST, verdict.is_dropped), SINCE, verdict.acting_from(time))


@dataclass(frozen=True)
class _Ties:
    """Edges that have their place in the chain with others, as masks of ordered edges: none of them counts.

    now: those that do not count any more; before: those in state that did not count before; fresh: those that are to be counted
    as invalid now, new ones and the one in state that has counted until now.
    """

    now: Mask
    before: Mask
    fresh: Mask

    @staticmethod
    def from_places(places: Ints, old: Mask, is_late: Mask) -> _Ties:
        """Return the ties among edges, of which ``old`` are in state; a late one does not void an edge that was on time."""
        held = np.bincount(places, weights=old)[places]
        standing = np.bincount(places, weights=~is_late)[places]
        now = (np.bincount(places)[places] > 1) & (is_late | (standing > 1))
        before = old & (held > 1)
        return _Ties(now=now, before=before, fresh=now & ~before)


@dataclass(frozen=True)
class _ProgressMarks:
    """The CTI, the CTI by which items are late, and the one that the source has sent, from the least to the greatest.

    They differ at some levels of consistency. A key must be looked at when one of them passes an edge of it, or the instant from
    which an edge acts.
    """

    least: int
    second: int
    greatest: int

    @staticmethod
    def from_clock(clock: Clock) -> _ProgressMarks:
        """Return the progress after a micro-batch; all are INFINITY at the end of the input."""
        if clock.c == INFINITY:
            return _ProgressMarks(INFINITY, INFINITY, INFINITY)
        counted = max(clock.c, clock.counted)
        return _ProgressMarks(*sorted((clock.c, counted, min(counted, clock.promised))))

    def agenda(self, edges: pa.Table, opened: Ints) -> pa.Table:
        """Return what the keys of edges wait for; ``opened``: for each edge the open start that it is, or INFINITY."""
        hashes, place = np.unique(edges.column(HASH).to_numpy(), return_inverse=True)
        twice, at = np.tile(place, 2), np.concatenate([ints(edges, LE), ints(edges, SINCE)])

        def first(progress: int) -> Ints:
            """Return the least progress beyond ``progress`` that passes an instant of each key."""
            is_ahead = at >= progress
            return saturating(least_by_group(len(hashes), (twice[is_ahead], at[is_ahead]), otherwise=INFINITY), 1)

        reaches = np.zeros(len(hashes), bool)
        reaches[twice[(at >= self.second) & (at < self.greatest)]] = True
        held = least_by_group(len(hashes), (place, opened), otherwise=INFINITY)
        return agenda_of(hashes, c=first(self.least), m=first(self.greatest), held=held, reaches=reaches)


@dataclass(frozen=True)
class _Chains:
    """Edges by key and time, as arrays; ``number`` is the number of the key.

    chained: edges that are part of a chain; orphaned: ends that are not, because their start was dropped. For an edge of a chain
    ``before`` is the position of the edge before it, and ``closed_by`` that of the later edge that acts first; -1: none.
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
    def from_edges(edges: pa.Table, number: Ints, *, ends_first: bool) -> _Chains:
        """Return the chains of ordered edges; of edges that act at one instant ends come first, or those first in the order."""
        time, since = ints(edges, LE), ints(edges, SINCE)
        opens, ghost = edges.column(OPENS).to_numpy(), edges.column(GHOST).to_numpy()
        orphaned = np.zeros(len(number), bool)
        # a dropped edge, too, would act from c on only
        behind = (number[1:] == number[:-1]) & (since[1:] >= since[:-1])
        orphaned[1:] = behind & ghost[:-1] & opens[:-1] & ~ghost[1:] & ~opens[1:]
        chained = ~ghost & ~orphaned
        at = np.flatnonzero(chained)
        follows = np.flatnonzero(number[at[1:]] == number[at[:-1]])
        before = np.full(len(number), -1)
        before[at[follows + 1]] = at[follows]
        # where ends act first at an instant, the ended event has their payload
        order = np.lexsort((opens[at] & ends_first, since[at]))
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
    def end_times(self) -> Ints:
        """The end of the event that each edge starts; INFINITY if no edge ends it."""
        return np.where(self.closed_by < 0, INFINITY, self.since[self.closed_by])

    @property
    def closes(self) -> Mask:
        """Mark the edges, ends or further starts, that end an event which is not empty."""
        of = self.closed_by[self.opens & self.chained & (self.end_times > self.since)]
        closes = np.zeros(len(self.number), bool)
        closes[of[of >= 0]] = True
        return closes

    @property
    def after_start(self) -> Mask:
        """Mark the chained edges that follow a start."""
        return (self.before >= 0) & self.opens[self.before]

    def open_at(self, c: int) -> Mask:
        """Mark the starts whose event does not end before c."""
        return self.opens & self.chained & (self.end_times >= c)

    def last(self, of: Mask) -> Mask:
        """Mark the last edge of each key among the edges in ``of``."""
        is_last = np.zeros(len(of), bool)
        at = np.flatnonzero(of)
        is_last[at[np.append(self.number[at][1:] != self.number[at][:-1], True)[: len(at)]]] = True
        return is_last
