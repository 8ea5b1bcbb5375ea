"""Evaluator of scans for the matches of patterns: it reads the events of all groups as columns and walks over their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.errors import ModuleFailed
from streamq.runtime.candidates import EventRows, GroupRows, MatchStep, MatchWalk
from streamq.runtime.columnar import codes, concat, ints
from streamq.runtime.evaluators.scan import ScanEvaluator
from streamq.runtime.event import LE
from streamq.runtime.groups import GROUP_NUMBER
from streamq.runtime.user_code.calls import ModuleCall
from streamq.runtime.user_code.code_values import FAILURES
from streamq.runtime.values import Ints, Mask
from streamq.time import MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.lateness import QuarantineRows


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
        sources = np.unique(self.sources(events)).tolist()
        return sorted(frozenset[int]().union(*map(self.step.looks_at, sources)))

    def _event_rows(self, events: pa.Table, group: Ints, order: Ints, is_whole: bool) -> EventRows:
        """Return events in their order, as a walk reads them."""
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
        """Return the matches of a walk, as points at the starts of the events that completed them."""
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


__all__ = ["MatchScan", "MatchScanEvaluator"]
