"""``python -m streamq``: its commands over checkpoints that runs, here rehearsed ones, have written into; without Spark."""

from __future__ import annotations

import datetime as dt
import inspect
import json
import os
import re
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import streamq as sq
from streamq.choices import Request, RunState
from streamq.errors import PlanError
from streamq.run.commands import load_query, main
from streamq.run.rehearsal import Rehearsal
from streamq.run.running import refuse_second_run
from streamq.run.status.attendant import Attendant
from streamq.run.status.run_status import RunStatus
from streamq.run.status.status_folder import LOST_AFTER, RunRecord, StatusFolder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint with the mark of a query, as Spark writes it."""
    (tmp_path / "runs" / "cars" / "streamq" / "identity").mkdir(parents=True)
    return tmp_path / "runs" / "cars"


def folder_of(checkpoint: Path) -> StatusFolder:
    return StatusFolder.from_path(str(checkpoint), "test")


class RehearsedRun:
    """A run that an attendant looks at: that of a rehearsal, which tests stop, and whose micro-batches they make."""

    def __init__(self) -> None:
        cars = sq.events([(1, 4, {"v": 1}), (12, 15, {"v": 2})], name="cars", progress=sq.generate(2))
        self.rehearsal = Rehearsal(cars.tumbling_window(10).select(n=sq.count()))
        self.state, self.looked = RunState.RUNNING, threading.Event()

    def number(self) -> tuple[int, RunState]:
        self.looked.set()
        return self.rehearsal.history.number, self.state

    def status(self) -> RunStatus:
        return replace(
            self.rehearsal.status, state=self.state, reason="" if self.state == "running" else "it was told so"
        )

    def attended(self, checkpoint: Path, **obey: Any) -> Attendant:
        requests = {Request(name): act for name, act in obey.items()}
        return Attendant(folder_of(checkpoint), "counts", self.number, self.status, requests, every=0.01)

    def await_look(self) -> None:
        """Wait until the attendant has looked once from now on, and has written what it saw."""
        for _ in range(2):
            self.looked.clear()
            assert self.looked.wait(20)


def test_a_run_writes_how_it_stands(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RehearsedRun()
    attendant = run.attended(checkpoint)
    assert main(["ps", str(checkpoint.parent)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [str(checkpoint), "counts", "running"]
    run.rehearsal.arrive()
    run.await_look()
    assert main(["ps", str(checkpoint.parent.parent)]) == 0
    line = capsys.readouterr().out.splitlines()[1].split()
    assert line == [str(checkpoint), "counts", "running", "1", "2", "1", "cars", "at", "10"]
    assert main(["why", str(checkpoint)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == run.rehearsal.why().summary
    assert main(["why", str(checkpoint), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "flowing"
    assert main(["metrics", str(checkpoint)]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert (
        metrics["sources"] == json.loads(json.dumps(run.rehearsal.metrics["sources"])) and metrics["state"] == "running"
    )
    run.state = RunState.FAILED
    attendant.close()
    main(["ps", str(checkpoint.parent)])
    assert " failed " in capsys.readouterr().out


def test_a_request_is_obeyed_once_and_the_command_waits_for_it(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, calls = RehearsedRun(), []

    def stop() -> None:
        calls.append("stop")
        run.state = RunState.STOPPED
        attendant.close()

    attendant = run.attended(checkpoint, stop=stop)
    assert main(["stop", str(checkpoint)]) == 0
    assert capsys.readouterr().out == "counts: stopped, it was told so\n"
    attendant.close()
    assert calls == ["stop"] and folder_of(checkpoint).take_request() is None
    assert main(["finish", str(checkpoint)]) == 2
    expected = f"finish: no run is on the checkpoint {checkpoint}; stopped: it was told so.\n"
    assert capsys.readouterr().err == expected


def test_a_request_that_a_run_does_not_get_to_is_told(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder_of(checkpoint).write(RunRecord(name="counts", state=RunState.RUNNING))
    assert main(["stop", str(checkpoint), "--timeout", "0.1"]) == 1
    assert capsys.readouterr().err == "stop: the run still goes on after 0.1 seconds\n"
    # and the next run does not obey it
    run = RehearsedRun()
    attendant = run.attended(checkpoint, stop=lambda: pytest.fail("a request of before"))
    run.await_look()
    attendant.close()


def test_a_request_that_fails_ends_no_attendant(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    run = RehearsedRun()

    def finish() -> None:
        raise PlanError("finish", "not today")

    attendant = run.attended(checkpoint, finish=finish)
    folder_of(checkpoint).send(Request.FINISH)
    run.await_look()
    assert "not today" in caplog.text
    run.rehearsal.arrive()
    run.await_look()
    attendant.close()
    record = folder_of(checkpoint).record()
    assert record is not None and record.metrics["query"]["batches"] == 1


def test_what_an_earlier_run_has_written_stands_until_the_next_one_has_looked(checkpoint: Path) -> None:
    before = RunRecord(name="counts", state=RunState.STOPPED, metrics={"query": {"batches": 7}}, text="Rows come out.")
    folder_of(checkpoint).write(before)
    run = RehearsedRun()
    attendant = run.attended(checkpoint)
    record = folder_of(checkpoint).record()
    assert record is not None
    assert (record.state, record.metrics, record.text) == ("running", before.metrics, before.text)
    attendant.close()


def test_a_run_whose_process_is_not_heard_of_is_lost(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silent = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=LOST_AFTER + 10)
    record = RunRecord(
        name="counts", state=RunState.RUNNING, at=silent.isoformat(), computer="h1", pid=7, text="Rows come out."
    )
    folder_of(checkpoint).write(record)
    assert main(["why", str(checkpoint)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "counts: lost, nothing has been heard of process 7 on h1 for 70 seconds" and second == record.text
    assert main(["stop", str(checkpoint)]) == 2
    folder_of(checkpoint).write(replace(record, state=RunState.STOPPED))
    main(["ps", str(checkpoint)])
    assert " stopped" in capsys.readouterr().out


def test_a_run_of_another_process_is_no_place_for_a_second_one(checkpoint: Path) -> None:
    """Of a process that is there; one that has been killed leaves the checkpoint to others."""
    refuse_second_run(str(checkpoint))
    own = RunRecord(name="counts", state=RunState.RUNNING, computer=socket.gethostname(), pid=os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        for record in (
            own,
            replace(own, pid=other.pid, state=RunState.STOPPED),
            replace(own, computer="h1", pid=other.pid),
        ):
            folder_of(checkpoint).write(record)
            refuse_second_run(str(checkpoint))
        folder_of(checkpoint).write(replace(own, pid=other.pid))
        with pytest.raises(
            PlanError, match=f"run: another run is on this checkpoint; counts, process {other.pid}, is on"
        ):
            refuse_second_run(str(checkpoint))
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        if sys.platform == "linux":
            # a zombie, which its parent has not reaped
            refuse_second_run(str(checkpoint))
        other.wait()
        refuse_second_run(str(checkpoint))


def test_a_checkpoint_that_is_gone_is_not_made_again(checkpoint: Path) -> None:
    run = RehearsedRun()
    attendant = run.attended(checkpoint)
    (checkpoint / "streamq" / "status.json").unlink()
    (checkpoint / "streamq" / "identity").rmdir()
    (checkpoint / "streamq").rmdir()
    attendant.close()
    assert list(checkpoint.iterdir()) == []


def test_a_disk_that_is_full_stops_no_run(checkpoint: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = RehearsedRun()
    attendant = run.attended(checkpoint)
    # nothing can be written under that name
    (checkpoint / "streamq" / "status.json.new").mkdir()
    run.rehearsal.arrive()
    run.await_look()
    attendant.close()
    assert "counts: its status cannot be written: " in caplog.text


def test_ps_goes_into_folders_but_not_into_checkpoints_and_partitions(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for inner in ("cars/state/0", "out/streamq_batch=1", "deep/er", "_hidden", ".dot"):
        (checkpoint.parent / inner / "streamq" / "identity").mkdir(parents=True)
    main(["ps", str(checkpoint.parent)])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split() for line in lines] == [
        [str(checkpoint), "unknown"],
        [f"{checkpoint.parent}/deep/er", "unknown"],
    ]
    main(["ps", str(checkpoint / "nothing")])
    assert capsys.readouterr().out == f"There is no checkpoint in {checkpoint / 'nothing'}.\n"


@pytest.mark.parametrize("command", ["why", "metrics", "stop", "finish"])
def test_a_folder_that_is_no_checkpoint(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(tmp_path)]) == 2
    expected = f"{command}: {tmp_path} is no checkpoint of a run. List those that there are: ps FOLDER.\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["run", "app.py:query"], ["metrics", "x", "--format", "xml"]])
def test_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2 and "usage: python -m streamq" in capsys.readouterr().err


PROGRAM = """
import streamq as sq
from beside_an_app import size

