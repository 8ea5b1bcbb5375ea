"""The values of messages in Avro and in Protocol Buffers, whose columns are those of the record that is named."""

from __future__ import annotations

import base64
import datetime as dt
import importlib
import io
import json
import struct
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from streamq.connectors.messages import REFUSED, ValueFormat, row_schema
from streamq.errors import PlanError
from streamq.plan.schema import Field

Decode = Callable[[bytes], dict[str, Any]]
"""Returns the columns of a value by name; raises MISREAD for one that is no record."""

MISREAD = (EOFError, IndexError, KeyError, OverflowError, ValueError, struct.error)
"""What decoders raise for bytes that are no record."""


class Unreadable(ValueError):
    """Raised for bytes that are no record, with what is wrong in a few words."""


class RecordFormat(ValueFormat):
    """Records that a library decodes one by one."""

    has_lists = True

    title: str

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """The columns of the record; raises PlanError for one that has no columns, or others than Spark's types."""

    @abstractmethod
    def decoder(self) -> Decode:
        """Return the function that decodes a value."""

    def rows(self, values: pa.Array, fields: tuple[Field, ...]) -> pa.Table:
        decode = self.decoder()
        try:
            records = [decode(value) for value in values.to_pylist()]
        except MISREAD as error:
            raise pa.ArrowInvalid(str(error)) from error
        return pa.Table.from_pylist(records, row_schema(fields))

    def wrong(self, value: bytes, fields: tuple[Field, ...]) -> str:
        try:
            record = self.decoder()(value)
        except Unreadable as error:
            return str(error)
        except MISREAD:
            return f"no record of {self.title}"
        for field in fields:
            try:
                pa.array([record.get(field.name)], row_schema((field,)).field(0).type)
            except REFUSED:
                return f"field {field.name} is beyond {field.type.simpleString()}"
        return f"no record of {self.title}"


def _refused(record: str, wrong: str, what: str = "") -> PlanError:
    hint = 'Read such values as value="bytes", and decode them in a function.'
    return PlanError("kafka", f"record {record[:60]!r} {wrong}", what, hint)


