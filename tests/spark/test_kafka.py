"""A topic of a real broker as a source: what a batch and a stream read, what is no row, and progress by partition."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

import streamq as sq
from scripts.broker import Broker, broker
from streamq.errors import PlanError, SourceError
from streamq.testing.history import assert_same_history

SCHEMA = "at timestamp, k string, v bigint"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(tmp_path_factory.mktemp("kafka")) as one:
        yield one


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


def messages(servers: str, topic: str) -> list[tuple[Any, Any]]:
    """The keys and values of a topic's messages of committed transactions, as a reader gets them."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"})
    place = TopicPartition(topic, 0, OFFSET_BEGINNING)
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
    # and what is written can be read
    written = sq.kafka(kafka.servers, "out", schema="k string, n bigint, total bigint, start timestamp, end timestamp")
    assert_same_history(sq.intervals(written, "start", "end").to_df().toArrow(), query.to_df().toArrow())


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
