"""The command line where there is nothing to ask: one line, code 2, no traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamq.demo.__main__ import _folder, main
from streamq.errors import SourceError


def test_what_is_no_log_ends_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--event-log", str(tmp_path / "nothing")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: event log: no such file or directory; found nothing at ")
    assert printed.err.count("\n") == 1


def test_a_log_without_tasks_ends_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "app-1.inprogress"
    path.write_text(json.dumps({"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"}) + "\n")
    assert main(["--event-log", str(path)]) == 2
    printed = capsys.readouterr()
    assert "Tasks: 0 started" in printed.out
    assert (
        printed.err
        == f"error: demo: a log without tasks; {path} has none. Spark writes the log in portions: try again later.\n"
    )


@pytest.mark.parametrize("given", [["--batches", "0"], ["--size", "1 second"], ["--batches", "x"]])
def test_arguments_that_make_no_sense_are_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(given)
    assert raised.value.code == 2


def test_only_an_error_of_the_folder_itself_is_told_as_one(tmp_path: Path) -> None:
    """An output whose reader has ended is none, also where the folder stays."""
    with pytest.raises(BrokenPipeError), _folder(tmp_path / "kept"):
        raise BrokenPipeError
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="cannot write to .*file"), _folder(tmp_path / "file"):
        raise AssertionError
