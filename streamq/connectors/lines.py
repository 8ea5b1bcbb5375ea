"""Files of lines, CSV and JSON lines: a line is a row with the values that Spark reads, or malformed, or ends the reading.

Arrow parses blocks of lines. Of a block that it refuses, or might read in another way, the halves are parsed, and of few lines
each by itself, by Python.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import fs
from pyarrow import json as arrow_json
from pyspark.sql import types as t

from streamq.connectors.file_formats import WHOLE, FileFormat, Options, Share
from streamq.connectors.messages import MALFORMED, as_read, decodable
from streamq.connectors.text_values import JAVA_BLANKS, Unclear, text_value, typed_texts
from streamq.plan.schema import Field
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.values import Mask

MALFORMED_OFFSET = "malformed_offset"
"""The column with the place of a malformed line in its file, in bytes from 0; NULL for others."""

CHUNK = 8 << 20
"""The bytes of a file that are parsed at a time, which bounds memory; a longer line is read whole."""

FEW = 256
"""The most lines of a block that Python parses, one by one."""

COMPRESSED = re.compile(r"\.(gz|bz2|zst|lz4)$")
"""The names of files that are decompressed from their beginning, and so are read by one task."""

OUT_OF_ARROW = re.compile(r"\.(snappy|deflate|lzo|xz|br)$")
"""The names of files whose compression PyArrow does not tell by them."""

BOM = b"\xef\xbb\xbf"

NEWLINE, RETURN, BRACE, BRACE_END, BLANK = b"\n\r{} "


@dataclass(frozen=True)
class Lines:
    """Lines of a file that are not blank, in a piece of its bytes, which begins at ``offset``.

    ``begins``, ``ends``: the places of each in the piece, with its line break.
    """

    data: bytes
    offset: int
    begins: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.begins)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines, without their line breaks."""
        for begin, end in zip(self.begins.tolist(), self.ends.tolist(), strict=True):
            yield self.data[begin:end].rstrip(b"\r\n")

    def part(self, begin: int, end: int) -> Lines:
        return Lines(self.data, self.offset, self.begins[begin:end], self.ends[begin:end])

    @property
    def piece(self) -> bytes:
        """The bytes from the first line to the last."""
        return self.data[self.begins[0] : self.ends[-1]]


