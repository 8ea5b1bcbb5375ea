"""A topic of a real broker as a source: what a batch and a stream read, what is no row, and progress by partition."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.sql import SparkSession

import streamq as sq
from scripts.broker import Broker
from streamq import testing as t
from streamq.errors import PlanError, SourceError
from streamq.run.commands import main
from streamq.run.kafka_sink import KafkaTransaction
from streamq.testing.history import assert_same_history
from tests.registry_server import registry
from tests.spark import test_tables
from tests.spark.test_kill import ROOT, land, stays
from tests.spark.test_kill import SCHEMA as KILL_SCHEMA

SCHEMA = "at timestamp, k string, v bigint"


def value(second: int, k: str, v: int) -> bytes:
    return json.dumps({"at": f"2024-05-01T00:{second // 60:02}:{second % 60:02}Z", "k": k, "v": v}).encode()


def sums(topic: Any, **arguments: Any) -> sq.Stream:
    trips = sq.points(topic, time="at", name="trips", invalid="drop", **arguments)
    return trips.group_by("k").tumbling_window("10 seconds").select(n=sq.count(), total=sq.sum("v"))


def test_a_topic_in_batch_and_as_a_stream(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """Values that are no rows are set aside with their place and bytes; a partition that is behind loses nothing."""
    kafka.create("trips", 2)
    wrong = [b"{nope", b'{"at": "2024-05-01T00:00:01Z", "v": "3"}', None]
    kafka.send("trips", [value(i, "a", i) for i in range(40)] + wrong, partition=0)
    kafka.send("trips", [value(i, "b", i) for i in range(20)], partition=1)
    topic = sq.kafka(kafka.servers, "trips", schema=SCHEMA, at_once=13)
    query = sums(topic)
    rows = query.to_df().toArrow()
    assert rows.num_rows == 6
    assert sorted(rows.column("total").to_pylist()) == [45, 45, 145, 145, 245, 345]
    again = sq.from_json(query.to_json())
    assert_same_history(again.to_df().toArrow(), rows)
    assert_same_history(again.to_arrow(), rows)
    shown = r"""field v is text, and no bigint.*_partition'?: 0.*_offset'?: 41.*"v": "3"}"""
    some = replace(topic, start=((0, 41), (1, 0)))
    for answer in (lambda: sq.points(some, time="at").to_arrow(), lambda: sq.points(some, time="at").to_df().toArrow()):
        with pytest.raises(Exception, match=shown):
            answer()
    run = query.run(
        sink=str(tmp_path / "out"),
        checkpoint=str(tmp_path / "checkpoint"),
        late_sink=str(tmp_path / "late"),
        trigger="available_now",
        finish=True,
    )
    assert run.progress
    out = spark.read.parquet(str(tmp_path / "out")).drop("streamq_batch").toArrow()
    assert_same_history(out, rows)
    late = spark.read.parquet(str(tmp_path / "late")).toArrow().to_pylist()
    payloads = {row["reason"]: json.loads(row["payload"]) for row in sorted(late, key=lambda row: row["payload"])}
    reasons = ["not one object of JSON", "field v is text, and no bigint"]
    assert sorted(payloads) == sorted([*(f"malformed value: {why}" for why in reasons), "null start"])
    by_place = sorted(payloads.values(), key=lambda p: p["_offset"])
    bytes_of = [base64.b64decode(p["_malformed"]) if p["_malformed"] else None for p in by_place]
    assert [(p["_partition"], p["_offset"]) for p in by_place] == [(0, 40), (0, 41), (0, 42)]
    assert bytes_of == wrong


def test_a_partition_that_is_behind_loses_nothing(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """Progress is that of the partition furthest behind, from the start, before it has brought a row, and after a restart."""
    kafka.create("skewed", 2)
    topic = sq.kafka(kafka.servers, "skewed", schema=SCHEMA)
    query, out = sums(topic, progress=sq.generate("1 second")), str(tmp_path / "out")

    def run(**arguments: Any) -> sq.Run:
        return query.run(sink=out, checkpoint=str(tmp_path / "checkpoint"), trigger="available_now", **arguments)

    kafka.send("skewed", [value(i, "a", 1) for i in range(600, 640)], partition=0)
    assert "furthest behind is _partition=1, without a row" in str(run().why())
    kafka.send("skewed", [value(0, "b", 1)], partition=1)
    run()
    # a partition that is new is awaited by the next start
    kafka.add_partitions("skewed", 3)
    kafka.send("skewed", [value(i, "b", 1) for i in range(1, 700)], partition=1)
    run()
    kafka.send("skewed", [value(i, "c", 1) for i in range(50)], partition=2)
    assert not any(run(finish=True).late.values())
    rows = spark.read.parquet(out)
    counts = {row.k: row.n for row in rows.groupBy("k").sum("n").toDF("k", "n").collect()}
    assert counts == {"a": 40, "b": 700, "c": 50}


def test_a_topic_that_is_not_there(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="kafka: no topic 'nowhere' to read at 127.0.0.1:.*does not host"):
        sums(sq.kafka(kafka.servers, "nowhere", schema=SCHEMA)).run(
            sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "checkpoint")
        )


def test_what_kafka_knows_of_a_message(spark: SparkSession, kafka: Broker) -> None:
    """Kafka's own time as the time of points, whole values, and a part of the messages by their offsets."""
    kafka.create("texts", 1)
    kafka.send("texts", [b"a", b"\xff", b"c", b"d"])
    unfinished = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "unfinished"})
    unfinished.init_transactions(30)
    unfinished.begin_transaction()
    unfinished.produce("texts", b"e")
    unfinished.flush(30)
    unfinished.abort_transaction(30)
    topic = sq.kafka(
        kafka.servers, "texts", value="string", metadata=["timestamp", "key", "offset"], start={0: 1}, end={0: 3}
    )
    whole = sq.kafka(kafka.servers, "texts", value="bytes", metadata=["timestamp"])
    committed = sq.points(whole, time="timestamp")
    for rows in (committed.to_df().toArrow(), committed.to_arrow()):
        assert sorted(rows.column("value").to_pylist()) == [b"a", b"c", b"d", b"\xff"]
    texts = sq.points(topic, time="timestamp", invalid="drop")
    assert texts.columns == ["value", "key", "offset"]
    for rows in (texts.to_df().toArrow(), texts.to_arrow()):
        assert rows.drop_columns(["start", "end"]).to_pylist() == [{"value": "c", "key": b"2", "offset": 2}]
    with pytest.raises(Exception, match=r"malformed value: not in UTF-8.*_partition: 0; _offset: 1"):
        sq.points(topic, time="timestamp").to_df().toArrow()


