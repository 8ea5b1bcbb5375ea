"""Values in Avro and Protocol Buffers become rows by the record that is named, each by itself."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Described

import streamq as sq
from streamq.connectors.messages import WRONG
from streamq.connectors.records import AvroFormat, RecordFormat, protobuf_format
from streamq.errors import PlanError
from tests.connectors.test_messages import decoded

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)

TRIP = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "zone", "type": ["null", {"type": "enum", "name": "Zone", "symbols": ["east", "west"]}]},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {
            "name": "stops",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Stop",
                    "fields": [{"name": "n", "type": "int"}, {"name": "zone", "type": "Zone"}],
                },
            },
        },
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}

COLUMNS = (
    "id bigint, at timestamp, day date, zone string, fare decimal(6,2), stops array<struct<n:int,zone:string>>, "
    "tags map<string,string>"
)


def in_avro(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, row)
    return data.getvalue()


def columns_of(form: RecordFormat) -> str:
    return ", ".join(f"{field.name} {field.type.simpleString()}" for field in form.fields)


def test_records_of_avro() -> None:
    form = AvroFormat(json.dumps(TRIP))
    assert columns_of(form) == COLUMNS
    day = dt.date(2024, 5, 1)
    first = {"id": 1, "at": NOON, "day": day, "zone": "east", "fare": Decimal("3.50"), "stops": [], "tags": {"a": "b"}}
    second = {**first, "day": None, "zone": None, "stops": [{"n": 1, "zone": "west"}], "tags": {}}
    values = [
        in_avro(TRIP, first),
        None,
        b"",
        in_avro(TRIP, second)[:-2],
        in_avro(TRIP, second),
        in_avro(TRIP, first) * 2,
    ]
    rows = decoded(form, COLUMNS, [*values])
    wrong = "malformed value: no record of Avro"
    assert [row.pop(WRONG) for row in rows] == [None, None, wrong, wrong, None, wrong]
    assert [rows[0], rows[4]] == [{**first, "tags": [("a", "b")]}, {**second, "tags": []}]
    assert {value for n in (1, 2, 3, 5) for value in rows[n].values()} == {None}


def test_a_field_that_is_beyond_its_type() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": "int"}]}
    larger = {"type": "record", "name": "R", "fields": [{"name": "v", "type": "long"}]}
    (row,) = decoded(AvroFormat(json.dumps(schema)), "v int", [in_avro(larger, {"v": 2**40})])
    assert row == {"v": None, WRONG: "malformed value: field v is beyond int"}


def described() -> descriptor_pb2.FileDescriptorSet:
    """A file of descriptors: message shop.Trip, with one of each kind of field."""
    file = descriptor_pb2.FileDescriptorProto(name="trip.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    zone = file.enum_type.add(name="Zone")
    for number, name in enumerate(("EAST", "WEST")):
        zone.value.add(name=name, number=number)
    trip = file.message_type.add(name="Trip")
    entry = trip.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=Described.TYPE_STRING, label=Described.LABEL_OPTIONAL)
    one, many = Described.LABEL_OPTIONAL, Described.LABEL_REPEATED
    trip.field.add(name="id", number=1, type=Described.TYPE_INT64, label=one)
    trip.field.add(name="large", number=2, type=Described.TYPE_UINT64, label=one)
    at = trip.field.add(name="at", number=3, type=Described.TYPE_MESSAGE, label=one)
    at.type_name = ".google.protobuf.Timestamp"
    trip.field.add(name="zone", number=4, type=Described.TYPE_ENUM, label=one, type_name=".shop.Zone")
    trip.oneof_decl.add(name="_fare")
    fare = trip.field.add(name="fare", number=5, type=Described.TYPE_DOUBLE, label=one)
    fare.oneof_index, fare.proto3_optional = 0, True
    trip.field.add(name="stops", number=6, type=Described.TYPE_BYTES, label=many)
    trip.field.add(name="tags", number=7, type=Described.TYPE_MESSAGE, label=many, type_name=".shop.Trip.TagsEntry")
    loop = file.message_type.add(name="Loop")
    loop.field.add(name="inner", number=1, type=Described.TYPE_MESSAGE, label=one, type_name=".shop.Loop")
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return files


def test_messages_of_protocol_buffers(tmp_path: Path) -> None:
    files = described()
    (tmp_path / "trips.desc").write_bytes(files.SerializeToString())
    form = protobuf_format(f"{tmp_path / 'trips.desc'}:shop.Trip")
    columns = "id bigint, large decimal(20,0), at timestamp, zone string, fare double, "
    columns += "stops array<binary>, tags map<string,string>"
    assert columns_of(form) == columns
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    trip = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Trip"))
    whole = trip(id=1, large=2**64 - 1, at=NOON, zone=1, fare=0.0, stops=[b"a", b"b"], tags={"a": "b"})
    values = [whole.SerializeToString(), b"", b"\xff", trip(zone=7).SerializeToString()]
    rows = decoded(form, columns, [*values])
    wrong = "malformed value: no record of Protocol Buffers"
    assert [row.pop(WRONG) for row in rows] == [None, None, wrong, None]
    assert [tuple(row.values()) for row in rows] == [
        (1, Decimal(2**64 - 1), NOON, "WEST", 0.0, [b"a", b"b"], [("a", "b")]),
        # what has no presence has its default
        (0, Decimal(0), None, "EAST", None, [], []),
        (None,) * 7,
        (0, Decimal(0), None, "7", None, [], []),
    ]
    with pytest.raises(PlanError, match="has a message in itself, shop.Loop"):
        protobuf_format(f"{tmp_path / 'trips.desc'}:shop.Loop").fields


def test_a_generated_class_brings_the_files_that_it_imports() -> None:
    """Workers need not have its module."""
    form = protobuf_format("google.protobuf.struct_pb2.Struct")
    assert form.record == "google.protobuf.Struct"
    kind = protobuf_format("google.protobuf.api_pb2.Mixin")
    assert columns_of(kind) == "name string, root string"
    assert columns_of(protobuf_format("google.protobuf.type_pb2.EnumValue")).startswith(
        "name string, number int, options"
    )


@pytest.mark.parametrize("form", [AvroFormat(json.dumps(TRIP)), protobuf_format("google.protobuf.type_pb2.EnumValue")])
def test_no_bytes_raise_anything(form: RecordFormat) -> None:
    drawn = random.Random(7)
    values = [drawn.randbytes(drawn.randint(0, 30)) for _ in range(2_000)]
    rows = decoded(form, columns_of(form), [*values])
    assert len(rows) == len(values) and any(row[WRONG] for row in rows)


@pytest.mark.parametrize(
    ("value", "record", "wrong"),
    [
        ("avro", "{", "is no schema of Avro"),
        ("avro", '"long"', "is a schema of Avro without fields"),
        (
            "avro",
            json.dumps({**TRIP, "fields": [{"name": "v", "type": ["int", "string"]}]}),
            "has a union in field 'v'",
        ),
        ("avro", json.dumps({**TRIP, "fields": [{"name": "v", "type": ["null", "Trip"]}]}), "in field 'v' that Spark"),
        ("protobuf", "nowhere_pb2.Trip", "record 'nowhere_pb2.Trip' is no message; No module named"),
        ("protobuf", "/nowhere.desc:shop.Trip", "no descriptors in '/nowhere.desc'"),
        ("protobuf", 5, "has the columns of a record; found schema=None, record=5"),
    ],
)
def test_records_that_are_refused(value: str, record: Any, wrong: str) -> None:
    with pytest.raises(PlanError, match=wrong):
        sq.kafka("h:9092", "t", value=value, record=record)


def test_a_record_is_part_of_a_plan() -> None:
    for value, record in (("avro", json.dumps(TRIP)), ("protobuf", "google.protobuf.api_pb2.Mixin")):
        topic = sq.kafka("h:9092", "t", value=value, record=record, metadata=["timestamp"])
        query = sq.points(topic, time="timestamp", name="s")
        assert sq.from_json(query.to_json()).tables["s"] == topic
