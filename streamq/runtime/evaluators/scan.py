"""A module over the events of each group, one after the other: the state after an event is what the next one is called with."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamq.errors import ModuleFailed
from streamq.plan.own_names import shown_group
from streamq.runtime.columnar import codes, concat, ints, with_column
from streamq.runtime.evaluators.member_reductions import payload_order
from streamq.runtime.event import LE, RE
from streamq.runtime.rendering import python_rows, python_values
from streamq.runtime.user_code.calls import StepCall, pickled, shown_instant, shown_values
from streamq.runtime.user_code.code_values import FAILURES, instant_of
from streamq.runtime.values import Ints, Mask
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.lateness import QuarantineRows
    from streamq.runtime.progress_rule import ProgressRule

STATE = "__state"
"""The column of states, as pickles, beside the keys of their groups."""

NEEDED_UNTIL = "__needed_until"
"""Beside it, where the module tells: the last start of an event for which the state is needed."""


@dataclass(frozen=True)
class ScanEvaluator:
    """The rows that ``calling`` gives for each event, as points at the event's start.

    keys: of the group; args: the columns of the values that it is called with; where: the column that says whether it is called
    for an event at all; order: the payload, by which events of one start go; axis: the type of instants; open_ends: whether an
    event is gone over before its end is known.
    """

    keys: tuple[str, ...]
    calling: StepCall
    args: tuple[str, ...]
    where: str | None
    order: tuple[str, ...]
    axis: pa.DataType
    open_ends: bool = False

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        """The keys."""
        return (self.keys,)

    @property
    def progress_rule(self) -> ProgressRule:
        """Rows are final once nothing more can start where they do, and reported once they have started."""
        from streamq.runtime.progress_rule import NoRowReason, ProgressRule
        from streamq.runtime.release import Release

        may_be_none = NoRowReason.OF_MATCH if self.calling.completes_matches else NoRowReason.OF_MODULE
        return ProgressRule(final=Release.PAST_START, early=Release.PAST_START, may_be_none=may_be_none)

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int, aside: QuarantineRows | None = None) -> pa.Table:
        """The rows of all events, from the first state of each group on; ``aside`` takes those whose steps fail."""
        return self.go_on(inputs[0], None, MINUS_INFINITY if aside is None else INFINITY, aside)[0]

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Events from c on: who goes on from here keeps the states before."""
        return [ints(inputs[0], LE) >= c]

    def cti(self, inputs: Sequence[pa.Table], rows: pa.Table, progress: Sequence[int]) -> int:
        """c: what starts before it is known."""
        return min(progress)

    def passing(self, events: pa.Table) -> pa.Table:
        """The events that the module is called for."""
        return events if self.where is None else events.filter(events.column(self.where))

    def go_on(
        self, events: pa.Table, states: pa.Table | None, c: int, aside: QuarantineRows | None = None
    ) -> tuple[pa.Table, pa.Table]:
        """Return the rows of events, and the states over all that start before c of the groups that have such events.

        ``states``: those that the groups go on from, over all that starts before the first of the events; of several of one group
        the last. A group without a state begins anew. An event whose step fails leaves the state as it is; ``aside`` takes it if
        it starts before c.
        """
        events = self.passing(events)
        group, state_of = self._numbered(events, states)
        le = ints(events, LE)
        order = payload_order(events, self.order, le, ints(events, RE))
        order = order[np.argsort(group[order], kind="stable")]
        walk = _ScanWalk(self, events, order, c, aside)
        heads = np.flatnonzero(np.diff(group[order], prepend=-1)).tolist()
        for first, end in pairwise([*heads, len(order)]):
            walk.over_group(first, end, state_of.get(int(group[order[first]])))
        return walk.result_rows(), walk.states()

    def latest(self, states: pa.Table, since: int) -> pa.Table:
        """The last state of each group, where an event that starts at ``since`` or later can need it."""
        group, _ = codes(states, self.keys)
        last = states.take(pa.array(sorted({g: i for i, g in enumerate(group.tolist())}.values()), pa.int64()))
        return last if self.calling.needed_until is None else last.filter(pa.array(ints(last, NEEDED_UNTIL) >= since))

    def _numbered(self, events: pa.Table, states: pa.Table | None) -> tuple[Ints, dict[int, bytes]]:
        """The number of each event's group, and the states by these numbers."""
        if states is None:
            return codes(events, self.keys)[0], {}
        bodies = states.column(STATE).to_pylist()
        if not self.keys:
            # of states that nobody needs any more none is left
            return np.zeros(events.num_rows, np.int64), dict.fromkeys([0], bodies[-1]) if bodies else {}
        both = concat([events.select(self.keys), states.select(self.keys)])
        number, _ = codes(both, self.keys)
        return number[: events.num_rows], dict(zip(number[events.num_rows :].tolist(), bodies, strict=True))


