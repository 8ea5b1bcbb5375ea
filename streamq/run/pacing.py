"""Pace a run: its micro-batches begin m times in the hop of its windows, where m is searched by the response times of hops.

A hop whose rows are processed when it is complete responds with the work of all of them. Processed in m chunks while they come,
it responds with the work of the last one; but every chunk costs something, so the response time falls with m and then rises.
Starts are assumed close to the wall clock: a window is due when its end and the delay of the sources are over. Source: Liarou
et al., *Enhanced Stream Processing in a DBMS Kernel*, section 3, "Optimized Incremental Plans", and figure 8.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import PlanError
from streamq.operators.operator import Operator
from streamq.operators.source import Source
from streamq.plan.node import Node, nodes
from streamq.run.status.run_status import progress_of_sources
from streamq.runtime.envelope import READINGS
from streamq.runtime.hosts.readings import Readings, combine_readings
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, Grid, show_duration

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
    ...     search = search.with_slide(Slide(response=10 + 100 / search.chunks + search.chunks, rows=1_000))
    >>> search.phase.value, search.chunks, search.responses[search.chunks]
    ('settled', 8, 30.5)
    """

    chunks: int = 1
    best: int = 1
    responses: Mapping[int, float] = field(default_factory=dict)
    rows: float | None = None
    settled: float | None = None
    slides: tuple[Slide, ...] = ()

    def with_slide(self, slide: Slide) -> ChunkSearch:
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
        measured = ChunkSearch(best=best, responses=responses, rows=rows if self.rows is None else self.rows)
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
    def _lesser(self) -> int:
        """The greatest number tried that is less than the best; 1 if there is none."""
        return max((chunks for chunks in self.responses if chunks < self.best), default=1)

    @property
    def _greater(self) -> list[int]:
        """The numbers tried that are greater than the best."""
        return [chunks for chunks in self.responses if chunks > self.best]

    def _doubled(self) -> int | None:
        """Return twice the greatest number tried, until DOUBLINGS are tried above the best; None beyond the rows of a hop."""
        doubled = 2 * max(self.responses)
        return doubled if len(self._greater) < DOUBLINGS and doubled <= self._most else None

    def _bisected(self) -> int | None:
        """Return the middle between the best number and its farther neighbour among those tried; None once both are near."""
        neighbours = (self._lesser, min(self._greater, default=self._most))
        farther = max(neighbours, key=lambda chunks: abs(chunks - self.best))
        middle = (farther + self.best) // 2 if farther > self.best else -(-(farther + self.best) // 2)
        is_near = abs(middle - self.best) <= self.best * WIDTH / 2
        return None if is_near else middle


def _has_changed(before: float | None, now: float) -> bool:
    """Return True if a value is more than RATE_CHANGE times what it was, or less than that part; False without one before."""
    return before is not None and not before / RATE_CHANGE <= now <= before * RATE_CHANGE


