"""A topic of Kafka as a sink: a transaction a micro-batch, whose number is in a compacted topic beside it."""

from __future__ import annotations

import base64
import datetime as dt
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import types as t

from streamq.choices import OutputForm, check_word
from streamq.compiler.results import ResultColumns
from streamq.connectors.envelopes import change_columns
from streamq.connectors.kafka import KafkaTopic
from streamq.connectors.kafka_client import ANSWER_SECONDS, check_brokers, client_settings
from streamq.connectors.schema_registry import KINDS, SchemaRegistry, subject_of
from streamq.errors import PlanError, SourceError
from streamq.run.registered_values import Encode, RegisteredValue, schema_of
from streamq.run.transactional_sink import Transaction, TransactionalSink, check_client
from streamq.runtime.hosts.result_rows import DELETE, PREIMAGE

SOURCE = t.StructType(
    [t.StructField(name, t.StringType()) for name in ("connector", "name")]
    + [t.StructField(name, t.LongType()) for name in ("batch", "ts_ms")]
)
"""The columns that say where a change in an envelope comes from, and when."""

TAIL = 1_000
"""The offsets, up to the end of the numbers, among which a run that goes on has its last one."""

SHARED = "shared"
"""The option of a topic into which several runs write."""


@dataclass(frozen=True)
class KafkaSink(TransactionalSink):
    """The messages of ``topic``: rows in the form ``value``, with their key as the message's key.

    ``settings``: those of the client. A deletion of an upsert is a message without a value. ``row``: the columns that all changes
    of a row have in common in a changelog. ``is_shared``: other runs may have written rows there. ``takes_preimages``: upserts
    are changes in the envelope of Debezium. ``registered``: values by the schema that ``create`` has given to the ``registry``.
    """

    servers: str
    topic: str
    settings: Mapping[str, str]
    takes_preimages: bool = False
    value: str = "json"
    registry: SchemaRegistry | None = None
    row: tuple[str, ...] = ()
    is_shared: bool = False
    registered: list[RegisteredValue] = field(default_factory=list, compare=False)

    def check(self, verb: str, *, name: str | None, finish: bool) -> None:
        """Raise SourceError if no broker answers, or none lets us write, PlanError if it has no such topic."""
        check_brokers(self.servers, verb)
        from confluent_kafka import KafkaError, KafkaException, TopicCollection
        from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]

        admin, topics = AdminClient(dict(self.settings)), TopicCollection([self.topic])
        options: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": ANSWER_SECONDS}
        try:
            allowed = admin.describe_topics(topics, **options)[self.topic].result().authorized_operations
        except KafkaException as exception:
            error = exception.args[0]
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise PlanError(
                    verb, f"no topic {self.topic!r} to write", f"at {self.servers}", "Create it first."
                ) from exception
            raise SourceError(verb, f"topic {self.topic!r} is not written", error.str()) from exception
        # brokers of others may not say it
        if allowed and AclOperation.WRITE not in allowed:
            raise SourceError(verb, f"topic {self.topic!r} is not written", f"{self.servers} does not let us write")

    def create(self, columns: ResultColumns, verb: str) -> None:
        """Raise PlanError for rows without a key in an envelope, and for a changelog that the topic would not keep in order.

        Values of a registry have a schema there from here on; raises what it raises.
        """
        if self.takes_preimages and not columns.key:
            reason = f"rows of output={columns.output!r} have no key that tells them apart"
            hint = 'Write output="upsert" or "latest", or leave the envelope out.'
            raise PlanError(verb, "an envelope is of changes of a row by its key", reason, hint)
        if columns.output == OutputForm.CHANGELOG:
            self._check_order(columns, verb)
        if self.registry is not None:
            schema = schema_of(self._columns_of_values(columns), self.value, verb)
            number = self.registry.register(subject_of(self.topic), schema, KINDS[self.value], verb)
            self.registered[:] = [RegisteredValue(self.value, schema, number)]

    def _columns_of_values(self, columns: ResultColumns) -> t.StructType:
        assert columns.schema is not None
        row = t.StructType([column for column in columns.schema if not (columns.key and column.name == "op")])
        return change_columns(row, SOURCE) if self.takes_preimages else row

    def _check_order(self, columns: ResultColumns, verb: str) -> None:
        """Raise PlanError for a changelog that the topic would not keep in order."""
        from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

        admin, place = AdminClient(dict(self.settings)), ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        number = len(admin.list_topics(self.topic, ANSWER_SECONDS).topics[self.topic].partitions)
        if columns.ctis and number > 1:
            hint = "Leave ctis out, or create the topic with one."
            wrong = f"{self.topic!r} has {number}: a CTI of one would be read before rows of another"
            raise PlanError(verb, "a changelog with CTIs goes to a topic of one partition", wrong, hint)
        policy = admin.describe_configs([place])[place].result(ANSWER_SECONDS)["cleanup.policy"].value
        if "compact" in policy:
            hint = 'Write output="upsert" or "latest" there, or give the topic cleanup.policy=delete.'
            reason = (
                f"topic {self.topic!r} has cleanup.policy={policy}: of rows that change it would keep the last change"
            )
            raise PlanError(verb, "a changelog is read as a whole", reason, hint)

    def placed(self, columns: ResultColumns, checkpoint: str) -> Self:
        # what all changes of a row have in common
        row = (*columns.payload, "start") if columns.output == OutputForm.CHANGELOG else ()
        return replace(super().placed(columns, checkpoint), row=row)

    def transaction(self, run: str) -> Callable[[], Transaction]:
        key = self.key or self.row
        deletes = bool(self.key)
        # a row that is upserted again changes nothing
        is_shared = self.is_shared or deletes
        more = {"deletes": deletes, "is_shared": is_shared, "has_envelope": self.takes_preimages}
        values = self.registered[0] if self.registered else None
        return partial(KafkaTransaction, self.settings, self.topic, key, run, values=values, **more)


