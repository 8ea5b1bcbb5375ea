"""The reports on a run: how it stands and why, its plans and counts, the rows that come through it."""

from __future__ import annotations

import datetime as dt
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamq.choices import RunState
from streamq.compiler.explain import explain, print_explanation, state_section
from streamq.compiler.explain_graphs import Measurements
from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import PlanError
from streamq.run.failure import REPORT, spark_errors, translated
from streamq.run.prepared_stream import Launch
from streamq.run.samples import (
    RecordedRows,
    Tap,
    check_limits,
    check_rows,
    check_seconds,
    recorder,
    small_tables,
    tapped_operator,
)
from streamq.run.status.diagnosis import START_AGAIN, why
from streamq.run.status.open_metrics import open_metrics
from streamq.run.status.run_status import RunHistory, RunStatus
from streamq.run.status.watcher import Watcher
from streamq.run.status.watching import NewestRows, RunLook, Trail, noted_interrupt, run_view, watch_run
from streamq.run.status.why import Why
from streamq.run.storage.checkpoint import OutsideCti, TapCommand
from streamq.screens import screen_for_lines


class RunReports(ABC):
    """The reports of a run, which change nothing of its output."""

    name: str | None
    checkpoint: str
    query: StreamingQuery
    _launch: Launch
    _watcher: Watcher
    _began_at: dt.datetime
    _over: str

    @abstractmethod
    def _send(self, message: OutsideCti | TapCommand) -> None: ...

    @property
    def _program(self) -> StagedPlan:
        return self._launch.prepared.program

    @property
    def _spark(self) -> SparkSession:
        return self._launch.prepared.spark

    def why(self) -> Why:
        """Return why there is no output: which operator holds rows, since when, and what would release them.

        The result prints as text; ``to_dict()`` returns plain values, which docs/operations.md lists. It also reports odd times
        of sources: a start far ahead of all others, seconds read as microseconds, rows that are all late.

        ::

            print(run.why())
            # Rows are held back, waiting for a row of trips at or after 2024-05-01 12:15:00 (delay 5 minutes).
            # ...
        """
        return why(self._status())

    @spark_errors("watch")
    def watch(self, every: float = 1.0) -> None:
        """Show what the run does, updated in place every ``every`` seconds, until it ends or has failed; an error is shown.

        In a notebook it is the output of the cell, in a terminal rich redraws the last lines (``pip install
        "streamq[terminal]"``), elsewhere it is a line whenever something has changed. It shows the rows a second, progress and
        lag of each source, late and invalid rows, state, retractions, the phases of the last micro-batch, and the newest rows of
        sinks that can be read back cheaply: the memory sink, and local folders of Parquet files. While nothing comes out it shows
        why. An interrupt, Ctrl-C or the notebook's, stops watching, never the run. Raises PlanError for an ``every`` that is not
        positive.

        ::

            run = query.run(sink="out", checkpoint="checkpoint")
            run.watch()
        """
        check_seconds("watch", "every", every)
        newest = NewestRows(self._spark, self._launch.prepared.options)
        with noted_interrupt() as interrupt:
            watch_run(lambda: self._run_look(newest), screen_for_lines(sys.stdout), lambda: interrupt.wait(every))

    def _run_look(self, newest: NewestRows) -> RunLook:
        """Return one look at the run; all its parts are of one micro-batch."""
        status = self._status()
        return RunLook(seconds=time.monotonic(), status=status, newest=newest.read(status.history))

    def explain(self, mode: str | None = None, format: str = "text") -> None:
        """Print the state of the run, the plans of its queries and how they run, as :meth:`Stream.explain` does for one query.

        :meth:`explanation` returns the text, and says what it has beyond that of a query.
        """
        print_explanation(lambda format: self.explanation(mode, format), format)

    def explanation(self, mode: str | None = None, format: str = "text") -> str:
        """Return the text that :meth:`explain` prints; ``mode`` and ``format`` are those of :meth:`Stream.explain`.

        The first part, "state", is the state of the run: if it has failed, with the error; if it is over, with the reason. The
        stages also have the rows of each source, the rows and the state of each operator so far, and the time of each stage in
        the last micro-batch. Raises PlanError for a mode or format that does not exist.
        """
        status = self._status()
        measured = Measurements.of_metrics(status.metrics(), self._program)
        before = [state_section(status.state, status.reason)]
        spark_reads = self._launch.prepared.spark_reads
        return explain(self._program, mode, format, before, measured=measured, spark_reads=spark_reads)

    @spark_errors("tap")
    def tap(self, operator: str, rows: int = 1_000) -> Tap:
        """Follow one operator while the query runs: its newest rows, in and out, with the numbers of their micro-batches.

        ``operator`` is the title of an operator with state in ``explain``, or its beginning, or the name of its state. The tap
        begins in the next micro-batch, without a restart, and does not change the output of the query. ``with`` ends it, and so
        do a thousand micro-batches, so that a tap whose program dies does not go on for ever. ``rows`` is the number of rows that
        it keeps of each input, and of the output. Each bucket reports so many in each micro-batch, as text in Spark's reports on
        the run, of which Spark keeps a hundred in the driver. Raises PlanError for an operator that does not exist or has no
        state, for a number of rows that is not positive, and if the run is over.

        ::

            with run.tap("inner join", rows=100) as tap:
                time.sleep(60)
                print(tap.rows())
        """
        name = tapped_operator(self._program, operator)
        check_rows("tap", "rows", rows)
        if self._over or not self.query.isActive:
            raise run_is_over("tap", self._over)
        axis, title = self._program.axis, self._program.titles[name][0]
        return Tap(title, name, rows, axis=axis, send=self._send, reports=lambda: self.query.recentProgress)

    @spark_errors("sample")
    def sample(
        self,
        rows: int = 1_000,
        seconds: float = 10.0,
        *,
        last: int | None = None,
        between: tuple[Any, Any] | None = None,
        where: Any = None,
    ) -> RecordedRows:
        """Return rows of the run's sources, as micro-batches that :meth:`Stream.trace` takes, recorded by a second query.

        Without ``last`` it records what comes from now on: it begins where the run stands, and ends after ``rows`` rows of all
        sources or ``seconds`` seconds. With ``last`` it returns the newest so many rows that the run has read, in the
        micro-batches in which it read them. Each of these is read again by itself, the newest first, as long as the seconds last,
        and the sources must still have them. Of a run that is over it returns the newest ``rows`` rows. Each source has an equal
        part of the rows, if it has so many.

        ``where`` is a condition on the columns and the start of events, for the sources that have its columns. ``between`` is a
        pair of instants: events start at the first one or later, and before the second one; None is no bound.

        A micro-batch has a ``pyarrow.Table`` for each source that has rows in it, by the source's name, the first one also the
        static tables of at most ``rows`` rows. The run goes on. Raises PlanError for a limit that is not positive, UnknownColumn
        for a column that no source has, CheckpointError if this program cannot reach the files of the checkpoint.

        ::

            query.trace(run.sample(last=200))
            query.trace(run.sample(seconds=60, where=sq.col("zone") == "a"))
        """
        check_limits(rows, seconds)
        if last is not None:
            check_rows("sample", "last", last)
        prepared, is_over = self._launch.prepared, not self.query.isActive
        of_sources = recorder(prepared, self.checkpoint, where, between)
        if last is None and not is_over:
            recorded = of_sources.coming(rows, seconds)
        else:
            recorded = of_sources.newest(last or rows, seconds)
        static = small_tables({n: table for n, table in prepared.tables.items() if not table.isStreaming}, rows)
        return [static | batch for batch in recorded[:1] or [{}]] + recorded[1:] if static else recorded

    @property
    def progress(self) -> dict[str, Any]:
        """The last micro-batch: its number, duration, rows, results, the sources' CTIs and, under "spark", Spark's report.

        With the trigger "adaptive" also, under "pace", the number of chunks of a hop and their response times.
        """
        return self._status(self._look).progress()

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics for monitoring, as plain values for ``json.dumps``: of each source, each stage, and the query.

        docs/operations.md lists the fields. Before the first micro-batch they are 0 or None.
        """
        return self._status().metrics()

    @spark_errors("open_metrics")
    def open_metrics(self) -> str:
        """Return the metrics as OpenMetrics, the text that Prometheus reads, labelled with the run's name and checkpoint.

        docs/operations.md lists the names. Raises PlanError without prometheus-client (``pip install "streamq[metrics]"``).

        ::

            Path("/var/lib/node_exporter/fares.prom").write_text(run.open_metrics())
        """
        labels = {"query": self.name or "query", "checkpoint": self.checkpoint}
        return open_metrics([(labels, self.metrics)], "open_metrics")

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns of ``output="upsert"``: those of the groups, and ``start``; empty for other outputs.

        For :func:`run_all`, those of the first result.
        """
        return self._program.results[0].egress.key

    @property
    def late(self) -> dict[str, int]:
        """The counts of late and other odd rows so far: ``"source|dropped"``, ``"source|adjusted"``, ``"source|invalid"``.

        ``"source|duplicates"`` counts rows that repeat others; ``"module|quarantined"`` counts the calls of a module that were
        set aside: windows, or events of functions and of ``scan``. The counts include earlier runs on the checkpoint, under the
        names that they had there.
        """
        return self._watcher.all_micro_batches(self.query).late_counts(self._program.late_reasons)

    def _look(self) -> RunHistory:
        """Read Spark's reports so far."""
        return self._watcher.own_micro_batches(self.query)

    def _status(self, read: Callable[[], RunHistory] | None = None) -> RunStatus:
        """Return how the run stands after the micro-batches that ``read`` returns; None: those of earlier runs before its own."""
        # the state first: of a run that ends in between, the next status has the last micro-batch
        state, reason = self._state()
        history = read() if read is not None else self._watcher.all_micro_batches(self.query)
        spark, pacer = self.query.status, self._launch.pacer
        is_busy = state is RunState.RUNNING and spark["isTriggerActive"] and spark["isDataAvailable"]
        return RunStatus(
            program=self._program,
            history=history,
            state=state,
            reason=reason,
            busy_since=self._began_at if is_busy and history.last is None else None,
            pace=None if pacer is None else pacer.pace.record(),
            name=self.name or "query",
        )

    def _state(self) -> tuple[RunState, str]:
        """Return the state of the run, and the error it failed with or the reason why it is over."""
        if self.query.isActive:
            return RunState.RUNNING, ""
        error = self.query.exception()
        if error is not None:
            return RunState.FAILED, str(translated(error)).replace(
                REPORT, "Spark's own report is run.query.exception()."
            )
        if self._over == INPUT_ENDED:
            return RunState.FINISHED, self._over
        if self._launch.ends_by_itself and not self._over:
            return RunState.ENDED, ""
        return RunState.STOPPED, self._over or "it was stopped"

    def __repr__(self) -> str:
        return f"Run({self.name or self.query.id}, {self._state()[0]})"

    def _repr_html_(self) -> str:
        """The view that :meth:`watch` shows, without rates and without newest rows, as a notebook shows it."""
        look = RunLook(seconds=time.monotonic(), status=self._status())
        return run_view(look, Trail().with_look(look)).html()


INPUT_ENDED = "its stream has ended"
"""The reason for the end of a run whose input has ended."""


def run_is_over(verb: str, reason: str) -> PlanError:
    """Return the error for a command to a run that is over for this reason."""
    hint = "" if reason == INPUT_ENDED else START_AGAIN
    return PlanError(verb, "the run is over", reason, hint)
