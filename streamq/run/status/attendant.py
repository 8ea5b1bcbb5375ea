"""The attendant of a run: it writes how the run stands into the checkpoint, and does what other processes ask of it there."""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from streamq.choices import Request, RunState
from streamq.run.status.diagnosis import why
from streamq.run.status.run_status import RunStatus
from streamq.run.status.status_folder import BEAT, RunRecord, StatusFolder, now_in_utc
from streamq.run.status.watcher import LOGGER

LOOK = 1.0
"""The seconds between two looks at a run, and for requests."""


class Attendant:
    """Looks at a run ``every`` so many seconds, in its own thread, until ``close`` is called or the program ends.

    ``number`` returns that of the last micro-batch and the state, ``status`` how the run stands. A record is written when one
    of these has changed, and every BEAT seconds while the run goes on. ``obey`` has what is to be called on a request. If this
    program does not see the files of the checkpoint, as those of a Spark Connect server, there is nothing to attend to.
    """

    def __init__(
        self,
        folder: StatusFolder,
        name: str,
        number: Callable[[], tuple[int, RunState]],
        status: Callable[[], RunStatus],
        obey: Mapping[Request, Callable[[], None]],
        every: float = LOOK,
    ):
        self._folder, self._name, self._number, self._status, self._obey = folder, name, number, status, obey
        self._over, self._lock, self._is_closed = threading.Event(), threading.Lock(), False
        self._every = every
        self._seen, self._written_at = (-1, RunState.RUNNING), time.monotonic()
        # a request to an earlier run is none to this one
        folder.take_request()
        before = folder.record()
        # what that one has written stands until this one has looked: its state may take Spark a second to read
        reported: dict[str, Any] = (
            {} if before is None else {"metrics": before.metrics, "why": before.why, "text": before.text}
        )
        self._record = self._signed(**reported)
        self._write(self._record)
        self._thread = threading.Thread(target=self._run, name="streamq attendant", daemon=True)
        self._thread.start()
        atexit.register(self._end_with_program)

    def close(self) -> None:
        """Do what has been asked to its end, write how the run stands, and look no more."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        atexit.unregister(self._end_with_program)
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._write(self._current())

    def _end_with_program(self) -> None:
        """Write that the run ends with its program, which has not stopped it."""
        self._over.set()
        self._thread.join()
        if self._record.state is RunState.RUNNING:
            reason = "its program has ended"
            self._write(replace(self._record, state=RunState.STOPPED, reason=reason, at=now_in_utc()))

    def _run(self) -> None:
        """Look until the run is over; an error is logged, and the next look may do better."""
        while not self._over.wait(self._every):
            try:
                request = self._folder.take_request()
                if request is not None:
                    LOGGER.info("%s: another process asks the run to %s", self._name, request)
                    self._obey[request]()
                self._look()
            except Exception:
                # a look at a run that is being closed may find half of it
                if not self._over.is_set():
                    LOGGER.exception("%s: nobody has looked at the run", self._name)

    def _look(self) -> None:
        """Write a record if there is a new micro-batch or another state, or if the last one of a run that goes on is old."""
        if self._over.is_set():
            return
        seen = self._number()
        is_due = seen[1] is RunState.RUNNING and time.monotonic() - self._written_at >= BEAT
        if seen != self._seen or is_due:
            self._seen, self._written_at = seen, time.monotonic()
            self._write(self._current())

    def _current(self) -> RunRecord:
        """Return a record of how the run stands now."""
        status = self._status()
        diagnosis = why(status)
        return self._signed(
            status.state,
            reason=status.reason,
            metrics=status.metrics(),
            why=diagnosis.to_dict(),
            text=str(diagnosis),
        )

    def _signed(self, state: RunState = RunState.RUNNING, **fields: Any) -> RunRecord:
        """Return a record of this process, now."""
        return RunRecord(name=self._name, state=state, computer=socket.gethostname(), pid=os.getpid(), **fields)

    def _write(self, record: RunRecord) -> None:
        """Write a record; an error is logged, as a run goes on without its status. A checkpoint that is gone gets none."""
        self._record = record
        try:
            if self._folder.is_there:
                self._folder.write(record)
        except OSError as error:
            LOGGER.warning("%s: its status cannot be written: %s", self._name, error)