def lines_of(file: IO[bytes], share: Share, blanks: bytes) -> Iterator[Lines]:
    """Yield the lines that begin in a share of a file; those of ``blanks`` alone are none.

    A line ends as Spark's readers end one: with a line feed, a carriage return, or both.
    """
    begin, end = 0, -1
    if share != WHOLE:
        size = file.seek(0, io.SEEK_END)
        begin, end = (size * n // share[1] for n in (share[0], share[0] + 1))
    # the byte before a share tells whether a line begins with it
    place = max(begin - 1, 0)
    if share != WHOLE:
        file.seek(place)
    rest = b""
    while end < 0 or place < end:
        read = file.read(CHUNK if end < 0 else min(CHUNK, max(end - place - len(rest), 1 << 16)))
        data = rest + read
        # a line break may go on behind a carriage return
        cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1 if read else len(data)
        if not data:
            return
        data, rest = data[:cut], data[cut:]
        if data:
            begins = _line_begins(data)
            ends = np.append(begins[1:], len(data))
            begins[0] += len(BOM) if place == 0 and data.startswith(BOM) else 0
            is_own = np.ones(len(begins), bool) if end < 0 else begins + place < end
            is_own[0] &= begin == 0 or place != begin - 1
            for n in np.flatnonzero(np.frombuffer(data, np.uint8)[np.minimum(begins, len(data) - 1)] <= BLANK):
                is_own[n] &= bool(data[begins[n] : ends[n]].strip(blanks))
            is_own &= begins < ends
            yield Lines(data, place, begins[is_own], ends[is_own])
        place += len(data)
        if not read:
            return


def _line_begins(data: bytes) -> np.ndarray:
    """Return the places in a text at which lines begin."""
    codes = np.frombuffer(data, np.uint8)
    is_break = codes == NEWLINE
    if b"\r" in data:
        is_break[:-1] |= (codes[:-1] == RETURN) & (codes[1:] != NEWLINE)
        is_break[-1] |= codes[-1] == RETURN
    begins = np.flatnonzero(is_break[:-1]) + 1
    return np.insert(begins, 0, 0)


Parsed = tuple[pa.Table, Mask]
"""The rows of lines, with the columns in order, and a mask of malformed ones."""


class LineFormat(FileFormat):
    """A format of files in which each line is a row."""

    marks = (Field(MALFORMED, t.BinaryType()), Field(MALFORMED_OFFSET, t.LongType()))
    by_spark = False

    has_lists: ClassVar[bool] = False
    """True if values may be lists and structs."""

    blanks: ClassVar[bytes]
    """The characters of lines that are none."""

    def not_decoded(self, columns: Sequence[Field], options: Options) -> str:
        for column in columns:
            if not decodable(column, self.has_lists) or column.type.simpleString().startswith("string "):
                return f"column {column.name} of type {column.type.simpleString()}"
        return ""

    def can_share(self, path: str) -> bool:
        return not COMPRESSED.search(path)

    def opened(self, system: fs.FileSystem, path: str) -> pa.NativeFile:
        if unknown := OUT_OF_ARROW.search(path):
            raise Unclear(f"compressed as {unknown[1]}")
        return system.open_input_file(path) if self.can_share(path) else system.open_input_stream(path)

    def parts(
        self, file: IO[bytes], columns: Sequence[Field], options: Options, share: Share = WHOLE
    ) -> Iterator[pa.Table]:
        if not columns:
            raise Unclear("lines without a column to read")
        for lines in self.lines(file, options, share):
            waiting = [lines] if len(lines) else []
            while waiting:
                block = waiting.pop()
                parsed = self.parsed_by_arrow(block, columns, options)
                if parsed is None and len(block) > FEW:
                    half = len(block) // 2
                    waiting += [block.part(half, len(block)), block.part(0, half)]
                    continue
                rows, is_wrong = parsed or self.parsed_by_line(block, columns, options)
                yield with_marks(rows, is_wrong, block)

    def lines(self, file: IO[bytes], options: Options, share: Share) -> Iterator[Lines]:
        """Yield the lines of a share that are rows."""
        return lines_of(file, share, self.blanks)

    @abstractmethod
    def parsed_by_arrow(self, lines: Lines, columns: Sequence[Field], options: Options) -> Parsed | None:
        """Return the rows of lines; None if Arrow does not read each as Spark does."""

    @abstractmethod
    def parsed_by_line(self, lines: Lines, columns: Sequence[Field], options: Options) -> Parsed:
        """Return the rows of lines; raise Unclear for one that Spark reads by rules of its own."""


def with_marks(rows: pa.Table, is_wrong: Mask, lines: Lines) -> pa.Table:
    """Return rows, of NULLs for malformed lines, with the bytes and the places of these."""
    places = np.flatnonzero(is_wrong)
    if len(places):
        rows = rows.take(pa.array(np.arange(len(rows)), mask=is_wrong))
    wrong = Lines(lines.data, lines.offset, lines.begins[places], lines.ends[places])
    at = np.full(len(is_wrong), -1)
    at[places] = np.arange(len(places))
    marked = pa.array(at, mask=~is_wrong)
    texts = pa.array(list(wrong), pa.binary()).take(marked)
    offsets = pa.array(wrong.begins + lines.offset, pa.int64()).take(marked)
    return rows.append_column(MALFORMED, texts).append_column(MALFORMED_OFFSET, offsets)


def _typed(texts: Sequence[pa.Array], columns: Sequence[Field], is_wrong: Mask) -> Parsed:
    """Return the rows of the texts of columns; ``is_wrong`` marks those that are malformed already."""
    values = []
    for column, array in zip(columns, texts, strict=True):
        try:
            converted, is_odd = typed_texts(array, column.type)
        except Unclear as error:
            raise Unclear(f"{error} in column {column.name}, which is {column.type.simpleString()}") from error
        values.append(converted)
        is_wrong = is_wrong | is_odd
    return pa.table(values, names=[column.name for column in columns]), is_wrong


class Csv(LineFormat):
    """Files with a row on each line, of fields between commas; columns go by their places."""

    name = "csv"
    options = frozenset({"header", "sep", "delimiter", "escape"})
    blanks = JAVA_BLANKS.encode()

    def not_decoded(self, columns: Sequence[Field], options: Options) -> str:
        separator, escape = _separator(options), _escape(options)
        if len(separator) != 1 or separator in '"\\\r\n' or not separator.isascii():
            return f"fields between {separator!r}"
        if escape not in ('"', "\\"):
            return f"quotes behind {escape!r}"
        return super().not_decoded(columns, options)

    def lines(self, file: IO[bytes], options: Options, share: Share) -> Iterator[Lines]:
        has_header = str(options.get("header", "false")).lower() == "true" and share[0] == 0
        for lines in super().lines(file, options, share):
            yield lines.part(int(has_header), len(lines))
            has_header &= not len(lines)

    def parsed_by_arrow(self, lines: Lines, columns: Sequence[Field], options: Options) -> Parsed | None:
        data, separator, is_doubled = lines.piece, _separator(options), _escape(options) == '"'
        if b'"' in data and b'"' in re.sub(_plain_quotes(separator, is_doubled), b"", data):
            return None
        if data.startswith(BOM):
            return None
        names = [column.name for column in columns]
        try:
            table = arrow_csv.read_csv(
                pa.py_buffer(data),
                arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1),
                arrow_csv.ParseOptions(delimiter=separator),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(lines):
            return None
        return _typed([column.combine_chunks() for column in table.columns], columns, np.zeros(len(lines), bool))

    def parsed_by_line(self, lines: Lines, columns: Sequence[Field], options: Options) -> Parsed:
        separator, is_doubled = _separator(options), _escape(options) == '"'
        rows = []
        is_wrong = np.zeros(len(lines), bool)
        for number, line in enumerate(lines):
            try:
                fields = csv_fields(line.decode(), separator, is_doubled)
            except ValueError:
                fields = []
            is_wrong[number] = len(fields) != len(columns)
            rows.append([None] * len(columns) if is_wrong[number] else [field or None for field in fields])
        texts = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        return _typed(texts, columns, is_wrong)


def _separator(options: Options) -> str:
    return str(options.get("sep", options.get("delimiter", ",")))


def _escape(options: Options) -> str:
    return str(options.get("escape", "\\"))


def _plain_quotes(separator: str, is_doubled: bool) -> bytes:
    """Return the pattern of fields within quotes that Arrow reads as Spark does."""
    between = re.escape(separator).encode() + rb"\r\n"
    inside = rb'(?:[^"\r\n]|"")*' if is_doubled else rb'[^"\\\r\n]*'
    return rb'(?<![^%b])"%b"(?![^%b])' % (between, inside, between)


def csv_fields(line: str, separator: str, is_doubled: bool) -> list[str]:
    """Return the fields of a line; raise ValueError if a quote stays open, and Unclear for quotes within quotes.

    ``is_doubled``: within quotes two quotes are one, else a backslash is before a quote, or before another one.
    """
    if '"' not in line:
        return line.split(separator)
    end = re.escape(separator)
    inside = '(?:[^"]|"")*' if is_doubled else r'(?:[^"\\]|\\.)*'
    quoted = re.compile(
        rf'"({inside})"[\x00-\x20]*?(?:{end}|$)' if separator > " " else rf'"({inside})"[ ]*?(?:{end}|$)'
    )
    bare = re.compile(rf'((?!")[^{end}]*)(?:{end}|$)')
    fields: list[str] = []
    place = 0
    while place <= len(line):
        field = bare.match(line, place) or quoted.match(line, place)
        if field is None:
            if re.fullmatch(f'"{inside}\\\\?', line[place:]):
                raise ValueError("a quote that stays open")
            hint = 'Spark reads it, quotes and all: sq.files(..., reader="spark"); if quotes are doubled, say escape=\'"\'.'
            raise Unclear(f"quotes within quotes: {line[place:][:40]}", hint)
        text = field[1]
        if line[place : place + 1] == '"':
            text = text.replace('""', '"') if is_doubled else re.sub(r'\\(["\\])', r"\1", text)
        fields.append(text)
        # the last field has no separator behind it
        place = len(line) + 1 if field.end() == len(line) and not field[0].endswith(separator) else field.end()
    return fields


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

    def parsed_by_arrow(self, lines: Lines, columns: Sequence[Field], options: Options) -> Parsed | None:
        codes = np.frombuffer(lines.data, np.uint8)
        last = lines.ends - 1
        last = last - (codes[last] == NEWLINE)
        last = last - (codes[last] == RETURN)
        # Arrow's reader ends the process at a first line that is null
        if not (codes[lines.begins] == BRACE).all() or not (codes[last] == BRACE_END).all():
            return None
        data = lines.piece
        # Arrow takes a day for a number, and reads a time with a zone as one without
        is_time = [isinstance(c.type, t.DateType | t.TimestampType | t.TimestampNTZType) for c in columns]
        if any(any(map(_is_time, _parts(c.type))) for c, own in zip(columns, is_time, strict=True) if not own):
            return None
        if (b"Inf" in data or b"-NaN" in data) and NO_NUMBER.search(data):
            return None
        kinds = {c.name: arrow_type(c.type) for c in columns}
        read = {c.name: pa.string() if own else as_read(kinds[c.name]) for c, own in zip(columns, is_time, strict=True)}
        try:
            pa.array([data], pa.large_binary()).cast(pa.large_string())
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
            typed, is_wrong = _typed(texts, times, np.zeros(len(lines), bool))
        except Unclear:
            # a day may be a number there
            return None
        arrays = [(typed if own else untimed).column(c.name) for c, own in zip(columns, is_time, strict=True)]
        rows = pa.table(arrays, names=list(kinds))
        return (rows, is_wrong) if not is_wrong.any() else None

    def parsed_by_line(self, lines: Lines, columns: Sequence[Field], options: Options) -> Parsed:
        kind = t.StructType([t.StructField(column.name, column.type) for column in columns])
        # a decoder cannot be sent to workers
        decoder = json.JSONDecoder(object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=Number)
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


class Pairs(list[tuple[str, Any]]):
    """The names and values of a JSON object, in order."""


class Number(str):
    """A number of JSON, as its text."""

    __slots__ = ()


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
