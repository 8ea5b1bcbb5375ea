"""Goes from instant to instant of a pattern's parts and lets those events through that few others crowd: ATMOST.

Cost: for an event a look at the events within the scope; conditions are evaluated for those of a part at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from streamq.runtime.candidates import Binding, Candidate, PatternStep, ScanState


@dataclass(frozen=True)
class CrowdStep(PatternStep):
    """Lets an event through with at most ``count`` events in the scope that ends with it, itself among them.

    Of these those count for which the conditions hold together with it, each once whatever parts it fits. What has come
    through on CONSUME counts no longer, for those that come after it.
    """

    def step(self, state: ScanState, events: Sequence[Sequence[Any]]) -> tuple[ScanState, list[dict[str, Any]]]:
        """Return the state after the events of an instant, each its start, its input and its values, and those let through."""
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
        """Yield the parts that an event fits, each with the match that it is alone."""
        nothing = Binding(event[0], (None,) * len(self.parts))
        for number, part in enumerate(self.parts):
            if part.source == source and part.fitting([event]):
                yield number, nothing.before(number, event)

    def _is_uncrowded(self, number: int, binding: Binding, candidates: Sequence[Sequence[Candidate]]) -> bool:
        """Return True if at most ``count`` of the candidates crowd an event, which stands in the binding for a part."""
        crowd: set[int] = set()
        for other, part in enumerate(self.parts):
            fitting = part.fitting(candidates[part.source])
            if other == number:
                fitting = part.agreeing(binding.events[number], fitting)
            else:
                for condition in self.conditions:
                    if condition.parts == {number, other}:
                        (fitting,) = condition.filtered([binding], other, [fitting])
            # of equal events each one counts for itself
            crowd.update(map(id, fitting))
            if len(crowd) > self.count:
                return False
        return True


__all__ = ["CrowdStep"]
