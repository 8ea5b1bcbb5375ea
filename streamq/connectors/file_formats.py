"""File formats, read without Spark: a file's rows have the values that Spark reads, or an error says to use Spark."""

from __future__ import annotations

import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.errors import PySparkTypeError
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type

from streamq.errors import NeedsSpark
from streamq.plan.schema import Field
from streamq.runtime.arrow.arrow_types import arrow_type

Options = Mapping[str, Any]
"""Spark's options of a reader, by their names in lower case."""


Share = tuple[int, int]
"""A share of a file, by its number, from 0, and the number of shares; together they have each of its rows once."""

WHOLE: Share = (0, 1)


class Unclear(Exception):
    """Raised where Spark reads another value, or might, and where only Spark reads; the text says what was found.

    ``hint``: what to do if Spark does not read it either.
    """

    def __init__(self, observed: str, hint: str = "") -> None:
        super().__init__(observed)
        self.hint = hint


@contextmanager
def _unclear() -> Iterator[None]:
    """Raise Unclear for what Arrow refuses in a text: Spark may read it."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise Unclear(str(error).splitlines()[0]) from error


class FileFormat(ABC):
    """A format of files, by Spark's name."""

    name: ClassVar[str]

    options: ClassVar[frozenset[str]] = frozenset()
    """The options, in lower case, that ``parts`` knows."""

    not_split: ClassVar[str] = "of a text that is no value of its type Spark makes NULL"
    """The reason why only Spark reads the files of a stream; "" if workers do."""

    def opened(self, system: fs.FileSystem, path: str) -> pa.NativeFile:
        """Return a file to read from its beginning to its end, decompressed if its name says that it is compressed."""
        return system.open_input_stream(path)

    def fields(self, file: IO[bytes]) -> tuple[Field, ...]:
        """Return the columns of a file; raise Unclear if files of the format do not say which they have."""
        raise Unclear(f"{self.name} files do not say which columns they have")

    @abstractmethod
    def parts(
        self, file: IO[bytes], columns: Sequence[Field], options: Options, share: Share = WHOLE
    ) -> Iterator[pa.Table]:
        """Yield the rows of a share of a file with these columns, in their Arrow types; a column that the file lacks is NULL.

        Raises Unclear, and of a damaged file what Arrow raises.
        """


