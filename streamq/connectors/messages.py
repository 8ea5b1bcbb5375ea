"""The values of messages, such as Kafka's: texts in JSON or CSV, whole texts and bytes, decoded to rows by PyArrow.

A value is one row. Where a block of values is refused, its halves are decoded, down to single values: so what is wrong with one
value is known of that value alone.
"""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json
from pyspark.sql import types as t

from streamq.plan.schema import Field
from streamq.runtime.arrow.arrow_types import arrow_type

PARTITION, FILE, OFFSET = "_partition", "_file", "_offset"
"""The columns with the place of a message in its topic, or of a malformed line in a file, in bytes from 0."""

MALFORMED, WRONG = "_malformed", "_wrong"
"""The columns with the bytes of a value or line that is no row, and what is wrong with it; NULL for others."""

REFUSED = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""What PyArrow raises for values that are no rows."""


class ValueFormat(ABC):
    """The form of the values of messages; it is sent to workers.

    ``whole``: the type of the only column, ``value``, of which a value is the whole; None: values hold the columns of a schema.
    ``has_lists``: lists and structs among them. ``has_tombstones``: a message without a value is none, and no row of NULLs.
    """

    whole: ClassVar[t.DataType | None] = None
    has_lists: ClassVar[bool] = False
    has_tombstones: ClassVar[bool] = False

    @abstractmethod
    def rows(self, values: pa.Array, fields: tuple[Field, ...]) -> pa.Table:
        """Return the rows of values that are not NULL, in Spark's types; raise REFUSED unless each is one row."""

    @abstractmethod
    def wrong(self, value: bytes, fields: tuple[Field, ...]) -> str:
        """Return in a few words what is wrong with a value that is no row of ``fields``; words that many such values share."""

    def is_row(self, value: bytes, field: Field) -> bool:
        """Return True if a value is one row of a single field."""
        try:
            return self.rows(pa.array([value], pa.binary()), (field,)).num_rows == 1
        except REFUSED:
            return False