def test_a_range_of_messages_without_spark(kafka: Broker) -> None:
    """By offsets; what is not there is named, and an empty partition is none."""
    kafka.create("range", 3)
    kafka.send("range", [value(i, "a", i) for i in range(30)], partition=0)
    kafka.send("range", [value(i, "b", i) for i in range(10)], partition=1)
    kafka.delete_before("range", 0, 5)

    def total(**bounds: Any) -> int:
        topic = sq.kafka(kafka.servers, "range", schema=SCHEMA, **bounds)
        rows = sq.points(topic, time="at").tumbling_window("1 day").select(n=sq.count()).to_arrow()
        return sum(rows.column("n").to_pylist())

    assert total() == 35
    assert total(start={0: 7, 1: 10, 2: 0}, end={0: 9, 1: 10, 2: 0}) == 2
    assert total(end={0: 6, 1: 0, 2: 0}) == 1
    for bounds, wrong in (
        (
            {"start": {0: 3, 1: 0, 2: 0}},
            "partition 0 of 'range' has no offsets from 3 to before 30; it has those from 5",
        ),
        ({"end": {0: 30, 1: 11, 2: 0}}, "partition 1 of 'range' has no offsets from 0 to before 11"),
        ({"start": {0: 3}}, r"start has an offset for each partition; found \{0: 3\}; there are: 0, 1, 2"),
    ):
        with pytest.raises(SourceError, match=wrong):
            total(**bounds)
    with pytest.raises(PlanError, match="a batch begins at 'earliest' or at offsets; found start='latest'"):
        total(start="latest")
    for options, wrong in (
        ({}, "Unknown topic"),
        ({"kafka.sasl.jaas.config": "x"}, "JAAS configuration is not supported"),
    ):
        topic = sq.kafka(kafka.servers, "nowhere", value="bytes", metadata=["timestamp"], options=options)
        with pytest.raises(SourceError, match=f"topic 'nowhere' is not read; .*{wrong}"):
            sq.points(topic, time="timestamp").show()


def test_records_of_avro(spark: SparkSession, kafka: Broker) -> None:
    fields = [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}, {"name": "v", "type": "int"}]
    record = {"type": "record", "name": "R", "fields": fields}
    data = io.BytesIO()
    fastavro.schemaless_writer(data, record, {"at": dt.datetime(2024, 5, 1, tzinfo=dt.UTC), "v": 3})
    kafka.create("avro", 1)
    kafka.send("avro", [data.getvalue()])
    query = sq.points(sq.kafka(kafka.servers, "avro", value="avro", record=json.dumps(record)), time="at")
    rows = query.to_df().toArrow()
    assert rows.column("v").to_pylist() == [3]
    assert_same_history(query.to_arrow(), rows)


