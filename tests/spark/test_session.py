"""Sessions for real: the one of this run, and foreign ones and Spark Connect in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pyspark
import pytest

from streamq.errors import SessionError
from streamq.session import REQUIRED, active_session, doctor, master_of, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def in_own_process(code: str) -> list[str]:
    """The lines that a program prints, in a Python without this run's Spark."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_settings(spark: SparkSession) -> None:
    for key, value in REQUIRED.items():
        assert spark.conf.get(key) == value
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.memory") == "3g"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.pyspark.python") == sys.executable


def test_workers_are_this_interpreter(spark: SparkSession) -> None:
    """And import the PySpark that is installed for it, not the archive of its sources."""

    def where(batches):  # type: ignore[no-untyped-def]
        import pyarrow as pa
        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable], "pyspark": [pyspark.__file__]})

    frame = spark.range(1).mapInArrow(where, "python string, pyspark string")
    assert frame.collect() == [(sys.executable, pyspark.__file__)]


def test_a_second_call_returns_the_active_session(spark: SparkSession) -> None:
    assert active_session() is spark
    assert session("other name") is spark
    assert session(master="local[2]", config={"spark.driver.memory": "3g"}) is spark
    assert master_of(spark) == "local[2]"
    assert [f.subject for f in doctor().findings] == ["driver", "Java", "worker"]


def test_a_second_call_changes_what_can_be_changed(spark: SparkSession) -> None:
    key = "spark.sql.streaming.numRecentProgressUpdates"
    before = spark.conf.get(key)
    session(config={key: 7})
    assert spark.conf.get(key) == "7"
    spark.conf.set(key, before)


def test_a_second_call_says_what_cannot_be_changed(spark: SparkSession) -> None:
    with pytest.raises(
        SessionError, match=r"another session is active; its master is local\[2\], not local\[8\]\. Stop"
    ):
        session(master="local[8]")
    with pytest.raises(SessionError, match="cannot be changed so; it has spark.driver.memory = 3g, not 9g. Stop"):
        session(config={"spark.driver.memory": "9g"})


def test_a_foreign_session_with_a_worker_that_lacks_packages(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bare")
    lines = in_own_process(f"""
        import os, venv
        venv.create({str(folder)!r}, with_pip=False, symlinks=True)
        os.environ["PYSPARK_PYTHON"] = {str(folder / "bin" / "python")!r}
        from pyspark.sql import SparkSession
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        from streamq.errors import SessionError
        from streamq.session import session
        try:
            session()
        except SessionError as error:
            print(error)
    """)
    assert lines[0] == "session: 3 things are not as they must be."
    assert [line[:29] for line in lines[1:]] == [
        "  - the worker has no pandas;", "  - the worker has no pyarrow", "  - the worker has no protobu",
    ]  # fmt: skip


def test_connect() -> None:
    """A Connect server inside one process, our session on it from another: settings arrive, a worker runs."""
    lines = in_own_process("""
        import socket, subprocess, sys
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        from streamq.session import session
        server = session(master="local[1]", config={
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.port": port,
        })
        client = '''
        import sys
        from streamq.session import active_session, doctor, master_of, session
        url = sys.argv[1]
        spark = session(master=url, config={"spark.sql.shuffle.partitions": 3})
        print(type(spark).__module__, spark.conf.get("spark.sql.shuffle.partitions"))
        print(spark.conf.get("spark.sql.streaming.stateStore.providerClass").rpartition(".")[2])
        print(spark.range(3).mapInArrow(lambda batches: batches, "id long").count())
        print(active_session() is spark, session(master=url) is spark, master_of(spark), doctor().ok)
        '''
        import textwrap
        print(subprocess.run([sys.executable, "-c", textwrap.dedent(client), f"sc://127.0.0.1:{port}"],
                             capture_output=True, text=True, check=True, timeout=120).stdout)
        server.stop()
    """)
    assert lines[:4] == [
        "pyspark.sql.connect.session 3",
        "RocksDBStateStoreProvider",
        "3",
        "True True sc://127.0.0.1 True",
    ]