class JsonFormat(ValueFormat):
    """Objects of JSON: fields that are missing are NULL, others than the schema's are left out."""

    has_lists = True

    def rows(self, values: pa.Array, fields: tuple[Field, ...]) -> pa.Table:
        texts = pc.ascii_trim(values.cast(pa.string()), " \t\r\n")  # the cast raises for what is not in UTF-8
        text = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n").buffers()[2]
        # No object goes on in the next value: none has a line within a text, nor "{" behind "}". So each value is an object at
        # least, and as many rows as values are one each.
        if not pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py():
            raise pa.ArrowInvalid("not an object")
        table = arrow_json.read_json(
            text,
            arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1),
            arrow_json.ParseOptions(
                explicit_schema=read_schema(fields), newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(values):
            raise pa.ArrowInvalid("not one object a value")
        return table.cast(row_schema(fields))

    def wrong(self, value: bytes, fields: tuple[Field, ...]) -> str:
        try:
            text = value.decode()
            members = json.loads(text)
            names = [name for name, _ in json.loads(text, object_pairs_hook=list)] if isinstance(members, dict) else []
        except UnicodeDecodeError:
            return "not in UTF-8"
        except (ValueError, RecursionError):
            return "not one object of JSON"
        if not isinstance(members, dict):
            return f"{kind_of_json(members)}, and no object of JSON"
        for field in fields:
            if names.count(field.name) > 1:
                return f"field {field.name} twice"
            if wrong := self._misfit(members.get(field.name), field, ""):
                return wrong
        return "not one object of JSON"

    def _misfit(self, member: Any, field: Field, within: str) -> str:
        """Return which field of a member is of another type; "" if none is."""
        if self.is_row(json.dumps({field.name: member}).encode(), field):
            return ""
        name = f"{within}{field.name}"
        if isinstance(field.type, t.StructType) and isinstance(member, dict):
            inner = [Field(f.name, f.dataType) for f in field.type.fields]
            return next(filter(None, (self._misfit(member.get(f.name), f, f"{name}.") for f in inner)), "")
        return f"field {name} is {kind_of_json(member)}, and no {field.type.simpleString()}"


def kind_of_json(value: Any) -> str:
    """Return what a value is in JSON."""
    kinds = {dict: "an object", list: "a list", bool: "a truth", int: "a number", float: "a number", str: "text"}
    return kinds.get(type(value), "null")


class CsvFormat(ValueFormat):
    """Lines of CSV, in which an empty field is NULL."""

    def rows(self, values: pa.Array, fields: tuple[Field, ...]) -> pa.Table:
        schema = read_schema(fields)
        # Arrow's parser of CSV reads instants of one form, and no wide decimals
        texts = [f for f in schema if pa.types.is_timestamp(f.type) or pa.types.is_decimal(f.type)]
        kinds = {field.name: pa.string() if field in texts else field.type for field in schema}
        options = arrow_csv.ConvertOptions(
            column_types=kinds, null_values=[""], strings_can_be_null=True, true_values=["true"], false_values=["false"]
        )
        table = arrow_csv.read_csv(
            io.BytesIO(b"\n".join(values.to_pylist())),
            arrow_csv.ReadOptions(use_threads=False, column_names=schema.names),
            arrow_csv.ParseOptions(ignore_empty_lines=False),
            options,
        )
        if table.num_rows != len(values):
            raise pa.ArrowInvalid("not one line a value")
        for field in texts:
            column = table.column(field.name).combine_chunks()
            typed = parsed_instants(column) if pa.types.is_timestamp(field.type) else column.cast(field.type)
            table = table.set_column(table.schema.get_field_index(field.name), field.name, typed)
        return table.cast(row_schema(fields))

    def wrong(self, value: bytes, fields: tuple[Field, ...]) -> str:
        try:
            lines = [*csv.reader(io.StringIO(value.decode(), newline=""))]
        except UnicodeDecodeError:
            return "not in UTF-8"
        except csv.Error:
            return "not one line of CSV"
        if len(lines) != 1:
            return "not one line of CSV"
        if len(lines[0]) != len(fields):
            return f"{len(lines[0])} fields, and not {len(fields)}"
        for field, text in zip(fields, lines[0], strict=True):
            if not self.is_row(b'"' + text.replace('"', '""').encode() + b'"', field):
                return f"field {field.name} is no {field.type.simpleString()}"
        return "not one line of CSV"


def parsed_instants(texts: pa.Array) -> pa.Array:
    """Return texts in ISO 8601, with an offset or in UTC, as instants; raise pa.ArrowInvalid for others."""
    has_offset = pc.match_substring_regex(texts, r":\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)$")
    missing = pa.scalar(None, pa.string())
    in_utc = pc.if_else(has_offset, missing, texts).cast(pa.timestamp("us"))
    with_offset = pc.if_else(has_offset, texts, missing).cast(pa.timestamp("us", "UTC"))
    return pc.coalesce(in_utc, with_offset.cast(pa.timestamp("us")))


class TextFormat(ValueFormat):
    """Texts in UTF-8."""

    whole = t.StringType()

    def rows(self, values: pa.Array, fields: tuple[Field, ...]) -> pa.Table:
        return pa.table({"value": values.cast(pa.string())})

    def wrong(self, value: bytes, fields: tuple[Field, ...]) -> str:
        return "not in UTF-8"


class BytesFormat(ValueFormat):
    """Values as they are."""

    whole = t.BinaryType()

    def rows(self, values: pa.Array, fields: tuple[Field, ...]) -> pa.Table:
        return pa.table({"value": values})

    def wrong(self, value: bytes, fields: tuple[Field, ...]) -> str:
        raise AssertionError("any value is right")


FORMATS: Mapping[str, ValueFormat] = {
    "json": JsonFormat(),
    "csv": CsvFormat(),
    "string": TextFormat(),
    "bytes": BytesFormat(),
}
"""The forms of values that a word says, by that word."""


def decodable(field: Field, nested: bool = False) -> bool:
    """Return True if values hold columns of the field's type: numbers, truths, texts, times and, in JSON, lists and structs."""
    match field.type:
        case t.StructType(fields=fields):
            return nested and all(decodable(Field(f.name, f.dataType), nested) for f in fields)
        case t.ArrayType(elementType=of):
            return nested and decodable(Field(field.name, of), nested)
    kinds = (t.NumericType, t.BooleanType, t.StringType, t.TimestampType, t.TimestampNTZType, t.DateType)
    return isinstance(field.type, kinds)


@dataclass(frozen=True)
class MessageReader:
    """Reads messages whose values have a ``format``, in batches with the column ``value``; it is sent to workers.

    ``parsed``: the columns that values hold. ``columns``: those of the rows, others of which are the batches' own, or say what is
    no row.
    """

    format: ValueFormat
    parsed: tuple[Field, ...]
    columns: tuple[Field, ...]

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Yield the rows of a batch's messages, in their order and in Spark's types of the columns."""
        if self.format.has_tombstones:
            batch = batch.filter(batch.column("value").is_valid())
        values = batch.column("value").cast(pa.binary())
        rows, wrong = self.decoded(values)
        own = {name: batch.column(name) for name in batch.schema.names}
        own[MALFORMED] = pc.if_else(wrong.is_valid(), values, pa.scalar(None, pa.binary()))
        own[WRONG] = wrong
        of_values = {field.name for field in self.parsed}
        columns = {f.name: rows.column(f.name) if f.name in of_values else own[f.name] for f in self.columns}
        yield pa.table({f.name: columns[f.name].cast(arrow_type(f.type)) for f in self.columns})

    def decoded(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """Return a row for each value, of NULLs if it is NULL or malformed, and what is wrong with the malformed ones."""
        places = None if values.null_count == 0 else np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        parts = [*self._parts(values if places is None else values.take(pa.array(places)))]
        rows = pa.concat_tables([row_schema(self.parsed).empty_table(), *(part for part, _ in parts)])
        reasons = (pa.array([why]) if why else pa.nulls(part.num_rows, pa.string()) for part, why in parts)
        wrong = pa.concat_arrays([pa.nulls(0, pa.string()), *reasons])
        if places is None:
            return rows, wrong
        # the rows go to the places of their values
        at = np.full(len(values), -1)
        at[places] = np.arange(len(places))
        return rows.take(pa.array(at, mask=at < 0)), wrong.take(pa.array(at, mask=at < 0))

    def _parts(self, values: pa.Array) -> Iterator[tuple[pa.Table, str]]:
        """Yield the rows of values that are not NULL, in order, with ""; for a malformed one NULLs, and what is wrong."""
        waiting: list[pa.Array] = [values] if len(values) else []
        while waiting:
            block = waiting.pop()
            try:
                yield self.format.rows(block, self.parsed), ""
            except REFUSED:
                if len(block) == 1:
                    nulls = pa.table([pa.nulls(1, arrow_type(f.type)) for f in self.parsed], row_schema(self.parsed))
                    yield nulls, f"malformed value: {self.format.wrong(block[0].as_py(), self.parsed)}"
                else:
                    half = len(block) // 2
                    waiting += [block[half:], block[:half]]


def row_schema(fields: tuple[Field, ...]) -> pa.Schema:
    """Return columns with their Arrow types."""
    return pa.schema([(field.name, arrow_type(field.type)) for field in fields])


def read_schema(fields: tuple[Field, ...]) -> pa.Schema:
    """Return columns as PyArrow's parsers read them."""
    return pa.schema([(field.name, as_read(arrow_type(field.type))) for field in fields])


def as_read(kind: pa.DataType) -> pa.DataType:
    """Return the type that parsers read in place of an Arrow type: instants have no zone, with an offset or without, nor days.

    Decimals are wide, as Arrow's parser of JSON does not refuse an integer that has too many digits for its type.
    """
    if pa.types.is_decimal(kind):
        return pa.decimal256(76, kind.scale)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.timestamp("us")
    if pa.types.is_list(kind):
        return pa.list_(as_read(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, as_read(field.type)) for field in kind])
    return kind
