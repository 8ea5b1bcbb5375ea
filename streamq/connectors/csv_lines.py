"""Files of CSV: fields between commas, some within quotes, parsed by Arrow where it reads them as Spark does."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import IO

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from streamq.connectors.file_formats import Options, Share
from streamq.connectors.lines import (
    BACKSLASH,
    BOM,
    NEWLINE,
    QUOTE,
    RETURN,
    LineFormat,
    Lines,
    Parsed,
    is_utf8,
    telling,
    typed_columns,
)
from streamq.connectors.text_values import JAVA_BLANKS, Unclear, text_value
from streamq.plan.schema import Field


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

    def lines(self, file: IO[bytes], columns: Sequence[Field], options: Options, share: Share) -> Iterator[Lines]:
        has_header = str(options.get("header", "false")).lower() == "true" and share[0] == 0
        for lines in super().lines(file, columns, options, share):
            if has_header and len(lines):
                _check_order(next(iter(lines)).decode(errors="replace"), columns, _separator(options))
            yield lines.part(int(has_header), len(lines))
            has_header &= not len(lines)

    def parsed_by_arrow(
        self, lines: Lines, columns: Sequence[Field], options: Options, unread: Collection[str]
    ) -> Parsed | None:
        data, separator = lines.piece, _separator(options)
        if data.startswith(BOM) or not is_utf8(data) or not has_plain_quotes(lines, separator, _escape(options) == '"'):
            return None
        needed = telling(columns, unread)
        names = [column.name for column in needed]
        try:
            table = arrow_csv.read_csv(
                pa.py_buffer(data),
                arrow_csv.ReadOptions(
                    use_threads=False, column_names=[column.name for column in columns], block_size=len(data) + 1
                ),
                arrow_csv.ParseOptions(delimiter=separator),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    include_columns=names,
                    null_values=[""],
                    strings_can_be_null=True,
                    check_utf8=False,
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(lines):
            return None
        texts = [column.combine_chunks() for column in table.columns]
        return typed_columns(texts, needed, np.zeros(len(lines), bool))

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
        return typed_columns(texts, columns, is_wrong)

    def wrong(self, line: bytes, columns: Sequence[Field], options: Options) -> str:
        try:
            fields = csv_fields(line.decode(), _separator(options), _escape(options) == '"')
        except UnicodeDecodeError:
            return "not in UTF-8"
        except ValueError:
            return "not one line of CSV"
        if len(fields) != len(columns):
            return f"{len(fields)} fields, and not {len(columns)}"
        for column, text in zip(columns, fields, strict=True):
            try:
                _ = text and text_value(text, column.type)
            except (ValueError, ArithmeticError):
                return f"field {column.name} is no {column.type.simpleString()}"
        return "not one line of CSV"


def _check_order(header: str, columns: Sequence[Field], separator: str) -> None:
    """Raise Unclear for a header that names the columns in another order: they go by their places."""
    there = [name.strip(' "').lower() for name in header.split(separator)]
    wanted = [column.name.lower() for column in columns]
    if there != wanted and sorted(there) == sorted(wanted):
        hint = "Columns of CSV go by their places: write those of the schema in the header's order."
        raise Unclear(f"its header has the columns in another order: {', '.join(there)}", hint)


def _separator(options: Options) -> str:
    return str(options.get("sep", options.get("delimiter", ",")))


def _escape(options: Options) -> str:
    return str(options.get("escape", "\\"))


def has_plain_quotes(lines: Lines, separator: str, is_doubled: bool) -> bool:
    """Return True if Arrow reads the quotes in lines as Spark does: each field is within two, or has none.

    Between two there is no line break and no backslash. ``is_doubled``: backslashes are characters like others, and two quotes
    within quotes are one; they are then taken for the end of a text and the beginning of another one.
    """
    codes = np.frombuffer(lines.data, np.uint8)
    begin, end = int(lines.begins[0]), int(lines.ends[-1])
    quotes = np.flatnonzero(codes[begin:end] == QUOTE) + begin
    if not len(quotes):
        return True
    if len(quotes) % 2 or (np.searchsorted(quotes, lines.begins) % 2).any():
        return False
    opens, closes = quotes[::2], quotes[1::2]
    is_between = np.isin(np.arange(256), [*separator.encode(), NEWLINE, RETURN])
    before = (opens == begin) | is_between[codes[opens - 1]]
    after = is_between[codes[np.minimum(closes + 1, end - 1)]] | (closes == end - 1)
    if is_doubled:
        is_next = closes[:-1] + 1 == opens[1:]
        before[1:] |= is_next
        after[:-1] |= is_next
    elif b"\\" in lines.piece:
        slashes = np.flatnonzero(codes[begin:end] == BACKSLASH) + begin
        after[0] &= not (np.searchsorted(quotes, slashes) % 2).any()
    return bool(before.all() and after.all())


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
