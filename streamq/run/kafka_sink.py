"""A topic of Kafka as a sink: a transaction a micro-batch, whose number is in a compacted topic beside it."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import pyarrow as pa

from streamq.choices import check_word
from streamq.compiler.results import ResultColumns
from streamq.connectors.kafka import KafkaTopic
from streamq.connectors.kafka_client import ANSWER_SECONDS, check_brokers, client_settings
from streamq.errors import PlanError
from streamq.run.transactional_sink import Transaction, TransactionalSink, check_client

SHARED = "shared"
"""The option of a topic into which several runs write."""


@dataclass(frozen=True)
class KafkaSink(TransactionalSink):
    """The messages of ``topic``: rows as objects of JSON, with their key as the message's key.

    ``settings``: those of the client. A deletion of an upsert is a message without a value. ``row``: the columns that all changes
    of a row have in common in a changelog. ``is_shared``: other runs may have written rows there.
    """

    servers: str
    topic: str
    settings: Mapping[str, str]
    row: tuple[str, ...] = ()
    is_shared: bool = False

    def check(self, verb: str, *, name: str | None, finish: bool) -> None:
        """Raise SourceError if no broker answers, PlanError if it has no such topic."""
        check_brokers(self.servers, verb)
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(dict(self.settings))
        if self.topic not in admin.list_topics(timeout=ANSWER_SECONDS).topics:
            raise PlanError(verb, f"no topic {self.topic!r} to write", f"at {self.servers}", "Create it first.")

    def create(self, columns: ResultColumns, verb: str) -> None:
        """Raise PlanError for a changelog into a compacted topic."""
        from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

        if not _row_of(columns):
            return
        admin, place = AdminClient(dict(self.settings)), ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        policy = admin.describe_configs([place])[place].result(ANSWER_SECONDS)["cleanup.policy"].value
        if "compact" in policy:
            hint = 'Write output="upsert" or "latest" there, or give the topic cleanup.policy=delete.'
            reason = (
                f"topic {self.topic!r} has cleanup.policy={policy}: of rows that change it would keep the last change"
            )
            raise PlanError(verb, "a changelog is read as a whole", reason, hint)

    def placed(self, columns: ResultColumns, checkpoint: str) -> Self:
        return replace(super().placed(columns, checkpoint), row=_row_of(columns))

    def transaction(self, run: str) -> Callable[[], Transaction]:
        key = self.key or self.row
        deletes = bool(self.key)
        # a row that is upserted again changes nothing
        is_shared = self.is_shared or deletes
        return partial(KafkaTransaction, self.settings, self.topic, key, run, deletes=deletes, is_shared=is_shared)


def _row_of(columns: ResultColumns) -> tuple[str, ...]:
    """Return the payload and start of a changelog, which all changes of a row have in common; empty for other outputs."""
    assert columns.schema is not None
    names = columns.schema.names
    return tuple(names[1 : names.index("end")]) if "new_end" in names[-2:] else ()


def kafka_sink(topic: KafkaTopic, verb: str) -> KafkaSink:
    """Return a topic as a sink; raise PlanError for what is said of reading it, and without the client for Kafka."""
    if topic != KafkaTopic(topic.servers, topic.topic, None, options=topic.options):
        hint = "Give servers, topic and options."
        raise PlanError(verb, "a topic that is written has no schema, start or end", f"topic {topic.topic!r}", hint)
    check_client("confluent_kafka", "confluent-kafka", "kafka", verb)
    options = {name: value for name, value in topic.options if not name.lower().startswith("kafka.")}
    shared = options.pop(SHARED, "false")
    if options:
        hint = f"Those begin with kafka., and {SHARED!r}."
        raise PlanError(verb, f"option {next(iter(options))!r} is none of a topic that is written", "", hint)
    check_word(shared, ["true", "false"], SHARED, verb)
    settings = client_settings(topic.servers, topic.options)
    return KafkaSink(topic.servers, topic.topic, settings, is_shared=shared == "true")


class KafkaTransaction(Transaction):
    """A transaction of Kafka, over the ``topic`` and a compacted topic with the number of the last micro-batch of each ``run``.

    ``settings``: those of the client. ``key``: the columns of a message's key. ``deletes``: a row says by ``op`` if it is gone.
    ``is_shared``: other runs may have written there before this one.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        key: tuple[str, ...],
        run: str,
        *,
        deletes: bool,
        is_shared: bool,
    ):
        from confluent_kafka import Producer

        self.settings, self.topic, self.key, self.run = settings, topic, key, run
        self.deletes, self.is_shared = deletes, is_shared
        self.failures: list[str] = []
        self.marks, self.is_open = f"{topic}.streamq", False
        own: dict[str, Any] = {"transactional.id": f"streamq-{topic}-{run}", "linger.ms": 20, "compression.type": "lz4"}
        own["delivery.report.only.error"] = True
        self.producer = Producer({**settings, **own, "transaction.timeout.ms": 900_000})
        # an earlier attempt is fenced off, and its transaction ended
        self.producer.init_transactions(ANSWER_SECONDS)

    def done(self, number: int) -> bool:
        return self._marked() >= number

    def _marked(self) -> int:
        """Return the number of the last micro-batch that the run has written; -1 if there is none.

        Raises RuntimeError if there is none, but some of other runs, and the topic is not shared.
        """
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
        last, others = -1, set[str]()
        while (message := consumer.poll(ANSWER_SECONDS)) is not None:
            error: Any = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                if others and last < 0 and not self.is_shared:
                    hint = "Write another topic, or say options={'shared': 'true'}: all rows are then beside those."
                    raise RuntimeError(f"topic {self.topic!r} has rows of {', '.join(sorted(others))}. {hint}")
                return last
            if error is not None:
                raise KafkaException(error)
            if message.key() == self.run.encode():
                last = int(message.value() or b"")
            else:
                others.add((message.key() or b"").decode())
        raise TimeoutError(f"no answer of {self.settings['bootstrap.servers']} in {ANSWER_SECONDS} s")

    def write(self, rows: pa.RecordBatchReader, number: int) -> None:
        self.producer.begin_transaction()
        self.is_open = True
        for batch in rows:
            for row in batch.to_pylist():
                if self.key and not self.deletes and row["kind"] in {"cti", "end"}:
                    self._check_partitions()
                is_gone = self.deletes and row.pop("op") == "delete"
                of_key = {name: row[name] for name in self.key}
                self._produce(self.topic, None if is_gone else in_json(row), in_json(of_key) if self.key else None)
        self._produce(self.marks, str(number).encode(), self.run.encode())
        # the error of a commit does not say what is wrong with a message
        if self.producer.flush(ANSWER_SECONDS):
            raise TimeoutError(f"no answer of {self.settings['bootstrap.servers']} in {ANSWER_SECONDS} s")
        if self.failures:
            raise RuntimeError(f"Kafka has not taken all messages of a micro-batch; {self.failures[0]}")
        self.producer.commit_transaction(ANSWER_SECONDS)
        self.is_open = False

    def close(self) -> None:
        # readers of what is committed get no further than an open transaction
        if self.is_open:
            self.producer.abort_transaction(ANSWER_SECONDS)

    def _check_partitions(self) -> None:
        """Raise RuntimeError if there are several partitions: a CTI of one would be read before rows of another."""
        number = len(self.producer.list_topics(self.topic, ANSWER_SECONDS).topics[self.topic].partitions)
        if number > 1:
            raise RuntimeError(f"a changelog with CTIs goes to a topic of one partition; {self.topic!r} has {number}")

    def _note(self, error: Any, message: Any) -> None:
        """Note that Kafka has not taken a message."""
        self.failures.append(f"{message.topic()}: {error.str()}")

    def _produce(self, topic: str, value: bytes | None, key: bytes | None) -> None:
        """Send a message, once the client has room for it."""
        while True:
            try:
                return self.producer.produce(topic, value, key, on_delivery=self._note)
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