class Parquet(FileFormat):
    """Parquet files, written by Spark or by others."""

    name = "parquet"
    not_split = ""

    def opened(self, system: fs.FileSystem, path: str) -> pa.NativeFile:
        """Return a file to read at any place, as its columns lie apart."""
        return system.open_input_file(path)

    def fields(self, file: IO[bytes]) -> tuple[Field, ...]:
        return self._fields(pq.ParquetFile(file, coerce_int96_timestamp_unit="us"))

    def _fields(self, source: pq.ParquetFile) -> tuple[Field, ...]:
        """Return the columns that Spark has noted in the file, else those that it makes of the file's types."""
        notes = source.metadata.metadata or {}
        if b"org.apache.spark.legacyDateTime" in notes or b"org.apache.spark.legacyINT96" in notes:
            raise Unclear("times of the Julian calendar")
        noted = notes.get(b"org.apache.spark.sql.parquet.row.metadata")
        if noted is not None:
            return tuple(Field(f.name, f.dataType) for f in t.StructType.fromJson(json.loads(noted)).fields)
        # Spark's old form of instants, which Arrow reads as times without a zone
        schema = source.schema
        old = [schema.column(i).path for i in range(len(schema.names)) if schema.column(i).physical_type == "INT96"]
        return tuple(
            Field(field.name, t.TimestampType() if field.name in old else _spark_type(field.type))
            for field in source.schema_arrow
        )

    def parts(
        self, file: IO[bytes], columns: Sequence[Field], options: Options, share: Share = WHOLE
    ) -> Iterator[pa.Table]:
        source = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        # names are compared without case, as Spark does
        stored = {field.name.lower(): field for field in self._fields(source)}
        for column in columns:
            kind = stored.get(column.name.lower(), column).type
            # without a zone: in UTC
            is_instant = isinstance(kind, t.TimestampNTZType) and isinstance(column.type, t.TimestampType)
            # but for which parts may be NULL
            if (
                kind.simpleString() != column.type.simpleString()
                and not is_instant
                and not _is_wider(kind, column.type)
            ):
                wrong = f"column {column.name} is {kind.simpleString()}, not {column.type.simpleString()}"
                raise Unclear(wrong, f'Write its type into the schema, as "{column.name} {kind.simpleString()}".')
        names = {column.name: stored[column.name.lower()].name for column in columns if column.name.lower() in stored}
        number, shares = share
        ends = [source.num_row_groups * n // shares for n in (number, number + 1)]
        for batch in source.iter_batches(PART, row_groups=list(range(*ends)), columns=list(names.values())):
            read = pa.Table.from_batches([batch])
            # a table without columns still has rows
            rows = read.select([])
            for column in columns:
                to = arrow_type(column.type)
                is_there = column.name in names
                values = read.column(names[column.name]).cast(to) if is_there else pa.nulls(read.num_rows, to)
                rows = rows.append_column(column.name, values)
            yield rows


PART = 1 << 17
"""The most rows of a Parquet file that are read at a time, which bounds memory."""

WIDER: Mapping[type[t.DataType], tuple[type[t.DataType], ...]] = {
    t.ByteType: (t.ShortType, t.IntegerType, t.LongType, t.DoubleType),
    t.ShortType: (t.IntegerType, t.LongType, t.DoubleType),
    t.IntegerType: (t.LongType, t.DoubleType),
    t.FloatType: (t.DoubleType,),
}
"""The wider types as which Spark reads a column of a Parquet file, too."""


def _is_wider(kind: t.DataType, wanted: t.DataType) -> bool:
    """Return True if Spark reads a column of a file as the wanted type, which has all its values."""
    return isinstance(wanted, WIDER.get(type(kind), ()))


NANOSECONDS = "Spark has none: write the file with microseconds, in pandas by to_parquet(path, coerce_timestamps='us')."

UNSIGNED: Mapping[pa.DataType, t.DataType] = {
    pa.uint8(): t.ShortType(), pa.uint16(): t.IntegerType(), pa.uint32(): t.LongType(), pa.uint64(): t.DecimalType(20, 0),
}  # fmt: skip
"""Spark's types of integers without a sign in Parquet files."""


def _spark_type(kind: pa.DataType) -> t.DataType:
    """Return the type that Spark reads a column of a Parquet file as; raise Unclear if it reads none, or none in Arrow."""
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if kind in UNSIGNED:
        return UNSIGNED[kind]
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        raise Unclear("times in nanoseconds", NANOSECONDS)
    if pa.types.is_null(kind):
        raise Unclear("a column without a type")
    try:
        in_spark = from_arrow_type(kind, prefer_timestamp_ntz=True)
        arrow_type(in_spark)
    except (PySparkTypeError, NeedsSpark, ValueError) as error:
        raise Unclear(f"a column of type {kind}") from error
    return in_spark


class Csv(FileFormat):
    """Files with a row on each line, of fields between commas; columns go by their places."""

    name = "csv"
    options = frozenset({"header", "sep", "delimiter"})

    def parts(
        self, file: IO[bytes], columns: Sequence[Field], options: Options, share: Share = WHOLE
    ) -> Iterator[pa.Table]:
        if not columns:
            raise Unclear("lines without a column to read")
        separator = str(options.get("sep", options.get("delimiter", ",")))
        if len(separator) != 1:
            raise Unclear(f"fields between {separator!r}")
        data = file.read()
        beside = rb"[^\r\n" + re.escape(separator).encode() + rb"]"
        if b"\\" in data or re.search(rb'""' + beside + rb"|" + beside + rb'""', data):
            raise Unclear("quotes within quotes, or a backslash")
        names = [column.name for column in columns]
        if not data.strip(b"\r\n"):
            return
        has_header = str(options.get("header", "false")).lower() == "true"
        with _unclear():
            table = pyarrow.csv.read_csv(
                io.BytesIO(data),
                pyarrow.csv.ReadOptions(column_names=names, skip_rows=int(has_header), block_size=max(1, len(data))),
                pyarrow.csv.ParseOptions(delimiter=separator),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        if table.num_rows + has_header != sum(1 for line in data.splitlines() if line):
            raise Unclear("a text over several lines")
        yield pa.table({c.name: typed_texts(table.column(c.name), c) for c in columns})


DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = rf"{DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?"
ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2})"
NUMBER = r"-?[0-9]+(\.[0-9]+)?"

