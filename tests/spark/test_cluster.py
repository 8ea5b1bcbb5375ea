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
import textwrap
import time
import venv
from collections.abc import Iterator, Mapping
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


SHOP = {
    "shop/__init__.py": "",
    "shop/rates.py": """
        from shop.tables import EURO

        def converted(amount):
            return amount * EURO
    """,
    "shop/tables.py": "EURO = 0.5",
    "shop/modules.py": """
        import streamq as sq

        from . import rates
        from .tables import EURO

        @sq.udf("double")
        def in_euros(amount):
            return rates.converted(amount)

        @sq.uda("double")
        class Spread:
            def initial(self):
                return EURO * 0, float("inf")

            def add(self, state, amounts):
                return max(state[0], amounts.max()), min(state[1], amounts.min())

            def merge(self, a, b):
                return max(a[0], b[0]), min(a[1], b[1])

            def result(self, state):
                return rates.converted(state[0] - state[1])

        @sq.udo("n bigint, total double")
        def summed(amounts):
            return [(len(amounts), rates.converted(amounts.sum()))]
    """,
}
"""A package of several modules, some of which are streamq's; it is installed where the program starts, and nowhere else."""

TARIFF = {"tariff/__init__.py": "", "tariff/fees.py": "FEE = 1.0\n\ndef fee(amount):\n    return amount + FEE\n"}
"""A package of plain functions, which is installed in place there, as ``pip install -e`` does."""

USES = """
import sys

import streamq as sq
from rounding import to_tens
from shop import modules
from shop.modules import Spread, summed
from tariff import fees

@sq.udf("double")
def dearer(amount):
    return to_tens(fees.fee(amount))

@sq.uda("double")
class Greatest:
    def initial(self):
        return fees.fee(0.0)

    def add(self, state, amounts):
        return max(state, fees.fee(amounts.max()))

    def merge(self, a, b):
        return max(a, b)

    def result(self, state):
        return to_tens(state)

@sq.udo("least double")
def least(amounts):
    return [(fees.fee(amounts.min()),)]

def query(folder):
    sales = sq.points(sq.files(f"{folder}/in", format="json", schema="at bigint, amount double"), time="at", name="sales")
    dear = sales.with_columns(cents=dearer("amount"), euros=modules.in_euros("amount"))
    windows = dear.tumbling_window(10)
    return [
        windows.select(spread=Spread("amount"), greatest=Greatest("amount"), cents=sq.sum("cents"), euros=sq.sum("euros")),
        windows.select(summed("amount")),
        windows.select(least("amount")),
    ]

if __name__ == "__main__":
    folder = sys.argv[1]
    sq.session()
    queries = query(folder)
    sq.run_all(
        [sq.result(one, sink=f"{folder}/out{n}") for n, one in enumerate(queries)],
        checkpoint=f"{folder}/checkpoint", trigger="available_now", finish=True, buckets=2,
    )
    for n, one in enumerate(queries):
        one.to_df().write.parquet(f"{folder}/batch{n}")
"""


def written_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))


@pytest.fixture(scope="module")
def with_packages(folder: Path, env: dict[str, str]) -> dict[str, str]:
    """The environment of programs whose own Python, and no other, has two packages more."""
    venv.create(folder / "driver", with_pip=False, symlinks=True)
    (packages,) = (folder / "driver").glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join([*others, str(folder / "src")]))
    written_files(packages, SHOP)
    written_files(folder / "src", TARIFF)
    return env | {"PYSPARK_DRIVER_PYTHON": str(folder / "driver" / "bin" / "python")}


def test_modules_in_packages_that_workers_do_not_have(folder: Path, with_packages: dict[str, str], master: str) -> None:
    """Functions, aggregates and operators of an installed package, and of the program, which calls what is beside it."""
    place = folder / "packaged"
    (place / "in").mkdir(parents=True)
    rows = ({"at": at, "amount": amount} for at, amount in [(1, 10.0), (2, 30.0), (12, 6.0)])
    (place / "in" / "a.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    written_files(
        place, {"app.py": USES, "rounding.py": "def to_tens(amount):\n    return round(amount / 10) * 10.0\n"}
    )
    command = ["spark-submit", "--master", master, "--conf", "spark.sql.shuffle.partitions=2", "app.py", str(place)]
    done = subprocess.run(
        command, cwd=place, env=with_packages, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-6000:]
    expected = [
        [(0, 10.0, 30.0, 40.0, 20.0), (10, 0.0, 10.0, 10.0, 3.0)],
        [(0, 2, 20.0), (10, 1, 3.0)],
        [(0, 11.0), (10, 7.0)],
    ]
    columns = [["start", "spread", "greatest", "cents", "euros"], ["start", "n", "total"], ["start", "least"]]
    for n, (names, answer) in enumerate(zip(columns, expected, strict=True)):
        for kind in ("out", "batch"):
            files = (place / f"{kind}{n}").rglob("*.parquet")
            found = [row for file in files for row in pq.read_table(file).select(names).to_pylist()]
            assert sorted(tuple(row.values()) for row in found) == answer, (kind, n)


@pytest.fixture(scope="module")
def connect(folder: Path, env: dict[str, str], master: str) -> Iterator[str]:
    """The address, as the page has it, of a Spark Connect server whose Python has no grpcio."""
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
        yield f"127.0.0.1:{port}"


def test_through_spark_connect(folder: Path, env: dict[str, str], connect: str) -> None:
    check_answer(COMMANDS[2].replace("host:15002", connect), folder / "connected", env)


CALLED_BACK = """
import sys

import streamq as sq

folder = sys.argv[1]
sq.session()
trips = sq.points(sq.files(f"{folder}/trips", format="json", schema="at timestamp, zone string"), time="at")
where = {"checkpoint": f"{folder}/called", "trigger": "available_now"}
counts = trips.tumbling_window("1 hour").select(n=sq.count())
for starts in (
    lambda: counts.run(sink=lambda rows, number: None, **where),
    lambda: counts.run(sink=f"{folder}/counts", late_sink=f"{folder}/late", **where),
    lambda: sq.run_all([sq.result(counts, sink=f"{folder}/counts")], **where),
):
    try:
        starts()
        print("it has started")
    except sq.StreamqError as error:
        print(error)
"""


def test_functions_that_a_connect_server_cannot_call(folder: Path, env: dict[str, str], connect: str) -> None:
    """They need grpcio where the server is, and Spark would only say, after a minute, that its Python does not answer."""
    place = folder / "called_back"
    (place / "trips").mkdir(parents=True)
    (place / "trips" / "a.json").write_text('{"at": "2024-05-01T12:00:00Z", "zone": "a"}\n')
    (place / "app.py").write_text(CALLED_BACK)
    done = subprocess.run(
        [sys.executable, "app.py", str(place)],
        cwd=place, env=env | {"SPARK_REMOTE": f"sc://{connect}"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "it has started" not in done.stdout
    assert done.stdout.count(f"the worker has no grpcio; looked in {env['PYSPARK_PYTHON']}. Install it: ") == 3, (
        done.stdout
    )
    assert done.stdout.count("The server's Python, as a client of its own, calls functions of sinks and writes") == 3
    assert not (place / "called").exists()


def test_on_a_laptop(folder: Path, env: dict[str, str]) -> None:
    check_answer(COMMANDS[0], folder / "shared", {n: v for n, v in env.items() if n != "SPARK_HOME"})
