"""The handle of a run: it reports on the run, sends it CTIs, ends its input, and stops it."""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from streamq.choices import Request, RunState
from streamq.compiler.explain import explain, print_explanation, state_section
from streamq.compiler.explain_graphs import Measurements
from streamq.errors import PlanError, counted, kind_of, users_line
from streamq.plan.node import named_after
from streamq.run.failure import REPORT, is_slow_worker, spark_errors, translated
from streamq.run.prepared_stream import Launch, claimed, fitted
from streamq.run.run_options import ResultRequest
from streamq.run.samples import (
    LOOK_EVERY,
    RecordedRows,
    Tap,
    check_limits,
    check_rows,
    check_seconds,
    recorder,
    small_tables,
    tapped_operator,
)
from streamq.run.status.attendant import Attendant
from streamq.run.status.diagnosis import START_AGAIN, why
from streamq.run.status.open_metrics import open_metrics
from streamq.run.status.run_status import RunHistory, RunStatus, allowed_silence
from streamq.run.status.status_folder import StatusFolder
from streamq.run.status.watcher import LOGGER, IdleWatch, ProgressLog, Watcher
from streamq.run.status.watching import NewestRows, RunLook, Trail, noted_interrupt, run_view, watch_run
from streamq.run.status.why import Why
from streamq.run.storage.checkpoint import END_OF_INPUT, Claim, OutsideCti, TapCommand, outside_cti
from streamq.run.written_rows import rows_that_hold
from streamq.screens import ProgressBar, screen_for_lines
from streamq.time import instant_ticks

T = TypeVar("T")


