"""Scans go from event to event of a group with a state: a user's module is called for each event, or a pattern completes matches.

State of a module's kernel: each group's state after all events before c, and the events since. If rows wait until they are
final, the module is called once for each event, in order; otherwise every micro-batch with new events repeats the calls for all
events since c that have started. Its cost: a sort of the events since c, a call for each of those that have started, and the
states of the groups that are evaluated.

The scan of a pattern goes over the events of all groups as columns, and completes matches with candidates before them. State of
its kernel: the candidates of each group, events before c that one from c on may have a match with; their number; the events
since c. Its cost: the events since c of the groups that are evaluated, and the candidates that they look at: the oldest or the
newest ones, as many as decide, or all in the scope (``ReadOrder``). Other candidates are neither read nor written.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa

from streamq.errors import ModuleFailed
from streamq.plan.schema import shown_group
from streamq.runtime.arrow.columnar import codes, concat, ints, with_column
from streamq.runtime.arrow.values import Ints, Mask, distinct, python_rows, python_values
from streamq.runtime.candidates import CandidateCounts, EventRows, GroupRows, HeldCandidates, MatchStep, MatchWalk
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluator import SettledProgress
from streamq.runtime.evaluators.assigner import event_order
from streamq.runtime.groups import GROUP_NUMBER, HASH
from streamq.runtime.kernel import Arrival, Clock, Output
from streamq.runtime.kernels.recompute import ActiveGroups, RecomputeKernel, Waits
from streamq.runtime.state.baskets import COUNTS, KernelBaskets
from streamq.runtime.time.lateness import QuarantineRows
from streamq.runtime.time.progress_rule import NoRowReason, ProgressRule, Release
from streamq.runtime.user_code.calls import ModuleCall, StepCall, pickled, shown_instant, shown_values
from streamq.runtime.user_code.code_values import FAILURES, instant_of
from streamq.time import INFINITY, MINUS_INFINITY

STATE = "__state"
"""The column of pickled states, beside the keys of their groups."""


@dataclass(frozen=True, kw_only=True)
class ScanEvaluator(SettledProgress, ABC):
    """The rows of each event of a group, as points at the event's start, by a state that goes from event to event.

    keys: of the group; args: the columns of an event's values; where: the column that is true for events that count; order: the
    payload, which orders events of one start; axis: the type of instants; open_ends: events are processed before their ends are
    known.
    """

    keys: tuple[str, ...]
    args: tuple[str, ...]
    where: str | None
    order: tuple[str, ...]
    axis: pa.DataType
    open_ends: bool = False

    completes_matches: ClassVar[bool] = False
    """True if rows are the matches of a pattern."""

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)

    @property
    def progress_rule(self) -> ProgressRule:
        """Rows are final once no other event can start at their start, and sent once they have started."""
        may_be_none = NoRowReason.OF_MATCH if self.completes_matches else NoRowReason.OF_MODULE
        return ProgressRule(final=Release.PAST_START, early=Release.PAST_START, may_be_none=may_be_none)

    @abstractmethod
    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int, aside: QuarantineRows | None = None) -> pa.Table:
        """Return the rows of all events, from the beginning of each group on; ``since`` and ``upto`` leave nothing out.

        ``aside`` takes the events whose steps fail. They raise ModuleFailed without it, and if the operator has no quarantine.
        """

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Keep the events from c on; the kernel keeps what they need of those before."""
        return [ints(inputs[0], LE) >= c]

    def passing(self, events: pa.Table) -> pa.Table:
        """Return the events that pass the filter."""
        return events if self.where is None else events.filter(events.column(self.where))

    def ordered(self, events: pa.Table, group: Ints) -> Ints:
        """Return the places of events in the order of group, start, payload and end."""
        return event_order(events, group, self.order)[0]

    def as_points(self, events: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
        """Return rows with these columns, each a point at the start of its event, with the keys and number of its group."""
        keys = {key: events.column(key) for key in (*self.keys, GROUP_NUMBER)}
        start = ints(events, LE)
        return with_column(pa.table({**keys, **columns, LE: start}), RE, start + 1)

    def reason(self, call: ModuleCall, names: Sequence[str], error: BaseException, event: pa.Table) -> str:
        """Return the reason of a failed call for an event, with its group and values; ``names``: those of the arguments."""

        def values_of(names: Sequence[str], columns: Sequence[str]) -> dict[str, Any]:
            return {n: python_values(event.column(c))[0] for n, c in zip(names, columns, strict=True)}

        instant = shown_instant(int(ints(event, LE)[0]), self.axis)
        group = shown_values(shown_group(values_of(self.keys, self.keys)))
        values = shown_values(values_of(names, self.args))
        return call.reason(error, f"event at {instant}{group and ', '}{group}{values and '; '}{values}")


@dataclass(frozen=True, kw_only=True)
class ModuleScanEvaluator(ScanEvaluator):
    """The rows that ``calling`` returns for each event, called with its values and the state after the event before it."""

    calling: StepCall

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int, aside: QuarantineRows | None = None) -> pa.Table:
        return self.go_on(inputs[0], None, MINUS_INFINITY if aside is None else INFINITY, aside)[0]

    def go_on(
        self, events: pa.Table, states: pa.Table | None, c: int, aside: QuarantineRows | None = None
    ) -> tuple[pa.Table, pa.Table]:
        """Return the rows of events, and for each group with events that start before c the state after those.

        Events that do not pass the filter do not count. ``states`` are the groups' states after all events before the first
        of these; of several states of one group the last counts. A group without a state starts with the first one. If failures
        are set aside, an event whose step fails leaves the state unchanged and has no rows, and ``aside`` takes it if it starts
        before c. Otherwise it raises ModuleFailed.
        """
        events = self.passing(events)
        group, state_of = self._numbered(events, states)
        order = self.ordered(events, group)
        group = group[order]
        walk = _ScanWalk(self, events.take(pa.array(order)), c, aside)
        heads = np.flatnonzero(np.diff(group, prepend=-1)).tolist()
        for first, end in pairwise([*heads, len(order)]):
            walk.over_group(first, end, state_of.get(int(group[first])))
        return walk.result_rows(), walk.states()

    def latest(self, states: pa.Table) -> pa.Table:
        """Return the last state of each group."""
        group, _ = codes(states, self.keys)
        return states.take(pa.array(sorted({g: i for i, g in enumerate(group.tolist())}.values()), pa.int64()))

    def _numbered(self, events: pa.Table, states: pa.Table | None) -> tuple[Ints, dict[int, bytes]]:
        """Return the group number of each event, and the pickled states by group number; the last one of each group."""
        if states is None:
            return ints(events, GROUP_NUMBER), {}
        bodies = states.column(STATE).to_pylist()
        if not self.keys:
            return np.zeros(events.num_rows, np.int64), dict(enumerate(bodies[-1:]))
        both = concat([events.select(self.keys), states.select(self.keys)])
        number, _ = codes(both, self.keys)
        return number[: events.num_rows], dict(zip(number[events.num_rows :].tolist(), bodies, strict=True))


