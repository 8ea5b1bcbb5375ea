"""Pattern step of ATMOST: lets an event through if at most a number of events crowd it.

Cost: per event a look at the events within the scope; conditions are evaluated for all events of a part at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow.compute as pc

from streamq.runtime.candidates import (
    NOBODY,
    EventRows,
    GroupRows,
    PatternStep,
    PatternWalk,
    ReadOrder,
    ScannedPart,
)
from streamq.runtime.values import number_values


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
        """Return all inputs."""
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
        """Return the numbers of the parts that an event fits."""
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


__all__ = ["CrowdStep", "CrowdWalk"]