class Run:
    """A running query; also a context manager that stops it."""

    def __init__(self, launch: Launch, claim: Claim, *, is_attended: bool):
        self._begin(launch, claim)
        self._attendant = self._attendant_of_checkpoint() if is_attended else None

    def _begin(self, launch: Launch, claim: Claim) -> None:
        """Start the query, and watch it."""
        self._options = launch.prepared.options
        self.name = self._options.name
        self.checkpoint = launch.checkpoint.path
        self._launch = launch
        self._program, self._spark = launch.prepared.program, launch.prepared.spark
        self._over, self._is_second_start = "", False
        self._watcher = Watcher(
            program=self._program,
            checkpoint=launch.checkpoint,
            name=self.name or "query",
            user_line=users_line(),
            earlier=self._earlier_runs(claim),
            log=LOGGER.info if self._options.progress_log else None,
        )
        self._began_at = dt.datetime.now(dt.UTC)
        self.query: StreamingQuery = self._start()
        self._log = ProgressLog(self._spark, self._look) if self._options.progress_log else None
        self._idle = self._idle_watch()

    def _start(self) -> StreamingQuery:
        """Start the query; once more if Spark's Python process does not connect in time, as nothing has been read yet."""
        try:
            return self._launch.start()
        except Exception as error:
            if not is_slow_worker(error):
                raise
            return self._launch.start()

    def _wait(self, wait: Callable[[StreamingQuery], T]) -> T:
        """Return what waiting for the query returns; raise the error that it failed with.

        If that is Spark's Python process, which has not connected in time, and no micro-batch has been processed since the start,
        the query is started once more.
        """
        try:
            return wait(self.query)
        except Exception as error:
            if self._is_second_start or self.query.lastProgress is not None or not is_slow_worker(error):
                raise
            self._is_second_start = True
            self.query = self._launch.start()
        return wait(self.query)

    def _earlier_runs(self, claim: Claim) -> RunHistory | None:
        """Return the counts of earlier runs: none on a new checkpoint; None if they are to be read only when asked for."""
        if claim.is_new:
            return RunHistory()
        # the progress log reports increments, so the earlier totals must be read before the first micro-batch
        return self._launch.checkpoint.earlier_runs(self._program) if self._options.progress_log else None

    def _idle_watch(self) -> IdleWatch | None:
        """Start the watch for silent sources; None if no source has ``idle_after``, or the run takes what is available now."""
        allowed = allowed_silence(self._program)
        if not allowed or self._launch.ends_by_itself:
            return None
        return IdleWatch(allowed, lambda: self._watcher.messages_for_silent_sources(self.query), self._send)

    def _attendant_of_checkpoint(self) -> Attendant | None:
        """Return the attendant of a run on a checkpoint; None if this program cannot see its files."""
        folder = StatusFolder.from_path(self.checkpoint, "run")
        if not folder.is_there:
            return None
        return Attendant(
            folder,
            self.name or "query",
            number=lambda: (self._look().number, self._state()[0]),
            status=self._status,
            obey={Request.STOP: self.stop, Request.FINISH: self.finish},
        )

    def _close_attendant(self) -> None:
        if self._attendant is not None:
            self._attendant.close()

    def _drain(self, claim: Claim) -> None:
        """Process all available input; if the input has ended, or ends now, also flush the last windows.

        In these two cases the checkpoint is marked as ended. With ``finish`` the query is started a second time for that, unless
        its first micro-batch has brought the whole input, and its end.
        """
        try:
            self._process_input(claim)
        finally:
            self._close_attendant()

    def _process_input(self, claim: Claim) -> None:
        """Process all available input, and flush the last windows if it ends."""
        is_finishing = self._options.finish and not claim.is_ending
        with ProgressBar(self.name or "run") as bar:
            self._await_end(bar)
            if is_finishing:
                self._look()
                self._send(END_OF_INPUT)
                self.query = self._start()
                self._await_end(bar)
        if is_finishing or claim.is_ending:
            self._mark_ended()
        self._close_log()

    def _await_end(self, bar: ProgressBar) -> None:
        """Wait until the query ends, and show the work done; raise the error that it failed with."""
        while bar.is_live and not self._await_query(1):
            history = self._look()
            batches = counted(history.number + 1, "micro-batch", "micro-batches")
            bar.update(0, None, f"{batches}, {history.rows:,} rows")
        self._await_query()

    @spark_errors("finish")
    def finish(self, until: int | dt.datetime | None = None) -> None:
        """End the input: process the available input, flush the last windows, and stop; raise the query's error if it fails.

        ``until`` bounds the windows reported for lifetimes that never end, as in ``to_df``. Raises PlanError if the query no
        longer runs.
        """
        bound = instant_ticks(until, self._program.axis)
        self._end_pauses()
        self.process_all_available()
        if not self.query.isActive:
            raise _run_is_over("finish", self._over or "trigger='available_now' has done all there was")
        self._send(replace(END_OF_INPUT, until=bound))
        self.process_all_available()
        # before it stops: nobody is to see a run that has stopped and not ended
        self._mark_ended()
        self._halt()
        self._close_attendant()

    def _mark_ended(self) -> None:
        self._launch.checkpoint.mark_ended()
        self._over = _INPUT_ENDED

    @spark_errors("advance")
    def advance(self, to: int | dt.datetime, source: str | None = None) -> None:
        """Send a CTI: nothing before ``to`` will come any more from ``source`` (None: from any source).

        ``to`` is a datetime on the timestamp axis (naive ones are UTC), ticks on the integer axis. A CTI never moves back: a
        ``to`` before an earlier CTI, or before the source's own, has no effect. After an "available_now" run it takes effect in
        the next run on the checkpoint. Raises PlanError for a source that does not exist or follows another, and after ``stop``
        and ``finish``.
        """
        if self._over:
            raise _run_is_over("advance", self._over)
        self._send(outside_cti(self._program, to, source))

    @spark_errors("stop")
    def stop(self) -> None:
        """Stop the query; a later run can continue from its checkpoint."""
        self._halt()
        self._close_attendant()

    def _halt(self) -> None:
        """Stop the query, and whoever watches it."""
        self._pause()
        self._over = self._over or "stop was called on it"

    def add(self, result: ResultRequest) -> None:
        """Compute one more result, :func:`result`, from the next micro-batch on, in a run of :func:`run_all` or ``publish``.

        The run stops, and starts again on its checkpoint as a query that has changed (docs/operations.md): parts that the
        result shares with others have seen the rows before, its own operators begin where the checkpoint stands. A micro-batch
        that is interrupted is repeated. Raises PlanError for a name that another result has, and in a run of a single query;
        CheckpointError for a result that does not fit what runs. After an error the run goes on as it was.

        ::

            run.add(sq.result(counts, name="counts", sink="counts"))
        """
        if not isinstance(result, ResultRequest):
            raise PlanError("add", "not a result", f"found {kind_of(result)}", "Give sq.result(query, sink=...).")
        names = [one.division for one in self._options.results]
        if result.division is not None and result.division in names:
            raise PlanError("add", f"a result called {result.division!r} is there", "", "Give it another name=.")
        self._change("add", (*self._options.results, result))

    def remove(self, name: str) -> None:
        """Compute a result no more, from the next micro-batch on: the one that has this ``name`` in :func:`result`.

        The state of operators that only it has needed is dropped in the next micro-batch with rows. What it has written stays.
        Otherwise it is as in :meth:`add`. Raises PlanError for a name that no result has, and for the last result.
        """
        number = self._result_number("remove", name)
        results = self._options.results
        if len(results) == 1:
            raise PlanError("remove", f"{name!r} is the only result", "", "End the run: run.stop().")
        self._change("remove", (*results[:number], *results[number + 1 :]))

    def _result_number(self, verb: str, name: str | None) -> int:
        """Return the number of a result by its name, None for the only one; raise PlanError if there is none, or several."""
        names = [one.division for one in self._options.results]
        if name is None and len(names) == 1:
            return 0
        if name is None or name not in names:
            wrong = "the run has several results" if name is None else f"no result {name!r}"
            there = ", ".join(repr(one) for one in names if one is not None) or "none has a name"
            raise PlanError(verb, wrong, f"there are: {there}", "Names are those of sq.result(query, name='...').")
        return names.index(name)

    def _change(self, verb: str, results: tuple[ResultRequest, ...]) -> None:
        """Stop, and start with other results; as before, if they do not fit."""
        if not self._options.together:
            hint = "Start it by sq.run_all([sq.result(query, ...)], ...)."
            raise PlanError(verb, "the run is of a single query", "", hint)
        if self._over or not self.query.isActive:
            raise _run_is_over(verb, self._over)
        options = replace(self._options, results=results, verb=verb)
        with spark_errors(verb, "Spark does not start the query"):
            options.check()
            prepared = fitted(options)
            self._pause()
            try:
                if prepared.is_outdated:
                    prepared = fitted(options)
                begun = claimed(prepared)
            except Exception:
                self._begin(*claimed(fitted(self._options)))
                raise
            self._begin(*begun)

    def _pause(self) -> None:
        """Stop the query and those who watch it, so that it can start again."""
        if self._idle is not None:
            self._idle.stop()
        self._end_pauses()
        self.query.stop()
        self._close_log()

    @spark_errors("table")
    def table(self, result: str | None = None) -> DataFrame:
        """Return the rows of a result that hold now, as a batch DataFrame: payload, ``start`` and ``end``.

        They are what the result has written up to the last micro-batch that is done: final rows, or a changelog with its
        retractions folded. ``result`` is the name of one of several results. The rows are read from the files of the sink. Raises
        PlanError for a result whose sink is no folder of Parquet files, for upserts, and for a name that no result has.

        ::

            run.table().groupBy("zone").count().show()
        """
        number = self._result_number("table", result)
        return rows_that_hold(self._spark, self._options, number, self._launch.checkpoint)

    def _end_pauses(self) -> None:
        """End the pauses between micro-batches, for which Spark would wait."""
        if self._launch.pacer is not None:
            self._launch.pacer.release()

    @spark_errors("query")
    def await_termination(self, timeout: int | None = None) -> bool:
        """Wait until the query ends, for ``timeout`` seconds at most; return True if it has. Raises the error it failed with."""
        try:
            return self._await_query(timeout)
        finally:
            if not self.query.isActive:
                self._close_attendant()

    @spark_errors("query")
    def _await_query(self, timeout: int | None = None) -> bool:
        """Wait as ``await_termination`` does, while the query may still be started again."""
        if timeout is not None:
            return self._wait(lambda query: bool(query.awaitTermination(timeout)))
        self._wait(lambda query: query.awaitTermination())
        return True

    @spark_errors("query")
    def process_all_available(self) -> None:
        """Wait until all rows that are now in the sources have been processed, without pauses; meant for tests."""
        pacer = self._launch.pacer
        with nullcontext() if pacer is None else pacer.suspended():
            if not (self._program.clock_policies and self._await_silence()):
                self._wait(lambda query: query.processAllAvailable())

    def _await_silence(self) -> bool:
        """Wait for a micro-batch that begins from now on and brings no rows of the sources; return False if the query ends first.

        With a clock there is always something for Spark to read, so Spark's own method might wait for ever.
        """
        since = dt.datetime.now(dt.UTC)
        while self.query.isActive:
            last = self._look().last
            if last is not None and last.began_at is not None and last.began_at >= since and not last.rows:
                return True
            time.sleep(LOOK_EVERY)
        return False

    def _send(self, message: OutsideCti | TapCommand) -> None:
        """Write a message into the control folder."""
        self._launch.checkpoint.control.send(self._spark, message)

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
        newest = NewestRows(self._spark, self._options)
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
            raise _run_is_over("tap", self._over)
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
        if self._over == _INPUT_ENDED:
            return RunState.FINISHED, self._over
        if self._launch.ends_by_itself and not self._over:
            return RunState.ENDED, ""
        return RunState.STOPPED, self._over or "it was stopped"

    def _close_log(self) -> None:
        """Log the last micro-batches, and remove the listener from Spark."""
        if self._log is not None:
            self._look()
            self._log.close()
            self._log = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Run({self.name or self.query.id}, {self._state()[0]})"

    def _repr_html_(self) -> str:
        """The view that :meth:`watch` shows, without rates and without newest rows, as a notebook shows it."""
        look = RunLook(seconds=time.monotonic(), status=self._status())
        return run_view(look, Trail().with_look(look)).html()


_INPUT_ENDED = "its stream has ended"
"""The reason for the end of a run whose input has ended."""


def _run_is_over(verb: str, reason: str) -> PlanError:
    """Return the error for a command to a run that is over for this reason."""
    hint = "" if reason == _INPUT_ENDED else START_AGAIN
    return PlanError(verb, "the run is over", reason, hint)


named_after(Run, "run")
