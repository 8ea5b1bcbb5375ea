"""Kernels that go from event to event: from the state before c on, again from there if events come in between.

One calls a module. Its state: each group's state after all events before c, and the events since. If rows wait until they are
final, the module is called once for each event, in order; otherwise every micro-batch with new events repeats the calls for
all events since c that have started. Its cost: a sort of the events since c, a call for each of those that have started, and
the states of the groups that are evaluated.

The other is a pattern's scan. Its state: the candidates of each group, events before c that one from c on may have a match
with; their number; the events since c. Its cost: the events since c of the groups that are evaluated, and the candidates that
they look at: the oldest or the newest ones, as many as decide, or all in the scope (``ReadOrder``). Other candidates are
neither read nor written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, with_column
from streamq.runtime.candidates import FACTOR, CandidateCounts, HeldCandidates
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluators.scan import MatchScan, MatchScanEvaluator, ModuleScanEvaluator, ScanEvaluator
from streamq.runtime.groups import GROUP_NUMBER, HASH
from streamq.runtime.kernel import Arrival, Clock, Output
from streamq.runtime.kernels.recompute import ActiveGroups, RecomputeKernel, Waits
from streamq.runtime.state.baskets import COUNTS, KernelBaskets
from streamq.runtime.time.lateness import QuarantineRows
from streamq.runtime.time.progress_rule import Release
from streamq.time import INFINITY

E = TypeVar("E", bound=ScanEvaluator)

STATES = "states"
"""The basket of the groups' states, each after all events before the c at which the group was last evaluated."""


@dataclass(frozen=True)
class StepwiseKernel(RecomputeKernel[E]):
    """A kernel of an evaluator that goes from event to event, from what is kept of those before c on."""

    def _started(self, groups: ActiveGroups) -> pa.Table:
        """Return the started events of the active groups; those before the c at which a group was last evaluated are gone."""
        (events,) = groups.histories
        return events.filter(pa.array(Release.PAST_START.lets_go(events, self._reached(groups.clock))))

    def _waits(self, rows: pa.Table, histories: Sequence[pa.Table], clock: Clock) -> Waits:
        """Return the instants past the events of each group that start at c or later, and past those without a call so far.

        The rows of an event are unknown before the call, so ``rows`` do not count.
        """
        events = self.evaluator.passing(histories[0])
        of, dues = ints(events, GROUP_NUMBER), Release.PAST_START.dues(events)
        is_to_come = ints(events, LE) >= self._reached(clock)
        to_come, nothing = (of[is_to_come], dues[is_to_come]), (of[:0], dues[:0])
        all_events = ints(histories[0], GROUP_NUMBER), Release.PAST_START.dues(histories[0])
        return Waits(all_events, to_come if self.early_release is not None else nothing, to_come)

    def _reached(self, clock: Clock) -> int:
        if self.final:
            return clock.c
        return INFINITY if self.early else clock.m


@dataclass(frozen=True)
class ScanKernel(StepwiseKernel[ModuleScanEvaluator]):
    """A kernel of a module that continues from states."""

    sets_aside: bool = False
    """True if events whose steps fail are set aside, each once it starts before c; a late output exists then."""

    @property
    def _baskets_beside_events(self) -> tuple[str, ...]:
        return (STATES,)

    def _evaluated(self, groups: ActiveGroups) -> pa.Table:
        """Return the rows of the started events from the c of the call before on, and store the groups' states at c.

        At the end of the stream no states are stored. Events whose step fails are set aside and counted, or raise ModuleFailed.
        """
        bins, c, latest = groups.bins, groups.clock.c, self.evaluator.latest
        started = self._started(groups)
        states = bins.read(STATES) if started.num_rows else None
        aside = QuarantineRows() if self.sets_aside else None
        rows, new_states = self.evaluator.go_on(started, None if states is None else latest(states), c, aside)
        if aside is not None:
            aside.count(groups.totals)
        if c != INFINITY:
            hash_of = groups.hashes()
            new_states = with_column(new_states, HASH, hash_of[ints(new_states, GROUP_NUMBER)])
            bins.append(STATES, new_states.drop_columns([GROUP_NUMBER]), latest)
        return rows


@dataclass(frozen=True)
class MatchScanKernel(StepwiseKernel[MatchScanEvaluator]):
    """A kernel of a pattern's scan that continues from candidates."""

    @property
    def _baskets_beside_events(self) -> tuple[str, ...]:
        return (COUNTS,)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Add deltas to the state and evaluate it, as RecomputeKernel does; forget candidates that are out of the scope."""
        output = super().advance(state, arrivals, clock)
        self._candidates(state).forget(clock.c)
        return output

    def _evaluated(self, groups: ActiveGroups) -> pa.Table:
        """Return the matches that the started events complete, and store the changes of candidates up to c.

        Groups whose matches depend on more candidates than have been read are evaluated again with more of them. At the end of
        the stream nothing is stored.
        """
        evaluator, c = self.evaluator, groups.clock.c
        candidates = self._candidates(groups.bins.state)
        counts = CandidateCounts(groups.bins, evaluator, groups.clock.c_before)
        events = evaluator.passing(self._started(groups))
        none = events.slice(0, 0)
        scans = [evaluator.scan(events, none, c, is_whole=False)]
        events, most = _lacking(events, scans), 1
        has_some = counts.have_candidates(events)
        if not has_some.all():
            scans.append(evaluator.scan(events.filter(pa.array(~has_some)), none, c, is_whole=True))
            events = events.filter(pa.array(has_some))
        while events.num_rows:
            held, is_whole = candidates.read(events, most)
            scans.append(evaluator.scan(events, held, c, is_whole=is_whole))
            groups.beside.append(held.num_rows)
            events, most = _lacking(events, scans), FACTOR * most
        if c != INFINITY:
            stored = [*self.inputs[0].names, LE, RE]
            waiting = concat([scan.waiting.select(stored) for scan in scans])
            consumed = concat([scan.consumed.select(stored) for scan in scans])
            if waiting.num_rows + consumed.num_rows:
                candidates.change(waiting, consumed)
                counts.change(waiting, consumed)
        return concat([scan.matches for scan in scans])

    def _candidates(self, state: KernelBaskets) -> HeldCandidates:
        return HeldCandidates(state, self.evaluator, self.sizes)


def _lacking(events: pa.Table, scans: Sequence[MatchScan]) -> pa.Table:
    return events.filter(pa.array(np.isin(ints(events, GROUP_NUMBER), scans[-1].lacking)))
