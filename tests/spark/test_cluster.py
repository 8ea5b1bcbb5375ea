"""The page "From laptop to cluster": its programs and its commands, on a standalone master and two workers of this computer.

The workers' Python, and that of the Spark Connect server, has pandas, PyArrow and protobuf, and neither streamq nor grpcio.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas
import pyarrow.parquet as pq
import pyspark
import pytest

import streamq
from scripts.broker import free_port

ROOT = Path(streamq.__file__).parents[1]
PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
PROGRAM, BESIDE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"```sh\n(.*?)\n```", PAGE, re.DOTALL)
SPARK = Path(pyspark.__file__).parent

NEEDED = re.compile(r"(pandas|numpy|pyarrow|google|dateutil|pytz|tzdata|six\.py|protobuf|python_dateutil)([.-].*)?")
"""What the workers' Python has, by the names in its folder of packages."""

ROWS = [("12:00", "a", 10.0), ("12:40", "a", 30.0), ("12:50", "b", 5.0), ("14:00", "a", 1.0)]
ANSWER = [("a", 1, 0.0), ("a", 2, 18.0), ("b", 1, 0.0)]


def bare_python(folder: Path) -> str:
    """An interpreter with the packages that workers need, and no others."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for one in Path(pandas.__file__).parents[1].iterdir():
        if NEEDED.fullmatch(one.name):
            (packages / one.name).symlink_to(one)
    return str(folder / "bin" / "python")


@contextmanager
def server(command: list[str], log: Path, port: int, env: dict[str, str]) -> Iterator[None]:
    """A process that answers on a port of this computer, until the end of the block."""
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdout=file, stderr=file, env=env, cwd=log.parent) as process,
    ):
        try:
            until = time.monotonic() + 120
            while time.monotonic() < until and process.poll() is None:
                with socket.socket() as s:
                    if s.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            else:
                raise AssertionError(log.read_text()[-3000:])
            yield
        finally:
            process.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def env(folder: Path) -> dict[str, str]:
    """The environment of the programs, in which workers have the bare interpreter."""
    names = ("SPARK_REMOTE", "SPARK_CONF_DIR")
    own = {name: value for name, value in os.environ.items() if name not in names}
    return own | {
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PATH": f"{SPARK / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": bare_python(folder / "venv"),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@pytest.fixture(scope="module")
def master(folder: Path, env: dict[str, str]) -> Iterator[str]:
    """The address of a standalone master with two workers of a core each, which cannot see streamq."""
    port, ports = free_port(), [free_port(), free_port()]
    spark, at = str(SPARK / "bin" / "spark-class"), ["--host", "127.0.0.1", "--webui-port", "0"]
    of_workers = {name: value for name, value in env.items() if name != "PYTHONPATH"}
    with ExitStack() as stack:
        command = [spark, "org.apache.spark.deploy.master.Master", *at, "--port", str(port)]
        stack.enter_context(server(command, folder / "master.log", port, of_workers))
        for number, own in enumerate(ports):
            command = [spark, "org.apache.spark.deploy.worker.Worker", *at, "--port", str(own), "-c", "1", "-m", "1g"]
            command += ["-d", str(folder / f"work{number}"), f"spark://127.0.0.1:{port}"]
            stack.enter_context(server(command, folder / f"worker{number}.log", own, of_workers))
        yield f"spark://127.0.0.1:{port}"


def check_answer(command: str, shared: Path, env: dict[str, str]) -> None:
    """Run a command of the page in a folder with its programs; the sink must then have the answer."""
    (shared / "trips").mkdir(parents=True)
    rows = ({"at": f"2024-05-01T{at}:00Z", "zone": zone, "fare": fare} for at, zone, fare in ROWS)
    (shared / "trips" / "a.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (shared / "app.py").write_text(PROGRAM)
    (shared / "fares.py").write_text(BESIDE)
    words = shlex.split(command)
    own = dict(word.split("=", 1) for word in words if re.fullmatch(r"[A-Z_]+=.*", word))
    words = [
        str(shared) if word in ("shared", "/shared") else word for word in words if word.partition("=")[0] not in own
    ]
    done = subprocess.run(words, cwd=shared, env=env | own, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-6000:]
    written = [row for file in (shared / "by_zone").rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert sorted((row["zone"], row["n"], round(row["spread"], 6)) for row in written) == ANSWER


def test_the_page_has_three_commands() -> None:
    assert [shlex.split(command)[-2:] for command in COMMANDS] == [
        ["app.py", "shared"],
        ["app.py", "/shared"],
        ["app.py", "/shared"],
    ]


def test_by_spark_submit(folder: Path, env: dict[str, str], master: str) -> None:
    check_answer(COMMANDS[1].replace("spark://host:7077", master), folder / "submitted", env)


def test_through_spark_connect(folder: Path, env: dict[str, str], master: str) -> None:
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    command = [
        str(SPARK / "bin" / "spark-submit"),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
    ]
    command += [
        "--master",
        master,
        *(word for k, v in settings.items() for word in ("--conf", f"{k}={v}")),
        "spark-internal",
    ]
    of_server = {
        name: value
        for name, value in env.items()
        if name not in ("PYTHONPATH", "PYSPARK_DRIVER_PYTHON", "SPARK_DAEMON_MEMORY")
    }
    with server(command, folder / "connect.log", port, of_server):
        check_answer(COMMANDS[2].replace("host:15002", f"127.0.0.1:{port}"), folder / "connected", env)


def test_on_a_laptop(folder: Path, env: dict[str, str]) -> None:
    check_answer(COMMANDS[0], folder / "shared", {n: v for n, v in env.items() if n != "SPARK_HOME"})
