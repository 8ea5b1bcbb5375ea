"""Runs a module that goes from event to event on a stream: from the state before c on, again where events come in between.

State: of each group the state over all events before c, as long as the module needs it, and the events since. Where rows wait
until they are final, each event is stepped over once, and in its place; else what has started is gone over again in every
micro-batch that brings something.
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
"""The basket of the groups' states, and the name of the instant that they are kept at: all before it is in them."""


@dataclass(frozen=True)
class ScanKernel(RecomputeKernel[ScanEvaluator]):
    """A kernel of an evaluator that goes on from states."""

    sets_aside: bool = False
    """Whether events whose steps fail may be set aside: there is a late output. Each is, once it starts before c."""

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
        """The progress past the first event that has not been stepped over: whether it has rows nobody knows before."""
        events = self.evaluator.passing(histories[0])
        return Release.PAST_START.due(events.filter(pa.array(ints(events, LE) >= self._reached(clock))))

    def _reached(self, clock: Clock) -> int:
        """Return the progress before which events are stepped over."""
        if self.final:
            return clock.c
        return INFINITY if self.early else clock.m


__all__ = ["ScanKernel"]
