"""The values that a topic gets by a schema in Avro, Protocol Buffers or JSON: the schema of columns, and what encodes rows."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as t

from streamq.connectors.records import _TIMESTAMP, ProtobufFormat, well_known_file
from streamq.connectors.schema_registry import HEADER
from streamq.errors import PlanError

Encode = Callable[[Mapping[str, Any]], bytes]
"""Returns a row as a value, without a header."""

NAME = "Row"
"""The name of the record, in no namespace."""


def schema_of(columns: t.StructType, value: str, verb: str) -> str:
    """Return the schema of columns that are written as ``value``; raise PlanError for a type or a name that it lacks."""
    for column in columns:
        if value != "json" and not re.fullmatch(r"[A-Za-z_]\w*", column.name, re.ASCII):
            raise PlanError(verb, f"column {column.name!r} is no name in {value}", "", "Rename it: q.rename({...}).")
        if not _has_type(column.dataType, value):
            wrong = f"column {column.name!r} is {column.dataType.simpleString()}, which {value} lacks"
            raise PlanError(verb, wrong, "", f"Cast it, or leave it out, q.drop({column.name!r}).")
    match value:
        case "avro":
            return json.dumps(_avro_record(columns, NAME))
        case "protobuf":
            return base64.b64encode(_file(columns).SerializeToString()).decode()
    return json.dumps({"type": "object", "title": NAME, **_json_object(columns)})


def encoder(schema: str, value: str, in_json: Encode) -> Encode:
    """Return what encodes rows by a schema that ``schema_of`` has made; ``in_json``: what does it in JSON."""
    match value:
        case "avro":
            return _avro_encoder(schema)
        case "protobuf":
            return _protobuf_encoder(schema)
    return in_json


@dataclass(frozen=True)
class RegisteredValue:
    """A form of values whose ``schema`` has a ``number`` in a registry; it is sent to workers."""

    value: str
    schema: str
    number: int

    def encode(self, in_json: Encode) -> Encode:
        """Return what encodes rows, with a header."""
        encode = encoder(self.schema, self.value, in_json)
        # the first message of its file has the shortest list of numbers
        header = b"\0" + self.number.to_bytes(HEADER - 1) + b"\0" * (self.value == "protobuf")
        return lambda row: header + encode(row)


def _has_type(kind: t.DataType, value: str) -> bool:
    match kind:
        case t.StructType():
            return all(_has_type(field.dataType, value) for field in kind)
        case t.ArrayType(elementType=element):
            return _has_type(element, value) and not (value == "protobuf" and isinstance(element, t.ArrayType))
        case t.DecimalType():
            return value != "protobuf"
    return type(kind) in (_PROTOBUF_TYPES if value == "protobuf" else _AVRO_TYPES)


# Avro

_AVRO_TYPES: Mapping[type, Any] = {
    t.BooleanType: "boolean",
    **dict.fromkeys((t.ByteType, t.ShortType, t.IntegerType), "int"),
    t.LongType: "long",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.StringType: "string",
    t.BinaryType: "bytes",
    t.DateType: {"type": "int", "logicalType": "date"},
    t.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    t.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def _avro_record(columns: t.StructType, name: str) -> dict[str, Any]:
    """Return a record whose fields may all be missing, so that a later schema with more of them reads what earlier ones wrote."""
    fields = [
        {"name": c.name, "type": ["null", _avro_type(c.dataType, f"{name}_{c.name}")], "default": None} for c in columns
    ]
    return {"type": "record", "name": name, "fields": fields}


def _avro_type(kind: t.DataType, name: str) -> Any:
    match kind:
        case t.StructType():
            return _avro_record(kind, name)
        case t.ArrayType(elementType=element):
            return {"type": "array", "items": ["null", _avro_type(element, name)]}
        case t.DecimalType():
            scales = {"precision": kind.precision, "scale": kind.scale}
            return {"type": "bytes", "logicalType": "decimal", **scales}
    return _AVRO_TYPES[type(kind)]


def _avro_encoder(schema: str) -> Encode:
    import fastavro

    parsed: Any = fastavro.parse_schema(json.loads(schema))

    def encode(row: Mapping[str, Any]) -> bytes:
        with io.BytesIO() as data:
            fastavro.schemaless_writer(data, parsed, row)
            return data.getvalue()

    return encode


# Protocol Buffers

_PROTOBUF_TYPES: Mapping[type, int] = {
    t.BooleanType: 8,
    **dict.fromkeys((t.ByteType, t.ShortType, t.IntegerType), 5),
    t.LongType: 3,
    t.FloatType: 2,
    t.DoubleType: 1,
    t.StringType: 9,
    t.BinaryType: 12,
    t.TimestampType: 11,
}
"""The numbers that descriptors have for Spark's types."""


def _file(columns: t.StructType) -> Any:
    """Return a file with one message, whose fields are numbered in the order of the columns."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="row.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    _add_message(file.message_type, columns, NAME, f".{NAME}")
    return file


def _add_message(messages: Any, columns: t.StructType, name: str, full_name: str) -> None:
    message = messages.add(name=name)
    for number, column in enumerate(columns, 1):
        kind, is_list = column.dataType, isinstance(column.dataType, t.ArrayType)
        kind = kind.elementType if isinstance(kind, t.ArrayType) else kind
        # 1 is optional, 3 repeated, and 11 a message
        code = 11 if isinstance(kind, t.StructType) else _PROTOBUF_TYPES[type(kind)]
        field = message.field.add(name=column.name, number=number, type=code, label=3 if is_list else 1)
        if isinstance(kind, t.StructType):
            inner = f"{column.name}_row"
            field.type_name = f"{full_name}.{inner}"
            _add_message(message.nested_type, kind, inner, f"{full_name}.{inner}")
        elif code == 11:
            field.type_name = f".{_TIMESTAMP}"
        if not is_list:
            # a field that says whether it is there is the only one of a choice
            message.oneof_decl.add(name=f"_{column.name}")
            field.oneof_index, field.proto3_optional = len(message.oneof_decl) - 1, True


def _protobuf_encoder(schema: str) -> Encode:
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    well_known_file("google/protobuf/timestamp.proto").CopyToProto(files.file.add())
    files.file.append(descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema)))
    message = ProtobufFormat(files.SerializeToString(), NAME).message()
    return lambda row: bytes(message(**row).SerializeToString())


# JSON

_JSON_TYPES: Mapping[type, Mapping[str, str]] = {
    t.BooleanType: {"type": "boolean"},
    **{kind: {"type": "integer"} for kind in (t.ByteType, t.ShortType, t.IntegerType, t.LongType)},
    **{kind: {"type": "number"} for kind in (t.FloatType, t.DoubleType)},
    t.DateType: {"type": "string", "format": "date"},
    **{kind: {"type": "string", "format": "date-time"} for kind in (t.TimestampType, t.TimestampNTZType)},
    t.BinaryType: {"type": "string", "contentEncoding": "base64"},
}


def _json_object(columns: t.StructType) -> dict[str, Any]:
    return {"properties": {c.name: _json_type(c.dataType) for c in columns}}


def _json_type(kind: t.DataType) -> dict[str, Any]:
    """Return the schema of a value, or NULL; decimals are texts."""
    match kind:
        case t.StructType():
            own: Mapping[str, Any] = {"type": "object", **_json_object(kind)}
        case t.ArrayType(elementType=element):
            own = {"type": "array", "items": _json_type(element)}
        case _:
            own = _JSON_TYPES.get(type(kind), {"type": "string"})
    return {**own, "type": ["null", own["type"]]}
