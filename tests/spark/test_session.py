"""Sessions for real: the one of this run, and foreign ones and Spark Connect in processes of their own.

Streams of a session that streamq did not make: ``test_kill.py``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

import pyspark
import pytest

import streamq as sq
from streamq.errors import SessionError
from streamq.run.session.connector_needs import KAFKA
from streamq.run.session.findings import active_session, doctor, master_of
from streamq.run.session.spark_session import REQUIRED, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def in_own_process(code: str) -> list[str]:
    """The lines that a program prints, in a Python without this run's Spark."""
    return ended(code).stdout.splitlines()


def ended(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program that has run in a Python of its own, and has not failed."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


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
    assert [f.subject for f in doctor().findings] == [
        "driver", "Java", "worker", "kafka", "delta", "iceberg", "postgres", "sql"
    ]  # fmt: skip
    (kafka,) = (f for f in doctor().findings if f.subject == "kafka")
    assert " fits, and the session has it; confluent-kafka " in kafka.observed
    assert not replace(KAFKA, name="no_such_format").is_in(spark)


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
        import streamq as sq
        from streamq.errors import SessionError
        query = sq.events([(1, 5, {{"k": "a"}})], name="s").tumbling_window(2).select(n=sq.count())
        folder = {str(folder)!r}
        starts = (
            sq.session,
            lambda: query.run(sink=f"{{folder}}/out", checkpoint=f"{{folder}}/checkpoint"),
            lambda: query.to_stream(control=f"{{folder}}/control"),
        )
        for start in starts:
            try:
                start()
            except SessionError as error:
                print(error)
        print([name for name in ("out", "checkpoint", "control") if os.path.exists(f"{{folder}}/{{name}}")])
    """)
    assert lines[-1] == "[]", "nothing is started"
    for verb, first, last in (("session", 0, 4), ("run", 4, 9), ("to_stream", 9, 14)):
        assert lines[first] == f"{verb}: 3 things are not as they must be."
        assert [line[:29] for line in lines[first + 1 : first + 4]] == [
            "  - the worker has no pandas;", "  - the worker has no pyarrow", "  - the worker has no protobu",
        ]  # fmt: skip
        if verb != "session":
            assert lines[last - 1].startswith(f"Or set PYSPARK_PYTHON to {sys.executable} before Spark starts")


def test_many_tasks_are_warned_of(spark: SparkSession) -> None:
    query = sq.points(spark.readStream.format("rate").load(), "timestamp").tumbling_window("1 day").select(n=sq.count())
    before = spark.conf.get("spark.sql.shuffle.partitions")
    warning = (
        "to_stream: each stage of each micro-batch has 200 tasks; spark.sql.shuffle.partitions is 200, and 2 run at once. "
        'Before the first run on a checkpoint: spark.conf.set("spark.sql.shuffle.partitions", 2).'
    )
    try:
        spark.conf.set("spark.sql.shuffle.partitions", 200)
        with pytest.warns(UserWarning, match=re.escape(warning)) as warned:
            query.to_stream()
        assert [w.filename for w in warned] == [__file__]
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def test_connect(connect_url: str) -> None:
    """Our session on a Connect server from another process: settings arrive, a worker runs, errors are told.

    What a stream gives there: ``test_elsewhere.py``.
    """
    code = """
        import sys, tempfile
        import streamq as sq
        from streamq.errors import StreamqError
        from streamq.run.session.findings import active_session
        from streamq.run.session.findings import doctor
        from streamq.run.session.findings import check_sink_functions
        from streamq.run.session.findings import PackageNeed
        from streamq.run.session.findings import master_of
        from streamq.run.session.spark_session import session
        url = sys.argv[1]
        spark = session(master=url, config={"spark.sql.shuffle.partitions": 3})
        print(type(spark).__module__, spark.conf.get("spark.sql.shuffle.partitions"))
        print(spark.conf.get("spark.sql.streaming.stateStore.providerClass").rpartition(".")[2])
        print(spark.range(3).mapInArrow(lambda batches: batches, "id long").count())
        print(active_session() is spark, session(master=url) is spark, master_of(spark), doctor().ok)
        try:
            check_sink_functions(spark, "run", [PackageNeed("packaging", "packaging"), PackageNeed("none", "no_such_module")])
        except StreamqError as error:
            print(error)
        query = sq.events([(1, 5, {"k": "a"})], name="s").tumbling_window(4).select(n=sq.count())
        with tempfile.TemporaryDirectory() as folder:
            for wrong in ({"checkpoint": "/proc/none"}, {"sink": {"format": "none"}, "checkpoint": f"{folder}/other"}):
                try:
                    query.run(trigger="available_now", **wrong)
                except StreamqError as error:
                    print(error)
    """
    lines = ended(code, connect_url).stdout.splitlines()
    assert lines[:4] == [
        "pyspark.sql.connect.session 3",
        "RocksDBStateStoreProvider",
        "3",
        "True True sc://127.0.0.1 True",
    ]
    assert lines[4].startswith("run: the worker has no none; looked in ")
    assert lines[4].endswith(
        "The server's Python, as a client of its own, calls functions of sinks and writes for late_sink and run_all."
    )
    assert lines[5].startswith("run: Spark cannot read or write /proc/none/streamq/control-literal-s; ")
    assert "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: none" in lines[6]
