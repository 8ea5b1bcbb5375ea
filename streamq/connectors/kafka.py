"""A topic of Kafka as the rows of a source: Spark reads the messages, and their values are decoded by PyArrow."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
from pyspark.sql import types as t

from streamq.choices import check_word
from streamq.connectors.connector import (
    Connector,
    Splits,
    option_values,
    schema_text,
    with_variables,
    without_secrets,
)
from streamq.connectors.envelopes import DEBEZIUM, OF_CHANGES, DebeziumFormat, rows_of_changes
from streamq.connectors.kafka_client import check_brokers, client_settings, messages_between
from streamq.connectors.messages import (
    FORMATS,
    MALFORMED,
    OFFSET,
    PARTITION,
    WRONG,
    MessageReader,
    ValueFormat,
    decodable,
    row_schema,
)
from streamq.connectors.records import AvroFormat, RecordFormat, protobuf_format
from streamq.connectors.schema_registry import KINDS, RegisteredSchema, SchemaRegistry, subject_of
from streamq.errors import NeedsSpark, PlanError, SessionError, SourceError, check_keywords, unknown_column
from streamq.plan.schema import Field, lazy
from streamq.plan.spark_types import parse_fields
from streamq.runtime.arrow.arrow_types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

HEADERS = t.ArrayType(t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]))

METADATA: Mapping[str, t.DataType] = {
    "key": t.BinaryType(),
    "partition": t.IntegerType(),
    "offset": t.LongType(),
    "timestamp": t.TimestampType(),
    "headers": HEADERS,
}
"""The columns that Kafka has of a message beside its value, in Spark's types."""

BESIDE = (
    Field(PARTITION, t.IntegerType()),
    Field(OFFSET, t.LongType()),
    Field(MALFORMED, t.BinaryType()),
    Field(WRONG, t.StringType()),
)
"""The columns beside the events: where a message is, and why it is none."""

RECORDS: Mapping[str, Callable[[str], RecordFormat]] = {"avro": AvroFormat, "protobuf": protobuf_format}
"""The forms of values of which ``record`` says the columns."""

EARLIEST, LATEST = "earliest", "latest"

Offsets = str | tuple[tuple[int, int], ...]
"""The place where reading begins or ends: EARLIEST, LATEST, or an offset for each partition."""

JARS = "Start Spark with its connector: sq.session(kafka=True); an active session first: SparkSession.active().stop()."

OWN_OPTIONS = frozenset(
    {"subscribe", "assign", "subscribepattern", "kafka.bootstrap.servers", "includeheaders"}
    | {"startingoffsets", "endingoffsets", "maxoffsetspertrigger"}
)
"""The options of Spark's connector that arguments say, in lower case."""


