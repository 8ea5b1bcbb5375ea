"""Runs that publish and read are killed while others read: each row is there once, and so are the CTIs and the end."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t
from streamq.testing.history import assert_same_history
from tests.spark.test_kill import SCHEMA, land, started, stays

SCRIPT = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from tests.conftest import INTERPRETED, WARM_WORKERS
from tests.spark.test_killed_composition import publish, read_on, until_killed

builder = SparkSession.builder.master("local[2]")
own_settings = {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"}
for key, value in (own_settings | INTERPRETED | WARM_WORKERS).items():
    builder = builder.config(key, value)
spark, (folder, point, number) = builder.getOrCreate(), sys.argv[1:]
until_killed(folder, point, int(number))
published = publish(spark, folder)
reader = read_on(folder, "killed")
published.await_termination()
"""


def counts(s: sq.Stream) -> sq.Stream:
    return s.group_by("k").hopping_window(12, 4).select(n=sq.count(), most=sq.max("v"))


def publish(spark: SparkSession, folder: object) -> sq.Run:
    query = counts(stays(spark, folder))
    results = [sq.result(query, name=name, store=f"{folder}/queries") for name in ("one", "two")]
    return sq.run_all(results, checkpoint=f"{folder}/cp", buckets=2)


def read_on(folder: object, name: str) -> sq.Run:
    """A stream that has the rows of a publication, and windows over them."""
    one = sq.subscribe("one", store=f"{folder}/queries", at_once=1)
    results = [
        sq.result(one, sink=f"{folder}/{name} rows"),
        sq.result(one.tumbling_window(20).select(n=sq.sum("n")), sink=f"{folder}/{name} sums"),
    ]
    return sq.run_all(results, checkpoint=f"{folder}/cp {name}", buckets=2)


def until_killed(folder: str, point: str, number: int) -> None:
    """Have this job killed before or after a publication has a micro-batch with this number, or a later one.

    The one that reads has then committed one more than before.
    """
    from streamq.run.publication_sink import PublicationSink

    note, seen = PublicationSink._note, commits(folder)

    def armed(sink: PublicationSink, micro_batch: int, noted: object) -> None:
        is_due = micro_batch >= number and sink.publication.name == "one"
        if is_due:
            while commits(folder) <= seen:
                time.sleep(0.05)
        if not (is_due and point == "before"):
            note(sink, micro_batch, noted)  # type: ignore[arg-type]
        if is_due:
            os.killpg(os.getpgid(0), signal.SIGKILL)

    PublicationSink._note = armed  # type: ignore[method-assign]


def commits(folder: str) -> int:
    return len([p for p in Path(folder, "cp killed", "commits").glob("*") if p.name.isdigit()])


def test_killed_before_and_after_a_micro_batch_is_published(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """A stream here reads on all the while; then all go on to the end."""
    everything = land(tmp_path / "in", random.Random(5))
    script, log = tmp_path / "job.py", tmp_path / "log"
    script.write_text(SCRIPT)
    reader = None
    for point, number in (("before", 1), ("after", 2)):
        job = started(script, log, str(tmp_path), point, str(number))
        assert job.wait(300) == -signal.SIGKILL, log.read_text()[-3000:]
        noted = [p for p in (tmp_path / "queries" / "one" / "_spark_metadata").glob("*") if p.name.isdigit()]
        assert len(noted) == (number if point == "before" else number + 1)
        if reader is None:
            reader = read_on(tmp_path, "living")
        reader.process_all_available()
    assert reader is not None
    with publish(spark, tmp_path) as run:
        run.process_all_available()
        run.finish()
    answer = counts(sq.intervals(t.table(SCHEMA, everything), start="start", end="end"))
    expected = {"rows": answer.to_arrow(), "sums": answer.tumbling_window(20).select(n=sq.sum("n")).to_arrow()}
    assert expected["rows"].num_rows > 20
    for name in ("one", "two"):
        published = sq.subscribe(name, store=str(tmp_path / "queries"))
        assert_same_history(published.to_arrow(), expected["rows"])
        assert_same_history(published.to_df().toArrow(), expected["rows"])
        changelog = spark.read.parquet(str(tmp_path / "queries" / name)).orderBy("streamq_batch").toArrow().to_pylist()
        t.check_stream(changelog, batch="streamq_batch", ctis=True)
        assert [row["kind"] for row in changelog].count("end") == 1
    for name, stream in (("living", reader), ("killed", read_on(tmp_path, "killed"))):
        with stream:
            stream.process_all_available()
            assert stream.metrics["sources"]["one"]["ended"]
        for what, rows in expected.items():
            written = spark.read.parquet(str(tmp_path / f"{name} {what}")).drop("streamq_batch")
            assert_same_history(written.toArrow(), rows)
