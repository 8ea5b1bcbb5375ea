"""The handle of a run: it sends the run CTIs, ends its input, and stops it; rooms beside it have its results, and its reports."""

from __future__ import annotations

import atexit
import datetime as dt
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from pyspark.sql.streaming.query import StreamingQuery

from streamq.choices import Request
from streamq.errors import PlanError, counted, users_line
from streamq.plan.node import named_after
from streamq.run.failure import is_slow_worker, spark_errors
from streamq.run.prepared_stream import Launch, claimed, fitted
from streamq.run.run_options import RunOptions
from streamq.run.run_reports import INPUT_ENDED, RunReports, run_is_over
from streamq.run.run_results import RunResults
from streamq.run.samples import LOOK_EVERY
from streamq.run.status.attendant import Attendant
from streamq.run.status.run_status import RunHistory, allowed_silence
from streamq.run.status.status_folder import StatusFolder
from streamq.run.status.watcher import LOGGER, IdleWatch, ProgressLog, Watcher
from streamq.run.storage.checkpoint import END_OF_INPUT, Claim, OutsideCti, TapCommand, outside_cti
from streamq.run.storage.raw_files import folder_name
from streamq.screens import ProgressBar
from streamq.time import instant_ticks

T = TypeVar("T")


class Run(RunResults, RunReports):
    """A running query; also a context manager that stops it."""

    def __init__(self, launch: Launch, claim: Claim, *, is_attended: bool):
        self._begin(launch, claim)
        self._attendant = self._attendant_of_checkpoint() if is_attended else None

    def _begin(self, launch: Launch, claim: Claim) -> None:
        """Start the query, and watch it."""
        self._launch = launch
        self.name, self.checkpoint = self._options.name, launch.checkpoint.path
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
            raise run_is_over("finish", self._over or "trigger='available_now' has done all there was")
        self._send(replace(END_OF_INPUT, until=bound))
        self.process_all_available()
        # before it stops: nobody is to see a run that has stopped and not ended
        self._mark_ended()
        self._halt()
        self._close_attendant()

    def _mark_ended(self) -> None:
        self._launch.checkpoint.mark_ended()
        self._over = INPUT_ENDED

    @spark_errors("advance")
    def advance(self, to: int | dt.datetime, source: str | None = None) -> None:
        """Send a CTI: nothing before ``to`` will come any more from ``source`` (None: from any source).

        ``to`` is a datetime on the timestamp axis (naive ones are UTC), ticks on the integer axis. A CTI never moves back: a
        ``to`` before an earlier CTI, or before the source's own, has no effect. After an "available_now" run it takes effect in
        the next run on the checkpoint. Raises PlanError for a source that does not exist or follows another, and after ``stop``
        and ``finish``.
        """
        if self._over:
            raise run_is_over("advance", self._over)
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

    def _pause(self) -> None:
        """Stop the query and those who watch it, so that it can start again."""
        if self._idle is not None:
            self._idle.stop()
        self._end_pauses()
        self.query.stop()
        self._close_log()

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


for _room in (Run, RunResults, RunReports):
    named_after(_room, "run")


def temporary_folder(prefix: str) -> str:
    """Create a folder that is removed when this process ends, and return its path."""
    path = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


_RUNNING: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()
"""The last run of this process on each checkpoint."""


@spark_errors(
    "run", "Spark does not start the query", "Look at the sources, the sink, its options, and the checkpoint."
)
def start_run(options: RunOptions) -> Run:
    """Start queries as a stream; with the trigger "available_now", return when all available input has been processed.

    A run without a checkpoint gets a temporary one. One whose input had ended before it was interrupted only writes the rest.
    With ``finish`` the end of the input comes together with it if the first micro-batch reads all of it. This process remembers
    the run by its checkpoint, and refuses a second one there while it is active. Raises PlanError, SessionError, CheckpointError,
    and the error of a query that is run to its end.
    """
    options.check()
    path = options.checkpoint or temporary_folder("streamq-checkpoint-")
    refuse_second_run(path)
    launch, claim = claimed(fitted(replace(options, checkpoint=path)))
    run = Run(launch, claim, is_attended=options.checkpoint is not None)
    _RUNNING[folder_name(path)] = run
    if launch.ends_by_itself:
        run._drain(claim)
    return run


def refuse_second_run(checkpoint: str) -> None:
    """Raise PlanError if another run of this computer uses the checkpoint: Spark would stop that run, or fail later."""
    other = _RUNNING.get(folder_name(checkpoint))
    if other is not None and other.query.isActive:
        hint = "Call stop() on that run first."
        raise PlanError("run", "another run is on this checkpoint", f"found {checkpoint}", hint)
    record = StatusFolder.from_path(checkpoint, "run").record()
    if record is not None and record.is_of_another_process:
        observed = f"{record.name}, process {record.pid}, is on {checkpoint}"
        hint = f"Stop it first: python -m streamq stop {checkpoint}"
        raise PlanError("run", "another run is on this checkpoint", observed, hint)
