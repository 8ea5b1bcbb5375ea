"""``python -m streamq``: a run in a process of its own, which commands here look at and end, and runs in this session."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from scripts.postgres import PostgresServer
from streamq.run.commands import main
from streamq.run.status.status_folder import RunRecord, StatusFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = """
import os
from pathlib import Path

import streamq as sq
from beside_the_app import factor

HERE = str(Path(__file__).parent)

@sq.udf("double")
def multiplied(v):
    return v * factor

@sq.udf("double")
def failing(v):
    raise ValueError("not this one")

schema = "at timestamp, zone string, v double"
cars = sq.points(sq.files(f"{HERE}/in", format="json", schema=schema), time="at", name="cars", progress=sq.generate("1 minute"))

def summed(module):
    return cars.with_columns(w=module(sq.col("v"))).group_by("zone").tumbling_window("10 minutes").select(w=sq.sum("w"))

query, wrong = summed(multiplied), summed(failing)

def results():
    return [
        sq.result(query, name="folder"),
        sq.result(query, sink=sq.merge_into("delta", f"{HERE}/table"), output="upsert"),
        sq.result(query, sink=sq.postgres(os.environ["DSN"], "fares_now"), output="latest"),
    ]
"""

ROWS = [("12:00", "a", 1.0), ("12:05", "a", 2.0), ("12:20", "b", 4.0)]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A folder with a program, a module beside it, and rows."""
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "beside_the_app.py").write_text("factor = 10.0")
    (tmp_path / "in").mkdir()
    rows = ({"at": f"2024-05-01T{at}:00Z", "zone": zone, "v": v} for at, zone, v in ROWS)
    (tmp_path / "in" / "a.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path


@pytest.fixture
def loadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What loads the program in this process is undone at the end."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("app", "beside_the_app"):
        # what loads them is undone with what is set here
        monkeypatch.setitem(sys.modules, name, sys)
        monkeypatch.delitem(sys.modules, name)


def record_when(checkpoint: Path, done: str, process: subprocess.Popen[str] | None = None) -> RunRecord:
    """Wait until the run has written a record with micro-batches."""
    until = time.monotonic() + 120
    while time.monotonic() < until and (process is None or process.poll() is None):
        record = StatusFolder.from_path(str(checkpoint), "test").record()
        if record is not None and record.metrics and record.metrics["query"]["rows"]:
            return record
        time.sleep(0.2)
    raise AssertionError(f"{done}: {process and process.communicate()[0]}")


def written(out: Path) -> list[tuple[str, float]]:
    return sorted((row["zone"], row["w"]) for file in out.rglob("*.parquet") for row in pq.read_table(file).to_pylist())


def test_another_process_runs_and_this_one_looks_and_ends_it(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, out = app / "cp", app / "out"
    command = [sys.executable, "-m", "streamq", "run", "app.py:query", "--checkpoint", "cp", "--sink", "out"]
    settings = {"cwd": app, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([*command, "--name", "fares", "--late-sink", "late"], **settings) as process:  # type: ignore[call-overload]
        record = record_when(checkpoint, "rows", process)
        assert (record.pid, record.state) == (process.pid, "running")
        assert main(["ps", str(app)]) == 0
        line = capsys.readouterr().out.splitlines()[1].split()
        assert line == [str(checkpoint), "fares", "running", "1", "3", "1", "cars", "at", "2024-05-01T12:19:00Z"]
        assert main(["why", str(checkpoint)]) == 0
        assert "waits for a row of cars at or after 2024-05-01 12:31:00" in capsys.readouterr().out
        assert main(["metrics", str(checkpoint)]) == 0
        assert json.loads(capsys.readouterr().out)["sources"]["cars"]["rows"] == 3
        assert main(["metrics", str(app), "--format", "openmetrics"]) == 0
        assert "streamq_batch_duration_seconds{checkpoint=" in capsys.readouterr().out, "Spark's times are there"
        assert main(["finish", str(checkpoint), "--timeout", "120"]) == 0
        assert capsys.readouterr().out == "fares: finished, its stream has ended\n"
        printed = process.communicate(timeout=60)[0]
    assert process.returncode == 0 and "fares: finished" in printed.splitlines(), printed
    assert written(out) == [("a", 30.0), ("b", 40.0)]


@pytest.mark.usefixtures("loadable")
def test_runs_in_this_session(spark: SparkSession, app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A failed query, one that is refused, an instalment, and a SIGTERM; of each the code, and what the checkpoint says."""
    query, wrong = f"{app}/app.py:query", f"{app}/app.py:wrong"
    cp, out, failed = str(app / "cp"), str(app / "out"), str(app / "failed")
    assert main(["run", wrong, "--checkpoint", failed, "--trigger", "available_now"]) == 1
    assert "not this one" in capsys.readouterr().err
    assert main(["run", query, "--checkpoint", cp, "--trigger", "soon"]) == 2
    assert capsys.readouterr().err.startswith("run: not a trigger; found 'soon'.")
    assert main(["run", query, "--checkpoint", cp, "--sink", out, "--trigger", "available_now"]) == 0
    assert capsys.readouterr().out == "query: ended\n"
    main(["ps", str(app)])
    lines = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [[cp, "query", "ended"], [failed, "wrong", "failed"]]
    before = signal.getsignal(signal.SIGTERM)

    def terminate() -> None:
        while signal.getsignal(signal.SIGTERM) is before:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    assert main(["run", query, "--checkpoint", cp, "--sink", out]) == 0
    assert capsys.readouterr().out == "query: stopped\n" and signal.getsignal(signal.SIGTERM) is before
    assert written(app / "out") == [("a", 30.0)]


@pytest.mark.usefixtures("loadable", "spark")
def test_results_with_sinks_of_their_own(
    app: Path, postgres: PostgresServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a folder, a table of Delta's and one of PostgreSQL's; the other commands look at the run, and end it."""
    monkeypatch.setenv("DSN", postgres.dsn())
    place, checkpoint, codes = f"{app}/app.py:results", app / "cp", []

    def look_and_finish() -> None:
        record_when(checkpoint, "rows")
        for command in ("ps", "why", "metrics", "finish"):
            codes.append(main([command, str(app if command == "ps" else checkpoint)]))

    other = threading.Thread(target=look_and_finish, daemon=True)
    other.start()
    assert main(["run", place, "--checkpoint", str(checkpoint), "--folder", str(app / "out"), "--name", "fares"]) == 0
    other.join(30)
    printed = capsys.readouterr().out.splitlines()
    assert codes == [0, 0, 0, 0] and {"fares: finished, its stream has ended", "fares: finished"} <= {*printed}
    assert written(app / "out") == [("a", 30.0), ("b", 40.0)]
    table = DeltaTable(str(app / "table")).to_pyarrow_table().to_pylist()
    assert sorted((row["zone"], row["w"]) for row in table) == [("a", 30.0), ("b", 40.0)]
    assert sorted(postgres.rows("SELECT zone, w FROM fares_now")) == [("a", 30.0), ("b", 40.0)]
    assert main(["run", place, "--checkpoint", str(checkpoint), "--folder", str(app / "out")]) == 2
    assert "the checkpoint's stream has ended" in capsys.readouterr().err