query = sq.events([(1, 4, {"v": 1})], name="cars").tumbling_window(size).select(n=sq.count())

def made():
    return query

def of_arguments(size):
    return query

results = [sq.result(query, sink="out"), sq.result(query)]
number = 3
"""


@pytest.fixture
def an_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program in this folder; what loads it is undone at the end."""
    (tmp_path / "an_app.py").write_text(PROGRAM)
    (tmp_path / "beside_an_app.py").write_text("size = 10")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("an_app", "beside_an_app"):
        # what loads them is undone with what is set here
        monkeypatch.setitem(sys.modules, name, sys)
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("an_app")
def test_a_query_is_loaded_from_a_file_or_a_module(tmp_path: Path) -> None:
    query = load_query(f"{tmp_path}/an_app.py:query")
    assert isinstance(query, sq.Stream) and query.to_arrow().to_pylist() == [{"n": 1, "start": 0, "end": 10}]
    assert load_query("an_app:made") is sys.modules["an_app"].query
    assert load_query("an_app:results") == sys.modules["an_app"].results
    for place, wrong in (
        (
            "an_app.py:number",
            "run: an_app.py:number is no query; found int. Give a stream, or what sq.result returns, or a list of that.",
        ),
        (
            "an_app.py:of_arguments",
            "run: an_app.py:of_arguments takes arguments; missing a required argument: 'size'. Give a function without.",
        ),
        ("an_app.py:querry", "run: an_app.py has no querry. Did you mean 'query'?"),
        ("nothing.py:query", "run: there is no file nothing.py."),
        ("nothing_there:query", "run: there is no module nothing_there; No module named 'nothing_there'."),
        ("an_app.py", "run: not the place of a query; found 'an_app.py'. Write app.py:query."),
    ):
        with pytest.raises(PlanError) as raised:
            load_query(place)
        assert str(raised.value) == wrong