class _ScanWalk:
    """A walk over events in ``order``, group by group: the rows that they have, and the states before c."""

    def __init__(self, scan: ScanEvaluator, events: pa.Table, order: Ints, c: int, aside: QuarantineRows | None):
        self.scan, self.events, self.order = scan, events, order
        self.aside = aside if scan.calling.quarantine else None
        self.start = ints(events, LE)[order]
        columns: list[list[Any]] = [events.column(name).take(pa.array(order)).to_pylist() for name in scan.args]
        if scan.calling.sensitive:
            columns.insert(0, [instant_of(start, scan.axis) for start in self.start.tolist()])
        self.values = list(zip(*columns, strict=True)) if columns else [()] * len(order)
        self.is_before = (self.start < c).tolist()
        self.source: list[int] = []
        self.rows: list[dict[str, Any]] = []
        self.heads: list[int] = []
        self.bodies: list[bytes] = []
        self.needed_until: list[int] = []

    def over_group(self, first: int, end: int, body: bytes | None) -> None:
        """Call the module for the events of one group, from the state of that pickle on; None: from its first state."""
        at = first
        try:
            state = self.scan.calling.initial() if body is None else pickle.loads(body)
            for at, values in self._calls(first, end):
                if at > first and self.is_before[at - 1] and not self.is_before[at]:
                    self._keep(first, state)
                state, rows = self._after(state, values, at)
                self.rows += rows
                self.source += [at] * len(rows)
            if self.is_before[end - 1]:
                at = end - 1
                self._keep(first, state)
        except ModuleFailed:
            # a function within a condition of streamq's own operators says itself what failed
            raise
        except FAILURES as error:
            is_taken = self.aside is not None
            raise self.scan.calling.failure(self._reason(error, at), is_taken=is_taken) from error

    def _after(self, state: Any, values: Sequence[Any], at: int) -> tuple[Any, list[dict[str, Any]]]:
        """The state and the rows of a step; of one that fails, where that is set aside, the state before it, and no rows."""
        if self.aside is None:
            return self.scan.calling.after(state, values)
        before = pickled(state)
        try:
            after, rows = self.scan.calling.after(state, values)
            pickled(after)  # a state that cannot be kept fails here, wherever it is to be kept
            return after, rows
        except FAILURES as error:
            if self.is_before[at]:
                self._set_aside(error, at)
            return pickle.loads(before), []

    def _set_aside(self, error: BaseException, at: int) -> None:
        assert self.aside is not None
        event = self.events.slice(int(self.order[at]), 1)
        if self.scan.open_ends:
            event = with_column(event, RE, [INFINITY])
        group = next(iter(python_rows(event.select(self.scan.keys))), {})
        self.aside.add(self.scan.calling.name, self._reason(error, at), event, group=group)

    def _calls(self, first: int, end: int) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield for each call the number of its first event and the values that it takes."""
        if not self.scan.calling.at_once:
            yield from enumerate(self.values[first:end], first)
            return
        new = 1 + first + np.flatnonzero(np.diff(self.start[first:end]))
        for at, until in pairwise([first, *new.tolist(), end]):
            yield at, (self.values[at:until],)

    def _keep(self, first: int, state: Any) -> None:
        self.heads.append(first)
        self.bodies.append(pickled(state))
        if self.scan.calling.needed_until is not None:
            self.needed_until.append(self.scan.calling.needed_until(state))

    def result_rows(self) -> pa.Table:
        """The rows of all groups."""
        source = np.asarray(self.source, np.int64)
        shape, at = self.scan.calling.rows, pa.array(self.order[source])
        columns: dict[str, Any] = {key: self.events.column(key).take(at) for key in self.scan.keys}
        for name, kind in zip(shape.names, shape.types, strict=True):
            columns[name] = pa.array([row[name] for row in self.rows], kind)
        start = self.start[source]
        return with_column(pa.table({**columns, LE: start}), RE, start + 1)

    def states(self) -> pa.Table:
        """The states kept, beside the keys of their groups."""
        at = pa.array(self.order[np.asarray(self.heads, np.int64)])
        columns: dict[str, Any] = {key: self.events.column(key).take(at) for key in self.scan.keys}
        columns[STATE] = pa.array(self.bodies, pa.binary())
        if self.scan.calling.needed_until is not None:
            columns[NEEDED_UNTIL] = pa.array(self.needed_until, pa.int64())
        return pa.table(columns)

    def _reason(self, error: BaseException, at: int) -> str:
        """What went wrong, with which event of which group."""
        scan, event = self.scan, self.events.slice(int(self.order[at]), 1)

        def values_of(names: Sequence[str], columns: Sequence[str]) -> dict[str, Any]:
            return {n: python_values(event.column(c))[0] for n, c in zip(names, columns, strict=True)}

        instant = shown_instant(int(self.start[at]), scan.axis)
        group = shown_values(shown_group(values_of(scan.keys, scan.keys)))
        values = shown_values(values_of(scan.calling.names, scan.args))
        return scan.calling.reason(error, f"event at {instant}{group and ', '}{group}{values and '; '}{values}")


__all__ = ["STATE", "ScanEvaluator"]
