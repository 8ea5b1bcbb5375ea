"""A topic of a real broker as a source: what a batch and a stream read, what is no row, and progress by partition."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.testing.history import assert_same_history
from tests.spark.broker import Broker, broker

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
    assert sorted(row["reason"] for row in late) == ["malformed value", "malformed value", "null start"]
    payloads = sorted((json.loads(row["payload"]) for row in late), key=lambda p: p["offset"])
    bytes_of = [base64.b64decode(p["malformed"]) if p["malformed"] else None for p in payloads]
    assert [(p["partition"], p["offset"]) for p in payloads] == [(0, 40), (0, 41), (0, 42)]
    assert bytes_of == wrong


def test_a_partition_that_is_behind_loses_nothing(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """Progress is that of the partition furthest behind; a stream goes on with what comes, from its checkpoint."""
    kafka.create("skewed", 2)
    topic = sq.kafka(kafka.servers, "skewed", schema=SCHEMA)
    query, out = sums(topic, progress=sq.generate("1 second")), str(tmp_path / "out")

    def run(**arguments: Any) -> None:
        query.run(sink=out, checkpoint=str(tmp_path / "checkpoint"), trigger="available_now", **arguments)

    kafka.send("skewed", [value(i, "a", 1) for i in range(600, 640)], partition=0)
    kafka.send("skewed", [value(0, "b", 1)], partition=1)
    run()
    kafka.send("skewed", [value(i, "b", 1) for i in range(1, 60)], partition=1)
    run(finish=True)
    rows = spark.read.parquet(out)
    assert {row.k: row.n for row in rows.groupBy("k").sum("n").toDF("k", "n").collect()} == {"a": 40, "b": 60}


def test_what_kafka_knows_of_a_message(spark: SparkSession, kafka: Broker) -> None:
    """Kafka's own time as the time of points, whole values, and a part of the messages by their offsets."""
    kafka.create("texts", 1)
    kafka.send("texts", [b"a", b"\xff", b"c", b"d"])
    topic = sq.kafka(
        kafka.servers, "texts", value="string", metadata=["timestamp", "key", "offset"], start={0: 1}, end={0: 3}
    )
    texts = sq.points(topic, time="timestamp", invalid="drop")
    assert texts.columns == ["value", "key", "offset"]
    assert texts.to_df().drop("start", "end").toArrow().to_pylist() == [{"value": "c", "key": b"2", "offset": 2}]
    with pytest.raises(Exception, match="malformed value"):
        sq.points(topic, time="timestamp").to_df().toArrow()