def kafka_sink(topic: KafkaTopic, verb: str) -> KafkaSink:
    """Return a topic as a sink; raise PlanError for what is said of reading it, and without the client for Kafka."""
    more: dict[str, Any] = {} if topic.registry is None else {"value": topic.value, "registry": topic.registry}
    bare = KafkaTopic(topic.servers, topic.topic, None, options=topic.options, envelope=topic.envelope, **more)
    if topic != bare:
        hint = "Give servers, topic, envelope, options, and with a registry value."
        raise PlanError(verb, "a topic that is written has no schema, start or end", f"topic {topic.topic!r}", hint)
    check_client("confluent_kafka", "confluent-kafka", "kafka", verb)
    options = {name: value for name, value in topic.options if not name.lower().startswith("kafka.")}
    shared = options.pop(SHARED, "false")
    if options:
        hint = f"Those begin with kafka., and {SHARED!r}."
        raise PlanError(verb, f"option {next(iter(options))!r} is none of a topic that is written", "", hint)
    check_word(shared, ["true", "false"], SHARED, verb)
    settings = client_settings(topic.servers, topic.options)
    return KafkaSink(
        topic.servers,
        topic.topic,
        settings,
        takes_preimages=topic.envelope is not None,
        value=topic.value,
        registry=topic.asked_registry(),
        is_shared=shared == "true",
    )


