"""The values of messages, such as Kafka's: texts in JSON or CSV, whole texts and bytes, decoded to rows by PyArrow.

A value is one row. Where PyArrow refuses a block, its halves are decoded, down to single values: so what is wrong with one value
is known of that value alone.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json
from pyspark.sql import types as t

from streamq.plan.schema import Field
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.values import Mask

MALFORMED = "malformed"
"""The column with the bytes of a value that is no row, NULL for others."""

Parse = Callable[[pa.Array, pa.Schema], pa.Table]
"""Returns the rows of values that are not NULL; raises pa.ArrowInvalid unless each is one row, a row of NULLs if it is empty."""


def json_rows(values: pa.Array, schema: pa.Schema) -> pa.Table:
    """Parse objects of JSON: fields that are missing are NULL, others than the schema's are left out."""
    # a value in a list of its own is no row if it is empty, or several
    text = b'{"v":[' + b']}\n{"v":['.join(values.to_pylist()) + b"]}"
    wrapped = pa.schema([("v", pa.list_(pa.struct(schema)))])
    if not _is_utf8(text):
        raise pa.ArrowInvalid("not in UTF-8")
    table = arrow_json.read_json(
        pa.py_buffer(text),
        arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        arrow_json.ParseOptions(explicit_schema=wrapped, newlines_in_values=True, unexpected_field_behavior="ignore"),
    )
    lists = table.column("v").combine_chunks()
    if len(lists) != len(values) or not pc.all(pc.equal(pc.list_value_length(lists), 1)).as_py():
        raise pa.ArrowInvalid("not one object a value")
    objects = lists.flatten()
    if objects.null_count:
        raise pa.ArrowInvalid("null, and no object")
    return pa.Table.from_struct_array(objects)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def csv_rows(values: pa.Array, schema: pa.Schema) -> pa.Table:
    """Parse lines of CSV, in which an empty field is NULL."""
    times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    kinds = {field.name: pa.string() if field.name in times else field.type for field in schema}
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
    for name in times:
        column = parsed_instants(table.column(name).combine_chunks())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def parsed_instants(texts: pa.Array) -> pa.Array:
    """Return texts in ISO 8601, with an offset or in UTC, as instants; raise pa.ArrowInvalid for others."""
    has_offset = pc.match_substring_regex(texts, r":\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)$")
    missing = pa.scalar(None, pa.string())
    in_utc = pc.if_else(has_offset, missing, texts).cast(pa.timestamp("us"))
    with_offset = pc.if_else(has_offset, texts, missing).cast(pa.timestamp("us", "UTC"))
    return pc.coalesce(in_utc, with_offset.cast(pa.timestamp("us")))


def text_rows(values: pa.Array, schema: pa.Schema) -> pa.Table:
    """Return texts in UTF-8."""
    return pa.table([values.cast(pa.string())], schema=schema)


def byte_rows(values: pa.Array, schema: pa.Schema) -> pa.Table:
    """Return the values as they are."""
    return pa.table([values], schema=schema)


PARSED: Mapping[str, Parse] = {"json": json_rows, "csv": csv_rows}
"""The functions that parse values to the columns of a schema, by the format's name."""

WHOLE_VALUES: Mapping[str, tuple[Parse, t.DataType]] = {
    "string": (text_rows, t.StringType()),
    "bytes": (byte_rows, t.BinaryType()),
}
"""The same for formats of which a value is the only column, ``value``, with its type."""


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
    """Reads messages of a ``format``, in batches with the column ``value``; it is sent to workers.

    ``parsed``: the columns that values hold. ``columns``: those of the rows, others of which are the batches' own, or MALFORMED.
    """

    format: str
    parsed: tuple[Field, ...]
    columns: tuple[Field, ...]

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Yield the rows of a batch's messages, in their order and in Spark's types of the columns."""
        values = batch.column("value").cast(pa.binary())
        rows, is_malformed = self.decoded(values)
        own = {name: batch.column(name) for name in batch.schema.names}
        own[MALFORMED] = pc.if_else(pa.array(is_malformed), values, pa.scalar(None, pa.binary()))
        of_values = {field.name for field in self.parsed}
        columns = {f.name: rows.column(f.name) if f.name in of_values else own[f.name] for f in self.columns}
        yield pa.table({f.name: columns[f.name].cast(arrow_type(f.type)) for f in self.columns})

    def decoded(self, values: pa.Array) -> tuple[pa.Table, Mask]:
        """Return a row for each value, of NULLs if it is NULL or malformed, and a mask of the malformed ones."""
        parse = PARSED[self.format] if self.format in PARSED else WHOLE_VALUES[self.format][0]
        schema = pa.schema([(f.name, arrow_type(f.type)) for f in self.parsed])
        places = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        parts = list(_parts(parse, values.take(pa.array(places)), schema))
        rows = pa.concat_tables([schema.empty_table(), *(part for part, _ in parts)])
        is_malformed = np.zeros(len(values), bool)
        is_malformed[places] = np.repeat([wrong for _, wrong in parts], [part.num_rows for part, _ in parts])
        # the rows go to the places of their values
        at = np.full(len(values), -1)
        at[places] = np.arange(len(places))
        return rows.take(pa.array(at, mask=at < 0)), is_malformed


def _parts(parse: Parse, values: pa.Array, schema: pa.Schema) -> Iterator[tuple[pa.Table, bool]]:
    """Yield the rows of values that are not NULL, in order, with True beside a row of NULLs for one that is malformed."""
    read = pa.schema([(field.name, as_read(field.type)) for field in schema])
    waiting: list[pa.Array] = [values] if len(values) else []
    while waiting:
        block = waiting.pop()
        try:
            yield parse(block, read).cast(schema), False
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if len(block) == 1:
                yield pa.table([pa.nulls(1, field.type) for field in schema], schema=schema), True
            else:
                half = len(block) // 2
                waiting += [block[half:], block[:half]]


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
