"""Pattern step of ATMOST: lets an event through if at most a number of events crowd it.

Cost: per event a look at the events within the scope; conditions are evaluated for all events of a part at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from streamq.runtime.candidates import Binding, Candidate, PatternStep, ScanState


@dataclass(frozen=True)
class CrowdStep(PatternStep):
    """Lets an event through if the scope that ends with it has at most ``count`` events, itself included.

    An event in the scope counts if the conditions hold for it together with this one, and it counts once even if it fits several
    parts. An event let through on CONSUME no longer counts for later ones.
    """

    def step(self, state: ScanState, events: Sequence[Sequence[Any]]) -> tuple[ScanState, list[dict[str, Any]]]:
        """Return the state after the events of an instant, each a start, input and values, and the rows of those let through.

        Of the state, events that started before the scope are forgotten. An event let through for a part that consumes is
        removed, and so is not among the candidates of the events after it.
        """
        start = events[0][0]
        candidates = self.since(state, start - self.within + 1)
        now: list[tuple[int, Candidate]] = []
        for _, source, *values in events:
            now.append((source, self.candidate(start, source, values)))
            candidates[source] = (*candidates[source], now[-1][1])
        rows = []
        for source, event in now:
            through = [match for match in self._bound(source, event) if self._is_uncrowded(*match, candidates)]
            rows += [self.row(binding) for _, binding in through]
            if any(self.parts[number].consumes for number, _ in through):
                candidates[source] = tuple([c for c in candidates[source] if c is not event])
        return tuple(candidates), rows

    def _bound(self, source: int, event: Candidate) -> Iterator[tuple[int, Binding]]:
        """Yield the number of each part that an event of the input ``source`` fits, with a binding of this event alone."""
        nothing = Binding(event[0], (None,) * len(self.parts))
        for number, part in enumerate(self.parts):
            if part.source == source and part.fitting([event]):
                yield number, nothing.before(number, event)

    def _is_uncrowded(self, number: int, binding: Binding, candidates: Sequence[Sequence[Candidate]]) -> bool:
        """Return True if at most ``count`` of the candidates crowd the event that is bound to the part ``number``.

        A candidate of the same part crowds it if the two agree; one of another part, if their common conditions hold.
        """
        crowd: set[int] = set()
        for other, part in enumerate(self.parts):
            fitting = part.fitting(candidates[part.source])
            if other == number:
                fitting = part.agreeing(binding.events[number], fitting)
            else:
                for condition in self.conditions:
                    if condition.parts == {number, other}:
                        (fitting,) = condition.filtered([binding], other, [fitting])
            # equal events count one by one
            crowd.update(map(id, fitting))
            if len(crowd) > self.count:
                return False
        return True


__all__ = ["CrowdStep"]
