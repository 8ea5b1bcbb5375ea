"""Values behind the number of a schema in a registry: what is read of them, what is none, and what a sink writes."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Described
from pyspark.sql import types as t

import streamq as sq
from streamq.connectors import kafka
from streamq.connectors.messages import WRONG
from streamq.connectors.schema_registry import KINDS, SchemaRegistry
from streamq.errors import PlanError, SourceError, UnknownColumn
from streamq.plan.spark_types import parse_fields
from streamq.run.kafka_sink import in_json
from streamq.run.registered_values import RegisteredValue, schema_of
from tests.registry_server import Registry, registry

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)

AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
FIRST = {"type": "record", "name": "Trip", "fields": [AT, {"name": "zone", "type": "string"}]}
WITH_FARE = {**FIRST, "fields": [*FIRST["fields"], {"name": "fare", "type": ["double", "null"], "default": 7.5}]}  # type: ignore[misc]
OTHER = {"type": "record", "name": "Trip", "fields": [AT]}


@pytest.fixture
def schemas() -> Iterator[Registry]:
    with registry() as one:
        yield one


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """The values of the messages that the only partition of the topic has."""
    values: list[bytes | None] = []

    def messages(*arguments: Any) -> Iterator[list[dict[str, Any]]]:
        of_kafka = {"key": None, "partition": 0, "timestamp": NOON, "headers": None}
        yield [{"value": value, "offset": offset, **of_kafka} for offset, value in enumerate(values)]

    monkeypatch.setattr(kafka, "messages_between", messages)
    monkeypatch.setattr(kafka, "check_brokers", lambda *arguments: None)
    return values


def columns_of(kinds: str) -> t.StructType:
    return t.StructType([t.StructField(f.name, f.dataType) for f in parse_fields(kinds, "test")])


def header(number: int) -> bytes:
    return b"\0" + number.to_bytes(4)


def in_avro(number: int, schema: Any, **record: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, {"at": NOON, **record})
    return header(number) + data.getvalue()


def avro(schemas: Registry, **arguments: Any) -> Any:
    return sq.kafka("h:9092", "trips", value="avro", registry=schemas.url, **arguments)


def rows(topic: Any, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in topic.in_memory("show").to_pylist()]


def test_a_schema_that_changes_over_time(schemas: Registry, sent: list[bytes | None]) -> None:
    """All messages have the columns of the newest schema when the source is made; each schema is asked for once."""
    first = schemas.add("trips-value", json.dumps(FIRST))
    sent.append(in_avro(first, FIRST, zone="a"))
    old = sq.points(avro(schemas), time="at", name="s")
    assert old.columns == ["zone"]
    second = schemas.add("trips-value", json.dumps(WITH_FARE))
    sent += [in_avro(second, WITH_FARE, zone=zone, fare=fare) for zone, fare in (("b", 1.0), ("c", None))]
    topic = avro(schemas)
    assert sq.points(topic, time="at").columns == ["zone", "fare"]
    schemas.asked.clear()
    sent.append(in_avro(first, FIRST, zone="d"))
    assert rows(topic, "zone", "fare", WRONG) == [
        ("a", 7.5, None),
        ("b", 1.0, None),
        ("c", None, None),
        ("d", 7.5, None),
    ]
    assert sorted(schemas.asked) == [f"/schemas/ids/{number}" for number in (first, second)]
    # one that was made before, and one from a plan, keep the schema that they were made with
    again = sq.from_json(old.to_json())
    for query in (old, again):
        assert query.columns == ["zone"]
        assert sorted(row["zone"] for row in query.to_arrow().to_pylist()) == ["a", "b", "c", "d"]
    some = avro(schemas, schema="at timestamp, fare double")
    assert rows(some, "fare") == [(7.5,), (1.0,), (None,), (7.5,)]
    assert sq.points(some, time="at").columns == ["fare"]
    with pytest.raises(UnknownColumn, match="kafka: no column 'far'"):
        sq.points(avro(schemas, schema="at timestamp, far double"), time="at")
    assert rows(avro(schemas, record=first), "zone") == [("a",), ("b",), ("c",), ("d",)]


def test_what_is_no_record_of_the_registry(schemas: Registry, sent: list[bytes | None]) -> None:
    """A number that it does not have is malformed, and asked for once; so is a schema of another kind, or that does not fit."""
    number = schemas.add("trips-value", json.dumps(FIRST))
    text = schemas.add("texts-value", json.dumps({"type": "object"}), "JSON")
    other = schemas.add("others-value", json.dumps(OTHER))
    good = in_avro(number, FIRST, zone="a")
    wrong = {
        header(99) + good[5:]: "schema 99 is not in the registry",
        b"\0\0\0\0c" + b"x": "schema 99 is not in the registry",
        b"\1" + good[1:]: "no header of a schema registry",
        b"": "no header of a schema registry",
        header(text) + b"{}": f"schema {text} is of JSON, and not of AVRO",
        in_avro(other, OTHER): "written by a schema that does not fit: No default value for field zone in Trip",
        good[:-1]: "no record of Avro",
    }
    sent += [good, *wrong, None, good]
    topic = avro(schemas)
    reasons = [f"malformed value: {reason}" for reason in wrong.values()]
    assert rows(topic, "zone", WRONG) == [
        ("a", None),
        *((None, reason) for reason in reasons),
        (None, None),
        ("a", None),
    ]
    assert schemas.asked.count("/schemas/ids/99") == 1


def test_a_registry_that_does_not_answer_ends_the_query(sent: list[bytes | None]) -> None:
    """It is no reason to set values aside."""
    with registry() as schemas:
        with pytest.raises(SourceError, match="kafka: no schema of subject 'trips-value' in the registry; Subject not"):
            sq.points(avro(schemas), time="at")
        number = schemas.add("trips-value", json.dumps(FIRST))
        query = sq.points(avro(schemas), time="at", invalid="drop")
        with pytest.raises(SourceError, match="kafka: no schema 9 for value='avro'; Schema not found"):
            sq.points(avro(schemas, record=9), time="at")
        with pytest.raises(SourceError, match="kafka: no schema 1 for value='protobuf'; schema 1 is of AVRO"):
            sq.points(sq.kafka("h:9092", "trips", value="protobuf", registry=schemas.url), time="at")
    sent.append(in_avro(number, FIRST, zone="a"))
    wrong = f"no schema registry answers at {schemas.url}; .*refused.* Is it up"
    with pytest.raises(SourceError, match=wrong):
        query.to_arrow()
    with pytest.raises(SourceError, match=wrong):
        sq.points(avro(schemas), time="at")
    with registry() as failing:
        # what stands in between answers for it
        for status, message in ((503, "a leader is not known"), (404, "HTTP 404 Not Found")):
            failing.refuses = (status, message)
            with pytest.raises(SourceError, match=f"no schema registry answers at {failing.url}; {status}: {message}"):
                sq.points(avro(failing), time="at")


def test_a_user_of_the_registry_is_no_part_of_errors_or_plans(
    schemas: Registry, sent: list[bytes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    number = schemas.add("trips-value", json.dumps(FIRST))
    sent.append(in_avro(number, FIRST, zone="a"))
    monkeypatch.setenv("SECRET", "p@ss/word")
    place = schemas.url.removeprefix("http://")
    topic = sq.kafka("h:9092", "trips", value="avro", registry=f"http://me:${{SECRET}}@{place}")
    assert rows(topic, "zone") == [("a",)]
    assert {*schemas.authorizations} == {f"Basic {base64.b64encode(b'me:p@ss/word').decode()}"}
    text = sq.points(topic, time="at").to_json()
    assert "p@ss" not in text and "${SECRET}" in text
    open_secret = sq.kafka("h:9092", "trips", value="avro", registry=f"http://me:word@{place}")
    with pytest.raises(PlanError, match="option 'password of the registry' may be a secret"):
        sq.points(open_secret, time="at").to_json()
    with pytest.raises(SourceError) as refused:
        SchemaRegistry("http://me:word@127.0.0.1:1").latest("s", "kafka")
    assert "word" not in str(refused.value)


def messages_of(*files: Any) -> Any:
    """A function from a message's full name to its class."""
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def serialized(file: Any) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def test_messages_of_protocol_buffers_are_told_apart(schemas: Registry, sent: list[bytes | None]) -> None:
    """Behind the header are the places of the message in its file, of which the first one is read; others are malformed."""
    zone = descriptor_pb2.FileDescriptorProto(name="shop/zone.proto", package="shop", syntax="proto3")
    zone.message_type.add(name="Zone").field.add(name="name", number=1, type=Described.TYPE_STRING, label=1)
    file = descriptor_pb2.FileDescriptorProto(name="trip.proto", package="shop", syntax="proto3")
    file.dependency.append("shop/zone.proto")
    trip = file.message_type.add(name="Trip")
    trip.field.add(name="id", number=1, type=Described.TYPE_INT64, label=1)
    trip.field.add(name="zone", number=2, type=Described.TYPE_MESSAGE, label=1, type_name=".shop.Zone")
    trip.nested_type.add(name="Stop").field.add(name="id", number=1, type=Described.TYPE_INT64, label=1)
    file.message_type.add(name="Other").field.add(name="id", number=1, type=Described.TYPE_INT64, label=1)
    schemas.add("zones", serialized(zone), "PROTOBUF")
    references = [{"name": "shop/zone.proto", "subject": "zones", "version": 1}]
    old = schemas.add("trips-value", serialized(file), "PROTOBUF", references=references)
    trip.field.add(name="fare", number=3, type=Described.TYPE_DOUBLE, label=1)
    new = schemas.add("trips-value", serialized(file), "PROTOBUF", references=references)
    of = messages_of(zone, file)
    whole = of("shop.Trip")(id=1, zone={"name": "a"}, fare=2.5).SerializeToString()
    sent += [
        header(new) + b"\0" + whole,
        header(old) + b"\0" + of("shop.Trip")(id=2).SerializeToString(),
        header(new) + b"\x02\x00" + whole,
        header(new) + b"\x02\x02" + of("shop.Other")(id=3).SerializeToString(),
        header(new) + b"\x04\x00\x00" + of("shop.Trip.Stop")(id=4).SerializeToString(),
        header(new) + b"\x02\x0e" + whole,
        header(new),
    ]
    topic = sq.kafka("h:9092", "trips", value="protobuf", registry=schemas.url, metadata=["timestamp"])
    assert sq.points(topic, time="timestamp").columns == ["id", "zone", "fare"]
    wrong = "malformed value: "
    assert rows(topic, "id", "zone", "fare", WRONG) == [
        (1, {"name": "a"}, 2.5, None),
        (2, None, 0.0, None),
        (1, {"name": "a"}, 2.5, None),
        (None, None, None, f"{wrong}message shop.Other, and no shop.Trip"),
        (None, None, None, f"{wrong}message shop.Trip.Stop, and no shop.Trip"),
        (None, None, None, f"{wrong}no record of Protocol Buffers"),
        (None, None, None, f"{wrong}no record of Protocol Buffers"),
    ]


