"""Steps of patterns: bind earlier events to each event that may complete a match, or let an event through if few events crowd it.

A whole match forgets consumed events. Its cost: per event that may complete a match, a look at the parts' candidates; for a part
on FIRST or LAST, events are tried in order until one has a whole match, which mostly is the first. Conditions are evaluated for
many of them at once. ATMOST lets an event through if at most a number of events crowd it: per event a look at the events within
the scope; conditions are evaluated for all events of a part at once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow.compute as pc

from streamq.choices import Selection
from streamq.runtime.arrow.values import number_values
from streamq.runtime.candidates import (
    NOBODY,
    EventRows,
    GroupRows,
    JointCondition,
    PatternStep,
    PatternWalk,
    ReadOrder,
    ScannedPart,
)

Bound = tuple[int, ...]
"""The rows of the events bound so far, by part."""

AT_ONCE = 1024
"""The number of events for which conditions are evaluated first, if a part selects one of them."""


@dataclass(frozen=True)
class WholeMatchStep(PatternStep):
    """Binds ``count`` of the parts whenever an event completes a match; with ``in_order``, in their order."""

    in_order: bool

    @property
    def read_order(self) -> ReadOrder:
        """The order by which the parts that are bound first select their events; what is bound later is before these.

        Where the last ones are selected, another event must not have to come before them.
        """
        selections = {part.selection for part in (self.parts[-2:-1] if self.in_order else self.parts)}
        if selections == {Selection.FIRST}:
            return ReadOrder.OLDEST_FIRST
        return ReadOrder.NEWEST_FIRST if selections == {Selection.LAST} and self.count == 2 else ReadOrder.ALL

    def looks_at(self, source: int) -> frozenset[int]:
        """Return the inputs of the parts that an event before may have, if an event of this input may complete a match."""
        completed = [number for number in self.completing if self.parts[number].source == source]
        if not completed or self.count == 1:
            return frozenset()
        earlier = range(len(self.parts) - self.in_order)
        return frozenset(self.parts[number].source for number in earlier if {number} != set(completed))

    @property
    def completing(self) -> range:
        """The numbers of the parts that the last event of a match may have."""
        return range(len(self.parts))[-1:] if self.in_order else range(len(self.parts))

    def walk(self, rows: EventRows) -> WholeMatchWalk:
        return WholeMatchWalk(self, rows)


class WholeMatchWalk(PatternWalk):
    """A walk that collects the whole matches that each event completes."""

    def __init__(self, step: WholeMatchStep, rows: EventRows):
        """Look up, for each input, the parts that its event may be the last of, and those that another may follow."""
        super().__init__(step, rows)
        self.count, self.in_order = step.count, step.in_order
        self.reads_all = step.read_order is ReadOrder.ALL
        self.oldest_first = step.read_order is ReadOrder.OLDEST_FIRST
        self.after_candidates = 0
        every = range(len(self.parts))
        earlier = every[:-1] if step.in_order else every
        self.completing = [[n for n in step.completing if self.parts[n].source == source] for source in self.sources]
        self.remembering = [[n for n in earlier if self.parts[n].source == source] for source in self.sources]
        self.consuming = [number for number in every if self.parts[number].consumes]
        self.joint: dict[tuple[frozenset[int], int], list[JointCondition]] = {}

    def step_over(self, group: GroupRows) -> None:
        """Step from event to event.

        The events that matches of an event consume are removed, for all parts of their input, as are those that started before
        the scope. The event itself is remembered if it fits a part that another event can follow.
        """
        start, source, within = self.rows.start, self.rows.source, self.within
        candidates, low = self.candidates_of(group), group.first
        # a candidate that was left out may come before the events from this row on
        self.after_candidates = group.new if self.oldest_first else group.end
        for row in range(group.new, group.end):
            if row == group.state_end > group.new:
                self.end_state(group, chain(*candidates), low)
            self.at, number = row, source[row]
            since = start[row] - within
            while start[low] < since:
                low += 1
            matches = self._completed(row, candidates, low) if self.completing[number] else ()
            if self.lacks:
                return
            for part in self.remembering[number]:
                if self.fits_part(part, row):
                    candidates[number].append(row)
                    break
            if matches:
                self.matches += matches
                self.consume({match[part] for match in matches for part in self.consuming} - {NOBODY}, candidates)
        if group.state_end == group.end:
            self.end_state(group, chain(*candidates), low)

    def _completed(self, row: int, candidates: Sequence[array[int]], low: int) -> list[Bound]:
        """Return the matches whose last event in time is that of this row; the walk may lack candidates for that."""
        matches: list[Bound] = []
        fits = [last for last in self.completing[self.rows.source[row]] if self.fits_part(last, row)]
        if not fits:
            return matches
        if self.reads_all and self._needs_more():
            return matches
        fitting: Sequence[Sequence[int]] | None
        if self.in_order:
            fitting = self._reachable(row, candidates, low)
        else:
            fitting = [self.fitting(n, candidates[part.source], low) for n, part in enumerate(self.parts)]
        if fitting is None:
            self._needs_more()
            return matches
        nothing = (NOBODY,) * len(self.parts)
        for last in fits:
            bound = (*nothing[:last], row, *nothing[last + 1 :])
            matches += self._whole([bound], [row], frozenset({last}), fitting)[0]
        return matches

    def _needs_more(self) -> bool:
        """Note, and return True, that the walk lacks candidates if some have been left out."""
        self.lacks |= not self.rows.is_whole
        return self.lacks

    def _reachable(self, row: int, candidates: Sequence[array[int]], low: int) -> list[Sequence[int]] | None:
        """Return, for each part of a sequence but the last, the events that have an event of every preceding part before them.

        None if the event of the row has no such events before it.
        """
        reachable: list[Sequence[int]] = []
        since = low
        for number, part in enumerate(self.parts[:-1]):
            several = self.fitting(number, candidates[part.source], low)
            at = bisect_left(several, since) if number else 0
            if at == len(several):
                return None
            reachable.append(several[at:] if at else several)
            since = self.rows.tail[several[at]]
        return reachable if since <= row else None

    def _whole(
        self, bindings: Sequence[Bound], first: Sequence[int], bound: frozenset[int], fitting: Sequence[Sequence[int]]
    ) -> list[list[Bound]]:
        """Return, for each of some bindings of the same parts, its selected extensions to whole matches.

        ``first``: the row of each binding's earliest event; ``bound``: the numbers of the parts; ``fitting``: the candidates
        that fit each part.
        """
        if len(bound) == self.count or not bindings:
            return [[binding] for binding in bindings]
        if self.in_order:
            return self._selected(bindings, first, bound, min(bound) - 1, fitting)
        whole: list[list[Bound]] = [[] for _ in bindings]
        for number in range(len(self.parts)):
            if number not in bound:
                selected = self._selected(bindings, first, bound, number, fitting)
                for matches, more in zip(whole, selected, strict=True):
                    matches += more
        return whole

    def _selected(
        self,
        bindings: Sequence[Bound],
        first: Sequence[int],
        bound: frozenset[int],
        number: int,
        fitting: Sequence[Sequence[int]],
    ) -> list[list[Bound]]:
        """Return, for each binding, the whole matches in which the part ``number`` has an event before those bound.

        On FIRST or LAST these are the matches of the first, or the last, event that has any. Events are tried one, two, four,
        ... at a time, because the first one mostly has a match. Where the oldest are read first, a candidate that was
        left out may come before one found among new events.
        """
        part, candidates, head = self.parts[number], fitting[number], self.rows.head
        before = [candidates[: bisect_left(candidates, head[row])] for row in first]
        conditions = self._conditions_with(bound, number)
        whole: list[list[Bound]] = [[] for _ in bindings]
        trying = [i for i, several in enumerate(before) if several]
        if part.selects and not conditions and len(bound) + 1 == self.count:
            # the event that is preferred completes the match
            for i in trying:
                (row,), binding = part.preferred(before[i], 0, 1), bindings[i]
                whole[i].append((*binding[:number], row, *binding[number + 1 :]))
            trying = []
        begin = [0] * len(before)
        untried: list[Sequence[int]] = [()] * len(before)
        size = 1 if part.selects else max(map(len, before))
        ahead = max(size, AT_ONCE) if conditions else size
        while trying:
            lacking = [i for i in trying if not untried[i]]
            for i in lacking:
                end = min(begin[i] + ahead, len(before[i]))
                untried[i], begin[i] = part.preferred(before[i], begin[i], end), end
            if conditions and lacking:
                fulfilling = self._fulfilling(
                    conditions, number, [bindings[i] for i in lacking], [untried[i] for i in lacking]
                )
                for i, several in zip(lacking, fulfilling, strict=True):
                    untried[i] = several
            tried = [(i, row) for i in trying for row in untried[i][:size]]
            extended = [(*bindings[i][:number], row, *bindings[i][number + 1 :]) for i, row in tried]
            matched = self._whole(extended, [row for _, row in tried], bound | {number}, fitting)
            for (i, _), matches in zip(tried, matched, strict=True):
                if not (part.selects and whole[i]):
                    whole[i] += matches
            for i in trying:
                untried[i] = untried[i][size:]
            trying = [i for i in trying if not whole[i] and (untried[i] or begin[i] < len(before[i]))]
            size, ahead = 2 * size, 2 * ahead
        if len(bound) == 1 and (not whole[0] or any(match[number] >= self.after_candidates for match in whole[0])):
            self._needs_more()
        return whole

    def _fulfilling(
        self,
        conditions: Sequence[JointCondition],
        number: int,
        bindings: Sequence[Bound],
        several: Sequence[Sequence[int]],
    ) -> list[list[int]]:
        """Return, for each binding, those of its candidates for the part ``number`` for which the conditions hold with it."""
        candidates = np.concatenate([np.asarray(rows, np.int64) for rows in several])
        owner = np.repeat(np.arange(len(bindings)), [len(rows) for rows in several])
        bound = np.asarray(bindings, np.int64)
        for condition in conditions:
            rows = {part: candidates if part == number else bound[owner, part] for part in condition.parts}
            holds = condition.holds(self.rows.columns, rows)
            candidates, owner = candidates[holds], owner[holds]
        ends = np.searchsorted(owner, np.arange(1, len(bindings)))
        return [rows.tolist() for rows in np.split(candidates, ends)]

    def _conditions_with(self, bound: frozenset[int], number: int) -> list[JointCondition]:
        """Return the conditions that can be evaluated once the part ``number`` is bound, too."""
        if (bound, number) not in self.joint:
            parts = bound | {number}
            self.joint[bound, number] = [c for c in self.conditions if number in c.parts and c.parts <= parts]
        return self.joint[bound, number]


@dataclass(frozen=True)
class CrowdStep(PatternStep):
    """Lets an event through if the scope that ends with it has at most ``count`` events, itself included.

    An event in the scope counts if the conditions hold for it together with this one, and it counts once even if it fits several
    parts. An event let through on CONSUME no longer counts for later ones.
    """

    @property
    def read_order(self) -> ReadOrder:
        """An event is crowded by the newest candidates, if by any."""
        return ReadOrder.NEWEST_FIRST

    def looks_at(self, source: int) -> frozenset[int]:
        return frozenset(range(len(self.inputs)))

    def walk(self, rows: EventRows) -> CrowdWalk:
        return CrowdWalk(self, rows)


class CrowdWalk(PatternWalk):
    """A walk that collects, as a match, each part's event that few others crowd."""

    def __init__(self, step: CrowdStep, rows: EventRows):
        """Number the values of the keys in which events of one part must agree."""
        super().__init__(step, rows)
        self.count = step.count
        self.keys = [self._numbered_keys(step, part) for part in self.parts]

    def _numbered_keys(self, step: CrowdStep, part: ScannedPart) -> list[list[int]]:
        """Return, for each key of a part, a number for each event's value, NOBODY for NULL, which equals nothing."""
        numbered = []
        for place in part.keys:
            values = self.rows.columns[step.inputs[part.source][place]]
            number = np.where(pc.is_valid(values), number_values(values)[0], NOBODY)
            numbered.append(number.tolist())
        return numbered

    def step_over(self, group: GroupRows) -> None:
        """Step from instant to instant, over all events of one start at once.

        Of the candidates, events that started before the scope are forgotten. An event let through for a part that consumes is
        removed, and so is not among the candidates of the events after it.
        """
        start, tail = self.rows.start, self.rows.tail
        candidates, low, row = self.candidates_of(group), group.first, group.new
        while row < group.end and not self.lacks:
            if row == group.state_end > group.new:
                self.end_state(group, chain(*candidates), low)
            since, until = start[row] - self.within + 1, tail[row]
            while start[low] < since:
                low += 1
            for event in range(row, until):
                candidates[self.rows.source[event]].append(event)
            for event in range(row, until):
                self.at = event
                through = [n for n in self._parts_of(event) if self._is_uncrowded(n, event, candidates, low)]
                for number in through:
                    match = [NOBODY] * len(self.parts)
                    match[number] = event
                    self.matches.append(tuple(match))
                if any(self.parts[number].consumes for number in through):
                    self.consume([event], candidates)
            row = until
        if group.state_end == group.end:
            self.end_state(group, chain(*candidates), low)

    def _parts_of(self, event: int) -> list[int]:
        source = self.rows.source[event]
        return [n for n, part in enumerate(self.parts) if part.source == source and self.fits_part(n, event)]

    def _is_uncrowded(self, number: int, event: int, candidates: Sequence[array[int]], low: int) -> bool:
        """Return True if at most ``count`` of the candidates crowd the event, which is one of the part ``number``.

        A candidate of the same part crowds it if the two agree; one of another part, if their common conditions hold. The walk
        lacks candidates if it has read some only, and too few of these crowd the event.
        """
        crowd: set[int] = set()
        for other, part in enumerate(self.parts):
            fitting: Sequence[int] = self.fitting(other, candidates[part.source], low)
            if other == number:
                fitting = self._agreeing(number, event, fitting)
            else:
                for condition in self.conditions:
                    if condition.parts == {number, other} and fitting:
                        rows = np.asarray(fitting, np.int64)
                        both = {other: rows, number: np.full(len(rows), event)}
                        fitting = rows[condition.holds(self.rows.columns, both)].tolist()
            # equal events count one by one
            crowd.update(fitting)
            if len(crowd) > self.count:
                return False
        self.lacks |= not self.rows.is_whole
        return True

    def _agreeing(self, number: int, event: int, candidates: Sequence[int]) -> Sequence[int]:
        """Return the candidates of a part with keys equal to an event's, as in a join: NaN equals NaN, NULL equals nothing."""
        for key in self.keys[number]:
            own = key[event]
            candidates = [row for row in candidates if key[row] == own != NOBODY]
        return candidates
