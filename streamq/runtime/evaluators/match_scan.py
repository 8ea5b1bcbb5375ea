"""Evaluator of scans for the matches of patterns: it reads the events of all groups as columns and walks over their rows."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamq.errors import ModuleFailed
from streamq.runtime.candidates import Candidate, EventRows, GroupRows, MatchStep, MatchWalk
from streamq.runtime.columnar import ints
from streamq.runtime.evaluators.scan import ScanEvaluator
from streamq.runtime.event import LE
from streamq.runtime.groups import GROUP_NUMBER
from streamq.runtime.user_code.calls import ModuleCall, pickled
from streamq.runtime.user_code.code_values import FAILURES
from streamq.runtime.values import Ints, Mask

if TYPE_CHECKING:
    from streamq.runtime.lateness import QuarantineRows


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

    def go_on(
        self, events: pa.Table, states: pa.Table | None, c: int, aside: QuarantineRows | None = None
    ) -> tuple[pa.Table, pa.Table]:
        """Return the matches and the states at c; no step fails but by a condition, which sets nothing aside."""
        events = self.passing(events)
        group, state_of = self.numbered(events, states)
        order = self.ordered(events, group)
        numbers = np.flatnonzero(np.bincount(group)) if len(group) else group
        before = {g: pickle.loads(state_of[g]) for g in numbers.tolist() if g in state_of}
        layout = _RowLayout(self, events, group, order, before)
        walk = self.step.walk(layout.rows)
        try:
            for number, rows in layout.groups(ints(events, LE) < c):
                walk.over_group(rows, self.step.counts(before[number]) if number in before else ())
        except ModuleFailed:
            # a user's function within a condition has its own error
            raise
        except FAILURES as error:
            call, event = ModuleCall(name=self.name), events.slice(int(layout.event[walk.at]), 1)
            names = ("start", *(["source"] if self._has_sources else []), *self.columns)
            raise call.failure(self.reason(call, names, error, event)) from error
        return self._matches(walk, layout, events), self._states(walk, layout, events)

    @property
    def _has_sources(self) -> bool:
        """True if an argument is the number of an event's input."""
        return len(self.args) > 1 + len(self.columns)

    def sources(self, events: pa.Table) -> Ints:
        """Return the number of each event's input."""
        return ints(events, self.args[1]) if self._has_sources else np.zeros(events.num_rows, np.int64)

    def values(self, events: pa.Table) -> dict[str, pa.Array]:
        """Return the values of events by column."""
        args = self.args[len(self.args) - len(self.columns) :]
        return {name: events.column(arg).combine_chunks() for name, arg in zip(self.columns, args, strict=True)}

    def _matches(self, walk: MatchWalk, layout: _RowLayout, events: pa.Table) -> pa.Table:
        """Return the matches of a walk, as points at the starts of the events that completed them."""
        last = pa.array(layout.event[walk.last_rows()])
        columns = {name: walk.column(name, kind) for name, kind in self.types.items()}
        return self.as_points(events.select((*self.keys, GROUP_NUMBER, LE)).take(last), columns)

    def _states(self, walk: MatchWalk, layout: _RowLayout, events: pa.Table) -> pa.Table:
        """Return the states of a walk."""
        candidates = layout.candidates(sorted({r for k in walk.states for several in k.rows for r in several}))
        first = layout.event[np.asarray([k.new for k in walk.states], np.int64)]
        heads = events.select((*self.keys, GROUP_NUMBER)).take(pa.array(first))
        bodies = [pickled(self.step.state(k, candidates)) for k in walk.states]
        return self.states(heads, bodies, [k.needed_until for k in walk.states])


