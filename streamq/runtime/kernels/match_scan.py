"""Kernel of a pattern's scan: it goes from event to event, from the candidates at c on, and again if events come in between.

State: the candidates of each group, events before c that one from c on may have a match with; their number; the events since c.

Cost: the events since c of the groups that are evaluated, and the candidates that they look at: the oldest or the newest ones, as
many as decide, or all in the scope (``ReadOrder``). Other candidates are neither read nor written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.active_groups import ActiveGroups
from streamq.runtime.columnar import concat, ints
from streamq.runtime.evaluators.match_scan import MatchScan, MatchScanEvaluator
from streamq.runtime.event import LE, RE
from streamq.runtime.groups import GROUP_NUMBER
from streamq.runtime.kernel import Arrival, Clock, Output
from streamq.runtime.kernels.scan import StepwiseKernel
from streamq.runtime.state.baskets import COUNTS, KernelBaskets
from streamq.runtime.state.held_candidates import FACTOR, CandidateCounts, HeldCandidates
from streamq.time import INFINITY


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
        """Return the candidates in a state."""
        return HeldCandidates(state, self.evaluator, self.sizes)


def _lacking(events: pa.Table, scans: Sequence[MatchScan]) -> pa.Table:
    """Return the events of the groups that lacked candidates in the last scan."""
    return events.filter(pa.array(np.isin(ints(events, GROUP_NUMBER), scans[-1].lacking)))


__all__ = ["MatchScanKernel"]
