"""Candidates: the events that a pattern's scan keeps as long as they may still be part of a match within the scope.

A scan reads its events as columns in order (``EventRows``) and knows each by the number of its row, so that an earlier event
has a lesser number. Values are looked up only where a condition reads them, and in the matches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.choices import Consumption, Selection
from streamq.runtime.evaluators.pair_condition import PairCondition
from streamq.runtime.values import Ints, Mask
from streamq.time import INFINITY, MINUS_INFINITY

Candidate = tuple[int, tuple[Any, ...]]
"""An event in a state: its start in ticks and its values, a plain tuple, so that workers can unpickle it."""

NOBODY = -1
"""The row of a part that has no event in a match."""


@dataclass(frozen=True)
class EventRows:
    """Events in the order of (group, Vs, id); the events in a group's state come before its new ones.

    columns: their values, NULL in those of other inputs; start: in ticks; source: the number of the input; head: the first row
    of the same group and start; tail: the row after the last one of these.
    """

    columns: Mapping[str, pa.Array]
    start: list[int]
    source: list[int]
    head: list[int]
    tail: list[int]


@dataclass(frozen=True)
class GroupRows:
    """The rows of a group: from ``first`` on those in its state, from ``new`` to before ``end`` the new ones.

    state_end: the first of the new rows whose event the state to be kept does not include; ``new`` if no state is kept.
    """

    first: int
    new: int
    end: int
    state_end: int


@dataclass(frozen=True)
class MatchState:
    """The state of a group after some of its events: that of the group in which the row ``new`` is.

    rows: those of its events, by input; counts: numbers that the step keeps besides; needed_until: the last start of an event
    for which the state makes a difference.
    """

    new: int
    rows: tuple[tuple[int, ...], ...]
    needed_until: int
    counts: tuple[int, ...] = ()


class MatchStep(ABC):
    """A step from event to event of a group that collects matches; ``inputs``: the columns of each input's events."""

    inputs: tuple[tuple[str, ...], ...]

    @abstractmethod
    def walk(self, rows: EventRows) -> MatchWalk:
        """Return a walk over these events, which collects matches and states."""

    @abstractmethod
    def state(self, match_state: MatchState, candidates: Mapping[int, Candidate]) -> Any:
        """Return a state as it is stored, a plain value; ``candidates``: its events by their rows."""

    @abstractmethod
    def candidates(self, state: Any) -> Sequence[Sequence[Candidate]]:
        """Return the events of a stored state, by input, in the order of (Vs, id)."""

    def counts(self, state: Any) -> tuple[int, ...]:
        """Return the numbers that a stored state has besides its events."""
        return ()