class _RowLayout:
    """The order in which a walk reads events: group by group, those in the group's state first.

    rows: the events in this order; event: of each row the place of its event among the new ones, meaningless for one in a state.
    """

    def __init__(self, scan: MatchScanEvaluator, events: pa.Table, group: Ints, order: Ints, states: Mapping[int, Any]):
        """Lay out the new events, whose ``order`` is by group, and the events of ``states`` by group before them."""
        self.step, self.columns = scan.step, scan.columns
        inputs = {number: self.step.candidates(state) for number, state in states.items()}
        held = [
            (number, start, source, values)
            for number, several in inputs.items()
            for source, own in enumerate(several)
            for start, values in own
        ]
        # a stable sort: events of one input stay in their order
        held.sort(key=lambda one: one[:2])
        owner = np.asarray([one[0] for one in held], np.int64)
        merged = np.argsort(np.concatenate([owner, group[order]]), kind="stable")
        self.event = np.concatenate([np.zeros(len(held), np.int64), order])[merged]
        self.group = np.concatenate([owner, group[order]])[merged]
        self.is_new = merged >= len(held)
        start = np.concatenate([np.asarray([one[1] for one in held], np.int64), ints(events, LE)[order]])[merged]
        source = np.concatenate([np.asarray([one[2] for one in held], np.int64), scan.sources(events)[order]])[merged]
        first = np.append(True, (np.diff(self.group) != 0) | (np.diff(start) != 0))[: len(start)]
        heads = np.flatnonzero(first)
        which = np.cumsum(first) - 1
        self.rows = EventRows(
            columns=self._values(scan.values(events), held, order, merged),
            start=start.tolist(),
            source=source.tolist(),
            head=heads[which].tolist(),
            tail=np.append(heads[1:], len(start))[which].tolist(),
        )

    def _values(
        self, new: Mapping[str, pa.Array], held: Sequence[tuple[int, int, int, Any]], order: Ints, merged: Ints
    ) -> dict[str, pa.Array]:
        """Return the values of all events by column, in their order."""
        if not held:
            at = pa.array(order[merged])
            return {name: values.take(at) for name, values in new.items()}
        at = pa.array(np.concatenate([np.arange(len(held)), len(held) + order])[merged])
        own = {
            name: (source, place) for source, names in enumerate(self.step.inputs) for place, name in enumerate(names)
        }
        columns = {}
        for name, values in new.items():
            source, place = own[name]
            old = pa.array([one[3][place] if one[2] == source else None for one in held], values.type)
            columns[name] = pa.concat_arrays([old, values]).take(at)
        return columns

    def groups(self, is_before: Mask) -> list[tuple[int, GroupRows]]:
        """Return the number and rows of each group; a state is kept if an event of the group ``is_before`` c, after these."""
        if not len(self.group):
            return []
        first = np.flatnonzero(np.diff(self.group, prepend=-1))
        new = first + np.add.reduceat((~self.is_new).astype(np.int64), first)
        state_end = new + np.add.reduceat((self.is_new & is_before[self.event]).astype(np.int64), first)
        columns = (first, new, np.append(first[1:], len(self.group)), state_end)
        rows = (GroupRows(*one) for one in zip(*(column.tolist() for column in columns), strict=True))
        return list(zip(self.group[first].tolist(), rows, strict=True))

    def candidates(self, rows: Sequence[int]) -> dict[int, Candidate]:
        """Return events as they are stored, by their rows: with the values of their own inputs."""
        by_source: list[list[int]] = [[] for _ in self.step.inputs]
        for row in rows:
            by_source[self.rows.source[row]].append(row)
        stored = (self._stored(several, names) for several, names in zip(by_source, self.step.inputs, strict=True))
        return dict(zip(chain.from_iterable(by_source), chain.from_iterable(stored), strict=True))

    def _stored(self, rows: Sequence[int], names: Sequence[str]) -> list[Candidate]:
        """Return the events of one input as they are stored."""
        at = pa.array(rows, pa.int64())
        columns = [self.rows.columns[name].take(at).to_pylist() for name in names]
        values = zip(*columns, strict=True) if columns else ((),) * len(rows)
        return [(self.rows.start[row], own) for row, own in zip(rows, values, strict=True)]


__all__ = ["MatchScanEvaluator"]