def test_objects_of_json_have_the_columns_of_their_schema(schemas: Registry, sent: list[bytes | None]) -> None:
    properties = {
        "at": {"type": "string", "format": "date-time"},
        "n": {"oneOf": [{"type": "null"}, {"type": "integer", "connect.type": "int32"}]},
        "v": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "zone": {
            "type": "object",
            "properties": {"day": {"type": "string", "format": "date"}, "ok": {"type": "boolean"}},
        },
    }
    number = schemas.add("trips-value", json.dumps({"type": "object", "properties": properties}), "JSON")
    text = {"at": "2024-05-01T12:00:00Z", "n": 3, "v": 1.5, "tags": ["a"], "zone": {"day": "2024-05-01", "ok": True}}
    sent += [header(number) + json.dumps(text).encode(), json.dumps(text).encode(), header(number) + b'{"n": "x"}']
    topic = sq.kafka("h:9092", "trips", value="json", registry=schemas.url)
    kinds = "at timestamp, n int, v double, tags array<string>, zone struct<day:date,ok:boolean>"
    assert ", ".join(f"{f.name} {f.type.simpleString()}" for f in topic.fields[:5]) == kinds
    assert rows(topic, "at", "n", "v", "tags", "zone", WRONG) == [
        (NOON, 3, 1.5, ["a"], {"day": dt.date(2024, 5, 1), "ok": True}, None),
        (*[None] * 5, "malformed value: no header of a schema registry"),
        (*[None] * 5, "malformed value: field n is text, and no int"),
    ]
    assert sq.from_json(sq.points(topic, time="at", name="s").to_json()).tables["s"].fields == topic.fields
    some = sq.kafka("h:9092", "trips", value="json", registry=schemas.url, schema="at timestamp, n bigint")
    assert rows(some, "n") == [(3,), (None,), (None,)]
    for schema in ({"type": "object"}, {"properties": {"a": {"$ref": "#/b"}}, "type": "object"}, {"type": "string"}):
        number = schemas.add("trips-value", json.dumps(schema), "JSON")
        with pytest.raises(PlanError, match=f"schema {number} says no columns; .*Give schema="):
            sq.points(topic.__class__("h:9092", "trips", None, registry=schemas.url), time="at")