class MatchWalk(ABC):
    """A walk over the events of groups; ``at`` is the row of the last event, for errors."""

    def __init__(self, rows: EventRows):
        """Begin without matches and states."""
        self.rows = rows
        self.at = 0
        self.states: list[MatchState] = []

    @abstractmethod
    def over_group(self, group: GroupRows, counts: tuple[int, ...]) -> None:
        """Collect the matches of a group, and its state if one is kept; ``counts`` are those of the state before."""

    @abstractmethod
    def last_rows(self) -> Ints:
        """Return, for each match or each row of one, the row of the event that completed it."""

    @abstractmethod
    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column of the matches, beside ``last_rows``, as values of a type."""


@dataclass(frozen=True)
class ScannedPart:
    """A part of a pattern operator in a scan, with the input whose events it takes.

    name: shown by explain; source: the number of the input; columns: the part's columns and their places in the input; keys:
    the places of columns in which two events of the part must agree, unless the group ensures it; fits: the place of the column
    that is true for events that fit the part, None if all do.
    """

    name: str
    source: int
    columns: tuple[tuple[str, int], ...]
    selection: Selection
    consumption: Consumption
    keys: tuple[int, ...] = ()
    fits: int | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.selection.upper()} {self.consumption.upper()}"

    @property
    def consumes(self) -> bool:
        """True if an event used in a match is not used in a match with a later last event."""
        return self.consumption == Consumption.CONSUME

    @property
    def selects(self) -> bool:
        """True if a match gets only the first or the last of the events possible for the part."""
        return self.selection != Selection.EACH

    def preferred(self, fitting: Sequence[int], begin: int, end: int) -> Sequence[int]:
        """Return the rows ``begin`` to before ``end`` of those in order, in the order in which the part prefers them.

        Both count in that order, too: from the last on if the part selects the last.
        """
        if self.selection == Selection.LAST:
            return fitting[len(fitting) - end : len(fitting) - begin][::-1]
        return fitting[begin:end]


@dataclass(frozen=True)
class JointCondition:
    """A condition on the events of some ``parts``; ``reads``: its columns, each with the part that it belongs to."""

    condition: PairCondition
    parts: frozenset[int]
    reads: tuple[tuple[str, int], ...]

    def holds(self, columns: Mapping[str, pa.Array], rows: Mapping[int, Ints]) -> Mask:
        """Mark the combinations of events for which it holds; ``rows``: the events of each part, ``columns`` their values."""
        rows_of = {owner: pa.array(rows[owner]) for _, owner in self.reads}
        return self.condition.holds(pa.table({name: columns[name].take(rows_of[owner]) for name, owner in self.reads}))


@dataclass(frozen=True)
class PatternStep(MatchStep):
    """A step from event to event that collects the matches of a pattern's parts within a scope.

    inputs: the columns of each input's events; names: the columns of a match; count: how many parts a match has, or how many
    events may crowd; within: the scope in ticks.
    """

    inputs: tuple[tuple[str, ...], ...]
    parts: tuple[ScannedPart, ...]
    conditions: tuple[JointCondition, ...]
    names: tuple[str, ...]
    count: int
    within: int

    def state(self, match_state: MatchState, candidates: Mapping[int, Candidate]) -> tuple[tuple[Candidate, ...], ...]:
        """Return the candidates of each input."""
        return tuple(tuple([candidates[row] for row in several]) for several in match_state.rows)

    def candidates(self, state: Any) -> Sequence[Sequence[Candidate]]:
        """Return the state itself."""
        own: tuple[tuple[Candidate, ...], ...] = state
        return own


class PatternWalk(MatchWalk):
    """A walk that collects the matches of a pattern's parts: of each part the rows of its events."""

    def __init__(self, step: PatternStep, rows: EventRows):
        """Look up which events fit each part."""
        super().__init__(rows)
        self.parts, self.conditions, self.within = step.parts, step.conditions, step.within
        self.matches: list[tuple[int, ...]] = []
        self.completed_by: list[int] = []
        self.sources = range(len(step.inputs))
        self.fits = [self._column_of(step, part, part.fits) for part in step.parts]
        self.owner = {name: number for number, part in enumerate(step.parts) for name, _ in part.columns}

    def _column_of(self, step: PatternStep, part: ScannedPart, place: int | None) -> list[Any] | None:
        """Return the values in a place of a part's input; None without a place."""
        return None if place is None else self.rows.columns[step.inputs[part.source][place]].to_pylist()

    def waiting(self, group: GroupRows) -> list[array[int]]:
        """Return the rows of a group's state, by input."""
        waiting = [array("q") for _ in self.sources]
        for row in range(group.first, group.new):
            waiting[self.rows.source[row]].append(row)
        return waiting

    def fitting(self, number: int, candidates: array[int], low: int) -> array[int]:
        """Return, of the candidates of its input, those from row ``low`` on that fit a part; forget those before."""
        if candidates and candidates[0] < low:
            del candidates[: bisect_left(candidates, low)]
        fits = self.fits[number]
        return candidates if fits is None else array("q", [row for row in candidates if fits[row] is True])

    def fits_part(self, number: int, row: int) -> bool:
        """Return True if an event of the part's input fits it."""
        fits = self.fits[number]
        return fits is None or fits[row] is True

    def remove(self, rows: Sequence[int], waiting: Sequence[array[int]]) -> None:
        """Remove events from the candidates, which may lack them."""
        for row in rows:
            candidates = waiting[self.rows.source[row]]
            at = bisect_left(candidates, row)
            if at < len(candidates) and candidates[at] == row:
                del candidates[at]

    def keep(self, group: GroupRows, waiting: Sequence[array[int]], low: int) -> None:
        """Collect the state of a group: its candidates from row ``low`` on."""
        rows = tuple(tuple(several[bisect_left(several, low) :]) for several in waiting)
        last = max((several[-1] for several in rows if several), default=None)
        until = MINUS_INFINITY if last is None else min(self.rows.start[last] + self.within, INFINITY)
        self.states.append(MatchState(group.new, rows, until))

    def last_rows(self) -> Ints:
        return np.asarray(self.completed_by, np.int64)

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return the values of a part's column, NULL where a match has no event of the part."""
        if name not in self.owner:
            return pa.nulls(len(self.matches), kind)
        rows = np.fromiter((match[self.owner[name]] for match in self.matches), np.int64, len(self.matches))
        return self.rows.columns[name].take(pa.array(rows, mask=rows == NOBODY)).cast(kind)


__all__ = [
    "NOBODY",
    "Candidate",
    "EventRows",
    "GroupRows",
    "JointCondition",
    "MatchState",
    "MatchStep",
    "MatchWalk",
    "PatternStep",
    "PatternWalk",
    "ScannedPart",
]
