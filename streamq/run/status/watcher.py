"""Read Spark's reports on a run, log its micro-batches, and send CTIs for silent sources.

After ``idle_after`` by the wall clock, a source's progress follows that of the others. Where its policy keeps parts of it apart,
silent parts are idle after that time: they are told by rounds, the micro-batches in which the source has brought any, so that a
micro-batch that is repeated after a crash finds the same ones idle. What no source says needs a way into the checkpoint: such
CTIs go through the control folder.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import CodeLine
from streamq.run.status.run_status import (
    MicroBatch,
    RunHistory,
    RunStatus,
    SourceStatus,
    allowed_silence,
    followers,
    from_spark,
    is_of_a_micro_batch,
)
from streamq.run.status.why import warn_of_units
from streamq.run.storage.checkpoint import Checkpoint, OutsideCti
from streamq.time import INFINITY, MINUS_INFINITY

LOGGER = logging.getLogger("streamq")


class ProgressLog:
    """Calls ``look`` whenever Spark reports on any query of the session; ``look`` reads the reports and logs the lines.

    Lines go to the logger "streamq". If the application has not set up logging, that logger writes to standard error.
    """

    def __init__(self, spark: SparkSession, look: Callable[[], Any]):
        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event: Any) -> None:
                pass

            def onQueryProgress(self, event: Any) -> None:
                look()

            def onQueryTerminated(self, event: Any) -> None:
                pass

        if not LOGGER.hasHandlers():
            LOGGER.addHandler(logging.StreamHandler())
        if LOGGER.level == logging.NOTSET:
            LOGGER.setLevel(logging.INFO)
        self._streams, self._listener = spark.streams, Listener()
        self._streams.addListener(self._listener)
        # Spark would still call it when Python is gone, at the end of a program that does not stop its run
        atexit.register(self.close)

    def close(self) -> None:
        """Stop calling ``look``."""
        atexit.unregister(self.close)
        self._streams.removeListener(self._listener)


CHECKS = 4
"""The number of checks for silence within the shortest ``idle_after``."""


def ctis_for_silent(
    sources: Mapping[str, SourceStatus],
    allowed: Mapping[str, int],
    since: int,
    now: int,
    followers: Collection[str] = (),
) -> dict[str, int]:
    """Return the CTIs that silent sources get, by relation, where they are greater than the sources' own.

    ``allowed`` is how long each source may be silent, in microseconds; ``since`` is when the run began, before which nobody
    listened; ``since`` and ``now`` are in milliseconds since 1970. A silent source gets the least CTI of those that are not.
    Where all are silent nothing more is waited for: each gets the greatest start of all, or what a policy makes of that.
    ``followers`` have the progress of another source: they neither speak nor are silent. Nobody gets an infinite CTI.
    """
    leaders = {relation: source for relation, source in sources.items() if relation not in followers}
    silent = silent_sources(leaders, allowed, since, now)
    ctis = [source.cti for relation, source in leaders.items() if relation not in silent]
    heard = [source for source in leaders.values() if source.watermark != MINUS_INFINITY]
    starts = [s.progress.parts.cti_at_rest(s.watermark) if s.progress.parts else s.watermark for s in heard]
    cti = min(ctis) if ctis else max(starts, default=MINUS_INFINITY)
    if cti in (INFINITY, MINUS_INFINITY):
        return {}
    return {relation: cti for relation in sorted(silent) if cti > sources[relation].cti}


def silent_sources(sources: Mapping[str, SourceStatus], allowed: Mapping[str, int], since: int, now: int) -> set[str]:
    """Return the relations of the sources that have been silent for at least as long as they may be.

    ``allowed`` and ``since`` as in :func:`ctis_for_silent`; a source without an entry in ``allowed`` is never silent,
    and one that has brought nothing counts as heard at ``since``.
    """
    return {
        relation
        for relation, silence in allowed.items()
        if relation in sources and (now - max(sources[relation].heard_at or since, since)) * 1_000 >= silence
    }


class RoundLog:
    """The times at which the rounds of a source were heard, as somebody tells them who looks at its run now and then.

    A round that nobody has seen counts as heard with the next one that somebody has, and a clock that has been set back stands
    still: nothing is idle too early.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[int, int]] = []

    def see(self, round: int, heard_at: int) -> None:
        """Note a round that is later than those noted, and when it was heard, which is never before the last one."""
        if not self._seen or self._seen[-1][0] < round:
            self._seen.append((round, max([heard_at, *(time for _, time in self._seen[-1:])])))

    def first_after(self, moment: int) -> int:
        """Return the number of the first round that was heard after a moment; 0 if none was heard up to then.

        Forgets the rounds before those, so ``moment`` must not go back from call to call.
        """
        while len(self._seen) > 1 and self._seen[1][1] <= moment:
            del self._seen[0]
        return self._seen[0][0] + 1 if self._seen and self._seen[0][1] <= moment else 0


