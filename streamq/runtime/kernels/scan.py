"""Kernel that calls a module event by event: from the state before c on, again from there if events come in between.

State: each group's state after all events before c, as long as the module needs it, and the events since. If rows wait until they
are final, the module is called once for each event, in order; otherwise every micro-batch with new events repeats the calls for
all events since c that have started.

Cost: a sort of the events since c, a call for each of those that have started, and a look at the states of a bucket's groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.columnar import ints
from streamq.runtime.evaluators.scan import ScanEvaluator
from streamq.runtime.event import LE
from streamq.runtime.kernel import Clock, Totals
from streamq.runtime.kernels.recompute import BIN, RecomputeKernel
from streamq.runtime.lateness import QuarantineRows
from streamq.runtime.release import Release
from streamq.time import INFINITY, MINUS_INFINITY

STATES, STATES_AT = "states", "states_at"
"""The basket of the groups' states, and the name of their instant: they include all events before it."""


@dataclass(frozen=True)
class ScanKernel(RecomputeKernel[ScanEvaluator]):
    """A kernel of an evaluator that continues from states."""

    sets_aside: bool = False
    """True if events whose steps fail are set aside, each once it starts before c; a late output exists then."""

    def _evaluated(
        self,
        state: KernelBaskets,
        histories: Sequence[pa.Table],
        fresh: Sequence[Sequence[pa.Table]],
        clock: Clock,
        *,
        upto: int,
        totals: Totals,
    ) -> pa.Table:
        """Return the rows of the started events from the c of the call before on, and store the groups' states at c.

        At the end of the stream no states are stored. Events whose step fails are set aside and counted, or raise ModuleFailed.
        """
        states_at = state.values.get(STATES_AT, MINUS_INFINITY)
        events = histories[0].filter(pa.array(ints(histories[0], LE) >= states_at))
        started = events.filter(pa.array(Release.PAST_START.lets_go(events, self._reached(clock))))
        latest = partial(self.evaluator.latest, since=states_at)
        states = state.read(STATES, BIN, latest) if started.num_rows else None
        aside = QuarantineRows() if self.sets_aside else None
        rows, new_states = self.evaluator.go_on(started, states, clock.c, aside)
        if aside is not None:
            aside.count(totals)
        if clock.c == INFINITY:
            state.drop(STATES, BIN)
        else:
            state.append(STATES, BIN, new_states)
        state.values[STATES_AT] = clock.c
        return rows

    def _due(self, waiting: pa.Table, histories: Sequence[pa.Table], clock: Clock) -> int | None:
        """Return the progress past the first event that the module has not been called for; None if there is no such event.

        Its rows are unknown before the call, so ``waiting`` does not count.
        """
        events = self.evaluator.passing(histories[0])
        return Release.PAST_START.due(events.filter(pa.array(ints(events, LE) >= self._reached(clock))))

    def _reached(self, clock: Clock) -> int:
        """Return the progress before which the module is called for events."""
        if self.final:
            return clock.c
        return INFINITY if self.early else clock.m


__all__ = ["ScanKernel"]
