"""The command line where there is nothing to ask: one line, code 2, no traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamq.demo import job
from streamq.demo.__main__ import main
from streamq.errors import QueryFailed


def test_what_is_no_log_ends_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nothing")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: event log: no such file or directory; found nothing at ")
    assert printed.err.count("\n") == 1


def test_a_log_without_tasks_ends_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "app-1.inprogress"
    path.write_text(json.dumps({"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"}) + "\n")
    assert main([str(path)]) == 2
    printed = capsys.readouterr()
    assert "Tasks: 0 started" in printed.out
    assert (
        printed.err
        == f"error: demo: a log without tasks; {path} has none. Spark writes the log in portions: try again later.\n"
    )


# The job's process: what is said when it fails (that it works is tested where Spark is).


def python(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo first; echo out of memory >&2; exit 3",
            "ended with code 3; it printed last:\n  first\n  out of memory",
        ),
        ("exit 0", "wrote no event log; it printed nothing"),
        ("exec sleep 30", "did not end in time; it printed nothing"),
    ],
)
def test_a_job_that_fails_says_how(script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job.sys, "executable", python(tmp_path, script))
    with pytest.raises(QueryFailed) as raised:
        job.run_job(tmp_path / "job", timeout=1)
    assert message in str(raised.value)


def test_a_job_returns_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(job.sys, "executable", python(tmp_path, 'sleep 0.3; mkdir "$3/eventlog_v2_app-1"'))
    assert job.run_job(tmp_path / "job", each=lambda: called.append(1)).name == "eventlog_v2_app-1"
    assert called
