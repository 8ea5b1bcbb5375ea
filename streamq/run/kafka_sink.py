"""A topic of Kafka as a sink: a transaction a micro-batch, whose number is in it, so that no message comes twice."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamq.compiler.results import ResultColumns
from streamq.connectors.connector import option_values
from streamq.connectors.kafka import KafkaTopic, check_brokers
from streamq.errors import PlanError
from streamq.run.failure import raised_in_sink
from streamq.run.sinks import Sink, persisted, throw_away

SECONDS = 60
"""The seconds that a broker may take to answer."""


@dataclass(frozen=True)
class KafkaSink(Sink):
    """The messages of ``topic``: rows as objects of JSON, with their key, of upserts, as the message's key.

    ``settings``: those of the client. ``key``: the columns of a row's key; a deletion is a message without a value. ``result``:
    its title in the run, whose ``checkpoint`` numbers the micro-batches. The numbers are in the topic ``marks``.
    """

    servers: str
    topic: str
    settings: Mapping[str, str]
    key: tuple[str, ...] = ()
    result: str = ""
    checkpoint: str = ""
    written: list[int] = field(default_factory=list, compare=False)

    is_lasting: ClassVar[bool] = True
    takes_empty_batches: ClassVar[bool] = False
    calls_python: ClassVar[bool] = True

    @property
    def marks(self) -> str:
        """The compacted topic with the number of the last micro-batch of each checkpoint."""
        return f"{self.topic}.streamq"

    def placed(self, columns: ResultColumns, checkpoint: str) -> Sink:
        check_brokers(self.servers, "run")
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers, **self.settings})
        if self.topic not in admin.list_topics(timeout=SECONDS).topics:
            raise PlanError("run", f"no topic {self.topic!r} to write", f"at {self.servers}", "Create it first.")
        return replace(self, key=columns.key, result=columns.title, checkpoint=checkpoint, written=[])

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:

        def write(rows: DataFrame, number: int) -> None:
            with persisted(rows):
                throw_away(rows)
                with raised_in_sink("the sink"):
                    self.write(rows, number)

        return writer.foreachBatch(write)

    def write(self, rows: DataFrame, number: int) -> None:
        """Write the rows of a micro-batch, unless the topic has them: a micro-batch is written as a whole, once."""
        described = rows.sparkSession.read.text(f"{self.checkpoint}/metadata").first()
        assert described is not None
        run = f"{json.loads(described[0])['id']}-{self.result.replace(' ', '-')}"
        # one task, and so one transaction, whatever the number of tasks when the micro-batch is repeated
        sent = rows.coalesce(1).mapInArrow(transaction(self, run, number, asks=not self.written), "rows bigint")
        sent.collect()
        self.written.append(number)


def kafka_sink(topic: KafkaTopic, verb: str) -> KafkaSink:
    """Return a topic as a sink; raise PlanError for what is said of reading it, and without the client for Kafka."""
    if topic != KafkaTopic(topic.servers, topic.topic, None, options=topic.options):
        hint = "Give servers, topic and options."
        raise PlanError(verb, "a topic that is written has no schema, start or end", f"topic {topic.topic!r}", hint)
    if importlib.util.find_spec("confluent_kafka") is None:
        raise PlanError(
            verb, "Kafka is written by confluent-kafka", "it is not installed", "pip install streamq[kafka]"
        )
    settings = {name.removeprefix("kafka."): str(value) for name, value in option_values(topic.options).items()}
    return KafkaSink(topic.servers, topic.topic, settings)


def transaction(sink: KafkaSink, run: str, number: int, *, asks: bool) -> Any:
    """Return the function that sends a micro-batch's rows, for ``mapInArrow``; it imports nothing of streamq.

    ``asks``: it may be repeated, so that the topic of marks is asked.
    """
    servers, topic, marks, settings, key = sink.servers, sink.topic, sink.marks, dict(sink.settings), sink.key
    seconds = SECONDS

    def plain(value: Any) -> Any:
        import base64
        import datetime as dt

        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        if isinstance(value, dt.timedelta):
            return value // dt.timedelta(microseconds=1)
        return value.isoformat() if isinstance(value, dt.date) else str(value)

    def marked() -> int:
        """Return the number of the last micro-batch that the run has written; -1 if there is none."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": servers, **settings})
        try:
            new = NewTopic(marks, 1, config={"cleanup.policy": "compact"})
            admin.create_topics([new])[marks].result(seconds)
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        reading = {"group.id": run, "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": servers, **settings, **reading, "enable.auto.commit": False})
        consumer.assign([TopicPartition(marks, 0, OFFSET_BEGINNING)])
        last = -1
        while (message := consumer.poll(seconds)) is not None:
            error: Any = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return last
            if error is not None:
                raise KafkaException(error)
            if message.key() == run.encode():
                last = int(message.value() or b"")
        raise TimeoutError(f"no answer of {servers} in {seconds} s")

    def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json

        import pyarrow as pa
        from confluent_kafka import Producer
        from pyspark import TaskContext

        own = {"transactional.id": f"streamq-{topic}-{run}", "linger.ms": 20, "compression.type": "lz4"}
        limits = {"transaction.timeout.ms": 900_000}
        producer = Producer({"bootstrap.servers": servers, **settings, **own, **limits})
        # an earlier attempt is fenced off, and its transaction ended
        producer.init_transactions(seconds)
        task = TaskContext.get()
        is_repeated = asks or (task is not None and task.attemptNumber() > 0)
        if is_repeated and marked() >= number:
            yield pa.RecordBatch.from_pydict({"rows": pa.array([0], pa.int64())})
            return
        producer.begin_transaction()
        count = 0
        for batch in batches:
            for row in batch.to_pylist():
                is_gone = bool(key) and row.pop("op") == "delete"
                of_key = json.dumps({name: row[name] for name in key}, default=plain).encode() if key else None
                value = None if is_gone else json.dumps(row, default=plain).encode()
                while True:
                    try:
                        producer.produce(topic, value, of_key)
                        break
                    except BufferError:
                        producer.poll(1)
                count += 1
        producer.produce(marks, str(number).encode(), run.encode())
        producer.commit_transaction(seconds)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([count], pa.int64())})

    return send
