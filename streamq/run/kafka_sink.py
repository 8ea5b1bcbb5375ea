"""A topic of Kafka as a sink: a transaction a micro-batch, whose number is in a compacted topic beside it."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from streamq.connectors.kafka import KafkaTopic
from streamq.connectors.kafka_client import ANSWER_SECONDS, check_brokers, client_settings
from streamq.errors import PlanError
from streamq.run.transactional_sink import Transaction, TransactionalSink, check_client


@dataclass(frozen=True)
class KafkaSink(TransactionalSink):
    """The messages of ``topic``: rows as objects of JSON, with their key, of upserts, as the message's key.

    ``settings``: those of the client. A deletion is a message without a value.
    """

    servers: str
    topic: str
    settings: Mapping[str, str]

    def check(self, verb: str, *, name: str | None, finish: bool) -> None:
        """Raise SourceError if no broker answers, PlanError if it has no such topic."""
        check_brokers(self.servers, verb)
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(dict(self.settings))
        if self.topic not in admin.list_topics(timeout=ANSWER_SECONDS).topics:
            raise PlanError(verb, f"no topic {self.topic!r} to write", f"at {self.servers}", "Create it first.")

    def transaction(self, run: str) -> Callable[[], Transaction]:
        return partial(KafkaTransaction, self.settings, self.topic, self.key, run)


def kafka_sink(topic: KafkaTopic, verb: str) -> KafkaSink:
    """Return a topic as a sink; raise PlanError for what is said of reading it, and without the client for Kafka."""
    if topic != KafkaTopic(topic.servers, topic.topic, None, options=topic.options):
        hint = "Give servers, topic and options."
        raise PlanError(verb, "a topic that is written has no schema, start or end", f"topic {topic.topic!r}", hint)
    check_client("confluent_kafka", "confluent-kafka", "kafka", verb)
    if other := next((name for name, _ in topic.options if not name.lower().startswith("kafka.")), None):
        raise PlanError(verb, f"option {other!r} is none of a topic that is written", "", "Those begin with kafka.")
    return KafkaSink(topic.servers, topic.topic, client_settings(topic.servers, topic.options))


class KafkaTransaction(Transaction):
    """A transaction of Kafka, over the ``topic`` and a compacted topic with the number of the last micro-batch of each ``run``.

    ``settings``: those of the client. ``key``: the columns of a row's key.
    """

    def __init__(self, settings: Mapping[str, str], topic: str, key: tuple[str, ...], run: str):
        from confluent_kafka import Producer

        self.settings, self.topic, self.key, self.run = settings, topic, key, run
        self.marks, self.is_open = f"{topic}.streamq", False
        own = {"transactional.id": f"streamq-{topic}-{run}", "linger.ms": 20, "compression.type": "lz4"}
        self.producer = Producer({**settings, **own, "transaction.timeout.ms": 900_000})
        # an earlier attempt is fenced off, and its transaction ended
        self.producer.init_transactions(ANSWER_SECONDS)

    def done(self, number: int) -> bool:
        return self._marked() >= number

    def _marked(self) -> int:
        """Return the number of the last micro-batch that the run has written; -1 if there is none."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient(dict(self.settings))
        try:
            new = NewTopic(self.marks, 1, config={"cleanup.policy": "compact"})
            admin.create_topics([new])[self.marks].result(ANSWER_SECONDS)
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        reading = {"group.id": self.run, "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({**self.settings, **reading, "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.marks, 0, OFFSET_BEGINNING)])
        last = -1
        while (message := consumer.poll(ANSWER_SECONDS)) is not None:
            error: Any = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return last
            if error is not None:
                raise KafkaException(error)
            if message.key() == self.run.encode():
                last = int(message.value() or b"")
        raise TimeoutError(f"no answer of {self.settings['bootstrap.servers']} in {ANSWER_SECONDS} s")

    def write(self, rows: pa.RecordBatchReader, number: int) -> None:
        self.producer.begin_transaction()
        self.is_open = True
        for batch in rows:
            for row in batch.to_pylist():
                is_gone = bool(self.key) and row.pop("op") == "delete"
                of_key = {name: row[name] for name in self.key}
                self._produce(None if is_gone else in_json(row), in_json(of_key) if self.key else None)
        self.producer.produce(self.marks, str(number).encode(), self.run.encode())
        self.producer.commit_transaction(ANSWER_SECONDS)
        self.is_open = False

    def close(self) -> None:
        # readers of what is committed get no further than an open transaction
        if self.is_open:
            self.producer.abort_transaction(ANSWER_SECONDS)

    def _produce(self, value: bytes | None, key: bytes | None) -> None:
        """Send a message, once the client has room for it."""
        while True:
            try:
                return self.producer.produce(self.topic, value, key)
            except BufferError:
                self.producer.poll(1)


def in_json(row: Mapping[str, Any]) -> bytes:
    """Return a row as an object of JSON: NaN and infinities without quotes, as readers take them; maps as lists of pairs."""
    return json.dumps(row, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Return a value that JSON lacks as one that it has."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1)
    return value.isoformat() if isinstance(value, dt.date) else str(value)