class _ScanWalk:
    """A walk over ordered events, group by group, that collects their rows and the states before c; a place is that of an event.

    source: the place of each row's event; kept: pickled states by the place of the group's first event.
    """

    def __init__(self, scan: ModuleScanEvaluator, events: pa.Table, c: int, aside: QuarantineRows | None):
        """Read the values for the calls, with the start first if the module takes it; ``aside`` counts only under quarantine."""
        self.scan, self.calling, self.events = scan, scan.calling, events
        self.aside = aside if self.calling.quarantine else None
        start = ints(events, LE)
        columns: list[list[Any]] = [events.column(name).to_pylist() for name in scan.args]
        if self.calling.sensitive:
            columns.insert(0, [instant_of(instant, scan.axis) for instant in start.tolist()])
        self.values = list(zip(*columns, strict=True)) if columns else [()] * len(start)
        self.is_before = (start < c).tolist()
        self.source: list[int] = []
        self.rows: list[dict[str, Any]] = []
        self.new_states: dict[int, bytes] = {}

    def over_group(self, first: int, end: int, body: bytes | None) -> None:
        """Call the module for the events of one group, from the pickled state ``body`` on; None: from its first state.

        They have the places from ``first`` to before ``end``. Rows, and the state before c, are collected. A failure that is not
        set aside raises the error of the module.
        """
        at = first
        try:
            state = self.calling.initial() if body is None else pickle.loads(body)
            for at, values in enumerate(self.values[first:end], first):
                if at > first and self.is_before[at - 1] and not self.is_before[at]:
                    self.new_states[first] = pickled(state)
                state, rows = self._step_result(state, values, at)
                self.rows += rows
                self.source += [at] * len(rows)
            if self.is_before[end - 1]:
                self.new_states[first] = pickled(state)
        except FAILURES as error:
            raise self.calling.failure(self._reason(error, at), is_taken=self.aside is not None) from error

    def _step_result(self, state: Any, values: Sequence[Any], at: int) -> tuple[Any, list[dict[str, Any]]]:
        """Return the state and rows of a step; if it fails and is set aside, the state before it and no rows.

        Only an event before c is added to those set aside, with ``open_ends`` its end as INFINITY: a later one is read again.
        """
        if self.aside is None:
            return self.calling.next_state(state, values)
        before = pickled(state)
        try:
            after, rows = self.calling.next_state(state, values)
            pickled(after)  # a state that cannot be pickled fails here, even if it is not kept
            return after, rows
        except FAILURES as error:
            if self.is_before[at]:
                event = self.events.slice(at, 1)
                event = with_column(event, RE, [INFINITY]) if self.scan.open_ends else event
                group = next(iter(python_rows(event.select(self.scan.keys))), {})
                self.aside.add(self.calling.name, self._reason(error, at), event, group=group)
            return pickle.loads(before), []

    def result_rows(self) -> pa.Table:
        """Return the rows of all groups, as points at the starts of their events, with the keys and the module's columns."""
        kinds = zip(self.calling.rows.names, self.calling.rows.types, strict=True)
        columns = {name: pa.array([row[name] for row in self.rows], kind) for name, kind in kinds}
        return self.scan.as_points(self._events_at(self.source), columns)

    def states(self) -> pa.Table:
        """Return the collected states, pickled, with the keys of their groups."""
        states = self._events_at([*self.new_states]).drop_columns([LE])
        return with_column(states, STATE, pa.array([*self.new_states.values()], pa.binary()))

    def _events_at(self, places: Sequence[int]) -> pa.Table:
        """Return the keys, groups and starts of events."""
        return self.events.select((*self.scan.keys, GROUP_NUMBER, LE)).take(pa.array(places, pa.int64()))

    def _reason(self, error: BaseException, at: int) -> str:
        return self.scan.reason(self.calling, self.calling.names, error, self.events.slice(at, 1))


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


FACTOR = 4
"""The factor by which more bins are read each time that those read were too few."""


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
