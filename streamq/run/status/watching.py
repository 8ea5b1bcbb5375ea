"""Watch a run: compute a view of it again and again, and show it on a screen, until it ends or the user interrupts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession

from streamq.choices import CountReason, RunState, Verdict
from streamq.errors import counted
from streamq.run.run_options import RunOptions
from streamq.run.sinks import Row
from streamq.run.status.diagnosis import why
from streamq.run.status.run_status import RunHistory, RunStatus
from streamq.run.status.why import Why
from streamq.screens import Screen, TableSection, TextSection, View, ViewSection
from streamq.time import show_duration

RATE_SECONDS = 10.0
"""The least number of seconds over which rates are computed."""

RATE_BATCHES = 2
"""The least number of micro-batches over which rates are computed: rows are counted when a micro-batch ends."""

NEWEST = 5
"""The number of newest rows that are shown of a result."""

PHASES = {
    "reading offsets": ("latestOffset", "getBatch"),
    "planning": ("queryPlanning",),
    "processing": ("addBatch",),
    "writing logs": ("walCommit", "commitOffsets", "commitBatch"),
}
"""The phases of a micro-batch, each with the durations in Spark's report that belong to it."""

NOT_READ_BACK = "Newest rows: this sink is not read back; a local folder of Parquet files is, and sink='memory'."


@dataclass(frozen=True, kw_only=True)
class RunLook:
    """One look at a run: its status, and why nothing comes out of it.

    ``seconds`` is the time of a clock that only goes forward. ``newest`` holds the newest rows of each result, None where the
    sink cannot be read back.
    """

    seconds: float
    status: RunStatus
    newest: Sequence[Sequence[Mapping[str, Any]] | None] = ()

    @cached_property
    def why(self) -> Why:
        """Why there is output or none."""
        return why(self.status)

    @cached_property
    def metrics(self) -> Mapping[str, Any]:
        """The metrics of the run."""
        return self.status.metrics()

    @property
    def history(self) -> RunHistory:
        """The micro-batches that it sees."""
        return self.status.history


@dataclass(frozen=True)
class Trail:
    """The looks that showed a new micro-batch; rates are computed from the first and the last of them."""

    looks: tuple[RunLook, ...] = ()

    def with_look(self, now: RunLook) -> Trail:
        """Return the trail after one more look, without those that no later rate needs."""
        if self.looks and self.looks[-1].history.number == now.history.number:
            return self
        old = [
            place
            for place, look in enumerate(self.looks)
            if now.seconds - look.seconds >= RATE_SECONDS and now.history.number - look.history.number >= RATE_BATCHES
        ]
        return Trail((*self.looks[old[-1] if old else 0 :], now))

    def a_second(self, now: RunLook) -> list[float] | None:
        """Return the rows read, inserted and retracted a second until a look; None without two looks at different times."""
        seconds = now.seconds - self.looks[0].seconds
        first, last = ((h.rows, h.inserted, h.retracted) for h in (self.looks[0].history, now.history))
        return [(after - before) / seconds for before, after in zip(first, last, strict=True)] if seconds > 0 else None


def run_view(look: RunLook, trail: Trail, note: str = "") -> View:
    """Return the view of a look at a run; ``note`` is a sentence below it."""
    is_flowing = look.why.verdict == Verdict.FLOWING
    line = look.status.line() + ("" if is_flowing else f"; {look.why.summary}")
    end = [TextSection(note)] if note else []
    return View([*_sections(look, trail), *end], f"{line}; {note}" if note else line)


def _sections(look: RunLook, trail: Trail) -> Iterator[ViewSection]:
    """Yield the sections in order: how the run stands, the reason if nothing comes out, rows, sources, operators, phases."""
    yield TextSection(_title(look), "title")
    yield from _reasons(look)
    yield _rows(look, trail)
    yield _sources(look)
    if look.metrics["stages"]:
        yield _operators(look)
    if quarantined := look.metrics["quarantined"]:
        yield TableSection(["Modules", "calls that failed"], list(quarantined.items()))
    last = look.history.last
    if last is not None and (durations := last.spark.get("durationMs")):
        yield _phases(durations)
    for number, rows in enumerate(look.newest, start=1):
        yield _newest(f"Newest rows of result {number}" if len(look.newest) > 1 else "Newest rows", rows)


def _title(look: RunLook) -> str:
    batches, duration = look.history.number + 1, look.metrics["query"]["duration_ms"]
    took = "" if duration is None else f", the last in {duration / 1000:.1f} s"
    pace = f", {look.metrics['pace']['chunks']} in a hop" if "pace" in look.metrics else ""
    return f"{look.status.name}: {look.why.state}, {counted(batches, 'micro-batch', 'micro-batches')}{took}{pace}"


def _reasons(look: RunLook) -> Iterator[ViewSection]:
    """Yield the error of a failed run, or the reason why nothing comes out; of a run with output only warnings."""
    if look.why.state == RunState.FAILED:
        yield TextSection(look.why.summary, "error")
    elif look.why.verdict != Verdict.FLOWING:
        yield TextSection(str(look.why))
    else:
        yield from (TextSection(oddity.text, "warning") for oddity in look.why.warnings)


