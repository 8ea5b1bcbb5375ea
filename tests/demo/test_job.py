"""The job's process: what is said when it fails (that it works is tested where Spark is)."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamq.demo import job
from streamq.errors import QueryFailed


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
