"""The scan of a pattern goes over the events of all groups as columns, and completes matches with candidates before them.

The kernel's state: the candidates of each group, events before c that one from c on may have a match with; their number; the
events since c. Its cost: the events since c of the groups that are evaluated, and the candidates that they look at: the oldest
or the newest ones, as many as decide, or all in the scope (``ReadOrder``). Other candidates are neither read nor written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.errors import ModuleFailed
from streamq.runtime.arrow.columnar import codes, concat, ints
from streamq.runtime.arrow.values import Ints, Mask, distinct
from streamq.runtime.candidates import (
    FACTOR,
    CandidateCounts,
    EventRows,
    GroupRows,
    HeldCandidates,
    MatchStep,
    MatchWalk,
)
from streamq.runtime.deltas import LE, RE
from streamq.runtime.groups import GROUP_NUMBER
from streamq.runtime.kernel import Arrival, Clock, Output
from streamq.runtime.kernels.recompute import ActiveGroups
from streamq.runtime.kernels.scan import ScanEvaluator, StepwiseKernel
from streamq.runtime.state.baskets import COUNTS, KernelBaskets
from streamq.runtime.time.lateness import QuarantineRows
from streamq.runtime.user_code.calls import ModuleCall
from streamq.runtime.user_code.code_values import FAILURES
from streamq.time import INFINITY, MINUS_INFINITY


@dataclass(frozen=True, eq=False)
class MatchScan:
    """The result of a scan.

    matches: those of all groups but the lacking ones; waiting: the events that have become candidates; consumed: the candidates
    that no longer are; lacking: the numbers of the groups whose matches depend on candidates that were left out.
    """

    matches: pa.Table
    waiting: pa.Table
    consumed: pa.Table
    lacking: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class MatchScanEvaluator(ScanEvaluator):
    """The matches that each event completes, by a ``step``; ``name``: the operator's, for errors.

    columns: the names of the values among an event's arguments, the last of these; types: of the columns of a match. If there
    are several inputs, the second argument is the number of an event's input.
    """

    name: str
    step: MatchStep
    columns: tuple[str, ...]
    types: Mapping[str, pa.DataType]

    completes_matches = True

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int, aside: QuarantineRows | None = None) -> pa.Table:
        """Return the matches; no step fails but by a condition, which sets nothing aside."""
        events = inputs[0]
        return self.scan(self.passing(events), events.slice(0, 0), MINUS_INFINITY, is_whole=True).matches

    def scan(self, events: pa.Table, candidates: pa.Table, c: int, *, is_whole: bool) -> MatchScan:
        """Return the matches that events complete with those before them and with candidates, which are before all of them.

        A state at c, of the groups with events before c, has its events before c that a later one may have a match with.
        ``is_whole``: no candidate that events look at is left out.
        """
        both = concat([events.select(candidates.column_names), candidates]) if candidates.num_rows else events
        group, _ = codes(both, self.keys)
        order = self.ordered(both, group)
        is_new = order < events.num_rows
        walk = self.step.walk(self._event_rows(both, group, order, is_whole))
        lacking = []
        try:
            for rows in _groups(group[order], is_new, is_new & (ints(both, LE)[order] < c)):
                if not walk.over_group(rows):
                    lacking.append(int(ints(events, GROUP_NUMBER)[order[rows.new]]))
        except ModuleFailed:
            # a user's function within a condition has its own error
            raise
        except FAILURES as error:
            call, event = ModuleCall(name=self.name), events.slice(int(order[walk.at]), 1)
            names = ("start", *(["source"] if self._has_sources else []), *self.columns)
            raise call.failure(self.reason(call, names, error, event)) from error
        waiting, consumed = (
            both.take(pa.array(order[np.asarray(rows, np.int64)])) for rows in (walk.waiting, walk.consumed)
        )
        return MatchScan(self._matches(walk, order, events), waiting, consumed, lacking)

    @property
    def _has_sources(self) -> bool:
        """True if an argument is the number of an event's input."""
        return len(self.args) > 1 + len(self.columns)

    def sources(self, events: pa.Table) -> Ints:
        """Return the number of each event's input."""
        return ints(events, self.args[1]) if self._has_sources else np.zeros(events.num_rows, np.int64)

    def looked_at(self, events: pa.Table) -> list[int]:
        """Return the inputs whose candidates some of the events may have a match with, in order."""
        sources = distinct(self.sources(events)).tolist()
        return sorted(frozenset[int]().union(*map(self.step.looks_at, sources)))

    def _event_rows(self, events: pa.Table, group: Ints, order: Ints, is_whole: bool) -> EventRows:
        args, at = self.args[len(self.args) - len(self.columns) :], pa.array(order)
        group, start = group[order], ints(events, LE)[order]
        first = np.append(True, (np.diff(group) != 0) | (np.diff(start) != 0))[: len(start)]
        heads, which = np.flatnonzero(first), np.cumsum(first) - 1
        return EventRows(
            columns={
                name: events.column(arg).combine_chunks().take(at) for name, arg in zip(self.columns, args, strict=True)
            },
            start=start.tolist(),
            source=self.sources(events)[order].tolist(),
            head=heads[which].tolist(),
            tail=np.append(heads[1:], len(start))[which].tolist(),
            is_whole=is_whole,
        )

    def _matches(self, walk: MatchWalk, order: Ints, events: pa.Table) -> pa.Table:
        last = pa.array(order[walk.last_rows()])
        columns = {name: walk.column(name, kind) for name, kind in self.types.items()}
        return self.as_points(events.select((*self.keys, GROUP_NUMBER, LE)).take(last), columns)


def _groups(group: Ints, is_new: Mask, is_in_state: Mask) -> list[GroupRows]:
    """Return the rows of each group with new events; the masks mark the new ones, and those of them that a state includes."""
    if not is_new.any():
        return []
    first = np.flatnonzero(np.diff(group, prepend=-1))
    end = np.append(first[1:], len(group))
    new = end - np.add.reduceat(is_new.astype(np.int64), first)
    state_end = new + np.add.reduceat(is_in_state.astype(np.int64), first)
    columns = (column.tolist() for column in (first, new, end, state_end))
    return [rows for one in zip(*columns, strict=True) if (rows := GroupRows(*one)).new < rows.end]


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
