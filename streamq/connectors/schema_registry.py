"""A schema registry, as Confluent's: the schemas of a topic's values by the number in each value's header, asked by HTTP."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from streamq.connectors.messages import JsonFormat, ValueFormat
from streamq.connectors.records import (
    AvroFormat,
    Decode,
    ProtobufFormat,
    RecordFormat,
    Unreadable,
    first_message,
    well_known_file,
)
from streamq.errors import PlanError, SourceError
from streamq.plan.schema import Field

REGISTRY_SECONDS = 20.0
"""The seconds that a registry may take to answer."""

UNKNOWN_SECONDS = 60.0
"""The seconds for which a number that the registry does not have is not asked for again."""

HEADER = 5
"""The bytes before a value: a zero, and the number of its schema."""

NO_HEADER = "no header of a schema registry"

KINDS: Mapping[str, str] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
"""The registry's words for the forms of values."""


NOT_THERE = (40401, 40402, 40403)
"""The codes of errors by which a registry says that it has no such subject, version or schema; others may be of a proxy."""


def subject_of(topic: str) -> str:
    """Return the name under which a registry has the schemas of a topic's values."""
    return f"{topic}-value"


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry at ``url``, in which a user and a password may be."""

    url: str = field(repr=False)

    @property
    def place(self) -> str:
        """The URL without a user and a password, for errors."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    def latest(self, subject: str, verb: str) -> int:
        """Return the number of a subject's newest schema; raise SourceError if there is none, or no registry answers."""
        try:
            return int(self._asked(f"/subjects/{quote(subject, safe='')}/versions/latest", verb)["id"])
        except LookupError as error:
            hint = f"Its producers register it. The registry is {self.place}."
            raise SourceError(verb, f"no schema of subject {subject!r} in the registry", str(error), hint) from error

    def schema(self, number: int, kind: str, verb: str) -> str:
        """Return a schema: as text, or of Protocol Buffers a file of descriptors and those that it imports, in base64.

        Raises LookupError for a number that the registry does not have, ValueError for a schema that is not of this ``kind``, and
        SourceError if no registry answers.
        """
        path = f"/schemas/ids/{number}"
        answer = self._asked(f"{path}?format=serialized" if kind == KINDS["protobuf"] else path, verb)
        if (other := answer.get("schemaType", KINDS["avro"])) != kind:
            raise ValueError(f"schema {number} is of {other}, and not of {kind}")
        if kind == KINDS["protobuf"]:
            return self._descriptors(answer, verb)
        if kind == KINDS["avro"] and answer.get("references"):
            answer = self._asked(f"{path}?format=resolved", verb)
        return str(answer["schema"])

    def _descriptors(self, answer: Mapping[str, Any], verb: str) -> str:
        """Return the files of a schema of Protocol Buffers, each behind those that it imports."""
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError

        files = descriptor_pb2.FileDescriptorSet()
        references = {one["name"]: one for one in answer.get("references") or ()}
        try:
            own = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(answer["schema"], validate=True))
        except (ValueError, DecodeError) as error:
            raise ValueError("the registry has no descriptors of the schema") from error
        for name in own.dependency:
            if name in references:
                subject, version = references[name]["subject"], references[name]["version"]
                path = f"/subjects/{quote(subject, safe='')}/versions/{version}?format=serialized"
                inner = base64.b64decode(self._descriptors(self._asked(path, verb), verb))
                parts = descriptor_pb2.FileDescriptorSet.FromString(inner).file
                parts[-1].name = name
                files.file.extend(part for part in parts if part.name not in {file.name for file in files.file})
            elif name not in {file.name for file in files.file}:
                try:
                    well_known_file(name).CopyToProto(files.file.add())
                except ImportError as error:
                    raise ValueError(f"the schema imports {name!r}, which the registry does not have") from error
        files.file.append(own)
        return base64.b64encode(files.SerializeToString()).decode()

    def register(self, subject: str, schema: str, kind: str, verb: str) -> int:
        """Return the number of a schema, which is registered unless it is; raise PlanError if the registry refuses it."""
        body = {"schema": schema} if kind == KINDS["avro"] else {"schema": schema, "schemaType": kind}
        try:
            return int(self._asked(f"/subjects/{quote(subject, safe='')}/versions", verb, body)["id"])
        except (LookupError, ValueError) as error:
            hint = "Write another topic, or change the compatibility of its subject in the registry."
            raise PlanError(verb, f"the registry refuses the schema of {subject!r}", str(error), hint) from error

    def _asked(self, path: str, verb: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer of the registry.

        Raises LookupError for what it does not have, ValueError for a schema that it refuses, SourceError for all else.
        """
        parts = urlsplit(self.url)
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        if "@" in parts.netloc:
            user = unquote(parts.netloc.rpartition("@")[0])
            headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        content = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(self.place.rstrip("/") + path, content, headers), timeout=REGISTRY_SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            code, said = _said_by(error)
            if error.code == 404 and code in NOT_THERE:
                raise LookupError(said) from error
            if error.code in (409, 422):
                raise ValueError(said) from error
            self._refuse(f"{error.code}: {said}", verb, error)
        except (OSError, ValueError) as error:
            self._refuse(str(error), verb, error)

    def _refuse(self, what: str, verb: str, error: Exception) -> NoReturn:
        hint = "Is it up, and can this computer reach it? It is asked by the driver, and by workers."
        raise SourceError(verb, f"no schema registry answers at {self.place}", what, hint) from error


def _said_by(error: HTTPError) -> tuple[int, str]:
    """Return the code and the message in an answer that is an error; 0 if there is none."""
    text = error.read()[:500].decode(errors="replace")
    try:
        answer = json.loads(text)
        return int(answer["error_code"]), str(answer["message"])
    except (ValueError, KeyError, TypeError):
        return 0, text or error.reason


@dataclass(frozen=True)
class RegisteredRecords(RecordFormat):
    """Records behind a header with the number of the schema that has written them; it is sent to workers.

    ``reader``: the schema that they are read by. ``known``, ``unknown``: what the registry has said of numbers, and when.
    """

    registry: SchemaRegistry
    reader: AvroFormat | ProtobufFormat
    known: dict[int, Decode] = field(default_factory=dict, compare=False)
    unknown: dict[int, tuple[float, str]] = field(default_factory=dict, compare=False)

    @property
    def title(self) -> str:  # type: ignore[override]
        return self.reader.title

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.reader.fields

    def decoder(self) -> Decode:
        def decode(value: bytes) -> dict[str, Any]:
            if len(value) < HEADER or value[0]:
                raise Unreadable(NO_HEADER)
            number = int.from_bytes(value[1:HEADER])
            if number not in self.known:
                self.known[number] = self._decoder_of(number)
            return self.known[number](value[HEADER:])

        return decode

    def _decoder_of(self, number: int) -> Decode:
        """Return the function that decodes what a schema has written; raise Unreadable if the registry does not have it."""
        asked, wrong = self.unknown.get(number, (0.0, ""))
        if not wrong or time.monotonic() - asked > UNKNOWN_SECONDS:
            try:
                return self.reader.written_by(self.registry.schema(number, self.reader.kind, "kafka"))
            except LookupError:
                wrong = f"schema {number} is not in the registry"
            except ValueError as error:
                wrong = str(error)
            self.unknown[number] = time.monotonic(), wrong
        raise Unreadable(wrong)


@dataclass(frozen=True)
class RegisteredJson(ValueFormat):
    """Objects of JSON behind a header with the number of a schema, which is not asked for."""

    inner: JsonFormat

    has_lists = True

    def rows(self, values: pa.Array, fields: tuple[Field, ...]) -> pa.Table:
        has_header = pc.and_(
            pc.greater_equal(pc.binary_length(values), HEADER), pc.equal(pc.binary_slice(values, 0, 1), b"\0")
        )
        if not pc.all(has_header).as_py():
            raise pa.ArrowInvalid(NO_HEADER)
        return self.inner.rows(pc.binary_slice(values, HEADER), fields)

    def wrong(self, value: bytes, fields: tuple[Field, ...]) -> str:
        if len(value) < HEADER or value[0]:
            return NO_HEADER
        return self.inner.wrong(value[HEADER:], fields)


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema that values are read by: of records a ``reader``, and the ``columns`` of the values."""

    columns: tuple[Field, ...]
    reader: AvroFormat | ProtobufFormat | None = None

    @classmethod
    def read(cls, registry: SchemaRegistry, number: int, value: str) -> RegisteredSchema:
        """Return the schema with a number; raise SourceError if the registry has none of that form, PlanError for its types."""
        try:
            text = registry.schema(number, KINDS[value], "kafka")
        except (LookupError, ValueError) as error:
            raise SourceError("kafka", f"no schema {number} for value={value!r}", str(error)) from error
        if value == "json":
            return cls(_columns_of_json(text, number))
        reader = AvroFormat(text) if value == "avro" else first_message(text)
        return cls(reader.fields, reader)

    def format(self, registry: SchemaRegistry) -> ValueFormat:
        """Return the form of values that schemas of the registry have written, read by this one."""
        return RegisteredJson(JsonFormat()) if self.reader is None else RegisteredRecords(registry, self.reader)


_JSON: Mapping[tuple[str, str], t.DataType] = {
    ("boolean", ""): t.BooleanType(),
    ("integer", ""): t.LongType(),
    ("number", ""): t.DoubleType(),
    ("string", ""): t.StringType(),
    ("string", "date"): t.DateType(),
    ("string", "date-time"): t.TimestampType(),
    **dict.fromkeys((("integer", "int8"), ("integer", "int16"), ("integer", "int32")), t.IntegerType()),
    ("number", "float32"): t.FloatType(),
}
"""Spark's types of JSON Schema's, with their format, or Connect's name of the type."""


def _columns_of_json(text: str, number: int) -> tuple[Field, ...]:
    """Return the columns of a JSON Schema; raise PlanError if Spark does not have the type of one, or if there are none."""
    kind = _kind_in_json(json.loads(text))
    if not isinstance(kind, t.StructType):
        hint = 'Give schema="at timestamp, v double".'
        what = "no object with properties of one type each" if kind is None else kind.simpleString()
        raise PlanError("kafka", f"schema {number} says no columns", what, hint)
    return tuple(Field(field.name, field.dataType) for field in kind)


def _kind_in_json(schema: Any) -> t.DataType | None:
    """Return Spark's type of a JSON Schema, in which NULL is allowed everywhere; None if it has none."""
    if not isinstance(schema, dict):
        return None
    choices = [one for one in schema.get("oneOf") or schema.get("anyOf") or () if one != {"type": "null"}]
    if len(choices) == 1:
        return _kind_in_json(choices[0])
    kinds = schema.get("type")
    kinds = [kind for kind in ([kinds] if isinstance(kinds, str) else kinds or ()) if kind != "null"]
    match kinds:
        case ["object"] if schema.get("properties"):
            fields = {name: _kind_in_json(one) for name, one in schema["properties"].items()}
            if None in fields.values():
                return None
            return t.StructType([t.StructField(name, kind) for name, kind in fields.items() if kind is not None])
        case ["array"]:
            element = _kind_in_json(schema.get("items"))
            return None if element is None else t.ArrayType(element)
        case [str(kind)]:
            form = schema.get("format") or schema.get("connect.type") or ""
            return _JSON.get((kind, form), _JSON.get((kind, "")))
    return None