@dataclass(frozen=True)
class KafkaTopic(Connector):
    """The messages of a topic, as :func:`kafka` describes them; ``at_once`` bounds the messages of a micro-batch, None: all."""

    servers: str
    topic: str
    schema: tuple[Field, ...] | None
    value: str = "json"
    metadata: tuple[str, ...] = ()
    start: Offsets = EARLIEST
    end: Offsets = LATEST
    at_once: int | None = None
    options: tuple[tuple[str, str], ...] = ()
    record: str | int | None = None
    envelope: str | None = None
    registry: str | None = None

    title = "topic"
    is_decoded = True
    parts = (PARTITION,)
    transport_columns = tuple(field.name for field in BESIDE)

    @property
    def fields(self) -> tuple[Field, ...]:
        added = [Field(name, kind) for name, kind in METADATA.items() if name in self.metadata]
        return (*self._of_values, *added, *BESIDE)

    @property
    def order(self) -> tuple[str, ...]:
        return () if self.envelope is None else (OFFSET,)

    @property
    def _of_values(self) -> tuple[Field, ...]:
        return self._of_rows if self.envelope is None else (*self._of_rows, *OF_CHANGES)

    @property
    def _of_rows(self) -> tuple[Field, ...]:
        if self.registry is not None and (self.schema is None or self.value in RECORDS):
            columns = self._registered.columns
            columns = columns if self.envelope is None else rows_of_changes(columns)
            names = [field.name for field in columns]
            if unknown := next((field.name for field in self.schema or () if field.name not in names), None):
                unknown_column("kafka", unknown, names, lifetime=False)
            return self.schema or columns
        if self.schema is None:
            raise PlanError(
                "kafka", "which columns values have is not known", "", 'Give schema="at timestamp, v double".'
            )
        return self.schema

    def asked_registry(self) -> SchemaRegistry | None:
        """Return the registry, with the values of environment variables in its URL; SourceError if one is not set."""
        if self.registry is None:
            return None
        return SchemaRegistry(with_variables(self.registry, "kafka", lambda value: quote(value, safe="")))

    @lazy
    def _schema_number(self) -> int:
        registry = self.asked_registry()
        assert registry is not None
        return self.record if isinstance(self.record, int) else registry.latest(subject_of(self.topic), "kafka")

    @lazy
    def _registered(self) -> RegisteredSchema:
        registry = self.asked_registry()
        assert registry is not None
        return RegisteredSchema.read(registry, self._schema_number, self.value)

    @property
    def _format(self) -> ValueFormat:
        if (registry := self.asked_registry()) is not None:
            form = self._registered.format(registry)
        else:
            form = RECORDS[self.value](str(self.record)) if self.value in RECORDS else FORMATS[self.value]
        return form if self.envelope is None else DebeziumFormat(form)

    def to_json(self) -> dict[str, Any]:
        if self.registry is not None and (password := urlsplit(self.registry).password) is not None:
            without_secrets([("password of the registry", password)])
        place = {
            "servers": self.servers,
            "topic": self.topic,
            "schema": schema_text(self._of_rows),
            "value": self.value,
            "record": self.record if self.registry is None else self._schema_number,
            "registry": self.registry,
            "envelope": self.envelope,
        }
        bounds = {"start": _offsets_json(self.start), "end": _offsets_json(self.end), "at_once": self.at_once}
        others = {"metadata": list(self.metadata), "options": without_secrets(self.options)}
        return {"connector": "kafka", **place, **bounds, **others}

    def in_memory(self, verb: str) -> pa.Table:
        if importlib.util.find_spec("confluent_kafka") is None:
            hint = "pip install streamq[kafka], or let Spark read it: q.to_df() or q.run(), in a session."
            raise NeedsSpark(verb, f"topic {self.topic!r} of Kafka", "confluent-kafka is not installed", hint)
        check_brokers(self.servers, verb)
        self._check_bounded(verb)
        bounds = (None if isinstance(offsets, str) else dict(offsets) for offsets in (self.start, self.end))
        read = self._reader([field.name for field in self.fields])
        own = {"value": t.BinaryType(), **METADATA}
        names = {**{name: name for name in own}, PARTITION: "partition", OFFSET: "offset"}
        tables = [row_schema(self.fields).empty_table()]
        for messages in messages_between(client_settings(self.servers, self.options), self.topic, *bounds):
            columns = {n: pa.array([m[of] for m in messages], arrow_type(own[of])) for n, of in names.items()}
            tables += read(pa.record_batch(columns))
        return pa.concat_tables(tables)

    def _check_bounded(self, verb: str) -> None:
        """Raise PlanError if a batch has no beginning."""
        if self.start == LATEST:
            wrong = "a batch begins at 'earliest' or at offsets"
            raise PlanError(
                verb, wrong, f"found start={LATEST!r} of topic {self.topic!r}", "A stream, run(), begins there."
            )

    def frame(self, spark: SparkSession) -> DataFrame:
        self._check_bounded("kafka")
        reader = spark.read.format("kafka").option("endingOffsets", self._offsets(self.end))
        return self._decoded(self._messages(reader))

    def not_split(self) -> str:
        return ""

    def splits(self, spark: SparkSession, columns: Collection[str]) -> Splits:
        return Splits(self._streamed(spark, columns), self._reader(columns))

    def stream(self, spark: SparkSession) -> DataFrame:
        return self._decoded(self._streamed(spark, [field.name for field in self.fields]))

    def awaited_parts(self, spark: SparkSession) -> tuple[tuple[Any, ...], ...]:
        """Return the partitions of the topic, by the client of Spark's connector; none on Spark Connect, which does not lend it.

        Raises SourceError if there is no such topic, or no broker answers.
        """
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        check_brokers(self.servers, "kafka")
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            return ()
        # Python's dictionaries are maps of Java's
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(client_settings(self.servers, self.options))
        try:
            topics = client.describeTopics(jvm.java.util.List.of(self.topic)).allTopicNames().get()
            return tuple((one.partition(),) for one in topics[self.topic].partitions())
        except Py4JJavaError as error:
            what = str(error.java_exception.getCause() or error.java_exception).partition(": ")[2]
            raise SourceError("kafka", f"no topic {self.topic!r} to read at {self.servers}", what) from error
        finally:
            client.close()

    def _streamed(self, spark: SparkSession, columns: Collection[str]) -> DataFrame:
        reader = spark.readStream.format("kafka")
        if self.at_once is not None:
            reader = reader.option("maxOffsetsPerTrigger", self.at_once)
        return self._messages(reader, columns)

    def _messages(
        self, reader: DataFrameReader | DataStreamReader, columns: Collection[str] | None = None
    ) -> DataFrame:
        """Return the messages that a reader of Spark's reads: their values, and of ``columns`` (None: all) those of Kafka.

        Raises SessionError without Spark's connector, SourceError if no broker answers.
        """
        from pyspark.errors import AnalysisException

        named = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "kafka.isolation.level": "read_committed",
        }
        headers = {"includeHeaders": "true"} if "headers" in self.metadata else {}
        options = {**named, **headers, "startingOffsets": self._offsets(self.start), **option_values(self.options)}
        try:
            messages: DataFrame = reader.options(**options).load()
        except AnalysisException as error:
            raise SessionError("kafka", "Spark has no connector for Kafka", str(error).splitlines()[0], JARS) from error
        check_brokers(self.servers, "kafka")
        # what Kafka calls the columns that are not those of values
        own = {**{name: name for name in METADATA if name in self.metadata}, PARTITION: "partition", OFFSET: "offset"}
        names = [f"{own[n]} AS {n}" for n in own if columns is None or n in columns]
        return messages.selectExpr("value", *names)

    def _decoded(self, messages: DataFrame) -> DataFrame:
        """Return the rows of messages."""
        return Splits(messages, self._reader([field.name for field in self.fields])).decoded(self.fields)

    def _reader(self, columns: Collection[str]) -> MessageReader:
        fields = tuple(field for field in self.fields if field.name in columns)
        return MessageReader(self._format, self._of_values, fields)

    def _offsets(self, offsets: Offsets) -> str:
        """Return offsets as Spark's option has them."""
        if isinstance(offsets, str):
            return offsets
        return json.dumps({self.topic: {str(partition): offset for partition, offset in offsets}})


