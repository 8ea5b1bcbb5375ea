"""Files of JSON lines, parsed by Arrow where it reads them as Spark does."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json
from pyspark.sql import types as t

from streamq.connectors.file_formats import WHOLE, Options, Share
from streamq.connectors.lines import (
    BRACE,
    BRACE_END,
    NEWLINE,
    RETURN,
    LineFormat,
    Lines,
    Parsed,
    is_utf8,
    telling,
    typed_columns,
)
from streamq.connectors.messages import JsonFormat, as_read, kind_of_json
from streamq.connectors.text_values import Unclear, text_value
from streamq.plan.schema import Field
from streamq.runtime.arrow.arrow_types import arrow_type

NO_NUMBER = re.compile(rb"[:,\[]\s*-?(Inf(?!inity)|-NaN)")
"""A number by a name that Arrow knows, and Spark does not; maybe within a text."""

IN_QUOTES = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)')
"""A text of JSON, or one whose end is missing."""

SPARKS_OWN = re.compile(r"'|[+-]INF|\+Infinity")
"""What Spark takes in JSON, beside texts, and nobody else."""


class JsonLines(LineFormat):
    """Files with a JSON object on each line; columns go by their names."""

    name = "json"
    has_lists = True
    blanks = b" \t\r\n"

    def parts(
        self,
        file: IO[bytes],
        columns: Sequence[Field],
        options: Options,
        share: Share = WHOLE,
        unread: Collection[str] = (),
    ) -> Iterator[pa.Table]:
        # the others are members that no column has
        yield from super().parts(file, telling(columns, unread), options, share, unread)

    def parsed_by_arrow(
        self, lines: Lines, columns: Sequence[Field], options: Options, unread: Collection[str]
    ) -> Parsed | None:
        codes = np.frombuffer(lines.data, np.uint8)
        last = lines.ends - 1
        last = last - (codes[last] == NEWLINE)
        last = last - (codes[last] == RETURN)
        # Arrow's reader ends the process at a first line that is null
        if not (codes[lines.begins] == BRACE).all() or not (codes[last] == BRACE_END).all():
            return None
        data = lines.piece
        if not is_utf8(data):
            return None
        # Arrow takes a day for a number, and reads a time with a zone as one without
        is_time = [isinstance(c.type, t.DateType | t.TimestampType | t.TimestampNTZType) for c in columns]
        if any(any(map(_is_time, _parts(c.type))) for c, own in zip(columns, is_time, strict=True) if not own):
            return None
        # a single character is found sooner than several
        if (b"I" in data or b"N" in data) and (b"Inf" in data or b"-NaN" in data) and NO_NUMBER.search(data):
            return None
        kinds = {c.name: arrow_type(c.type) for c in columns}
        read = {c.name: pa.string() if own else as_read(kinds[c.name]) for c, own in zip(columns, is_time, strict=True)}
        try:
            table = arrow_json.read_json(
                pa.py_buffer(data),
                arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                arrow_json.ParseOptions(explicit_schema=pa.schema(read), unexpected_field_behavior="ignore"),
            )
            others = [c.name for c, own in zip(columns, is_time, strict=True) if not own]
            untimed = table.select(others).cast(pa.schema([(name, kinds[name]) for name in others]))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != len(lines):
            return None
        times = [column for column, own in zip(columns, is_time, strict=True) if own]
        texts = [table.column(column.name).combine_chunks() for column in times]
        try:
            typed, is_wrong = typed_columns(texts, times, np.zeros(len(lines), bool))
        except Unclear:
            # a day may be a number there
            return None
        arrays = [(typed if own else untimed).column(c.name) for c, own in zip(columns, is_time, strict=True)]
        rows = pa.table(arrays, names=list(kinds))
        return (rows, is_wrong) if not is_wrong.any() else None

    def parsed_by_line(self, lines: Lines, columns: Sequence[Field], options: Options) -> Parsed:
        kind = t.StructType([t.StructField(column.name, column.type) for column in columns])
        decoder = _decoder()
        rows: list[Mapping[str, Any]] = []
        is_wrong = np.zeros(len(lines), bool)
        for number, line in enumerate(lines):
            try:
                rows.append(json_value(json_document(line.decode(), decoder), kind))
            except (ValueError, ArithmeticError, RecursionError):
                rows.append({})
                is_wrong[number] = True
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
        return pa.Table.from_pylist([{**dict.fromkeys(schema.names), **row} for row in rows], schema), is_wrong

    def wrong(self, line: bytes, columns: Sequence[Field], options: Options) -> str:
        try:
            members = json_document(line.decode(), _decoder())
        except (ValueError, RecursionError):
            return JsonFormat().wrong(line, ())
        return misfit(members, {column.name: column.type for column in columns}) or JsonFormat().wrong(line, ())


class Pairs(list[tuple[str, Any]]):
    """The names and values of a JSON object, in order."""


class Number(str):
    """A number of JSON, as its text."""

    __slots__ = ()


def _decoder() -> json.JSONDecoder:
    """Return a decoder of the values of lines; it cannot be sent to workers."""
    return json.JSONDecoder(object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=Number)


def json_document(text: str, decoder: json.JSONDecoder) -> Pairs:
    """Return the object on a line; raise ValueError if it is none, or more, and Unclear for what only Spark takes for one."""
    text = text.strip(" \t\r\n")
    try:
        document, end = decoder.raw_decode(text)
    except ValueError as error:
        if SPARKS_OWN.search(IN_QUOTES.sub("", text)):
            raise Unclear(f"texts in single quotes, or numbers by a name: {text[:40]}") from error
        raise
    if end < len(text):
        raise ValueError("something behind the object")
    if type(document) is list and all(isinstance(part, Pairs) for part in document):
        raise Unclear("a list of objects on one line")
    if not isinstance(document, Pairs):
        raise ValueError("no object")
    return document


INFINITIES = {
    **dict.fromkeys(("+INF", "+Infinity", "Infinity"), float("inf")),
    **dict.fromkeys(("-INF", "-Infinity"), float("-inf")),
    "NaN": float("nan"),
}
"""The texts that Spark takes for numbers in JSON."""


def json_value(value: Any, kind: t.DataType) -> Any:
    """Return the value of a type that Spark reads in a value of JSON; raise ValueError or ArithmeticError if there is none.

    Raises Unclear for one that Spark reads by rules that are its own.
    """
    is_number, is_text = isinstance(value, Number), isinstance(value, str) and not isinstance(value, Number)
    match kind:
        case _ if value is None:
            return None
        case t.StructType() if isinstance(value, Pairs):
            kinds = {field.name: field.dataType for field in kind.fields}
            return {name: json_value(part, kinds[name]) for name, part in value if name in kinds}
        case t.ArrayType() if type(value) is list:
            return [json_value(part, kind.elementType) for part in value]
        case t.StringType():
            return _json_text(value)
        case t.BooleanType() if isinstance(value, bool):
            return value
        case t.FloatType() | t.DoubleType() if is_number or (is_text and value in INFINITIES):
            return INFINITIES[value] if value in INFINITIES else text_value(value, kind)
        case t.TimestampType() if is_number:
            return _of_seconds(value)
        case t.DateType() if is_text and re.fullmatch(r"[+-]?[0-9]+", value) and not re.fullmatch("[0-9]{4}", value):
            raise Unclear(f"{value!r}, a day by its number")
        case t.DateType() | t.TimestampType() | t.TimestampNTZType() if is_text:
            return text_value(value, kind)
        case t.DecimalType() if is_number or is_text:
            return text_value(value, kind)
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType() if is_number:
            return text_value(value, kind)
    raise ValueError(value)


def misfit(members: Pairs, kinds: Mapping[str, t.DataType], within: str = "") -> str:
    """Return which of an object's members Spark does not read as one of its type, as of a message's value; "" if none is."""
    for name, value in members:
        kind = kinds.get(name)
        if isinstance(kind, t.StructType) and isinstance(value, Pairs):
            if wrong := misfit(value, {part.name: part.dataType for part in kind.fields}, f"{within}{name}."):
                return wrong
        elif kind is not None:
            try:
                json_value(value, kind)
            except (ValueError, ArithmeticError):
                of_line = "an object" if isinstance(value, Pairs) else "a number" if isinstance(value, Number) else ""
                return f"field {within}{name} is {of_line or kind_of_json(value)}, and no {kind.simpleString()}"
    return ""


def _json_text(value: Any) -> str:
    """Return a text, or a number or truth as one."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        raise Unclear("an object or a list in the place of a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Unclear("half of a character") from error
    return str(value)


def _of_seconds(text: str) -> dt.datetime:
    """Return the instant of a number of seconds since 1970."""
    seconds = text_value(text, t.LongType())
    try:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
    except OverflowError as error:
        raise Unclear(f"{text}, outside of the years 1 to 9999") from error


def _parts(kind: t.DataType) -> Iterator[t.DataType]:
    """Yield a type and those of its parts."""
    yield kind
    match kind:
        case t.ArrayType():
            yield from _parts(kind.elementType)
        case t.StructType():
            for field in kind.fields:
                yield from _parts(field.dataType)


def _is_time(kind: t.DataType) -> bool:
    """Return True for a day or an instant."""
    return isinstance(kind, t.DateType | t.TimestampType | t.TimestampNTZType)