@dataclass(frozen=True)
class AvroFormat(RecordFormat):
    """Records of Avro, written by the schema ``record``, in JSON, without a header."""

    record: str

    title = "Avro"
    kind = "AVRO"

    @property
    def fields(self) -> tuple[Field, ...]:
        try:
            import fastavro
        except ImportError as error:
            raise PlanError("kafka", "Avro is read by fastavro", str(error), "pip install streamq[kafka]") from error
        try:
            schema: Any = fastavro.schema.expand_schema(json.loads(self.record))
        except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
            raise _refused(self.record, "is no schema of Avro", str(error)) from error
        if not isinstance(schema, dict) or schema["type"] != "record":
            raise _refused(self.record, "is a schema of Avro without fields")
        return tuple(Field(one["name"], self._type(one["type"], one["name"])) for one in schema["fields"])

    def _type(self, schema: Any, field: str) -> t.DataType:
        """Return Spark's type of a field of Avro; raise PlanError for one that has none."""
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            if len(others) == 1:
                return self._type(others[0], field)
            raise _refused(self.record, f"has a union in field {field!r}", str(schema))
        kind = schema if isinstance(schema, str) else schema.get("logicalType", schema["type"])
        match kind:
            case "decimal":
                return t.DecimalType(schema["precision"], schema.get("scale", 0))
            case "array":
                return t.ArrayType(self._type(schema["items"], field))
            case "map":
                return t.MapType(t.StringType(), self._type(schema["values"], field))
            case "record":
                inner = [t.StructField(one["name"], self._type(one["type"], field)) for one in schema["fields"]]
                return t.StructType(inner)
        if kind not in _AVRO:
            raise _refused(self.record, f"has a type in field {field!r} that Spark does not have", str(kind))
        return _AVRO[kind]

    def decoder(self) -> Decode:
        return self.written_by(self.record)

    def written_by(self, schema: str) -> Decode:
        """Return the function that decodes what another schema has written; raise ValueError for what is none."""
        import fastavro

        try:
            writer: Any = fastavro.parse_schema(json.loads(schema))
        except (KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
            raise ValueError(f"no schema of Avro: {error}") from error
        reader: Any = None if schema == self.record else fastavro.parse_schema(json.loads(self.record))

        def decode(value: bytes) -> dict[str, Any]:
            data = io.BytesIO(value)
            try:
                record: Any = fastavro.schemaless_reader(data, writer, reader)
            except fastavro.read.SchemaResolutionError as error:
                raise Unreadable(f"written by a schema that does not fit: {error}") from error
            if data.tell() < len(value):
                raise ValueError("more than one record")
            return dict(record)

        return decode


_AVRO = {
    "boolean": t.BooleanType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "string": t.StringType(),
    "enum": t.StringType(),
    "bytes": t.BinaryType(),
    "fixed": t.BinaryType(),
    "date": t.DateType(),
    **dict.fromkeys(("timestamp-millis", "timestamp-micros"), t.TimestampType()),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros"), t.TimestampNTZType()),
}


@dataclass(frozen=True)
class ProtobufFormat(RecordFormat):
    """Messages of Protocol Buffers; ``files`` describe them, a set of descriptors, ``record`` is the full name of one."""

    files: bytes
    record: str

    title = "Protocol Buffers"
    kind = "PROTOBUF"

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(f.name, f.dataType) for f in self._struct(self.message().DESCRIPTOR, ()).fields)

    def message(self) -> Any:
        """Return the class of the messages; raise PlanError if the descriptors do not describe it."""
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        pool = descriptor_pool.DescriptorPool()
        try:
            for file in descriptor_pb2.FileDescriptorSet.FromString(self.files).file:
                pool.Add(file)
            return message_factory.GetMessageClass(pool.FindMessageTypeByName(self.record))
        except (KeyError, TypeError, ValueError) as error:
            hint = "Write them by protoc --include_imports --descriptor_set_out=..."
            raise PlanError("kafka", f"no message {self.record!r} in the descriptors", str(error), hint) from error

    def _struct(self, message: Any, within: tuple[str, ...]) -> t.StructType:
        if message.full_name in within:
            raise _refused(self.record, f"has a message in itself, {message.full_name}")
        inner = (*within, message.full_name)
        return t.StructType([t.StructField(field.name, self._type(field, inner)) for field in message.fields])

    def _type(self, field: Any, within: tuple[str, ...]) -> t.DataType:
        """Return Spark's type of a field; raise PlanError for one that has none."""
        if _is_map(field):
            key, value = field.message_type.fields
            return t.MapType(self._type(key, within), self._type(value, within))
        kind: t.DataType
        if field.message_type is None:
            kind = _PROTOBUF[field.type]
        elif field.message_type.full_name == _TIMESTAMP:
            kind = t.TimestampType()
        else:
            kind = self._struct(field.message_type, within)
        return t.ArrayType(kind) if field.is_repeated else kind

    def decoder(self) -> Decode:
        from google.protobuf.message import DecodeError

        message = self.message()

        def decode(value: bytes) -> dict[str, Any]:
            try:
                return _columns_of(message.FromString(value))
            except DecodeError as error:
                raise ValueError(str(error)) from error

        return decode

    def written_by(self, schema: str) -> Decode:
        """Return the function that decodes what a message of other files has written; its number stands before the bytes.

        ``schema``: the files, in base64; the message is in the last one.
        """
        from google.protobuf import descriptor_pb2

        file = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema)).file[-1]
        read = self.decoder()

        def decode(value: bytes) -> dict[str, Any]:
            places, body = _places_of(value)
            name = file.package
            messages = file.message_type
            for place in places:
                name = f"{name}.{messages[place].name}".lstrip(".")
                messages = messages[place].nested_type
            if name != self.record:
                raise Unreadable(f"message {name}, and no {self.record}")
            return read(body)

        return decode