def _offsets_json(offsets: Offsets) -> str | dict[str, int]:
    return offsets if isinstance(offsets, str) else {str(partition): offset for partition, offset in offsets}


@check_keywords
def kafka(
    servers: str,
    topic: str,
    *,
    schema: t.StructType | str | None = None,
    value: str = "json",
    metadata: Sequence[str] = (),
    start: str | Mapping[int, int] = EARLIEST,
    end: str | Mapping[int, int] = LATEST,
    at_once: int | None = None,
    options: Mapping[str, str] | None = None,
    record: str | int | None = None,
    envelope: str | None = None,
    registry: str | None = None,
) -> KafkaTopic:
    """Say that rows are the messages of a topic of Kafka: a value for ``sq.points`` and other sources, and a sink.

    The same query then runs as a batch (``to_df()``) over the messages from ``start`` to ``end``, in-process over the same by
    ``show()``, ``to_arrow()`` and ``to_pandas()``, and as a stream (``run()``), which goes on with those that come. ``servers``
    are Kafka's bootstrap servers, ``"host:9092"``. ``start`` is "earliest", "latest" (of a stream), or offsets by partition, of
    all partitions, ``end`` "latest" or offsets; a checkpoint goes on where it was. ``at_once`` is the number of messages of a
    micro-batch, at most. Spark needs its connector: ``sq.session(kafka=True)``; in-process it is the package confluent-kafka.

    ``value`` is the form of a message's value: "json", an object, of which fields that are missing are NULL, or "csv", a line,
    with the columns of ``schema``, ``"at timestamp, v double"``; "avro" or "protobuf", with the columns of ``record``, a schema
    of Avro in JSON, or the message of a generated class, ``"trips_pb2.Trip"``, or in a file of descriptors,
    ``"trips.desc:shop.Trip"``; or "string" or "bytes", with the only column ``value``. Instants in text are ISO 8601; those
    without an offset are in UTC. ``metadata`` adds columns of Kafka's to the payload: key, partition, offset, timestamp, headers.

    A value of another form, or whose field has another type, is a row of NULLs, and so no event (see ``invalid`` of the source):
    its bytes are in the column ``_malformed``, and what is wrong with them in ``_wrong``. Those, ``_partition`` and ``_offset``
    are beside the events: in the late output, and at hand for ``per``. Progress is that of the partition furthest behind, by
    default, and all are waited for.

    ``registry``, the URL of a schema registry as Confluent's, says the columns of "avro", "protobuf" and "json" whose values have
    the number of a schema in front: those of the topic's newest one, or of number ``record``; ``schema`` names some of them.

    ``envelope="debezium"``: values are changes of rows with the columns of ``schema``, which :func:`changes` reads by their key.

    ``options`` are those of Spark's connector, for one the protocol of security; of a value ``"${NAME}"`` Spark gets the
    environment variable, so that a plan in JSON has no secret. Raises PlanError for wrong arguments.

    As a sink, ``sink=sq.kafka(servers, topic)``, it takes rows as objects of JSON, or by ``value`` and ``registry``, in a
    transaction a micro-batch, which has the micro-batch's number, too: of a run that is killed no message is lost, and none comes
    twice. Of ``output="upsert"`` a message has ``run.key`` as its key, and a deletion no value; ``envelope="debezium"`` writes it
    as a change. It needs the package confluent-kafka, on the workers, too.

    ::

        trips = sq.points(sq.kafka("host:9092", "trips", schema="at timestamp, zone string, fare double"), time="at")
    """
    for name, text in (("servers", servers), ("topic", topic)):
        if not isinstance(text, str) or not text.strip():
            raise PlanError("kafka", f"{name} is a text", f"found {text!r}", 'As sq.kafka("host:9092", "trips", ...).')
    if not all(re.fullmatch(r"\s*\S+:\d+\s*", server) for server in servers.split(",")):
        raise PlanError("kafka", "servers are hosts with ports", f"found {servers!r}", 'As "host:9092,other:9092".')
    check_word(value, [*FORMATS, *RECORDS], "value", "kafka")
    columns = _columns(value, schema, record, registry)
    if envelope is not None:
        check_word(envelope, [DEBEZIUM], "envelope", "kafka")
        check_word(value, list(KINDS), "value in an envelope", "kafka")
        columns = rows_of_changes(columns) if columns is not None and record is not None else columns
    for name in metadata:
        check_word(name, list(METADATA), "metadata", "kafka")
    lower = {field.name.lower() for field in columns or ()}
    own_names = (*KafkaTopic.transport_columns, *metadata, *(f.name for f in OF_CHANGES if envelope))
    if clash := next((name for name in own_names if name in lower), None):
        wrong = f"values have a column {clash!r}, which is Kafka's"
        raise PlanError("kafka", wrong, "", 'Read them as value="string", and take the field out by from_json.')
    if at_once is not None and (not isinstance(at_once, int) or isinstance(at_once, bool) or at_once < 1):
        raise PlanError("kafka", "at_once is a number of messages, at least 1", f"found {at_once!r}")
    texts = tuple((options or {}).items())
    if wrong_option := next((n for n, v in texts if not isinstance(n, str) or not isinstance(v, str)), None):
        raise PlanError("kafka", "options are texts", f"found {wrong_option!r}: {dict(texts)[wrong_option]!r}")
    if own := next((name for name, _ in texts if name.lower() in OWN_OPTIONS), None):
        raise PlanError(
            "kafka", f"option {own!r} is said by an argument", "", "Leave it out: servers, topic, start, end, at_once."
        )
    first, last = _checked_offsets("start", start, EARLIEST, LATEST), _checked_offsets("end", end, LATEST)
    return KafkaTopic(
        servers, topic, columns, value, tuple(metadata), first, last, at_once, texts, record, envelope, registry
    )


