"""Topics that a broker does not let us read or write are errors that say so; nothing is written by halves."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclOperation
from pyspark.sql import SparkSession

import streamq as sq
from scripts.broker import Broker
from streamq.errors import QueryFailed, SourceError

SCHEMA = "at bigint, v bigint"
REFUSED = "authorization failed|Not authorized"


def points(rows: object) -> sq.Stream:
    return sq.points(rows, time="at", progress=sq.generate(0))


def test_a_topic_without_rights(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    rights = {
        "unread": [AclOperation.READ],
        "unseen": [AclOperation.READ, AclOperation.DESCRIBE],
        "unwritten": [AclOperation.WRITE],
    }
    for topic, operations in rights.items():
        kafka.create(topic, 1)
        kafka.send(topic, [b'{"at": 1, "v": 1}'])
        kafka.forbid(topic, *operations)
    kafka.create("uncounted", 1)
    kafka.forbid("uncounted.streamq", AclOperation.WRITE)
    for topic in ("unread", "unseen"):
        query = points(sq.kafka(kafka.servers, topic, schema=SCHEMA))
        with pytest.raises(SourceError, match=f"kafka: topic '{topic}' is not read; .*(?:{REFUSED})"):
            query.to_arrow()
        with pytest.raises((SourceError, QueryFailed), match=REFUSED):
            query.run(
                sink=str(tmp_path / topic), checkpoint=str(tmp_path / f"{topic}-checkpoint"), trigger="available_now"
            )
    rows = points(pa.table({"at": [1, 2], "v": [1, 2]}))
    wrong = {
        "unseen": (SourceError, "run: topic 'unseen' is not written; .*Topic authorization failed"),
        "unwritten": (SourceError, "run: topic 'unwritten' is not written; .* does not let us write"),
        "uncounted": (QueryFailed, "the sink failed; .*Topic authorization failed"),
    }
    for topic, (kind, words) in wrong.items():
        with pytest.raises(kind, match=words):
            rows.run(
                sink=sq.kafka(kafka.servers, topic),
                checkpoint=str(tmp_path / f"into-{topic}"),
                trigger="available_now",
                finish=True,
            )
    assert points(sq.kafka(kafka.servers, "uncounted", schema=SCHEMA)).to_arrow().num_rows == 0
