"""Progress bars: drawn after two seconds, where somebody looks, with what has been done."""

from __future__ import annotations

import io
import sys

import pytest

from streamq import screens
from streamq import testing as t
from streamq.screens import ProgressBar


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def drawn(steps: list[tuple[float, float | None, str]], *, fails: bool = False) -> str:
    """Return the last line of a bar that shows some steps."""
    stream = Terminal()
    try:
        with ProgressBar("job", stream) as bar:
            for step in steps:
                bar.update(*step)
            if fails:
                raise ValueError("failed")
    except ValueError:
        pass
    return stream.getvalue().rpartition("\r")[2].rstrip()


def test_a_bar_shows_the_share_the_note_and_the_end_of_work_that_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn([(1, 8, "files")]) == "", "no longer than two seconds"
    monkeypatch.setattr(screens, "AFTER", 0)
    steps: list[tuple[float, float | None, str]] = [(15, 17, "a"), (16, 17, "b\x1b[31m")]
    assert drawn(steps).startswith("job: 100%|████████████████████|, b [31m  00:0")
    assert drawn(steps, fails=True).startswith("job: 94%|")
    assert drawn([(0, None, "3 micro-batches")]).startswith("job, 3 micro-batches  00:0")


def test_without_a_terminal_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed, io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        with ProgressBar("job") as bar:
            bar.update(1, 2)
            assert not bar.is_live
    assert isinstance(stream, io.StringIO) and stream.getvalue() == ""


def test_the_work_goes_on_without_a_terminal_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(screens, "AFTER", 0)
    with ProgressBar("job", Gone()) as bar:
        bar.update(1, 4)
        bar.update(2, 4)


def test_verify_tells_its_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[tuple[float, float | None, str]] = []
    monkeypatch.setattr(ProgressBar, "update", lambda self, *work: notes.append(work))
    t.verify(t.stream("a"), profile="fast", examples=3)
    assert [note for note in notes if note[0] == 2][-1] == (2, 3, "2 of 3 cases")