def _columns(
    value: str, schema: t.StructType | str | None, record: str | int | None, registry: str | None
) -> tuple[Field, ...] | None:
    """Return the columns of values, None if nothing says them, or a registry; PlanError for arguments that do not go together."""
    if registry is not None:
        _check_registry(registry, value, record)
        record = None
        if schema is None:
            return None
        if value in RECORDS:
            return tuple(Field(f.name, f.dataType) for f in parse_fields(schema, "kafka"))
    elif value in RECORDS:
        if schema is not None or not isinstance(record, str):
            hint = {"avro": "the schema of Avro, in JSON", "protobuf": '"trips_pb2.Trip" or "trips.desc:shop.Trip"'}[
                value
            ]
            wrong = f"value={value!r} has the columns of a record"
            raise PlanError(
                "kafka", wrong, f"found schema={schema!r}, record={record!r}", f"Give record={hint}, alone."
            )
        return RECORDS[value](record).fields
    if record is not None:
        raise PlanError("kafka", f"value={value!r} has no record", f"found {record!r}", "Give schema=.")
    form = FORMATS[value]
    if form.whole is not None:
        if schema is not None:
            wrong = f"value={value!r} has the column 'value' alone"
            raise PlanError("kafka", wrong, "found a schema", "Leave schema out.")
        return (Field("value", form.whole),)
    columns = None if schema is None else tuple(Field(f.name, f.dataType) for f in parse_fields(schema, "kafka"))
    for field in columns or ():
        if not decodable(field, form.has_lists):
            wrong = f"column {field.name!r} is {field.type.simpleString()}, which is not decoded"
            raise PlanError("kafka", wrong, f"value={value!r}", 'Read it as value="bytes", and decode it in a select.')
    return columns


