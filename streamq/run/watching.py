"""What a run knows of itself: the micro-batches that Spark has reported, after those that its checkpoint remembers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamq.errors import Line
from streamq.run import monitoring
from streamq.run.checkpoint import Checkpoint, EarlierRuns
from streamq.run.idle import spoken_for
from streamq.run.oddities import warn_of_units

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamq.compiler.program import Program


def milliseconds_now() -> int:
    """Return the time of day in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(kw_only=True)
class Watcher:
    """Reads Spark's reports on a run's query, from whichever thread asks, and warns once of odd times in its sources.

    ``earlier`` is what earlier runs on the checkpoint counted, None while nobody has read it. ``log`` takes a line on each
    micro-batch. ``line`` is where in the user's code warnings point at.
    """

    program: Program
    checkpoint: Checkpoint
    name: str | None
    line: Line
    earlier: EarlierRuns | None
    log: Callable[[str], None] | None = None
    begun: int = field(default_factory=milliseconds_now)

    def __post_init__(self) -> None:
        self._seen = monitoring.Seen(late={} if self.earlier is None else self.earlier.late)
        self._has_warned = False
        self._lock = threading.RLock()

    def all_micro_batches(self, query: StreamingQuery) -> monitoring.Seen:
        """Return what is known of the run; before its own first micro-batch that is what the checkpoint remembers."""
        seen = self.own_micro_batches(query)
        if seen.told:
            return seen
        if self.earlier is None:
            self.earlier = self.checkpoint.earlier_runs(self.program)
        return replace(seen, late=self.earlier.late, told=self.earlier.readings)

    def own_micro_batches(self, query: StreamingQuery) -> monitoring.Seen:
        """Read what Spark has reported since the last time, and return all of it; Spark keeps a hundred reports."""
        with self._lock:
            last = query.lastProgress
            if last is not None and last.batchId > self._seen.number:
                follows = last.batchId == self._seen.number + 1
                for report in [last] if follows else query.recentProgress:
                    self._take(monitoring.from_spark(json.loads(report.json)))
                self._warn_of_units()
            return self._seen

    def silent_sources(self, query: StreamingQuery) -> Mapping[str, int] | None:
        """Return the CTIs that silent sources get, by their tables; None where the query does not run any more."""
        if not query.isActive:
            return None
        readings = monitoring.sources(self.program, self.own_micro_batches(query))
        allowed = monitoring.allowed_silence(self.program)
        followers = monitoring.followers(self.program)
        ctis = spoken_for(readings, allowed, self.begun, milliseconds_now(), followers)
        tables = {r.name: r.source.table for r in self.program.sources if r.source}
        return {tables[relation]: cti for relation, cti in ctis.items()}

    def _take(self, report: monitoring.Report) -> None:
        seen = self._seen.after(report)
        if seen is not self._seen and self.log is not None:
            self.log(monitoring.line(self.program, seen, self.name))
        self._seen = seen

    def _warn_of_units(self) -> None:
        readings = list(monitoring.sources(self.program, self._seen).values())
        if not self._has_warned and any(reading.rows for reading in readings):
            self._has_warned = True
            warn_of_units(readings, self.program.plan.schema.axis, self.line)
