"""Files of lines, such as CSV: a line is a row with the values that Spark reads, or malformed, or ends the reading.

Arrow parses blocks of lines. Of a block that it refuses, or might read in another way, the halves are parsed, and of few lines
each by itself, by Python.
"""

from __future__ import annotations

import io
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import fs
from pyspark.sql import types as t

from streamq.connectors.file_formats import WHOLE, FileFormat, Options, Share
from streamq.connectors.messages import MALFORMED, OFFSET, WRONG, decodable
from streamq.connectors.text_values import Unclear, typed_texts
from streamq.plan.schema import Field
from streamq.runtime.arrow.values import Mask

NO_ROW = "malformed value"
"""What is wrong with a line that is no row; Spark's reader does not say more."""

CHUNK = 8 << 20
"""The bytes of a file that are parsed at a time, which bounds memory; a longer line is read whole."""

FEW = 256
"""The most lines of a block that Python parses, one by one."""

COMPRESSED = re.compile(r"\.(gz|bz2|zst|lz4)$")
"""The names of files that are decompressed from their beginning, and so are read by one task."""

OUT_OF_ARROW = re.compile(r"\.(snappy|deflate|lzo|xz|br)$")
"""The names of files whose compression PyArrow does not tell by them."""

BOM = b"\xef\xbb\xbf"

NEWLINE, RETURN, BRACE, BRACE_END, BLANK, QUOTE, BACKSLASH = b'\n\r{} "\\'


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


def is_utf8(data: bytes) -> bool:
    """Return True if a text is in UTF-8."""
    if data.isascii():
        return True
    offsets = pa.py_buffer(np.array([0, len(data)]))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


Parsed = tuple[pa.Table, Mask]
"""The rows of lines, with the columns in order, and a mask of malformed ones."""


class LineFormat(FileFormat):
    """A format of files in which each line is a row."""

    marks = (Field(MALFORMED, t.BinaryType()), Field(OFFSET, t.LongType()), Field(WRONG, t.StringType()))
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
        self,
        file: IO[bytes],
        columns: Sequence[Field],
        options: Options,
        share: Share = WHOLE,
        unread: Collection[str] = (),
    ) -> Iterator[pa.Table]:
        if not columns:
            raise Unclear("lines without a column to read")
        for lines in self.lines(file, columns, options, share):
            waiting = [lines] if len(lines) else []
            while waiting:
                block = waiting.pop()
                parsed = self.parsed_by_arrow(block, columns, options, unread)
                if parsed is None and len(block) > FEW:
                    half = len(block) // 2
                    waiting += [block.part(half, len(block)), block.part(0, half)]
                    continue
                rows, is_wrong = parsed or self.parsed_by_line(block, columns, options)
                rows = self.with_marks(rows, is_wrong, block, columns, options)
                yield rows.drop_columns([name for name in rows.column_names if name in unread])

    def lines(self, file: IO[bytes], columns: Sequence[Field], options: Options, share: Share) -> Iterator[Lines]:
        """Yield the lines of a share that are rows with these columns."""
        return lines_of(file, share, self.blanks)

    @abstractmethod
    def parsed_by_arrow(
        self, lines: Lines, columns: Sequence[Field], options: Options, unread: Collection[str]
    ) -> Parsed | None:
        """Return the rows of lines, without some unread columns; None if Arrow does not read each as Spark does."""

    @abstractmethod
    def parsed_by_line(self, lines: Lines, columns: Sequence[Field], options: Options) -> Parsed:
        """Return the rows of lines; raise Unclear for one that Spark reads by rules of its own."""

    @abstractmethod
    def wrong(self, line: bytes, columns: Sequence[Field], options: Options) -> str:
        """Return in a few words what is wrong with a malformed line, as of a message's value; words that many of them share."""

    def with_marks(
        self, rows: pa.Table, is_wrong: Mask, lines: Lines, columns: Sequence[Field], options: Options
    ) -> pa.Table:
        """Return rows, of NULLs for malformed lines, with the marks of these."""
        places = np.flatnonzero(is_wrong)
        if len(places):
            rows = rows.take(pa.array(np.arange(len(rows)), mask=is_wrong))
        wrong = Lines(lines.data, lines.offset, lines.begins[places], lines.ends[places])
        at = np.full(len(is_wrong), -1)
        at[places] = np.arange(len(places))
        marked = pa.array(at, mask=~is_wrong)
        texts = pa.array(list(wrong), pa.binary()).take(marked)
        offsets = pa.array(wrong.begins + lines.offset, pa.int64()).take(marked)
        reasons = [f"{NO_ROW}: {self.wrong(line, columns, options)}" for line in wrong]
        whys = pa.array(reasons, pa.string()).take(marked)
        return rows.append_column(MALFORMED, texts).append_column(OFFSET, offsets).append_column(WRONG, whys)


def telling(columns: Sequence[Field], unread: Collection[str]) -> list[Field]:
    """Return the columns, one at least, that are read, or tell whether a row is malformed: any text is one of UTF-8."""
    needed = [c for c in columns if c.name not in unread or not isinstance(c.type, t.StringType)]
    return needed or list(columns[:1])


def typed_columns(texts: Sequence[pa.Array], columns: Sequence[Field], is_wrong: Mask) -> Parsed:
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