COLUMNS = (
    "at timestamp, day date, zone string, n int, small smallint, long bigint, v double, f float, ok boolean, b binary"
)
NESTED = ", many array<string>, s struct<a:int,at:timestamp>"
RICHER = ", d decimal(10,2), l array<array<int>>, ntz timestamp_ntz"
ROW = {
    "at": NOON.replace(microsecond=5),
    "day": dt.date(2024, 5, 1),
    "zone": "ä",
    "n": -3,
    "small": 7,
    "long": 2**40,
    "v": 1.5,
    "f": 0.5,
    "ok": False,
    "b": b"\0\xff",
    "many": ["a", "b"],
    "s": {"a": 0, "at": NOON},
    "d": Decimal("3.50"),
    "l": [[1], []],
    "ntz": dt.datetime(2024, 5, 1, 12),
}


@pytest.mark.parametrize("value", ["avro", "protobuf", "json"])
def test_what_a_sink_writes_is_read_back(schemas: Registry, sent: list[bytes | None], value: str) -> None:
    """NULLs are NULLs, and not the zero of their type; with more columns, what was written before is read, too."""
    kinds = COLUMNS + NESTED + RICHER
    if value == "protobuf":
        kinds = COLUMNS.replace("day date, ", "") + NESTED
    elif value == "json":
        # JSON has no bytes, and neither wide numbers nor times without a zone of their own
        kinds = kinds.replace(", b binary", "").replace(", d decimal(10,2)", "").replace(", ntz timestamp_ntz", "")
    columns = columns_of(kinds)
    for some in (t.StructType(columns.fields[:-1]), columns):
        schema = schema_of(some, value, "run")
        number = SchemaRegistry(schemas.url).register("trips-value", schema, KINDS[value], "run")
        encode = RegisteredValue(value, schema, number).encode(in_json)
        row = {name: ROW[name] for name in some.names}
        sent += [encode(row), encode(dict.fromkeys(row))]
    topic = sq.kafka("h:9092", "trips", value=value, registry=schemas.url)
    assert topic.in_memory("show").column(WRONG).null_count == 4
    whole, none = {name: ROW[name] for name in columns.names}, dict.fromkeys(columns.names)
    last = columns.names[-1]
    expected = [{**whole, last: None}, none, whole, none]
    if value == "protobuf":
        # a list has no presence
        expected = [{**row, "many": row["many"] or []} for row in expected]
    assert [{name: row[name] for name in columns.names} for row in topic.in_memory("show").to_pylist()] == expected