def _places_of(value: bytes) -> tuple[list[int], bytes]:
    """Return the places of a message in its file, from the outermost one, and the bytes behind them; IndexError if they end."""
    numbers: list[int] = []
    at, number, shift = 0, 0, 0
    while not numbers or len(numbers) <= numbers[0]:
        number |= (value[at] & 0x7F) << shift
        shift = shift + 7 if value[at] & 0x80 else 0
        at += 1
        if not shift:
            # of zigzag: signs are in the last bit
            numbers.append(number >> 1)
            number = 0
    # an empty list is the first message
    return numbers[1:] or [0], value[at:]


_TIMESTAMP = "google.protobuf.Timestamp"

_PROTOBUF: dict[int, t.DataType] = {
    **dict.fromkeys((5, 15, 17), t.IntegerType()),  # int32, sfixed32, sint32
    **dict.fromkeys((3, 7, 13, 16, 18), t.LongType()),  # int64, fixed32, uint32, sfixed64, sint64
    **dict.fromkeys((4, 6), t.DecimalType(20, 0)),  # uint64, fixed64
    1: t.DoubleType(),
    2: t.FloatType(),
    8: t.BooleanType(),
    12: t.BinaryType(),
    **dict.fromkeys((9, 14), t.StringType()),  # string, enum
}
"""Spark's types of scalars, by the numbers that descriptors have for them."""


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _columns_of(message: Any) -> dict[str, Any]:
    """Return the fields of a message; those with presence are None where they are not there."""
    columns: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            entry = field.message_type.fields_by_name["value"]
            columns[field.name] = [(key, _plain(entry, value[key])) for key in value]
        elif field.is_repeated:
            columns[field.name] = [_plain(field, one) for one in value]
        else:
            is_there = not field.has_presence or message.HasField(field.name)
            columns[field.name] = _plain(field, value) if is_there else None
    return columns


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return value.ToDatetime(tzinfo=dt.UTC)
        return _columns_of(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    return value


def first_message(schema: str) -> ProtobufFormat:
    """Return the format of the first message in the last of some files of descriptors, in base64; PlanError if there is none."""
    from google.protobuf import descriptor_pb2

    files = base64.b64decode(schema)
    file = descriptor_pb2.FileDescriptorSet.FromString(files).file[-1]
    if not file.message_type:
        raise PlanError("kafka", "a schema of Protocol Buffers without messages", f"found {file.name}")
    return ProtobufFormat(files, f"{file.package}.{file.message_type[0].name}".lstrip("."))


def well_known_file(name: str) -> Any:
    """Return the descriptor of a file that comes with Protocol Buffers, as ``google/protobuf/timestamp.proto``."""
    module = name.removesuffix(".proto").replace("/", ".")
    return importlib.import_module(f"{module}_pb2").DESCRIPTOR


def protobuf_format(record: str) -> ProtobufFormat:
    """Return the format of a message: of a generated class, ``"trips_pb2.Trip"``, or ``"trips.desc:shop.Trip"`` in a file.

    Raises PlanError if neither is there.
    """
    from google.protobuf import descriptor_pb2

    path, colon, name = record.rpartition(":")
    if colon:
        try:
            return ProtobufFormat(Path(path).read_bytes(), name)
        except OSError as error:
            raise PlanError("kafka", f"no descriptors in {path!r}", str(error)) from error
    module, _, name = record.rpartition(".")
    try:
        descriptor = getattr(importlib.import_module(module), name).DESCRIPTOR
    except (ImportError, ValueError, AttributeError) as error:
        hint = (
            'Name a generated class, "trips_pb2.Trip", or a message in a file of descriptors, "trips.desc:shop.Trip".'
        )
        raise PlanError("kafka", f"record {record!r} is no message", str(error), hint) from error
    files = descriptor_pb2.FileDescriptorSet()
    waiting, behind = [descriptor.file], []
    while waiting:
        file = waiting.pop()
        behind.append(file)
        waiting += file.dependencies
    # a file stands behind those that it imports
    for file in dict.fromkeys(reversed(behind)):
        file.CopyToProto(files.file.add())
    return ProtobufFormat(files.SerializeToString(), descriptor.full_name)
