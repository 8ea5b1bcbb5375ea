"""Pace a run: its micro-batches begin m times in the hop of its windows, where m is searched by the response times of hops.

Source: Liarou et al., *Enhanced Stream Processing in a DBMS Kernel*, section 3, "Optimized Incremental Plans". Starts
are supposed to follow the clock: a window is due when its end and the delay of the sources are over.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamq.errors import PlanError, sentence
from streamq.grid import Grid
from streamq.plan.node import Node, nodes
from streamq.run.chunk_search import ChunkSearch, Slide
from streamq.runtime.envelope import READINGS
from streamq.runtime.readings import Readings, combine_readings
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, show_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamq.compiler.staged_plan import StagedPlan


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
    from streamq.operators.operator import Operator
    from streamq.operators.source import Source

    every = [node for plan in plans for node in nodes(plan)]
    windows = [node.event_windows for node in every if isinstance(node, Operator)]
    grids = [window.hops for window in windows if window is not None and window.hops is not None]
    if not grids or plans[0].schema.axis != TIMESTAMP:
        observed = "time is integers" if grids else "found none"
        hint = "Give a duration as '10 seconds', or leave the trigger out."
        wrong = (
            "trigger='adaptive' needs windows that hop in real time: hopping, tumbling, or landmark ones of whole hops"
        )
        raise PlanError(sentence(verb, wrong, observed, hint))
    lags = [node.policy.progress.lag for node in every if isinstance(node, Source)]
    grid = min(grids, key=lambda grid: grid.hop)
    silences = [n.policy.progress.allowed_silence for n in every if isinstance(n, Source)]
    if any(silence is not None and silence < 2 * grid.hop for silence in silences):
        wrong = "a pause of trigger='adaptive' may last a hop, and a source would count as idle meanwhile"
        hint = f"Give idle_after of two hops at least, {show_duration(2 * grid.hop, TIMESTAMP)}, or another trigger."
        raise PlanError(sentence(verb, wrong, "a source has a shorter idle_after", hint))
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

    def after(self, cti: int, rows: int, now: int) -> Pace:
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
        search = self.search.after(Slide(response=now - due, rows=rows)) if counts else self.search
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
        from streamq.run.source_status import progress_of_sources

        if readings:
            cti = min(progress.cti for progress in progress_of_sources(self._program, readings).values())
            rows = sum(source.new_rows or 0 for source in readings.of_sources.values())
            self.pace = self.pace.after(cti, rows, self._clock())

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
    from pyspark.sql import functions as F

    reports = batch.where(F.col("__channel") == READINGS).select("__report").collect()
    return combine_readings(json.loads(report[0]) for report in reports)


__all__ = ["Hops", "Pace", "Pacer", "hops_of", "readings_in"]
