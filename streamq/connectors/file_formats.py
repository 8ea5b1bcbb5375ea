"""File formats, read without Spark: a file's rows have the values that Spark reads, or an error says to use Spark."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any, ClassVar

import pyarrow as pa
from pyarrow import fs, ipc, orc
from pyarrow import parquet as pq
from pyspark.errors import PySparkTypeError
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type

from streamq.connectors.text_values import Unclear
from streamq.errors import NeedsSpark
from streamq.plan.schema import Field
from streamq.runtime.arrow.arrow_types import arrow_type

Options = Mapping[str, Any]
"""Spark's options of a reader, by their names in lower case."""


Share = tuple[int, int]
"""A share of a file, by its number, from 0, and the number of shares; together they have each of its rows once."""

WHOLE: Share = (0, 1)


class FileFormat(ABC):
    """A format of files, by Spark's name.

    ``options``: those that ``parts`` knows, in lower case. ``marks``: the columns that ``parts`` adds, of malformed rows.
    ``by_spark``: True if a batch of the files is read by Spark, as what it reads is the same.
    """

    name: ClassVar[str]
    options: ClassVar[frozenset[str]] = frozenset()
    marks: ClassVar[tuple[Field, ...]] = ()
    by_spark: ClassVar[bool] = True

    def opened(self, system: fs.FileSystem, path: str) -> pa.NativeFile:
        """Return a file to read; by default at any place, as its columns lie apart."""
        return system.open_input_file(path)

    def fields(self, file: IO[bytes]) -> tuple[Field, ...]:
        """Return the columns of a file; raise Unclear if files of the format do not say which they have."""
        raise Unclear(f"{self.name} files do not say which columns they have")

    def not_decoded(self, columns: Sequence[Field], options: Options) -> str:
        """Return the column, or the option, because of which only Spark reads the files; "" if there is none."""
        return ""

    def can_share(self, path: str) -> bool:
        """Return True if several tasks may read shares of a file."""
        return True

    @abstractmethod
    def parts(
        self,
        file: IO[bytes],
        columns: Sequence[Field],
        options: Options,
        share: Share = WHOLE,
        unread: Collection[str] = (),
    ) -> Iterator[pa.Table]:
        """Yield the rows of a share of a file with these columns, in their Arrow types, and the marks.

        A column that the file lacks is NULL; one that is ``unread`` is left out, once it is known which rows are malformed.
        Raises Unclear, and of a damaged file what Arrow raises.
        """


