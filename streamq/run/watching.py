"""Watch a run: look at it again and again, and show it on a screen, until it ends or the user interrupts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from streamq.choices import RunState
from streamq.run.run_view import NEWEST, RunLook, Trail, run_view
from streamq.screens import Screen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamq.run.micro_batches import RunHistory
    from streamq.run.run_options import RunOptions
    from streamq.run.sinks.sink import Row

GOES_ON = "Interrupted: nobody watches any more, the run goes on. run.watch() watches it again, run.stop() stops it."

SLICE = 0.1
"""The longest time in seconds after which an interrupt is noticed."""


class Interrupt:
    """A context in which an interrupt (Ctrl-C, or a notebook's) sets a flag instead of raising KeyboardInterrupt.

    So it does not cut off a call to Spark, whose own handler would cancel the jobs of the query. A second interrupt raises
    KeyboardInterrupt. Interrupts reach the main thread only, so in another thread there are none.
    """

    def __init__(self) -> None:
        self.came = False
        self._before: Any = None

    def wait(self, seconds: float) -> bool:
        """Wait for some seconds, or until an interrupt has come; return True if one has."""
        end = time.monotonic() + seconds
        while not self.came and (left := end - time.monotonic()) > 0:
            # a sleep goes on after a signal, so it must be short
            time.sleep(min(left, SLICE))
        return self.came

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


@dataclass
class NewestRows:
    """The newest rows of a run's sinks, which are read again only when a micro-batch has brought results."""

    spark: SparkSession
    options: RunOptions
    number: int | None = None
    rows: list[Sequence[Row] | None] = field(default_factory=list)

    def after(self, history: RunHistory) -> list[Sequence[Row] | None]:
        """Return the newest rows of each result."""
        last = history.last_with_results
        if last is not None and last.number != self.number:
            self.number, name = last.number, self.options.name
            self.rows = [s.newest_rows(self.spark, name, last.number, NEWEST) for s in self.options.sinks]
        return self.rows


def watch_run(look: Callable[[], RunLook], screen: Screen, wait: Callable[[], bool]) -> None:
    """Show one look at a run after another, until it has ended; ``wait`` waits between two looks, and returns True to leave."""
    trail = Trail()
    try:
        while True:
            now = look()
            trail = trail.after(now.totals)
            screen.show(run_view(now, trail))
            if now.why.state != RunState.RUNNING:
                return
            if wait():
                screen.show(run_view(now, trail, GOES_ON))
                return
    finally:
        screen.close()


__all__ = ["Interrupt", "NewestRows", "watch_run"]