class KafkaTransaction(Transaction):
    """A transaction of Kafka, over the ``topic`` and a compacted topic with the number of the last micro-batch of each ``run``.

    ``settings``: those of the client. ``key``: the columns of a message's key. ``deletes``: a row says by ``op`` if it is gone.
    ``is_shared``: other runs may have written there before this one. ``has_envelope``: values are changes as of Debezium.
    ``values``: their form; None: JSON.
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
        has_envelope: bool = False,
        values: RegisteredValue | None = None,
    ):
        from confluent_kafka import Producer

        self.settings, self.topic, self.key, self.run = settings, topic, key, run
        self.deletes, self.is_shared, self.has_envelope = deletes, is_shared, has_envelope
        self.encode = in_json if values is None else values.encode(in_json)
        self.failures: list[str] = []
        self.marks, self.is_open = f"{topic}.streamq", False
        own: dict[str, Any] = {"transactional.id": f"streamq-{topic}-{run}", "linger.ms": 20, "compression.type": "lz4"}
        own["delivery.report.only.error"] = True
        self.producer = Producer({**settings, **own, "transaction.timeout.ms": 900_000})
        # an earlier attempt is fenced off, and its transaction ended
        with self._answered():
            self.producer.init_transactions(ANSWER_SECONDS)

    def done(self, number: int) -> bool:
        return self._marked() >= number

    def _marked(self) -> int:
        """Return the number of the last micro-batch that the run has written; -1 if there is none.

        Raises RuntimeError if there is none, but some of other runs, and the topic is not shared.
        """
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient(dict(self.settings))
        new = NewTopic(self.marks, 1, config={"cleanup.policy": "compact"})
        try:
            with self._answered():
                admin.create_topics([new])[self.marks].result(ANSWER_SECONDS)
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        # of a broker that waits for more messages the client hears late that there are none
        reading = {"group.id": self.run, "isolation.level": "read_committed", "fetch.wait.max.ms": 10}
        consumer = Consumer({**self.settings, **reading, "enable.partition.eof": True, "enable.auto.commit": False})
        with closing(consumer), self._answered():
            first, end = consumer.get_watermark_offsets(TopicPartition(self.marks, 0), ANSWER_SECONDS)
            numbers = self._numbers(consumer, max(first, end - TAIL))
            if self.run not in numbers and first < end - TAIL:
                numbers = self._numbers(consumer, first)
        if numbers and self.run not in numbers and not self.is_shared:
            hint = "Write another topic, or say options={'shared': 'true'}: all rows are then beside those."
            raise RuntimeError(f"topic {self.topic!r} has rows of {', '.join(sorted(numbers))}. {hint}")
        return numbers.get(self.run, -1)

    def _numbers(self, consumer: Any, offset: int) -> dict[str, int]:
        """Return the number of the last micro-batch of each run, by its name, of those from an offset on."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        consumer.assign([TopicPartition(self.marks, 0, offset)])
        numbers: dict[str, int] = {}
        while (message := consumer.poll(ANSWER_SECONDS)) is not None:
            error: Any = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return numbers
            if error is not None:
                raise KafkaException(error)
            numbers[(message.key() or b"").decode()] = int(message.value() or b"")
        raise self._no_answer()

    def write(self, rows: pa.RecordBatchReader, number: int) -> None:
        self.producer.begin_transaction()
        self.is_open = True
        source = {"connector": "streamq", "name": self.run, "batch": number, "ts_ms": time.time_ns() // 1_000_000}
        of_change = source if self.has_envelope else None
        for key, value in keyed_values(rows, self.key, self.deletes, of_change, self.encode):
            self._produce(self.topic, value, key)
        self._produce(self.marks, str(number).encode(), self.run.encode())
        # the error of a commit does not say what is wrong with a message
        if self.producer.flush(ANSWER_SECONDS):
            raise self._no_answer()
        if self.failures:
            raise RuntimeError(f"Kafka has not taken all messages of a micro-batch; {self.failures[0]}")
        with self._answered():
            self.producer.commit_transaction(ANSWER_SECONDS)
        self.is_open = False

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Raise TimeoutError, which names the servers, where Kafka's client has waited in vain."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            yield
        except TimeoutError as error:  # of a future
            raise self._no_answer() from error
        except KafkaException as error:
            if error.args[0].code() not in {KafkaError._TIMED_OUT, KafkaError._TRANSPORT}:
                raise
            raise self._no_answer() from error

    def _no_answer(self) -> TimeoutError:
        """Return the error of servers that do not answer, who would not hear either that a transaction ends."""
        self.is_open = False
        return TimeoutError(f"no answer of {self.settings['bootstrap.servers']} in {ANSWER_SECONDS:.0f} s")

    def close(self) -> None:
        from confluent_kafka import KafkaException

        # readers of what is committed get no further than an open transaction; one that Kafka has given up, with an error that
        # this must not hide, is ended by the next attempt
        if self.is_open:
            with suppress(KafkaException):
                self.producer.abort_transaction(ANSWER_SECONDS)

    def _note(self, error: Any, message: Any) -> None:
        """Note that Kafka has not taken a message; why a whole transaction has failed is the error of its commit."""
        from confluent_kafka import KafkaError

        if error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self.failures.append(f"{message.topic()}: {error.str()}")

    def _produce(self, topic: str, value: bytes | None, key: bytes | None) -> None:
        """Send a message, once the client has room for it."""
        while True:
            try:
                return self.producer.produce(topic, value, key, on_delivery=self._note)
            except BufferError:
                self.producer.poll(1)


def keyed_values(
    rows: Iterable[pa.RecordBatch],
    key: tuple[str, ...],
    deletes: bool,
    source: Mapping[str, Any] | None,
    encode: Encode,
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield the keys and values of the messages of rows; the arguments are those of a KafkaTransaction.

    ``source``: what changes in the envelope of Debezium say of where they come from, and when; None: there is no envelope.
    """
    before = None
    for row in (row for batch in rows for row in batch.to_pylist()):
        op = row.pop("op") if deletes else None
        if op == PREIMAGE:
            before = row
            continue
        of_key = in_json({name: row[name] for name in key}) if key else None
        after = None if op == DELETE else row
        if source is not None:
            code = "d" if after is None else "c" if before is None else "u"
            change = {"before": before, "after": after, "op": code, "ts_ms": source["ts_ms"], "source": source}
            yield of_key, encode(change)
        if after is None or source is None:
            yield of_key, None if after is None else encode(after)
        before = None


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
