"""Progress bars: drawn after two seconds, where somebody looks, and what they say of a run's backlog."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from streamq import testing as t
from streamq.run import backlog as backlogs
from streamq.run.backlog import Backlog
from streamq.run.status.history import MicroBatch, RunHistory
from streamq.screens import ProgressBar, Screen, TerminalScreen
from tests.test_watching import RecordingScreen


def drawn_by(screen: RecordingScreen | None, seconds: list[float], work: Callable[[ProgressBar], Any]) -> list[str]:
    """The lines that a bar draws while it does work, at the given times: first that of its beginning."""
    times = iter(seconds)
    with ProgressBar("job", screen=lambda: screen, clock=lambda: next(times)) as bar:
        work(bar)
    return [view.line for view in screen.views] if screen else []


def test_a_bar_is_drawn_after_two_seconds_ten_times_a_second_and_at_the_end() -> None:
    def work(bar: ProgressBar) -> None:
        for done in (1, 2, 3, 4, 9):
            bar.update(done, 8, "files")

    screen = RecordingScreen()
    lines = drawn_by(screen, [5.0, 6.9, 7.0, 7.05, 8.0, 8.01], work)
    assert lines == ["job: 25%  files  2 s", "job: 50%  files  3 s", "job: 100%  files  3 s"] and screen.closed == 1
    assert drawn_by(RecordingScreen(), [0, 0.1, 0.2, 0.3, 1.0, 1.9], work) == [], "no longer than two seconds"
    assert drawn_by(None, [0], work) == [], "nobody looks"
    assert drawn_by(RecordingScreen(), [0, 3], lambda bar: bar.update(1, None)) == ["job: 3 s"]


def test_a_bar_is_left_at_the_end_of_the_work_unless_that_failed() -> None:
    last = drawn_by(RecordingScreen(), [0, 3, 4], lambda bar: [bar.update(done, 17) for done in (15, 16)])[-1]
    assert last == "job: 100%  4 s", "a loop shows the work before each step"
    failed = RecordingScreen()

    def fail(bar: ProgressBar) -> None:
        bar.update(16, 17)
        raise ValueError

    with pytest.raises(ValueError):
        drawn_by(failed, [0, 3], fail)
    assert [view.line for view in failed.views] == ["job: 94%  3 s"]


def test_of_two_bars_the_inner_one_is_silent_and_an_error_closes_both() -> None:
    outer, inner = RecordingScreen(), RecordingScreen()

    def work(bar: ProgressBar) -> None:
        drawn_by(inner, [0, 9], lambda within: within.update(1, 2))
        bar.update(1, 2)
        raise ValueError

    with pytest.raises(ValueError):
        drawn_by(outer, [0, 9], work)
    assert (len(outer.views), outer.closed, inner.views) == (1, 1, [])
    assert len(drawn_by(inner, [0, 9], lambda bar: bar.update(2, 2))) == 1


def test_without_a_stream_there_is_no_bar_and_the_next_one_can_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        with ProgressBar("job") as bar:
            assert not bar.is_live

    def no_place() -> Screen:
        raise RuntimeError("no display")

    with pytest.raises(RuntimeError), ProgressBar("job", no_place):
        pass
    broken = RecordingScreen()
    monkeypatch.setattr(broken, "close", no_place)
    with pytest.raises(RuntimeError):
        drawn_by(broken, [0], lambda bar: None)
    assert len(drawn_by(RecordingScreen(), [0, 9], lambda bar: bar.update(2, 2))) == 1


@pytest.mark.parametrize("call", ["show", "close"])
def test_the_work_goes_on_without_a_terminal_that_has_gone(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def gone(*_: Any) -> None:
        raise BrokenPipeError

    screen = RecordingScreen()
    monkeypatch.setattr(screen, call, gone)
    drawn_by(screen, [0, 9, 9.5], lambda bar: [bar.update(done, 4) for done in (1, 2)])
    assert len(drawn_by(RecordingScreen(), [0, 9], lambda bar: bar.update(2, 2))) == 1


def test_a_terminal_that_has_gone_gives_the_programs_output_back() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    before = sys.stdout
    for stream in (Gone(), closed_while_open()):
        screen = TerminalScreen(Console(file=stream, force_terminal=True))
        with ProgressBar("job", repeat(screen).__next__, iter((0, 9)).__next__) as bar:
            bar.update(1, 4)
            assert sys.stdout is before and not bar.is_live


def closed_while_open() -> io.StringIO:
    """A stream that is closed after the bar has got it."""
    stream = io.StringIO()
    stream.close()
    return stream


def test_a_terminal_draws_the_bar_in_place() -> None:
    stream, times = io.StringIO(), iter([0, 3, 4])
    screen = TerminalScreen(Console(file=stream, width=80, force_terminal=True, color_system=None))
    with ProgressBar("job", lambda: screen, lambda: next(times)) as bar:
        bar.update(1, 4, "a")
        bar.update(2, 4, "b\x1b[31m")
    text = stream.getvalue()
    assert text.count("\n") == 1 and "25%  a" in text and "50%  b [31m" in text


def test_verify_tells_its_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[tuple[float, float | None, str]] = []
    monkeypatch.setattr(ProgressBar, "update", lambda self, *work: notes.append(work))
    t.verify(t.stream("a"), profile="fast", examples=3)
    assert [note for note in notes if note[0] == 2][-1] == (2, 3, "2 of 3 cases")


def test_the_backlog_counts_files_and_bytes_of_the_folders_that_a_run_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark describes a source by its path as it is, while its log of files has URLs."""
    checkpoint, folder = tmp_path / "checkpoint #1", tmp_path / "data in #50%41"
    for inner in ("day=1", "out"):
        (folder / inner).mkdir(parents=True)
    names = ["day=1/a.json", "b.json", "c.json", "d.json"]
    for size, name in enumerate([*names, "other.txt", "_hidden.json", "out/rows.json"], start=1):
        (folder / name).write_bytes(b"x" * size * 1_000_000)

    def log(number: str, **positions: int) -> None:
        path = checkpoint / "sources" / "1" / number
        path.parent.mkdir(parents=True, exist_ok=True)
        entries = [{"path": (folder / name).as_uri(), "batchId": n} for name, n in positions.items()]
        path.write_text("\n".join(["v1", *map(json.dumps, entries)]))

    def report(number: int, start: int | None, end: int) -> MicroBatch:
        offsets = {"startOffset": None if start is None else {"logOffset": start}, "endOffset": {"logOffset": end}}
        control = {"description": f"FileStreamSource[file:{checkpoint}/streamq/control]", **offsets}
        source = {"description": f"FileStreamSource[file:{folder}]", **offsets}
        return MicroBatch(number=number, rows=10, spark={"sources": [control, source]})

    backlog, history = Backlog(str(checkpoint)), RunHistory()
    assert backlog.work(history) == (0, None, "first micro-batch")
    log("7", **{"day=1/a.json": 7})
    log("8", **{"b.json": 8})
    counts = []
    for number in (8, 10):
        if number == 10:
            log("9.compact", **{"day=1/a.json": 7, "b.json": 8, "c.json": 9})
            log("10", **{"d.json": 10})
        history = history.with_micro_batch(report(number, number - 1, number))
        counts.append(backlog.work(history))
    assert counts[0] == (2_000_000, 9_000_000, "1 of 3 files, 2.0 of 9.0 MB, 10 rows")
    assert counts[1][:2] == (9_000_000, 9_000_000) and counts[1][2].startswith("3 of 3 files")
    later = Backlog(str(checkpoint)).work(RunHistory().with_micro_batch(report(10, 9, 10)))
    assert later[:2] == (4_000_000, 4_000_000), "those of earlier runs are no backlog"
    elsewhere = Backlog("s3://bucket/checkpoint").work(history)
    rows_only = (0, None, "20 rows, 11 micro-batches")
    assert elsewhere == rows_only
    with monkeypatch.context() as patched:
        patched.setattr(backlogs, "data_files", lambda path: [path / "deleted.json"])
        assert Backlog(str(checkpoint)).work(history) == rows_only, "a file has been deleted during the scan"
    (checkpoint / "sources" / "1" / "10").write_text('v1\n{"path":"fi')
    assert Backlog(str(checkpoint)).work(history) == rows_only, "the log is damaged"
