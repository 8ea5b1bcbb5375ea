"""The command line where there is nothing to ask: one line, code 2, no traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamq.demo import job
from streamq.demo.__main__ import main
from streamq.errors import QueryFailed


@pytest.mark.parametrize(
    ("begun", "printed", "error"),
    [
        ("", "", "error: event log: no such file or directory; found nothing at {}.\n"),
        (
            json.dumps({"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"}),
            "Tasks: 0 started",
            "error: demo: a log without tasks; {} has none. Spark writes the log in portions: try again later.\n",
        ),
    ],
)
def test_what_is_no_log_or_has_no_tasks_ends_with_one_line(
    begun: str, printed: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "app-1.inprogress"
    if begun:
        path.write_text(f"{begun}\n")
    assert main([str(path)]) == 2
    out, err = capsys.readouterr()
    assert printed in out and bool(printed) == bool(out)
    assert err == error.format(path)


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