def _check_registry(registry: Any, value: str, record: Any) -> None:
    """Raise PlanError for a URL that is none, and for arguments that do not go together with a registry."""
    check_word(value, list(KINDS), "value with a registry", "kafka")
    if not isinstance(registry, str) or not re.match(r"https?://[^/]", registry):
        raise PlanError("kafka", "registry is a URL", f"found {registry!r}", 'As registry="http://host:8081".')
    if record is not None and (type(record) is not int or record < 1):
        wrong = "with a registry, record is the number of a schema there"
        raise PlanError("kafka", wrong, f"found {record!r}", "Leave it out: then it is the newest of the topic.")


def _checked_offsets(name: str, offsets: str | Mapping[int, int], *words: str) -> Offsets:
    """Return an argument as offsets, or one of the words; raise PlanError for any other."""
    if offsets in words:
        return str(offsets)
    pairs = list(offsets.items()) if isinstance(offsets, Mapping) else []
    if not pairs or not all(type(n) is int and n >= 0 for pair in pairs for n in pair):
        wrong = f"{name} is {', '.join(map(repr, words))} or an offset for each partition"
        raise PlanError("kafka", wrong, f"found {offsets!r}", f"As {name}={{0: 100, 1: 120}}.")
    return tuple(sorted(pairs))


def kafka_from_json(entry: Mapping[str, Any]) -> KafkaTopic:
    """Return the topic that an entry of a plan names, checked like the user's arguments."""
    try:
        arguments = {name: entry[name] for name in ("value", "metadata", "at_once", "options")}
        arguments |= {name: entry.get(name) for name in ("record", "envelope", "registry")}
        derived = entry["value"] in RECORDS or FORMATS[entry["value"]].whole is not None
        derived = derived and arguments["registry"] is None
        arguments["schema"] = None if derived else entry["schema"]
        for name in ("start", "end"):
            offsets = entry[name]
            arguments[name] = offsets if isinstance(offsets, str) else {int(p): o for p, o in offsets.items()}
        return kafka(entry["servers"], entry["topic"], **arguments)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PlanError("from_json", "not a topic of a plan", f"found {entry!r}") from error