class ColumnFormat(FileFormat):
    """A format of files that say which columns they have, by names that are compared without case, as Spark does."""

    def fields(self, file: IO[bytes]) -> tuple[Field, ...]:
        return self.stored(self.source(file))

    @abstractmethod
    def source(self, file: IO[bytes]) -> Any:
        """Return a reader of the file."""

    @abstractmethod
    def stored(self, source: Any) -> tuple[Field, ...]:
        """Return the columns of a file as Spark reads them; raise Unclear for one that it does not read, or not so."""

    @abstractmethod
    def batches(self, source: Any, names: Sequence[str], share: Share) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a share of a file, with the columns of these names."""

    def parts(
        self,
        file: IO[bytes],
        columns: Sequence[Field],
        options: Options,
        share: Share = WHOLE,
        unread: Collection[str] = (),
    ) -> Iterator[pa.Table]:
        source = self.source(file)
        stored = {field.name.lower(): field for field in self.stored(source)}
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
        for batch in self.batches(source, list(names.values()), share):
            read = pa.Table.from_batches([batch])
            # a table without columns still has rows
            rows = read.select([])
            for column in columns:
                to = arrow_type(column.type)
                is_there = column.name in names
                values = read.column(names[column.name]).cast(to) if is_there else pa.nulls(read.num_rows, to)
                rows = rows.append_column(column.name, values)
            yield rows


def _range(count: int, share: Share) -> range:
    """Return the numbers of the groups of a file, of which there are so many, in a share of it."""
    number, shares = share
    return range(count * number // shares, count * (number + 1) // shares)


class Parquet(ColumnFormat):
    """Parquet files, written by Spark or by others."""

    name = "parquet"

    def source(self, file: IO[bytes]) -> pq.ParquetFile:
        return pq.ParquetFile(file, coerce_int96_timestamp_unit="us")

    def stored(self, source: pq.ParquetFile) -> tuple[Field, ...]:
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

    def batches(self, source: pq.ParquetFile, names: Sequence[str], share: Share) -> Iterator[pa.RecordBatch]:
        # of several groups at once PyArrow keeps the bytes of all until the last is read
        for group in _range(source.num_row_groups, share):
            yield from source.iter_batches(PART, row_groups=[group], columns=list(names))


PART = 1 << 17
"""The most rows of a group of a Parquet file that are decoded at a time."""


class Orc(ColumnFormat):
    """ORC files, whose instants are in the zone of the process that wrote them, which Spark alone knows."""

    name = "orc"

    def source(self, file: IO[bytes]) -> orc.ORCFile:
        return orc.ORCFile(file)

    def stored(self, source: orc.ORCFile) -> tuple[Field, ...]:
        return tuple(Field(field.name, _orc_type(field)) for field in source.schema)

    def not_decoded(self, columns: Sequence[Field], options: Options) -> str:
        """Return a column of instants: a file has them in the zone of the process that wrote it."""
        instants = [column.name for column in columns if isinstance(column.type, t.TimestampType)]
        return f"column {instants[0]} of instants, whose zone the file does not say" if instants else ""

    def batches(self, source: orc.ORCFile, names: Sequence[str], share: Share) -> Iterator[pa.RecordBatch]:
        for stripe in _range(source.nstripes, share):
            yield source.read_stripe(stripe, columns=list(names))


SPARKS_TYPE = b"spark.sql.catalyst.type"
"""The note of Spark's type of a column in ORC files."""


def _orc_type(field: pa.Field) -> t.DataType:
    """Return the type that Spark reads a column of an ORC file as; raise Unclear if that cannot be told."""
    note = (field.metadata or {}).get(SPARKS_TYPE, b"").decode()
    if note == "timestamp_ntz":
        return t.TimestampNTZType()
    if pa.types.is_timestamp(field.type):
        return t.TimestampType()
    parts = [_orc_type(field.type.field(n)) for n in range(field.type.num_fields)]
    kind = _spark_type(field.type)
    if any(isinstance(part, t.TimestampType | t.TimestampNTZType) for part in parts):
        raise Unclear(f"times in column {field.name}, which is {kind.simpleString()}")
    if note not in ("", kind.simpleString()):
        raise Unclear(f"column {field.name} of type {note}")
    return kind


class ArrowFiles(ColumnFormat):
    """Files of Arrow's, also called Feather, and streams of Arrow's in files; Spark has no reader of these."""

    name = "arrow"
    by_spark = False

    def source(self, file: IO[bytes]) -> ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader:
        magic = file.read(len(MAGIC))
        file.seek(0)
        return ipc.open_file(file) if magic == MAGIC else ipc.open_stream(file)

    def stored(self, source: ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader) -> tuple[Field, ...]:
        """Return the columns; what times in nanoseconds have beyond microseconds is an error when they are read."""
        kinds = ((f.name, f.type) for f in source.schema)
        return tuple(
            Field(name, _spark_type(pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind))
            for name, kind in kinds
        )

    def batches(
        self, source: ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader, names: Sequence[str], share: Share
    ) -> Iterator[pa.RecordBatch]:
        if isinstance(source, ipc.RecordBatchFileReader):
            for number in _range(source.num_record_batches, share):
                yield source.get_batch(number).select(list(names))
        else:
            for number, batch in enumerate(source):
                if number % share[1] == share[0]:
                    yield batch.select(list(names))


MAGIC = b"ARROW1"
"""The beginning of an Arrow file; a stream of Arrow's has none."""


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
