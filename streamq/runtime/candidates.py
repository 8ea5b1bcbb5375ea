"""Candidates: the events that a pattern's scan keeps as long as they may still be part of a match within the scope.

A scan reads its events as columns in order (``EventRows``) and knows each by the number of its row, so that an earlier event
has a lesser number. Values are looked up only where a condition reads them, and in the matches. It may read some candidates of a
group only; a walk that cannot be sure without the others says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.choices import Consumption, Selection
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.evaluators.joins import PairCondition

NOBODY = -1
"""The row of a part that has no event in a match."""


class ReadOrder(StrEnum):
    """The order in which candidates are read until a walk is sure."""

    OLDEST_FIRST = "oldest first"
    NEWEST_FIRST = "newest first"
    ALL = "all"
    """A walk is sure only of all of them."""


@dataclass(frozen=True)
class EventRows:
    """Events in the order of (group, Vs, id); the candidates of a group come before its new events.

    columns: their values, NULL in those of other inputs; start: in ticks; source: the number of the input; head: the first row
    of the same group and start; tail: the row after the last one of these; is_whole: no candidate of the groups is left out.
    """

    columns: Mapping[str, pa.Array]
    start: list[int]
    source: list[int]
    head: list[int]
    tail: list[int]
    is_whole: bool


@dataclass(frozen=True)
class GroupRows:
    """The rows of a group: from ``first`` on its candidates, from ``new`` to before ``end`` the new events.

    state_end: the first of the new rows whose event the state does not include; ``new`` if it includes none.
    """

    first: int
    new: int
    end: int
    state_end: int


class MatchStep(ABC):
    """A step from event to event of a group that collects matches.

    inputs: the columns of each input's events; within: the scope in ticks.
    """

    inputs: tuple[tuple[str, ...], ...]
    within: int

    @property
    @abstractmethod
    def read_order(self) -> ReadOrder:
        """The order in which candidates are read."""

    @abstractmethod
    def looks_at(self, source: int) -> frozenset[int]:
        """Return the inputs whose candidates an event of an input may have a match with."""

    @abstractmethod
    def walk(self, rows: EventRows) -> MatchWalk:
        """Return a walk over these events, which collects matches and candidates."""


class MatchWalk(ABC):
    """A walk over the events of groups.

    matches: rows, one tuple a match; waiting: the rows of new events that are candidates from the end of the state on; consumed:
    those of candidates that no longer are. at: the row of the last event, for errors.
    """

    def __init__(self, rows: EventRows):
        self.rows = rows
        self.at = 0
        self.lacks = False
        self.matches: list[tuple[int, ...]] = []
        self.waiting: list[int] = []
        self.consumed: list[int] = []
        self.used: list[int] = []

    def over_group(self, group: GroupRows) -> bool:
        """Collect what a group has; return False, and collect nothing, if it depends on candidates that are left out."""
        collected: tuple[list[Any], ...] = (self.matches, self.waiting, self.consumed)
        sizes = [len(rows) for rows in collected]
        self.lacks, self.used = False, []
        self.step_over(group)
        if self.lacks:
            for rows, size in zip(collected, sizes, strict=True):
                del rows[size:]
        return not self.lacks

    @abstractmethod
    def step_over(self, group: GroupRows) -> None:
        """Step from event to event of a group, until ``lacks`` is true.

        Rows of events that are consumed are added to ``used``.
        """

    def end_state(self, group: GroupRows, candidates: Iterable[int], low: int) -> None:
        """Collect what the state gets and loses, once its last event has been processed.

        ``candidates`` are the rows of these; those before the row ``low`` are out of the scope.
        """
        since = max(group.new, low)
        self.waiting += [row for row in candidates if row >= since]
        self.consumed += [row for row in self.used if row < group.new]

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


class PatternWalk(MatchWalk):
    """A walk that collects the matches of a pattern's parts: of each part the rows of its events."""

    def __init__(self, step: PatternStep, rows: EventRows):
        super().__init__(rows)
        self.parts, self.conditions, self.within = step.parts, step.conditions, step.within
        self.sources = range(len(step.inputs))
        self.fits = [self._column_of(step, part, part.fits) for part in step.parts]
        self.owner = {name: number for number, part in enumerate(step.parts) for name, _ in part.columns}

    def _column_of(self, step: PatternStep, part: ScannedPart, place: int | None) -> list[Any] | None:
        """Return the values in a place of a part's input; None without a place."""
        return None if place is None else self.rows.columns[step.inputs[part.source][place]].to_pylist()

    def candidates_of(self, group: GroupRows) -> list[array[int]]:
        """Return the rows of a group's candidates, by input."""
        candidates = [array("q") for _ in self.sources]
        for row in range(group.first, group.new):
            candidates[self.rows.source[row]].append(row)
        return candidates

    def fitting(self, number: int, candidates: array[int], low: int) -> array[int]:
        """Return, of the candidates of its input, those from row ``low`` on that fit a part; forget those before."""
        if candidates and candidates[0] < low:
            del candidates[: bisect_left(candidates, low)]
        fits = self.fits[number]
        return candidates if fits is None else array("q", [row for row in candidates if fits[row] is True])

    def fits_part(self, number: int, row: int) -> bool:
        fits = self.fits[number]
        return fits is None or fits[row] is True

    def consume(self, rows: Iterable[int], candidates: Sequence[array[int]]) -> None:
        """Remove events from the candidates, which may lack them."""
        for row in rows:
            several = candidates[self.rows.source[row]]
            at = bisect_left(several, row)
            if at < len(several) and several[at] == row:
                del several[at]
                self.used.append(row)

    def last_rows(self) -> Ints:
        return np.asarray([max(match) for match in self.matches], np.int64)

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return the values of a part's column, NULL where a match has no event of the part."""
        if name not in self.owner:
            return pa.nulls(len(self.matches), kind)
        rows = np.fromiter((match[self.owner[name]] for match in self.matches), np.int64, len(self.matches))
        return self.rows.columns[name].take(pa.array(rows, mask=rows == NOBODY)).cast(kind)