def test_columns_that_a_form_lacks(schemas: Registry) -> None:
    for value, kinds, wrong in (
        ("avro", "m map<string,int>", "column 'm' is map<string,int>, which avro lacks. Cast it, or leave it out"),
        ("avro", "`a b` int", "column 'a b' is no name in avro. Rename it"),
        ("protobuf", "d decimal(5,2)", r"column 'd' is decimal\(5,2\), which protobuf lacks"),
        ("protobuf", "l array<array<int>>", "column 'l' is array<array<int>>, which protobuf lacks"),
        ("json", "i interval day to second", "column 'i' is interval day to second, which json lacks"),
    ):
        with pytest.raises(PlanError, match=f"run: {wrong}"):
            schema_of(columns_of(kinds), value, "run")
    schemas.refuses = (409, "Schema being registered is incompatible with an earlier schema")
    with pytest.raises(PlanError, match="run: the registry refuses the schema of 't-value'; Schema being .*compatib"):
        SchemaRegistry(schemas.url).register("t-value", "{}", "AVRO", "run")


def test_changes_of_debezium_by_a_schema(schemas: Registry, sent: list[bytes | None]) -> None:
    """The columns are those of the row after a change."""
    row = {"type": "record", "name": "Value", "fields": [{"name": "k", "type": "string"}, {"name": "v", "type": "int"}]}
    source = {"type": "record", "name": "Source", "fields": [{"name": "ts_ms", "type": "long"}]}
    fields = {"before": ["null", row], "after": ["null", "Value"], "source": source, "op": "string"}
    parts = [{"name": name, "type": kind} for name, kind in {**fields, "ts_ms": ["null", "long"]}.items()]
    envelope = {"type": "record", "name": "Envelope", "fields": parts}
    number = schemas.add("trips-value", json.dumps(envelope))

    def change(op: str, before: Any, after: Any, at: int) -> bytes:
        data = io.BytesIO()
        one = {"before": before, "after": after, "source": {"ts_ms": at}, "op": op, "ts_ms": None}
        fastavro.schemaless_writer(data, envelope, one)
        return header(number) + data.getvalue()

    sent += [
        change("c", None, {"k": "a", "v": 1}, 1),
        change("u", {"k": "a", "v": 1}, {"k": "a", "v": 2}, 2),
        change("d", {"k": "a", "v": 2}, None, 3),
        None,
    ]

    def versions(topic: Any) -> list[tuple[int, float]]:
        rows = sq.changes(topic, key="k").to_arrow().to_pylist()
        return sorted((row["v"], (row["end"] - row["start"]) / dt.timedelta(milliseconds=1)) for row in rows)

    assert versions(avro(schemas, envelope="debezium")) == [(1, 1.0), (2, 1.0)]
    # without a registry, and in JSON with one
    sent[:] = [value and value[5:] for value in sent]
    record = json.dumps(envelope)
    assert versions(sq.kafka("h:9092", "trips", value="avro", record=record, envelope="debezium")) == [
        (1, 1.0),
        (2, 1.0),
    ]
    of_row = {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}
    image = {"oneOf": [{"type": "null"}, of_row]}
    properties = {"before": image, "after": image, "op": {"type": "string"}, "ts_ms": {"type": ["integer", "null"]}}
    schemas.add("trips-value", json.dumps({"type": "object", "properties": properties}), "JSON")
    rows = [("c", None, 1, 1), ("u", 1, 2, 2), ("d", 2, None, 3)]
    values = [
        {"op": op, "before": b and {"k": "a", "v": b}, "after": a and {"k": "a", "v": a}, "ts_ms": at}
        for op, b, a, at in rows
    ]
    sent[:] = [header(1) + json.dumps(value).encode() for value in values]
    objects = sq.kafka("h:9092", "trips", registry=schemas.url, envelope="debezium")
    assert versions(objects) == [(1, 1.0), (2, 1.0)]
    schemas.add("trips-value", json.dumps(FIRST))
    with pytest.raises(PlanError, match="values without 'after' are no changes of Debezium's; there are at, zone"):
        sq.changes(avro(schemas, envelope="debezium"), key="k")


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"value": "avro", "registry": "host:8081"}, "registry is a URL; found 'host:8081'"),
        ({"value": "csv", "registry": "http://h"}, "value with a registry is"),
        ({"value": "avro", "registry": "http://h", "record": "{}"}, "record is the number of a schema"),
    ],
)
def test_arguments_of_a_registry(arguments: dict[str, Any], wrong: str) -> None:
    with pytest.raises(PlanError, match=wrong):
        sq.kafka("h:9092", "t", **arguments)


def test_a_topic_of_a_registry_is_a_sink_without_a_schema_there(schemas: Registry) -> None:
    assert isinstance(avro(schemas), kafka.KafkaTopic)
    assert schemas.asked == []
