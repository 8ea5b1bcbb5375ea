"""Find the number of chunks in which the rows of a hop are best processed, from measured response times alone.

A hop whose rows are processed when it is complete responds with the work of all of them. Processed in m chunks while they come,
it responds with the work of the last one; but every chunk costs something, so the response time falls with m and then rises.
Source: Liarou et al., *Enhanced Stream Processing in a DBMS Kernel*, section 3, "Optimized Incremental Plans", and figure 8.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

SLIDES = 5
"""The hops for which a number of chunks is measured; its response time is their median."""

BAND = 0.05
"""A response time is less than another if it is less by this part of it; smaller differences count as noise."""

DOUBLINGS = 2
"""The search doubles until so many numbers in a row are no better than the best: one may be measured in a bad moment."""

RATE_CHANGE = 1.5
"""The search begins anew once the rows of a hop, or the response time, are so many times what they were, or that part of it."""

WIDTH = 0.25
"""The bisection ends where the next number to try differs from the best by at most half this part of the best."""


class SearchPhase(StrEnum):
    """The phases of a search: it doubles m while the response time falls, bisects around the best m, and keeps the best."""

    DOUBLING = "doubling"
    BISECTING = "bisecting"
    SETTLED = "settled"


@dataclass(frozen=True)
class Slide:
    """One hop that was processed: the time from its end to its result, in any unit, and the number of its rows."""

    response: float
    rows: int


@dataclass(frozen=True, kw_only=True)
class ChunkSearch:
    """A search for the number of chunks of a hop with the least response time; ``after`` returns it with one more hop.

    ``chunks`` is the number for the next hop, between 1 and the rows of a hop. ``best`` is the best number so far,
    ``responses`` has the median response time of each number tried since the search began, ``rows`` the rows of a hop then
    (None before the first median). ``settled``: the response time with which it settled (None before). ``slides`` are the hops
    so far with the present number.

    >>> search = ChunkSearch()
    >>> for _ in range(60):
    ...     search = search.after(Slide(response=10 + 100 / search.chunks + search.chunks, rows=1_000))
    >>> search.phase.value, search.chunks, search.responses[search.chunks]
    ('settled', 8, 30.5)
    """

    chunks: int = 1
    best: int = 1
    responses: Mapping[int, float] = field(default_factory=dict)
    rows: float | None = None
    settled: float | None = None
    slides: tuple[Slide, ...] = ()

    def after(self, slide: Slide) -> ChunkSearch:
        """Return the search after a hop that was processed in ``chunks`` chunks.

        When the rate has changed, or the response time since the search settled, the search begins anew: what was measured
        before does not count. It begins with one chunk, since with too many an engine is always busy, and for how long it still
        is at the end of a hop depends on chance.
        """
        slides = (*self.slides, slide)
        if len(slides) < SLIDES:
            return replace(self, slides=slides)
        rows = statistics.median(slide.rows for slide in slides)
        response = statistics.median(slide.response for slide in slides)
        if _has_changed(self.rows, rows) or _has_changed(self.settled, response):
            # some of these hops may be from before the change, so they are not measurements either
            return ChunkSearch()
        return self._measured(response, rows)

    def _measured(self, response: float, rows: float) -> ChunkSearch:
        """Return the search with the response time of the present number of chunks."""
        responses = {**self.responses, self.chunks: response}
        is_best = self.best not in self.responses or response < self.responses[self.best] * (1 - BAND)
        best = self.chunks if is_best else self.best
        measured = ChunkSearch(
            best=best,
            responses=responses,
            rows=rows if self.rows is None else self.rows,
        )
        candidate = measured._doubled() or measured._bisected()
        if candidate is not None:
            return replace(measured, chunks=candidate)
        return replace(measured, chunks=best, settled=responses[best] if self.settled is None else self.settled)

    @property
    def phase(self) -> SearchPhase:
        """The phase of the search."""
        if self.best not in self.responses or self._doubled():
            return SearchPhase.DOUBLING
        return SearchPhase.BISECTING if self._bisected() else SearchPhase.SETTLED

    @property
    def _most(self) -> int:
        """The greatest number of chunks: one row each."""
        return max(1, int(self.rows or 1))

    @property
    def _below(self) -> int:
        """The greatest number tried that is less than the best; 1 if there is none."""
        return max((chunks for chunks in self.responses if chunks < self.best), default=1)

    @property
    def _above(self) -> list[int]:
        """The numbers tried that are greater than the best."""
        return [chunks for chunks in self.responses if chunks > self.best]

    def _doubled(self) -> int | None:
        """Return twice the greatest number tried, until DOUBLINGS are tried above the best; None beyond the rows of a hop."""
        doubled = 2 * max(self.responses)
        return doubled if len(self._above) < DOUBLINGS and doubled <= self._most else None

    def _bisected(self) -> int | None:
        """Return the middle between the best number and its farther neighbour among those tried; None once both are near."""
        neighbours = (self._below, min(self._above, default=self._most))
        farther = max(neighbours, key=lambda chunks: abs(chunks - self.best))
        middle = (farther + self.best) // 2 if farther > self.best else -(-(farther + self.best) // 2)
        is_near = abs(middle - self.best) <= self.best * WIDTH / 2
        return None if is_near else middle


def _has_changed(before: float | None, now: float) -> bool:
    """Return True if a value is more than RATE_CHANGE times what it was, or less than that part; False without one before."""
    return before is not None and not before / RATE_CHANGE <= now <= before * RATE_CHANGE
