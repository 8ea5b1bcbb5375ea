"""Candidates: the events that a pattern's scan keeps as long as they may still be part of a match within the scope.

A scan reads its events as columns in order (``EventRows``) and knows each by the number of its row, so that an earlier event
has a lesser number. Values are looked up only where a condition reads them, and in the matches. It may read some candidates of a
group only; a walk that cannot be sure without the others says so.

In a kernel's state they are a basket for each input, in bins of time that are split by group. A micro-batch reads the candidates
of the groups whose events look at them, a few bins at first and more of them if it must; it appends what has come and what has
been consumed. A bin is dropped once all of it is out of the scope.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamq.choices import Consumption, Selection
from streamq.runtime.arrow.columnar import concat, group, ints, is_matching, with_column
from streamq.runtime.arrow.values import Ints, Mask, distinct
from streamq.runtime.deltas import LE, RE, history_of, net_deltas, weighted
from streamq.runtime.evaluators.joins import PairCondition
from streamq.runtime.groups import HASH, distinct_hashes, with_hashes
from streamq.runtime.state.baskets import COUNTS, BinSizes, KernelBaskets, Span, grain
from streamq.runtime.state.bins import Bins
from streamq.runtime.state.group_bins import GroupBins
from streamq.runtime.time.progress_rule import saturating
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.kernels.scan import MatchScanEvaluator

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
        columns = ((part.fits, step.inputs[part.source]) for part in step.parts)
        self.fits = [None if place is None else rows.columns[names[place]].to_pylist() for place, names in columns]
        self.owner = {name: number for number, part in enumerate(step.parts) for name, _ in part.columns}

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


CANDIDATES = "candidates"
"""The beginning of the names of the baskets of candidates, one for each input."""

MOST_BINS = 32
"""The number of bins, roughly, up to which a scope is divided."""

PART = 8
"""The part of the rows above which a bin is split by group: a bin of time may have as many, and as many are read first."""

SOURCE = "__source"
"""The column of the number of an input."""

COUNT = "__count"
"""The column of a number of candidates."""

NEWEST = "__newest"
"""The column of the last start of a candidate that has come, consumed or not."""


@dataclass(frozen=True, eq=False)
class ReachedBin:
    """A bin of a basket, with the first and the last start of its candidates, and the number of its rows."""

    bins: Bins
    name: str
    starts: Span
    rows: int


class HeldCandidates:
    """The candidates of a scan in a kernel's state.

    The more candidates there are, the narrower are new bins. A candidate's bin is as wide as its lifetime, which says where it is
    once it is consumed and is nothing else, as candidates count by their starts. ``sizes``: those above which bins are split by
    group.
    """

    def __init__(self, state: KernelBaskets, evaluator: MatchScanEvaluator, sizes: BinSizes):
        self.state, self.evaluator, self.step = state, evaluator, evaluator.step
        self.few = sizes.split_above // PART
        self.sizes = replace(sizes, whole_upto=2 * self.few)

    def read(self, events: pa.Table, most: int) -> tuple[pa.Table, bool]:
        """Return candidates that events may look at, and True if these are all of them.

        Bins are read in the step's order: as many as ``most`` says, and more as long as these have few rows; all if the step is
        sure only of all candidates. ``events`` have the hashes of their groups.
        """
        order = self.step.read_order
        bins = sorted(self._reached(events), key=lambda bin: bin.starts, reverse=order is ReadOrder.NEWEST_FIRST)
        first = len(bins)
        if order is not ReadOrder.ALL:
            rows_upto = np.cumsum([bin.rows for bin in bins], dtype=np.int64)
            first = max(most, int((rows_upto <= self.few).sum()))
        rest, hashes = bins[first:], distinct_hashes([events])
        tables = [
            table for bin in bins[:first] if (table := bin.bins.read_groups(bin.name, lambda: hashes)) is not None
        ]
        if not tables:
            return events.slice(0, 0), not rest
        rows = _rows_before(concat(tables), [bin.starts for bin in rest], order)
        if keys := self.evaluator.keys:
            rows = rows.filter(pa.array(is_matching(rows, events, keys)))
        return history_of(rows), not rest

    def change(self, waiting: pa.Table, consumed: pa.Table) -> None:
        """Add candidates, and take out those that have been consumed."""
        waiting = with_column(waiting, RE, saturating(ints(waiting, LE), self._width(waiting.num_rows)))
        deltas = concat([weighted(waiting, 1), weighted(consumed, -1)])
        sources = self.evaluator.sources(deltas)
        for source in distinct(sources).tolist():
            mine = deltas.filter(pa.array(sources == source))
            start = ints(mine, LE)
            self._bins(source).place(mine, start, np.log2(ints(mine, RE) - start).astype(np.int64))

    def forget(self, c: int) -> None:
        """Drop the bins with candidates that no event from c on can have a match with."""
        for bins in map(self._bins, range(len(self.step.inputs))):
            bins.forget(c - self.step.within)

    def _width(self, more: int) -> int:
        """Return the width of bins for new candidates, a power of two; ``more``: the number of these."""
        bins = (self.state.size(CANDIDATES)[0] + more) // max(1, self.few)
        return 1 << grain(0, self.step.within, max(1, min(MOST_BINS, bins)))

    def _bins(self, source: int) -> Bins:
        return Bins(self.state, f"{CANDIDATES}{source}", net_deltas, self.evaluator.keys, self.sizes)

    def _reached(self, events: pa.Table) -> Iterator[ReachedBin]:
        """Yield the bins that events look at and that their scope reaches."""
        since = int(ints(events, LE).min(initial=INFINITY)) - self.step.within
        for bins in map(self._bins, self.evaluator.looked_at(events)):
            for bin in bins:
                if (starts := bins.span(bin))[1] >= since:
                    yield ReachedBin(bins, bin, starts, bins.stored(bin))


def _rows_before(rows: pa.Table, others: Sequence[Span], order: ReadOrder) -> pa.Table:
    """Return the rows that are read before those of all bins with ``others`` as their first and last starts."""
    if not others:
        return rows
    le = ints(rows, LE)
    if order is ReadOrder.NEWEST_FIRST:
        return rows.filter(pa.array(le > max(last for _, last in others)))
    return rows.filter(pa.array(le < min(start for start, _ in others)))


class CandidateCounts:
    """The numbers of candidates of the active groups by input: if a group has none, no candidates are read to learn that.

    Groups whose last candidate is out of the scope of events from ``c`` on are left out. A count may be too great by other
    candidates that are out of it.
    """

    def __init__(self, bins: GroupBins, evaluator: MatchScanEvaluator, c: int):
        self.bins, self.evaluator = bins, evaluator
        self.compact = partial(_added_up, by=evaluator.keys, since=max(MINUS_INFINITY, c - evaluator.step.within))

    def have_candidates(self, events: pa.Table) -> Mask:
        """Mark the events of groups that may have candidates of an input that one of the events looks at."""
        counts = self.bins.read(COUNTS) if events.num_rows else None
        if counts is None:
            return np.zeros(events.num_rows, bool)
        counts = self.compact(counts)
        some = counts.filter(pa.array(np.isin(ints(counts, SOURCE), self.evaluator.looked_at(events))))
        keys = self.evaluator.keys
        return is_matching(events, some, keys) if keys else np.full(events.num_rows, some.num_rows > 0)

    def change(self, waiting: pa.Table, consumed: pa.Table) -> None:
        """Count the candidates that have come, and those that have been consumed."""
        changes = [with_column(rows, COUNT, np.full(rows.num_rows, n)) for rows, n in ((waiting, 1), (consumed, -1))]
        counts = with_hashes(concat(changes), self.evaluator.keys)
        counts = with_column(counts, SOURCE, self.evaluator.sources(counts))
        counts = with_column(counts, NEWEST, ints(counts, LE))
        columns = [*self.evaluator.keys, HASH, SOURCE, COUNT, NEWEST]
        self.bins.append(COUNTS, _summed(counts.select(columns), self.evaluator.keys), self.compact)


def _summed(counts: pa.Table, by: tuple[str, ...]) -> pa.Table:
    aggregates = {COUNT: (COUNT, "sum"), NEWEST: (NEWEST, "max")}
    return group(counts, [*by, HASH, SOURCE], aggregates)


def _added_up(counts: pa.Table, by: tuple[str, ...], since: int) -> pa.Table:
    """Return a row for each group and input that has candidates."""
    summed = _summed(counts, by)
    return summed.filter(pa.array((ints(summed, COUNT) > 0) & (ints(summed, NEWEST) >= since)))
