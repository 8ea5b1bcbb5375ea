"""Read Spark's reports on the micro-batches of a run, and the checkpoint for those of earlier runs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamq.errors import CodeLine
from streamq.run.checkpoint import Checkpoint, EarlierRuns
from streamq.run.control import OutsideCti
from streamq.run.idle import Listener
from streamq.run.micro_batches import MicroBatch, RunHistory, from_spark, is_of_a_micro_batch
from streamq.run.oddities import warn_of_units
from streamq.run.run_status import RunStatus

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamq.compiler.staged_plan import StagedPlan


def milliseconds_now() -> int:
    """Return the time of day in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(kw_only=True)
class Watcher:
    """Reads Spark's reports on a run's query, from any thread, and warns once of odd times in its sources.

    ``earlier`` holds the counts of earlier runs on the checkpoint, None while they have not been read. ``log`` is called with a
    line on each micro-batch. ``user_line`` is the line of the user's code that warnings name. ``begun`` is when it began
    to listen, in milliseconds since 1970.
    """

    program: StagedPlan
    checkpoint: Checkpoint
    name: str
    user_line: CodeLine
    earlier: EarlierRuns | None
    log: Callable[[str], None] | None = None
    begun: int = field(default_factory=milliseconds_now)

    def __post_init__(self) -> None:
        """Begin with an empty history, but with the late rows of earlier runs if these are known already."""
        self._history = RunHistory(late={} if self.earlier is None else self.earlier.late)
        self._listener = Listener(self.program, self.begun)
        self._has_warned = False
        self._lock = threading.RLock()

    def all_micro_batches(self, query: StreamingQuery) -> RunHistory:
        """Return the history of the run; before its own first readings, with those and the counts of earlier runs.

        These are read from the checkpoint once.
        """
        history = self.own_micro_batches(query)
        if history.readings:
            return history
        if self.earlier is None:
            self.earlier = self.checkpoint.earlier_runs(self.program)
        return replace(history, late=self.earlier.late, readings=self.earlier.readings)

    def own_micro_batches(self, query: StreamingQuery) -> RunHistory:
        """Read the reports that are new since the last call; return the history of all of this run's micro-batches.

        Spark keeps the last hundred reports; for earlier micro-batches the history has only their number.
        """
        with self._lock:
            last = query.lastProgress
            if last is not None and last.batchId > self._history.number:
                follows = last.batchId == self._history.number + 1
                reports = [json.loads(report.json) for report in ([last] if follows else query.recentProgress)]
                for report in filter(is_of_a_micro_batch, reports):
                    self._add(from_spark(report))
                self._warn_of_units()
            return self._history

    def messages_for_silent_sources(self, query: StreamingQuery) -> Sequence[OutsideCti] | None:
        """Return the CTIs to send for silent sources, by their tables; None once the query has stopped."""
        if not query.isActive:
            return None
        return self._listener.messages(self.own_micro_batches(query), milliseconds_now())

    def _add(self, micro_batch: MicroBatch) -> None:
        """Add a micro-batch to the history and, if it is new, write its line to the progress log."""
        history = self._history.after(micro_batch)
        if history is not self._history and self.log is not None:
            self.log(RunStatus(program=self.program, history=history, name=self.name).line())
        self._history = history

    def _warn_of_units(self) -> None:
        """Warn of starts that look like the wrong unit of time; only once in a run, as soon as a source has brought rows."""
        sources = list(RunStatus(program=self.program, history=self._history).sources.values())
        if not self._has_warned and any(source.rows for source in sources):
            self._has_warned = True
            warn_of_units(sources, self.program.axis, self.user_line)