def _rows(look: RunLook, trail: Trail) -> ViewSection:
    history, rates = look.history, trail.a_second(look) or (None, None, None)
    ratio = look.metrics["query"]["retraction_ratio"]
    counts = (history.rows, history.inserted, history.retracted, None if ratio is None else f"{ratio:.1%}")
    rows = [["in this run", *counts], ["a second", *rates, None]]
    return TableSection(["Rows", "read", "results", "taken back", "share of them"], rows)


def _sources(look: RunLook) -> ViewSection:
    """Return the table of the sources: their progress, and their rows by reason."""
    axis = look.status.axis
    rows = [
        [
            name,
            source["rows"],
            "its end" if source["ended"] else _instant(source, "cti"),
            _instant(source, "watermark"),
            "" if source["lag"] is None else show_duration(source["lag"], axis),
            _clock_lag(source["behind_seconds"]),
            source.get(CountReason.DROPPED, 0) + source.get(CountReason.ADJUSTED, 0),
            source.get(CountReason.INVALID, 0),
            source.get(CountReason.DUPLICATES, 0),
        ]
        for name, source in look.metrics["sources"].items()
    ]
    progress = ["CTI", "greatest start", "lag", "behind the clock"]
    return TableSection(["Sources", "rows", *progress, "late", "invalid", "repeated"], rows)


def _operators(look: RunLook) -> ViewSection:
    """Return the table of the operators with state."""
    rows = [
        [
            operator["operator"],
            operator["inserted"],
            operator["retracted"],
            operator["state_rows"],
            operator["state_bytes"] / 1000,
            _instant(operator, "cti_out"),
            stage["time_ms"] if place == 0 else None,
        ]
        for stage in look.metrics["stages"]
        for place, operator in enumerate(stage["operators"])
    ]
    counts = ["results", "taken back", "state rows", "state kB"]
    return TableSection(["Operators", *counts, "CTI", "stage, ms of tasks"], rows)


def _phases(durations: Mapping[str, int]) -> ViewSection:
    """Return the table of the phases of the last micro-batch."""
    times = {phase: sum(durations.get(part, 0) for part in parts) for phase, parts in PHASES.items()}
    other = max(0, durations.get("triggerExecution", 0) - sum(times.values()))
    return TableSection(["The last micro-batch", *times, "other"], [["ms", *times.values(), other]])


def _newest(caption: str, rows: Sequence[Mapping[str, Any]] | None) -> ViewSection:
    if rows is None:
        return TextSection(NOT_READ_BACK)
    if not rows:
        return TextSection(f"{caption}: none yet")
    # values of users are shown as they are
    cells = [["", *("NULL" if value is None else str(value) for value in row.values())] for row in rows]
    return TableSection([caption, *rows[0]], cells)


def _instant(fields: Mapping[str, Any], name: str) -> str:
    """Return an instant of the metrics as text, in ticks on the integer axis; "none" if there is none."""
    at = fields[f"{name}_at"]
    if at is not None:
        return str(at).replace("T", " ").removesuffix("Z")
    return "none" if fields[name] is None else str(fields[name])


def _clock_lag(seconds: float | None) -> str:
    """Return how far a source's CTI is behind the time of day: ``1:02:03``, with days before if there are some."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days:,} d {hours}:{minutes:02}:{rest:02}" if days else f"{hours}:{minutes:02}:{rest:02}"


GOES_ON = "Interrupted: nobody watches any more, the run goes on. run.watch() watches it again, run.stop() stops it."

SLICE = 0.1
"""The longest time in seconds after which an interrupt is noticed."""


class Interrupt:
    """An interrupt that has come, or not yet: Ctrl-C, or a notebook's."""

    came = False

    def wait(self, seconds: float) -> bool:
        """Wait for some seconds, or until an interrupt has come; return True if one has."""
        end = time.monotonic() + seconds
        while not self.came and (left := end - time.monotonic()) > 0:
            # a sleep goes on after a signal, so it must be short
            time.sleep(min(left, SLICE))
        return self.came


@contextmanager
def noted_interrupt(*signals: signal.Signals) -> Iterator[Interrupt]:
    """Note an interrupt in this context, or one of ``signals``, instead of ending the program; a second one ends it.

    So it does not cut off a call to Spark, whose own handler would cancel the jobs of the query. Interrupts reach the main thread
    only, so in another thread there are none.
    """
    interrupt = Interrupt()

    def handle(number: int, frame: FrameType | None) -> None:
        interrupt.came = True
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.signal(number, handle) for number in signals or (signal.SIGINT,)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class NewestRows:
    """The newest rows of a run's sinks, which are read again only when a micro-batch has brought results."""

    spark: SparkSession
    options: RunOptions
    number: int | None = None
    rows: list[Sequence[Row] | None] = field(default_factory=list)

    def read(self, history: RunHistory) -> list[Sequence[Row] | None]:
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
            trail = trail.with_look(now)
            screen.show(run_view(now, trail))
            if now.why.state != RunState.RUNNING:
                return
            if wait():
                screen.show(run_view(now, trail, GOES_ON))
                return
    finally:
        screen.close()