@pytest.mark.usefixtures("an_app")
@pytest.mark.parametrize(
    ("query", "options", "wrong"),
    [
        (
            "results",
            ["--sink", "out"],
            "--sink is not for results; found results at an_app.py:results. Write sq.result",
        ),
        ("results", ["--key", "k"], "--key is not for results; found results at an_app.py:results. Write sq.result"),
        ("query", ["--folder", "out"], "--folder is not for a stream; found a stream at an_app.py:query. Give --sink."),
    ],
)
def test_an_option_that_is_not_the_query_s(
    query: str, options: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", f"an_app.py:{query}", "--checkpoint", "cp", *options]) == 2
    assert capsys.readouterr().err.startswith(f"run: {wrong}")


def test_the_options_are_the_arguments_of_run(capsys: pytest.CaptureFixture[str]) -> None:
    """And of ``run_all``; a command cannot say what is expected, and it always logs."""
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    options = {name.replace("-", "_") for name in re.findall(r"--([a-z-]+)", capsys.readouterr().out)}
    arguments = {*inspect.signature(sq.Stream.run).parameters, *inspect.signature(sq.run_all).parameters}
    assert options == arguments - {"self", "results", "expected", "progress_log"} | {"help", "kafka"}


def test_who_reads_may_have_seen_enough(checkpoint: Path) -> None:
    command = [sys.executable, "-m", "streamq", "ps", str(checkpoint.parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)


def test_looking_at_runs_starts_without_spark(checkpoint: Path) -> None:
    folder_of(checkpoint).write(RunRecord(name="counts", state=RunState.STOPPED, text="Rows come out."))
    code = "import sys; from streamq.run.commands import main; main(sys.argv[1:]); print('pyspark' in sys.modules)"
    command = [sys.executable, "-c", code, "why", str(checkpoint)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert lines == ["Rows come out.", "False"]