@dataclass(frozen=True, kw_only=True)
class Hops:
    """The hops of a query in real time: a window of ``grid`` is due ``lag`` microseconds after its end."""

    grid: Grid
    lag: int

    def due(self, end: int) -> int:
        """Return when the windows that end at an instant are due."""
        return end + self.lag

    def next_chunk(self, now: int, chunks: int) -> int:
        """Return when, after ``now``, the next of so many equal chunks of a hop is over, the last one when the hop is due."""
        begin = self.due(self.grid.floor_to_end(now - self.lag))
        number = (now - begin) * chunks // self.grid.hop + 1
        return begin - (-number * self.grid.hop // chunks)


def hops_of(plans: Sequence[Node], verb: str) -> Hops:
    """Return the hops of queries: those of the windows with the least hop, and the greatest lag of the sources.

    Raises PlanError, worded for ``verb``, if no windows end at equal distances, if time is no timestamps, or if a source counts
    as idle within two hops.
    """
    every = [node for plan in plans for node in nodes(plan)]
    windows = [node.event_windows for node in every if isinstance(node, Operator)]
    ends = [window.traits.ends for window in windows if window is not None]
    grids = [one.hops for one in ends if one is not None and one.hops is not None]
    if not grids or plans[0].schema.axis != TIMESTAMP:
        observed = "time is integers" if grids else "found none"
        hint = "Give a duration as '10 seconds', or leave the trigger out."
        wrong = (
            "trigger='adaptive' needs windows that hop in real time: hopping, tumbling, or landmark ones of whole hops"
        )
        raise PlanError(verb, wrong, observed, hint)
    lags = [node.policy.progress.lag for node in every if isinstance(node, Source)]
    grid = min(grids, key=lambda grid: grid.hop)
    silences = [n.policy.progress.idle_after for n in every if isinstance(n, Source)]
    if any(silence is not None and silence < 2 * grid.hop for silence in silences):
        wrong = "a pause of trigger='adaptive' may last a hop, and a source would count as idle meanwhile"
        hint = f"Give idle_after of two hops at least, {show_duration(2 * grid.hop, TIMESTAMP)}, or another trigger."
        raise PlanError(verb, wrong, "a source has a shorter idle_after", hint)
    return Hops(grid=grid, lag=max((lag for lag in lags if lag < INFINITY), default=0))


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The state of pacing, after some micro-batches: ``search`` has the number of chunks of a hop.

    ``complete``: the end of the last hop of which the CTI has passed the end; None before the first CTI. ``rows``: the rows that
    have come since. ``ended``: when the last micro-batch ended, and ``begins``: when the next one may begin, in microseconds
    since 1970.
    """

    hops: Hops
    search: ChunkSearch = field(default_factory=ChunkSearch)
    complete: int | None = None
    rows: int = 0
    ended: int = 0
    begins: int = 0

    def with_micro_batch(self, cti: int, rows: int, now: int) -> Pace:
        """Return the pace after a micro-batch with so many rows that ended ``now``, and after which the CTI is ``cti``.

        The next one may begin once the chunk is over in which this one began: at once, if that has passed, as after a trigger
        of Spark's, before the first CTI, and if a hop is due and incomplete.
        """
        counted = self._counted(cti, rows, now)
        begins = now
        if counted.complete is not None and now < self.hops.due(counted.complete + self.hops.grid.hop):
            # a clock that has been set back makes no pause longer
            chunk = self.hops.next_chunk(min(self.begins, now), counted.search.chunks)
            begins = min(max(now, chunk), now + self.hops.grid.hop)
        return replace(counted, ended=now, begins=begins)

    def _counted(self, cti: int, rows: int, now: int) -> Pace:
        """Return the pace with the rows of a micro-batch, and with the response time of the hop that it completes.

        The response time counts if no other hop is completed, and if the micro-batch before ended less than a hop after that was
        due: rows of a backlog respond late whatever the number of chunks.
        """
        if cti in (INFINITY, MINUS_INFINITY):
            return self
        end, rows = self.hops.grid.floor_to_end(cti), self.rows + rows
        if self.complete is None:
            return replace(self, complete=end)
        if end <= self.complete:
            return replace(self, rows=rows)
        hop, due = self.hops.grid.hop, self.hops.due(end)
        counts = end == self.complete + hop and self.ended < due + hop and now >= due
        search = self.search.with_slide(Slide(response=now - due, rows=rows)) if counts else self.search
        return replace(self, search=search, complete=end, rows=0)

    def record(self) -> dict[str, Any]:
        """Return the search as plain values, with the median response time by the number of chunks, in milliseconds."""
        responses = {str(chunks): round(response / 1_000) for chunks, response in sorted(self.search.responses.items())}
        return {
            "chunks": self.search.chunks,
            "phase": self.search.phase.value,
            "best": self.search.best,
            "response_ms": responses,
        }


def microseconds_now() -> int:
    """Return the time of day in microseconds since 1970."""
    return time.time_ns() // 1_000


class Pacer:
    """Pauses a run at the end of each micro-batch until the next chunk of a hop is over; ``release`` ends all pauses."""

    def __init__(self, hops: Hops, program: StagedPlan, clock: Callable[[], int] = microseconds_now):
        self.pace = Pace(hops=hops)
        self._program, self._clock = program, clock
        self._released = threading.Event()

    def observe(self, readings: Readings) -> None:
        """Note a micro-batch that ends now, with its readings."""
        if readings:
            cti = min(progress.c for progress in progress_of_sources(self._program, readings).values())
            rows = sum(source.new_rows or 0 for source in readings.of_sources.values())
            self.pace = self.pace.with_micro_batch(cti, rows, self._clock())

    def pause(self) -> None:
        """Wait until the next chunk is over, or for ``release``."""
        self._released.wait(max(0, self.pace.begins - self._clock()) / 1e6)

    def release(self) -> None:
        """End the pause, and make no more."""
        self._released.set()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """End the pause, and make none in this context."""
        was_released = self._released.is_set()
        self._released.set()
        try:
            yield
        finally:
            if not was_released:
                self._released.clear()


def readings_in(batch: DataFrame) -> Readings:
    """Return the readings among the rows of a micro-batch."""
    reports = batch.where(F.col("__channel") == READINGS).select("__report").collect()
    return combine_readings(json.loads(report[0]) for report in reports)