class Listener:
    """Somebody with a clock, who knows from a run's history which of its sources, and which parts of them, are silent.

    ``since`` is when it began to listen, in milliseconds since 1970.
    """

    def __init__(self, program: StagedPlan, since: int):
        self._program, self._since = program, since
        self._rounds = {relation: RoundLog() for relation in allowed_silence(program)}

    def messages(self, history: RunHistory, now: int) -> list[OutsideCti]:
        """Return what is to be said now on behalf of silent sources, one message for each.

        Its CTI is MINUS_INFINITY if only parts of the source are silent.
        """
        allowed = allowed_silence(self._program)
        sources = RunStatus(program=self._program, history=history).sources
        ctis = ctis_for_silent(sources, allowed, self._since, now, followers(self._program))
        messages = []
        tables = {r.name: r.source.table for r in self._program.sources if r.source}
        for relation, table in tables.items():
            idle_before = self._idle_before(relation, sources[relation], allowed, now)
            if relation in ctis or idle_before:
                messages.append(OutsideCti(table, ctis.get(relation, MINUS_INFINITY), idle_before=idle_before))
        return messages

    def _idle_before(self, relation: str, source: SourceStatus, allowed: Mapping[str, int], now: int) -> int:
        """Return the round before which the parts of a source that are idle now were last heard of; 0 if none is idle."""
        if relation not in allowed or source.quiet_round is None:
            return 0
        log = self._rounds[relation]
        log.see(source.round, max(source.heard_at or 0, self._since))
        first = log.first_after(now - allowed[relation] // 1_000)
        return first if source.quiet_round < first else 0


class IdleWatch:
    """Checks a run periodically, in its own thread, and sends CTIs for silent sources.

    It begins when it is made, and looks some times within the least of the ``allowed`` silences. ``look`` returns what is to be
    said on behalf of silent sources, and None once the run is over.
    """

    def __init__(
        self,
        allowed: Mapping[str, int],
        look: Callable[[], Sequence[OutsideCti] | None],
        send: Callable[[OutsideCti], None],
    ):
        self._look, self._send = look, send
        self._sent: dict[str | None, tuple[int, int]] = {}
        self._over = threading.Event()
        self._every = min(allowed.values()) / 1e6 / CHECKS
        self._thread = threading.Thread(target=self._run, name="streamq idle sources", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the checks and wait for the thread."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        """Check until the run is over or ``stop`` is called; send what is greater than the last CTI or ``idle_before`` sent.

        An error is logged and ends the checks.
        """
        while not self._over.wait(self._every):
            try:
                messages = self._look()
                if messages is None:
                    return
                for message in messages:
                    cti, idle_before = self._sent.get(message.table, (MINUS_INFINITY, 0))
                    if cti < message.cti or idle_before < message.idle_before:
                        self._send(message)
                        self._sent[message.table] = max(cti, message.cti), max(idle_before, message.idle_before)
            except Exception:
                # no caller would see the error, so log it, unless the run has been stopped meanwhile
                if not self._over.is_set():
                    LOGGER.exception("silent sources get no more CTIs")
                return


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
    earlier: RunHistory | None
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
        history = self._history.with_micro_batch(micro_batch)
        if history is not self._history and self.log is not None:
            self.log(RunStatus(program=self.program, history=history, name=self.name).line())
        self._history = history

    def _warn_of_units(self) -> None:
        """Warn of starts that look like the wrong unit of time; only once in a run, as soon as a source has brought rows."""
        sources = list(RunStatus(program=self.program, history=self._history).sources.values())
        if not self._has_warned and any(source.rows for source in sources):
            self._has_warned = True
            warn_of_units(sources, self.program.axis, self.user_line)