def test_records_of_protocol_buffers(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """Of a file of descriptors that workers do not have: it is gone when they decode."""
    described = tmp_path / "shop.desc"
    descriptors = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(descriptors.file.add())
    file = descriptors.file.add(name="trip.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    trip = file.message_type.add(name="Trip")
    trip.field.add(name="at", number=1, type=11, label=1, type_name=".google.protobuf.Timestamp")
    trip.field.add(name="k", number=2, type=9, label=1)
    trip.field.add(name="v", number=3, type=3, label=1)
    described.write_bytes(descriptors.SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    for one in descriptors.file:
        pool.Add(one)
    trip_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Trip"))
    start = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    sent = [trip_class(at=start + dt.timedelta(seconds=i), k="ab"[i % 2], v=i).SerializeToString() for i in range(40)]
    kafka.create("protobuf", 2)
    kafka.send("protobuf", [*sent[:20], b"\xff", *sent[20:]])
    query = sums(sq.kafka(kafka.servers, "protobuf", value="protobuf", record=f"{described}:shop.Trip"))
    rows = query.to_df().toArrow()
    assert sorted(rows.column("total").to_pylist()) == sorted(
        sum(range(n, n + 10, 2)) for n in (*range(0, 40, 10), *range(1, 41, 10))
    )
    assert_same_history(query.to_arrow(), rows)
    out, late = str(tmp_path / "out"), str(tmp_path / "late")
    query.run(sink=out, late_sink=late, checkpoint=str(tmp_path / "checkpoint"), trigger="available_now", finish=True)
    assert_same_history(spark.read.parquet(out).drop("streamq_batch").toArrow(), rows)
    (row,) = spark.read.parquet(late).collect()
    assert row.reason == "malformed value: no record of Protocol Buffers"


def test_a_registry_of_schemas(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """Workers ask for a schema once; a later one comes in a stream; what is not there is set aside; an outage ends the query."""
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "k", "type": "string"},
    ]
    old: Any = {"type": "record", "name": "R", "fields": fields}
    new: Any = {**old, "fields": [*fields, {"name": "v", "type": "long", "default": 100}]}

    def value(number: int, schema: Any, second: int, **more: Any) -> bytes:
        data = io.BytesIO()
        at = dt.datetime(2024, 5, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second)
        fastavro.schemaless_writer(data, schema, {"at": at, "k": "a", **more})
        return b"\0" + number.to_bytes(4) + data.getvalue()

    kafka.create("registered", 1)
    out, late = str(tmp_path / "out"), str(tmp_path / "late")
    with registry() as schemas:
        first, second = (schemas.add("registered-value", json.dumps(one)) for one in (old, new))
        kafka.send("registered", [value(first, old, i) for i in range(10)])
        topic = sq.kafka(kafka.servers, "registered", value="avro", registry=schemas.url, at_once=10)
        query = sums(topic)
        schemas.asked.clear()
        arguments: Any = {"checkpoint": str(tmp_path / "checkpoint"), "late_sink": late, "trigger": "available_now"}
        query.run(sink=out, **arguments)
        kafka.send("registered", [value(second, new, i, v=1) for i in range(10, 30)])
        kafka.send("registered", [value(99, new, 5, v=1)])
        query.run(sink=out, **arguments)
        assert 2 <= len(schemas.asked) <= 12, schemas.asked
        third = schemas.add("registered-value", json.dumps({**new, "doc": "another one"}))
        kafka.send("registered", [value(third, new, i, v=1) for i in range(30, 40)])
        answer = query.to_df().toArrow()
        assert sorted(answer.column("total").to_pylist()) == [10, 10, 10, 1000]
        assert_same_history(query.to_arrow(), answer)
    kafka.send("registered", [value(third, new, 50, v=1)])
    with pytest.raises(Exception, match="no schema registry answers at .*Connection refused"):
        query.run(sink=out, **arguments)
    with registry() as schemas:
        for schema in (old, new, {**new, "doc": "another one"}):
            schemas.add("registered-value", json.dumps(schema))
        moved = sums(sq.kafka(kafka.servers, "registered", value="avro", registry=schemas.url, record=2, at_once=10))
        moved.run(sink=out, finish=True, **arguments)
    rows = spark.read.parquet(out).collect()
    assert sorted(row.total for row in rows) == [1, 10, 10, 10, 1000]
    (row,) = spark.read.parquet(late).collect()
    assert row.reason == "malformed value: schema 99 is not in the registry"


@pytest.mark.parametrize("form", ["avro", "protobuf", "json"])
def test_a_sink_with_a_registry(spark: SparkSession, kafka: Broker, tmp_path: Path, form: str) -> None:
    """The schema is that of the output; what is written is read back without saying a column."""
    into, source = f"into_{form}", tmp_path / "source"
    kafka.create(into, 2)
    table = spark.createDataFrame([(1, "a", 5), (12, "b", 7), (13, "b", 1)], "at int, k string, v int")
    table.selectExpr("timestamp_seconds(at) AS at", "k", "v").write.parquet(str(source))
    query = sums(sq.files(source, schema="at timestamp, k string, v int"))
    with registry() as schemas:
        sink = sq.kafka(kafka.servers, into, value=form, registry=schemas.url)
        arguments: Any = {"trigger": "available_now", "checkpoint": str(tmp_path / "checkpoint"), "finish": True}
        query.run(sink=sink, **arguments)
        assert list(schemas.subjects) == [f"{into}-value"]
        written = sq.kafka(kafka.servers, into, value=form, registry=schemas.url)
        again = sq.intervals(written, "start", "end")
        for rows in (again.to_df().toArrow(), again.to_arrow()):
            assert_same_history(rows, query.to_df().toArrow())
        schemas.refuses = (409, "not compatible")
        other: Any = {**arguments, "checkpoint": str(tmp_path / "other")}
        with pytest.raises(PlanError, match=f"the registry refuses the schema of '{into}-value'; not compatible"):
            query.run(sink=sink, **other)
    with pytest.raises(SourceError, match="no schema registry answers"):
        query.run(sink=sink, **other)


def test_changes_of_debezium_with_a_registry(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    source = tmp_path / "source"
    kafka.create("into_changes", 1, cleanup_policy="compact")
    s = sq.points(sq.files(source, schema="at timestamp, k string, v int"), time="at", progress=sq.generate("1 day"))
    query = s.group_by("k").tumbling_window("10 seconds").select(n=sq.count())
    with registry() as schemas:
        topic = sq.kafka(kafka.servers, "into_changes", value="avro", registry=schemas.url, envelope="debezium")
        for at in (1, 2):
            table = spark.createDataFrame([(at, "a", 5)], "at int, k string, v int")
            table.selectExpr("timestamp_seconds(at) AS at", "k", "v").write.mode("append").parquet(str(source))
            arguments: Any = {"trigger": "available_now", "checkpoint": str(tmp_path / "checkpoint")}
            query.run(output="latest", early=True, sink=topic, **arguments)
        whole: Any = {"value": "avro", "registry": schemas.url, "envelope": "debezium"}
        with pytest.raises(PlanError, match="a payload column called 'start'"):
            sq.changes(sq.kafka(kafka.servers, "into_changes", **whole), key="k")
        again = sq.changes(sq.kafka(kafka.servers, "into_changes", schema="k string, n bigint", **whole), key="k")
        for rows in (again.to_df().toArrow(), again.to_arrow()):
            assert [(row["n"], row["end"] is None) for row in rows.sort_by("n").to_pylist()] == [(1, False), (2, True)]


def messages(servers: str, topic: str, partition: int = 0) -> list[tuple[Any, Any]]:
    """The keys and values of a partition's messages of committed transactions, as a reader gets them."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"})
    place = TopicPartition(topic, partition, OFFSET_BEGINNING)
    consumer.assign([place])
    _, end = consumer.get_watermark_offsets(place)
    read: list[tuple[Any, Any]] = []
    while consumer.position([place])[0].offset < end:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append((message.key(), message.value()))
    consumer.close()
    return [(key and json.loads(key), text and json.loads(text)) for key, text in read]


def test_a_micro_batch_that_is_repeated_is_sent_once(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """What Spark has not noted as committed, a run that goes on computes again; the topic has it already."""
    kafka.create("in", 1)
    kafka.create("out", 1)
    topic = sq.kafka(kafka.servers, "in", schema=SCHEMA, at_once=10)
    query, checkpoint = sums(topic), tmp_path / "checkpoint"
    with pytest.raises(PlanError, match="no topic 'nowhere' to write"):
        query.run(sink=sq.kafka(kafka.servers, "nowhere"), checkpoint=str(tmp_path / "other"))
    sink: Any = {"sink": sq.kafka(kafka.servers, "out"), "checkpoint": str(checkpoint), "trigger": "available_now"}
    kafka.send("in", [value(i, "ab"[i % 2], i) for i in range(40)])
    query.run(**sink)
    sent = messages(kafka.servers, "out")
    assert len(sent) == 6
    _, last = max((int(file.name), file) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    query.run(**sink)
    assert messages(kafka.servers, "out") == sent
    query.run(**sink, finish=True)
    rows = [row for _, row in messages(kafka.servers, "out")]
    assert len(rows) == 8
    assert rows[0] == {
        "k": "a",
        "n": 5,
        "total": 20,
        "start": "2024-05-01T00:00:00+00:00",
        "end": "2024-05-01T00:00:10+00:00",
    }
    another: Any = {"checkpoint": str(tmp_path / "other"), "trigger": "available_now"}
    with pytest.raises(Exception, match="topic 'out' has rows of .*-result-1. Write another topic"):
        query.run(sink=sq.kafka(kafka.servers, "out"), **another)
    assert len(messages(kafka.servers, "out")) == 8
    # and what is written can be read
    written = sq.kafka(kafka.servers, "out", schema="k string, n bigint, total bigint, start timestamp, end timestamp")
    assert_same_history(sq.intervals(written, "start", "end").to_df().toArrow(), query.to_df().toArrow())
    query.run(sink=sq.kafka(kafka.servers, "out", options={"shared": "true"}), **another)
    assert len(messages(kafka.servers, "out")) == 14


SITE = """
import os, signal

if "KILL" in os.environ:
    import confluent_kafka

    class Producer(confluent_kafka.Producer):
        def produce(self, topic, value, key, **more):
            self.is_due = topic.endswith(".streamq") and int(value) >= 1
            super().produce(topic, value, key, **more)

        def commit_transaction(self, *seconds):
            what, _, when = (self.next_kill() if self.is_due else "").partition("-")
            if when == "before":
                self.flush()
                kill(what)
            super().commit_transaction(*seconds)
            if when == "after":
                kill(what)

        def next_kill(self):
            for one in os.environ["KILL"].split(","):
                try:
                    os.close(os.open(f"{os.environ['FOLDER']}/{one}", os.O_CREAT | os.O_EXCL))
                    return one
                except FileExistsError:
                    pass
            return ""

    def kill(what):
        if what == "job":
            os.killpg(int(os.environ["JOB"]), signal.SIGKILL)
        if what == "executor":
            # the parent of the process that forks workers
            with open(f"/proc/{os.getppid()}/stat") as stat:
                os.kill(int(stat.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
        os._exit(9)

    confluent_kafka.Producer = Producer
"""
"""The module that every Python of a job imports as it starts. From the second micro-batch with rows on, it kills the job, an
executor or a worker before or after a commit, each of the times that KILL names once."""


def run(spark: SparkSession, folder: object, servers: str, topic: str, *, finish: bool = False) -> None:
    """Write final rows of what files there are into a topic."""
    arguments: Any = {"sink": sq.kafka(servers, topic), "checkpoint": f"{folder}/checkpoint", "buckets": 2}
    test_tables.counts(stays(spark, folder)).run(**arguments, trigger="available_now", finish=finish)


def killed(folder: Path, servers: str, topic: str, *kills: str, master: str = "local[2]") -> int:
    """Run a job that writes into a topic, in which that is killed; return its code."""
    (folder / "sitecustomize.py").write_text(SITE)
    script = folder / "job.py"
    script.write_text(test_tables.SCRIPT.replace("test_tables", "test_kafka").replace("local[2]", master))
    own = {"PYTHONPATH": f"{folder}:{ROOT}", "KILL": ",".join(kills), "FOLDER": str(folder)}
    with (folder / "log").open("ab") as log:
        command = [sys.executable, str(script), str(folder), servers, topic]
        return subprocess.run(
            command, env={**os.environ, **own}, stdout=log, stderr=log, start_new_session=True, timeout=300
        ).returncode


def check_answer(rows: list[tuple[int, int, str, int]], servers: str, topic: str) -> None:
    """The messages of a topic must be the answer over all rows."""
    answer = test_tables.counts(sq.intervals(t.table(KILL_SCHEMA, rows), start="start", end="end")).to_arrow()
    expected = sorted(tuple(row.values()) for row in answer.to_pylist())
    assert len(expected) > 20
    assert sorted(tuple(row.values()) for _, row in messages(servers, topic)) == expected


def test_killed_before_and_after_a_commit(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """All messages of a transaction have been sent when the job ends, or it is committed; readers see none twice."""
    kafka.create("killed", 1)
    everything = land(tmp_path / "in", random.Random(7))
    for kill in ("job-before", "job-after"):
        code = killed(tmp_path, kafka.servers, "killed", kill)
        assert code == -signal.SIGKILL, (tmp_path / "log").read_text()[-3000:]
    run(spark, tmp_path, kafka.servers, "killed", finish=True)
    check_answer(everything, kafka.servers, "killed")


def test_workers_and_executors_that_are_killed(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """The run goes on by itself: their tasks are repeated, with the executor's part of the shuffle also the stage before."""
    kafka.create("tasks", 1)
    everything = land(tmp_path / "in", random.Random(8))
    kills = ("worker-after", "executor-after", "worker-before", "executor-before")
    code = killed(tmp_path, kafka.servers, "tasks", *kills, master="local-cluster[2,1,1024]")
    assert code == 0, (tmp_path / "log").read_text()[-3000:]
    assert all((tmp_path / kill).exists() for kill in kills)
    run(spark, tmp_path, kafka.servers, "tasks", finish=True)
    check_answer(everything, kafka.servers, "tasks")


def wait_until(run: sq.Run, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until and run.query.exception() is None, run.query.exception()
        time.sleep(0.2)


def test_a_broker_that_is_killed_and_comes_back(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """A run waits for it, with its source and its sink, and goes on; a stopped run whose next messages are gone says which."""
    kafka.create("before", 1)
    kafka.create("behind", 1)
    topic = sq.kafka(kafka.servers, "before", schema=SCHEMA, at_once=30)
    sink: Any = {"sink": sq.kafka(kafka.servers, "behind"), "checkpoint": str(tmp_path / "checkpoint")}
    run = sums(topic).run(**sink)
    for first in (0, 100):
        kafka.send("before", [value(i, "ab"[i % 2], i) for i in range(first, first + 100)])
        some = len(messages(kafka.servers, "behind"))
        wait_until(run, lambda: len(messages(kafka.servers, "behind")) > some)  # noqa: B023
        kafka.kill()
        time.sleep(5)
        kafka.start()
    wait_until(run, lambda: len(messages(kafka.servers, "behind")) >= 38)
    run.stop()
    kafka.send("before", [value(i, "a", i) for i in range(200, 210)])
    kafka.delete_before("before", 0, 203)
    with pytest.raises(Exception, match="offset=200, .*is out of range for partition before-0"):
        sums(topic).run(**sink, trigger="available_now")
    rows = [tuple(row.values()) for _, row in messages(kafka.servers, "behind")]
    assert len({*rows}) == len(rows) == 38
    assert (sum(n for _, n, *_ in rows), sum(total for _, _, total, *_ in rows)) == (190, sum(range(190)))


PROGRAM = """
import os

import streamq as sq

servers = os.environ["SERVERS"]

def result():
    topic = sq.kafka(servers, "fares", schema="at timestamp, k string, v bigint")
    sums = sq.points(topic, time="at").group_by("k").tumbling_window("10 seconds").select(total=sq.sum("v"))
    return sq.result(sums, sink=sq.kafka(servers, "totals"), output="upsert")
"""


def test_a_program_from_topic_to_topic(
    spark: SparkSession, kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command ``run``, in instalments: a result that says itself where its rows go."""
    monkeypatch.setenv("SERVERS", kafka.servers)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "from_topic.py").write_text(PROGRAM)
    command = ["run", f"{tmp_path}/from_topic.py:result", "--kafka", "--checkpoint", str(tmp_path / "checkpoint")]
    kafka.create("fares", 1)
    kafka.create("totals", 1, **{"cleanup.policy": "compact"})
    for seconds, more in ((range(10), []), (range(10, 20), ["--finish"])):
        kafka.send("fares", [value(second, "a", second) for second in seconds])
        assert main([*command, "--trigger", "available_now", *more]) == 0
    totals = [text["total"] for _, text in messages(kafka.servers, "totals") if text is not None]
    assert totals[-2:] == [45, 145]


def test_a_broker_that_is_away_for_longer_than_a_run_waits(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """The run that writes ends after a minute, with an error that names it; started again it goes on."""
    kafka.create("away", 1)
    source = tmp_path / "in"
    everything = land(source, random.Random(9), [(5 * i, 5 * i + 7, "ab"[i % 2], i) for i in range(20)])
    run(spark, tmp_path, kafka.servers, "away")
    some = messages(kafka.servers, "away")
    sink: Any = {"sink": sq.kafka(kafka.servers, "away"), "checkpoint": str(tmp_path / "checkpoint"), "buckets": 2}
    going = test_tables.counts(stays(spark, tmp_path)).run(**sink)
    kafka.kill()
    try:
        everything += land(source, random.Random(9), [(5 * i, 5 * i + 7, "ab"[i % 2], i) for i in range(20, 40)])
        began = time.monotonic()
        with pytest.raises(Exception, match=f"no answer of {kafka.servers} in 60 s"):
            going.await_termination()
        assert 55 < time.monotonic() - began < 120
    finally:
        kafka.start()
    run(spark, tmp_path, kafka.servers, "away", finish=True)
    check_answer(everything, kafka.servers, "away")
    assert messages(kafka.servers, "away")[: len(some)] == some


def test_partitions_that_are_added_to_a_topic_that_is_written(
    spark: SparkSession, kafka: Broker, tmp_path: Path
) -> None:
    """They have messages from the next micro-batches on, and none is lost, or there twice."""
    kafka.create("narrow", 1)
    kafka.create("grows", 1)
    topic = sq.kafka(kafka.servers, "narrow", schema=SCHEMA, at_once=20)
    going = sums(topic).run(sink=sq.kafka(kafka.servers, "grows"), checkpoint=str(tmp_path / "checkpoint"))
    kafka.send("narrow", [value(i, "ab"[i % 2], i) for i in range(100)])
    wait_until(going, lambda: len(messages(kafka.servers, "grows")) > 0)
    kafka.add_partitions("grows", 6)

    def rows() -> list[list[tuple[Any, ...]]]:
        return [[tuple(row.values()) for _, row in messages(kafka.servers, "grows", one)] for one in range(6)]

    kafka.send("narrow", [value(i, "ab"[i % 2], i) for i in range(100, 200)])
    wait_until(going, lambda: sum(map(len, rows())) >= 38)
    going.stop()
    written = [row for part in rows() for row in part]
    assert len({*written}) == len(written) == 38
    assert any(rows()[1:])
    assert (sum(n for _, n, *_ in written), sum(total for _, _, total, *_ in written)) == (190, sum(range(190)))


def test_the_number_of_a_run_is_found_among_those_of_others(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end, or, where others have written since, further in front."""
    kafka.create("numbers", 1)
    monkeypatch.setattr("streamq.run.kafka_sink.TAIL", 4)

    def transaction(run: str, *, is_shared: bool) -> KafkaTransaction:
        settings = {"bootstrap.servers": kafka.servers}
        return KafkaTransaction(settings, "numbers", (), run, deletes=False, is_shared=is_shared)

    for run_name, number in (("a", 0), ("a", 1), ("b", 0), ("b", 3), ("b", 4)):
        writer = transaction(run_name, is_shared=True)
        assert not writer.done(number)
        writer.write(pa.table({"k": [run_name]}).to_reader(), number)
        writer.close()
    for run_name, number in (("a", 1), ("b", 4)):
        reader = transaction(run_name, is_shared=False)
        assert reader.done(number) and not reader.done(number + 1)
    with pytest.raises(RuntimeError, match="topic 'numbers' has rows of a, b. Write another topic"):
        transaction("c", is_shared=False).done(0)


def test_a_message_that_kafka_does_not_take(kafka: Broker) -> None:
    """Its error is named, and nothing of the micro-batch is there; the next attempt is none the worse for it."""
    kafka.create("small", 1, max_message_bytes="500")
    settings = {"bootstrap.servers": kafka.servers}
    for text, wrong in ((os.urandom(2_000).hex(), "small: .*Message size too large"), ("short", "")):
        transaction = KafkaTransaction(settings, "small", (), "run", deletes=False, is_shared=False)
        assert not transaction.done(0)
        rows = pa.table({"k": ["before it", text]}).to_reader()
        if wrong:
            with pytest.raises(RuntimeError, match=f"not taken all messages of a micro-batch; {wrong}"):
                transaction.write(rows, 0)
        else:
            transaction.write(rows, 0)
        transaction.close()
    assert [row["k"] for _, row in messages(kafka.servers, "small")] == ["before it", "short"]


def test_a_changelog_is_read_back(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """The same history, by its CTIs or from several partitions, in each of which what changes a row follows it."""
    source, last = tmp_path / "source", False
    schema = "kind string, k string, n bigint, start bigint, end bigint, new_end bigint"
    kafka.create("by_ctis", 1)
    kafka.create("by_keys", 3)
    kafka.create("compacted", 1, cleanup_policy="compact")
    for rows in ([(0, 10, "a"), (0, 20, "b")], [(5, 15, "a"), (7, 9, "b"), (20, 30, "a")]):
        table = spark.createDataFrame(rows, "start bigint, end bigint, k string")
        table.coalesce(1).write.mode("append").parquet(str(source))
        s = sq.intervals(sq.files(source), "start", "end", progress=sq.generate(100))
        query, last = s.group_by("k").snapshot_window().select(n=sq.count()), rows[-1][0] == 20

        def run(topic: str, *, ctis: bool) -> None:
            sink = sq.kafka(kafka.servers, topic)
            common: Any = {"trigger": "available_now", "early": True, "finish": last}  # noqa: B023
            query.run(output="changelog", ctis=ctis, sink=sink, checkpoint=str(tmp_path / topic), **common)  # noqa: B023

        run("by_ctis", ctis=True)
        run("by_keys", ctis=False)
    answer = query.to_df().toArrow()
    for topic, progress in (("by_ctis", None), ("by_keys", sq.generate(100, per="_partition"))):
        written = sq.physical(sq.kafka(kafka.servers, topic, schema=schema, at_once=4), progress=progress)
        assert_same_history(written.to_df().toArrow(), answer)
        written.run(
            sink=str(tmp_path / f"{topic}.out"),
            checkpoint=str(tmp_path / f"{topic}.reader"),
            trigger="available_now",
            finish=topic == "by_keys",
        )
        assert_same_history(spark.read.parquet(str(tmp_path / f"{topic}.out")).drop("streamq_batch").toArrow(), answer)
    sent = [(key, row) for key, row in messages(kafka.servers, "by_ctis") if row["kind"] in ("insert", "retract")]
    assert all(key == {name: row[name] for name in ("k", "n", "start")} for key, row in sent)
    assert any(row["new_end"] not in (None, row["start"]) for _, row in sent), "an end has moved"
    with pytest.raises(PlanError, match="a changelog is read as a whole; topic 'compacted' has cleanup.policy=compact"):
        run("compacted", ctis=False)
    kafka.create("ctis_in_three", 3)
    with pytest.raises(PlanError, match="with CTIs goes to a topic of one partition; 'ctis_in_three' has 3"):
        run("ctis_in_three", ctis=True)


def test_upserts_leave_the_latest_rows_of_a_compacted_topic(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """The key is the run's; what is gone is a message without a value."""
    kafka.create("rows", 1, cleanup_policy="compact")
    source = tmp_path / "source"
    table = spark.createDataFrame([(1, "a", 5), (2, "b", 7)], "at int, k string, v int")
    table.write.parquet(str(source))
    s = sq.points(sq.files(source), time="at", progress=sq.generate(100))
    query = s.group_by("k").tumbling_window(10).select(n=sq.count(), v=sq.sum("v"))
    arguments: Any = {"sink": sq.kafka(kafka.servers, "rows"), "checkpoint": str(tmp_path / "checkpoint")}
    run = query.run(output="upsert", trigger="available_now", early=True, **arguments)
    assert run.key == ("k", "start")
    table.where("k = 'a'").write.mode("append").parquet(str(source))
    query.run(output="upsert", trigger="available_now", early=True, **arguments)
    latest = {json.dumps(key): row for key, row in messages(kafka.servers, "rows")}
    assert {key: row["n"] for key, row in latest.items()} == {
        '{"k": "a", "start": 0}': 2,
        '{"k": "b", "start": 0}': 1,
    }


def test_latest_rows_and_changes_of_debezium(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """A compacted topic keeps what holds now; changes have the row before them, and are the history of what the run has said."""
    source = tmp_path / "source"
    outs = {"latest": None, "changes": "debezium", "upserts": "debezium"}
    for name in outs:
        kafka.create(name, 1, cleanup_policy="compact")
    s = sq.points(sq.files(source, schema="at timestamp, k string, v int"), time="at", progress=sq.generate("1 day"))
    query = s.group_by("k").tumbling_window("10 seconds").select(n=sq.count(), v=sq.sum("v"), window=sq.start())

    def run(**arguments: Any) -> sq.Run:
        results = [
            sq.result(
                query,
                output="upsert" if name == "upserts" else "latest",
                sink=sq.kafka(kafka.servers, name, envelope=envelope),
            )
            for name, envelope in outs.items()
        ]
        checkpoint = str(tmp_path / "checkpoint")
        return sq.run_all(results, checkpoint=checkpoint, trigger="available_now", early=True, **arguments)

    for rows in ([(1, "a", 5), (2, "b", 7)], [(3, "a", 1)], [(13, "a", 2), (4, "b", 1)]):
        table = spark.createDataFrame(rows, "at int, k string, v int").selectExpr(
            "timestamp_seconds(at) AS at", "k", "v"
        )
        table.coalesce(1).write.mode("append").parquet(str(source))
        run()

    def shown(row: dict[str, Any] | None) -> Any:
        return row and (row["k"], row["n"], row["v"], row["start"][17:19])

    latest = [(key["k"], shown(row)) for key, row in messages(kafka.servers, "latest")]
    assert sorted(latest[:2]) == [("a", ("a", 1, 5, "00")), ("b", ("b", 1, 7, "00"))]
    assert latest[2:3] == [("a", ("a", 2, 6, "00"))]
    assert sorted(latest[3:]) == [("a", ("a", 1, 2, "10")), ("b", ("b", 2, 8, "00"))]
    changes = [(row["op"], shown(row["before"]), shown(row["after"])) for _, row in messages(kafka.servers, "changes")]
    assert sorted(changes[:2]) == [("c", None, ("a", 1, 5, "00")), ("c", None, ("b", 1, 7, "00"))]
    assert changes[2:3] == [("u", ("a", 1, 5, "00"), ("a", 2, 6, "00"))]
    assert sorted(changes[3:]) == [
        ("u", ("a", 2, 6, "00"), ("a", 1, 2, "10")),
        ("u", ("b", 1, 7, "00"), ("b", 2, 8, "00")),
    ]
    for name, key, holds in (
        ("changes", "k", {("a", 1, 2), ("b", 2, 8)}),
        ("upserts", ("k", "window"), {("a", 2, 6), ("a", 1, 2), ("b", 2, 8)}),
    ):
        schema = "k string, n bigint, v bigint, window timestamp"
        written = sq.changes(sq.kafka(kafka.servers, name, schema=schema, envelope="debezium"), key=key)
        answer = written.to_df().toArrow()
        assert {(r["k"], r["n"], r["v"]) for r in answer.to_pylist() if r["end"] is None} == holds
        assert {(r["k"], r["v"]) for r in answer.to_pylist() if r["end"]} == {("a", 5), ("b", 7)} | (
            {("a", 6)} if name == "changes" else set()
        )
        assert_same_history(written.to_arrow(), answer)
        folder = tmp_path / f"{name}.out"
        reading: Any = {"checkpoint": str(tmp_path / f"{name}.reader"), "trigger": "available_now", "finish": True}
        written.run(sink=str(folder), **reading)
        assert_same_history(spark.read.parquet(str(folder)).drop("streamq_batch").toArrow(), answer)
    final: Any = {"checkpoint": str(tmp_path / "final")}
    for output in ("final", "changelog"):
        with pytest.raises(PlanError, match=f"an envelope is of .*; rows of output='{output}' have no key"):
            query.run(sink=sq.kafka(kafka.servers, "changes", envelope="debezium"), output=output, **final)


def test_a_row_that_is_gone_is_a_deletion_and_a_tombstone(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """A window whose only event moves away, because a correction of its lifetime has come, has no row any more."""
    source = tmp_path / "source"
    kafka.create("gone", 1, cleanup_policy="compact")
    s = sq.physical(sq.files(source, schema="kind string, k string, start int, end int, new_end int"))
    query = s.group_by("k").snapshot_window().select(n=sq.count())
    arguments: Any = {"sink": sq.kafka(kafka.servers, "gone", envelope="debezium"), "trigger": "available_now"}
    for rows in ([("insert", "a", 1, 9, None)], [("retract", "a", 1, 9, 1)]):
        table = spark.createDataFrame(rows, "kind string, k string, start int, end int, new_end int")
        table.coalesce(1).write.mode("append").parquet(str(source))
        query.run(output="upsert", early=True, checkpoint=str(tmp_path / "checkpoint"), **arguments)
    (_, created), (key, deleted), tombstone = messages(kafka.servers, "gone")
    assert (created["op"], created["before"], created["after"]) == ("c", None, {"k": "a", "n": 1, "start": 1, "end": 9})
    assert (deleted["op"], deleted["before"], deleted["after"]) == ("d", created["after"], None)
    assert tombstone == (key, None) and key == {"k": "a", "start": 1}
    assert created["source"]["batch"] < deleted["source"]["batch"]