PLAIN: Mapping[type[t.DataType], str] = {
    **dict.fromkeys((t.ByteType, t.ShortType, t.IntegerType, t.LongType), "-?[0-9]+"),
    **dict.fromkeys((t.FloatType, t.DoubleType), rf"{NUMBER}([eE][+-]?[0-9]+)?"),
    t.BooleanType: "true|false",
    t.DecimalType: NUMBER,
    t.DateType: DAY,
    t.TimestampType: f"{TIME}{ZONE}?",
    t.TimestampNTZType: TIME,
    t.StringType: "(?s).*",
}
"""The texts of each type that Spark and Arrow read alike."""


def typed_texts(texts: pa.ChunkedArray, column: Field) -> pa.ChunkedArray:
    """Return the values of a column that its texts say; raise Unclear for a text that Spark may read in another way."""
    pattern = PLAIN.get(type(column.type))
    if pattern is None:
        raise Unclear(f"column {column.name} of type {column.type.simpleString()}")
    if isinstance(column.type, t.StringType):
        return texts
    odd = texts.filter(pc.invert(pc.match_substring_regex(texts, f"^({pattern})$")))
    if len(odd):
        raise Unclear(f"{odd[0].as_py()!r} in column {column.name}, which is {column.type.simpleString()}")
    with _unclear():
        return _instants(texts) if isinstance(column.type, t.TimestampType) else texts.cast(arrow_type(column.type))


def _instants(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the instants of texts, some with a zone; others are in UTC."""
    instant = pa.timestamp("us", tz="UTC")
    has_zone = pc.match_substring_regex(texts, f"{ZONE}$")
    nothing = pa.scalar(None, pa.string())
    zoned = pc.if_else(has_zone, texts, nothing).cast(instant)
    return pc.coalesce(zoned, pc.if_else(has_zone, nothing, texts).cast(pa.timestamp("us")).cast(instant))


NO_NUMBER = re.compile(rb"[:,\[]\s*-?(Inf|NaN)")
"""A number by a name, of which each reader knows others; maybe within a text."""


class JsonLines(FileFormat):
    """Files with a JSON object on each line; columns go by their names."""

    name = "json"

    def parts(
        self, file: IO[bytes], columns: Sequence[Field], options: Options, share: Share = WHOLE
    ) -> Iterator[pa.Table]:
        if not columns:
            raise Unclear("lines without a column to read")
        data = file.read()
        lines = [line for line in map(bytes.strip, data.split(b"\n")) if line]
        count = len(lines)
        # Arrow's reader ends the process at a first line that is null
        if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
            raise Unclear("a line that does not hold one object")
        if NO_NUMBER.search(data):
            raise Unclear("numbers that JSON does not have")
        types = {column.name: arrow_type(column.type) for column in columns}
        if not count:
            return
        # Arrow takes a day for a number, and reads a time with a zone as one without
        texts = {c.name: c for c in columns if isinstance(c.type, t.DateType | t.TimestampType | t.TimestampNTZType)}
        for column in columns:
            if column.name not in texts and any(map(_is_time, _parts(column.type))):
                raise Unclear(f"column {column.name}, with times in {column.type.simpleString()}")
        read = {name: pa.string() if name in texts else kind for name, kind in types.items()}
        with _unclear():
            table = pyarrow.json.read_json(
                io.BytesIO(data),
                pyarrow.json.ReadOptions(block_size=max(1, len(data))),
                pyarrow.json.ParseOptions(explicit_schema=pa.schema(read), unexpected_field_behavior="ignore"),
            )
        if table.num_rows != count:
            raise Unclear("a line that does not hold one object")
        yield pa.table(
            {
                name: typed_texts(table.column(name), texts[name]) if name in texts else table.column(name)
                for name in types
            }
        )


def _parts(kind: t.DataType) -> Iterator[t.DataType]:
    """Yield a type and those of its parts."""
    yield kind
    match kind:
        case t.ArrayType():
            yield from _parts(kind.elementType)
        case t.MapType():
            yield from _parts(kind.keyType)
            yield from _parts(kind.valueType)
        case t.StructType():
            for field in kind.fields:
                yield from _parts(field.dataType)


def _is_time(kind: t.DataType) -> bool:
    """Return True for a day or an instant."""
    return isinstance(kind, t.DateType | t.TimestampType | t.TimestampNTZType)


FORMATS: Mapping[str, FileFormat] = {kind.name: kind for kind in (Parquet(), Csv(), JsonLines())}
"""The formats that are read without Spark, by name; Spark has more."""
