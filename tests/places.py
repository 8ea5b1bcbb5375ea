"""Where rows lie outside of a program, a table of every connector: how rows come there, and the source that reads them."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Described
from pyarrow import feather, orc
from pyspark.sql import types as st

import streamq as sq
from scripts.broker import Broker
from streamq.connectors.connector import Connector, schema_text
from streamq.connectors.kafka import KafkaTopic
from streamq.connectors.messages import row_schema
from streamq.connectors.outside_table import OutsideTable
from streamq.connectors.publication import Description, Publication, publication
from streamq.connectors.stored_files import Files
from streamq.operators.input_table import table_fields
from streamq.operators.source import Source
from streamq.plan.schema import Field
from streamq.runtime.arrow.values import python_rows, python_values
from streamq.sources.edges import Changes
from streamq.testing.program import source_text

VALUES: Mapping[str, Sequence[Any]] = {
    "string": ["a", "b", "Ab", "q\"',;\\", "ä😀", "  x ", "null", None],
    "int": [0, 1, 2, -7, 2**31 - 1, None],
    "bigint": [0, 1, 3, -(2**53) - 1, None],
    "double": [0.5, 3.0, -0.0, float("nan"), float("-inf"), 1e-7, None],
    "boolean": [True, False, None],
    "decimal(10,2)": [Decimal("1.25"), Decimal("-0.10"), Decimal("12345678.00"), None],
    "date": [dt.date(2024, 2, 29), dt.date(1582, 10, 10), None],
    "timestamp": [dt.datetime(2024, 5, 1, 12, 0, 0, 1, dt.UTC), dt.datetime(1969, 1, 1, tzinfo=dt.UTC), None],
    "array<int>": [[1, None], [], None],
}
"""The types of payload columns, and values of them that all places hold."""


@dataclass
class Place(ABC):
    """Rows of a source that lie in a place of their own in ``folder``, or at ``broker``; ``source`` is over literal rows.

    ``kind``: the connector that reads them. ``types``: names of VALUES. ``axes`` and ``shapes``: those of the sources that read
    there. ``is_on_time``: rows are never late, and no row is invalid.
    """

    folder: Path
    source: Source
    broker: Broker | None = None
    number: int = 0

    kind: ClassVar[type[Connector]]
    types: ClassVar[Sequence[str]] = tuple(VALUES)
    axes: ClassVar[Sequence[str]] = ("integer", "timestamp")
    shapes: ClassVar[Sequence[str] | None] = None
    is_on_time: ClassVar[bool] = False

    @abstractmethod
    def put(self, rows: pa.Table) -> None:
        """Add the rows of a micro-batch."""

    @property
    @abstractmethod
    def connector(self) -> Any:
        """What a user says of the place."""

    @abstractmethod
    def put_last(self) -> pa.Table:
        """The rows that were added last, as a stream has them: by the workers' own reader, where they read them."""

    @classmethod
    def holds(cls, rows: pa.Table) -> bool:
        """True if rows can lie there: ids may be of any type, and instants and days beyond the years that Python has."""
        kinds = {field.type.simpleString() for field in table_fields(rows)}
        times = [column for column in rows.columns if pa.types.is_temporal(column.type)]
        is_odd = any(isinstance(value, str) for column in times for value in python_values(column))
        return kinds <= {*cls.types, "string", "bigint", "timestamp"} and not is_odd

    @classmethod
    def reads(cls, source: Source) -> bool:
        """True if the source says all that its rows in a table need."""
        return True

    @property
    def columns(self) -> str:
        """The columns of the rows, as text."""
        return schema_text(self.source.columns)

    @property
    def written(self) -> Source:
        """The source, whose call a user writes."""
        return self.source

    @property
    def stream(self) -> sq.Stream:
        """The source over the rows, as a user writes it."""
        stream: sq.Stream = eval(source_text(self.written, "rows", {}), {"sq": sq, "rows": self.connector})
        return stream


# files


@dataclass
class FilesPlace(Place):
    """A file a micro-batch, in a folder."""

    kind = Files
    shares: ClassVar[int] = 5
    suffix: ClassVar[str]
    arguments: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    def write(self, rows: pa.Table, path: Path) -> None:
        """Write a file."""

    @property
    def path(self) -> Path:
        return self.folder / f"{self.number:03}.{self.suffix}"

    def put(self, rows: pa.Table) -> None:
        self.number += 1
        hidden = self.path.with_name(f".{self.path.name}")
        self.write(rows, hidden)
        os.utime(hidden, (1_700_000_000 + self.number,) * 2)
        hidden.rename(self.path)

    @property
    def connector(self) -> Files:
        return sq.files(self.folder, schema=self.columns, **self.arguments)

    def put_last(self) -> pa.Table:
        reader = self.connector._reader([field.name for field in self.connector.fields])
        splits = [f"{number} {self.shares} {self.path}" for number in range(self.shares)]
        parts = [row_schema(self.connector.fields).empty_table(), *reader(pa.record_batch({"split": splits}))]
        return pa.concat_tables(parts)


class ParquetPlace(FilesPlace):
    suffix = "parquet"

    def write(self, rows: pa.Table, path: Path) -> None:
        pq.write_table(rows, path, row_group_size=2)


class OrcPlace(FilesPlace):
    suffix = "orc"
    arguments = {"format": "orc"}
    axes = ("integer",)
    types = tuple(name for name in VALUES if name != "timestamp")

    def write(self, rows: pa.Table, path: Path) -> None:
        orc.write_table(rows, path)


class ArrowPlace(FilesPlace):
    suffix = "arrow"
    arguments = {"format": "arrow"}

    def write(self, rows: pa.Table, path: Path) -> None:
        with pa.ipc.new_file(str(path), rows.schema) as file:
            file.write_table(rows, max_chunksize=2)


class FeatherPlace(ArrowPlace):
    suffix = "feather"

    def write(self, rows: pa.Table, path: Path) -> None:
        feather.write_feather(rows, str(path), compression="lz4")


def in_text(value: Any) -> str:
    """A value as CSV has it; NULL is an empty field."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float():
            return {"nan": "NaN", "-inf": "-Infinity"}.get(repr(value), repr(value))
        case dt.datetime():
            return value.isoformat().replace("+00:00", "Z")
    return str(value)


def csv_lines(rows: pa.Table) -> list[str]:
    lines = []
    for row in python_rows(rows):
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(map(in_text, row.values()))
        lines.append(text.getvalue())
    return lines


class CsvPlace(FilesPlace):
    suffix = "csv"
    arguments = {"format": "csv", "header": True, "escape": '"'}
    types = tuple(name for name in VALUES if name != "array<int>")

    def write(self, rows: pa.Table, path: Path) -> None:
        path.write_text("\n".join([",".join(rows.column_names), *csv_lines(rows), ""]))


class JsonValue(json.JSONEncoder):
    """Values that JSON lacks, as texts."""

    def default(self, value: Any) -> Any:
        return in_text(value)


def json_lines(rows: pa.Table) -> list[str]:
    """Objects, of which NULL is null or not there."""
    return [
        json.dumps({name: value for name, value in row.items() if value is not None or n % 2}, cls=JsonValue)
        for n, row in enumerate(python_rows(rows))
    ]


class JsonPlace(FilesPlace):
    suffix = "json"
    arguments = {"format": "json"}

    def write(self, rows: pa.Table, path: Path) -> None:
        # the last line has no line break
        path.write_text("\n".join(json_lines(rows)))


class CompressedPlace(JsonPlace):
    suffix = "json.gz"
    shares = 1

    def write(self, rows: pa.Table, path: Path) -> None:
        path.write_bytes(gzip.compress("\n".join(json_lines(rows)).encode()))


# topics


@dataclass
class TopicPlace(Place):
    """A topic of one partition, which the first rows create, as then all rows are of the part that is furthest behind."""

    topic: str = field(default_factory=lambda: uuid.uuid4().hex)

    kind = KafkaTopic
    value: ClassVar[str]

    @abstractmethod
    def values(self, rows: pa.Table) -> Sequence[bytes]:
        """The values of messages."""

    def __post_init__(self) -> None:
        assert self.broker is not None
        self.broker.create(self.topic, 1)

    def put(self, rows: pa.Table) -> None:
        assert self.broker is not None
        self.last = self.values(rows)
        self.broker.send(self.topic, self.last)
        self.number += len(self.last)

    @property
    def form(self) -> dict[str, Any]:
        """The arguments that say what values are."""
        return {"schema": self.columns}

    @property
    def connector(self) -> KafkaTopic:
        assert self.broker is not None
        return sq.kafka(self.broker.servers, self.topic, value=self.value, **self.form)

    def put_last(self) -> pa.Table:
        first = self.number - len(self.last)
        columns = {"value": pa.array(self.last, pa.binary()), "_partition": [0] * len(self.last)}
        columns["_offset"] = pa.array(range(first, self.number), pa.int64())
        (rows,) = self.connector._reader([f.name for f in self.connector.fields])(pa.record_batch(columns))
        return rows


class JsonTopic(TopicPlace):
    value = "json"

    def values(self, rows: pa.Table) -> Sequence[bytes]:
        return [line.encode() for line in json_lines(rows)]


class CsvTopic(TopicPlace):
    value = "csv"
    types = CsvPlace.types

    def values(self, rows: pa.Table) -> Sequence[bytes]:
        return [line.encode() for line in csv_lines(rows)]


INSTANT = {"type": "long", "logicalType": "timestamp-micros"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
AVRO: Mapping[str, Any] = {
    "string": "string", "int": "int", "bigint": "long", "double": "double", "boolean": "boolean", "timestamp": INSTANT,
    "date": {"type": "int", "logicalType": "date"}, "decimal(10,2)": DECIMAL,
    "array<int>": {"type": "array", "items": ["null", "int"]},
}  # fmt: skip
"""Avro's types of Spark's."""


class AvroTopic(TopicPlace):
    value = "avro"

    @property
    def record(self) -> dict[str, Any]:
        fields = [{"name": f.name, "type": ["null", AVRO[f.type.simpleString()]]} for f in self.source.columns]
        return {"type": "record", "name": "Row", "fields": fields}

    @property
    def form(self) -> dict[str, Any]:
        return {"record": json.dumps(self.record)}

    def values(self, rows: pa.Table) -> Sequence[bytes]:
        written = []
        for row in python_rows(rows):
            data = io.BytesIO()
            fastavro.schemaless_writer(data, self.record, row)
            written.append(data.getvalue())
        return written


PROTOBUF = {
    "string": Described.TYPE_STRING, "int": Described.TYPE_INT32, "bigint": Described.TYPE_INT64,
    "double": Described.TYPE_DOUBLE, "boolean": Described.TYPE_BOOL, "timestamp": Described.TYPE_MESSAGE,
}  # fmt: skip
"""The types of Protocol Buffers for Spark's."""


class ProtobufTopic(TopicPlace):
    value = "protobuf"
    types = tuple(PROTOBUF)

    @property
    def described(self) -> descriptor_pb2.FileDescriptorSet:
        file = descriptor_pb2.FileDescriptorProto(name="row.proto", package="tests", syntax="proto3")
        file.dependency.append("google/protobuf/timestamp.proto")
        row = file.message_type.add(name="Row")
        for number, column in enumerate(self.source.columns):
            kind = PROTOBUF[column.type.simpleString()]
            row.oneof_decl.add(name=f"_{column.name}")
            one = row.field.add(name=column.name, number=number + 1, type=kind, label=Described.LABEL_OPTIONAL)
            # a field with presence may be NULL
            one.oneof_index, one.proto3_optional = number, True
            if kind == Described.TYPE_MESSAGE:
                one.type_name = ".google.protobuf.Timestamp"
        files = descriptor_pb2.FileDescriptorSet()
        timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
        files.file.append(file)
        return files

    @property
    def form(self) -> dict[str, Any]:
        (self.folder / "row.desc").write_bytes(self.described.SerializeToString())
        return {"record": f"{self.folder / 'row.desc'}:tests.Row"}

    def values(self, rows: pa.Table) -> Sequence[bytes]:
        pool = descriptor_pool.DescriptorPool()
        for file in self.described.file:
            pool.Add(file)
        row = message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.Row"))
        return [
            row(**{name: value for name, value in values.items() if value is not None}).SerializeToString()
            for values in python_rows(rows)
        ]


# tables


class DeltaPlace(Place):
    """A table of Delta's, a version a micro-batch."""

    kind = OutsideTable

    def put(self, rows: pa.Table) -> None:
        self.last = rows
        write_deltalake(str(self.folder / "table"), rows, mode="append")

    def put_last(self) -> pa.Table:
        return self.last

    @property
    def connector(self) -> OutsideTable:
        return sq.table("delta", str(self.folder / "table"))


class FeedPlace(Place):
    """The change feed of a table of Delta's: its versions have the changes of a micro-batch, whatever these are."""

    kind = OutsideTable
    shapes = ("changes",)

    @classmethod
    def reads(cls, source: Source) -> bool:
        """True if an order is named: else the changes of a feed act in that of its versions, which rows in a table have not."""
        return bool(source.order_by)

    def put(self, rows: pa.Table) -> None:
        table, op = self.folder / "table", self.changes.op
        if not table.exists():
            empty = rows.slice(0, 0).drop_columns([op])
            write_deltalake(str(table), empty, configuration={"delta.enableChangeDataFeed": "true"})
        self.number += 1
        rows = rows.rename_columns(["_change_type" if name == op else name for name in rows.column_names])
        path = f"_change_data/{self.number}.parquet"
        (table / path).parent.mkdir(exist_ok=True)
        pq.write_table(rows, table / path)
        self.last = rows
        change = {"path": path, "partitionValues": {}, "size": (table / path).stat().st_size, "dataChange": False}
        commit = {"timestamp": 1_700_000_000_000 + self.number, "operation": "MERGE"}
        lines = map(json.dumps, ({"commitInfo": commit}, {"cdc": change}))
        (table / "_delta_log" / f"{self.number:020}.json").write_text("\n".join(lines))

    def put_last(self) -> pa.Table:
        number = {"_commit_version": pa.array([self.number] * self.last.num_rows, pa.int64())}
        at = {"_commit_timestamp": pa.nulls(self.last.num_rows, pa.timestamp("us", "UTC"))}
        return pa.table({**{name: self.last.column(name) for name in self.last.column_names}, **number, **at})

    @property
    def changes(self) -> Changes:
        assert isinstance(self.source, Changes)
        return self.source

    @property
    def connector(self) -> OutsideTable:
        return sq.table("delta", str(self.folder / "table"), changes=True)

    @property
    def written(self) -> Source:
        """The changes with the feed's own column of kinds, beside the time of commits."""
        op, at = Field("_change_type", st.StringType()), Field("_commit_timestamp", st.TimestampType())
        columns = (*(op if column.name == self.changes.op else column for column in self.source.columns), at)
        return replace(self.changes, op=op.name, columns=columns, beside=(*self.source.beside, at.name))


# publications


class PublicationPlace(Place):
    """The folder of a publication, a file a micro-batch; its rows are a changelog."""

    kind = Publication
    shapes = ("physical",)
    is_on_time = True

    def put(self, rows: pa.Table) -> None:
        place = publication(self.source.table, str(self.folder), "publish")
        folder = Path(place.folder)
        if not folder.exists():
            payload = st.StructType([st.StructField(f.name, f.type) for f in self.source.payload])
            axis = self.source.schema.axis
            place.describe(Description("1", payload.jsonValue(), axis, "interval", "/checkpoint"))
            (folder / "_spark_metadata").mkdir()
        path = folder / f"part-{self.number}.parquet"
        pq.write_table(rows.select([field.name for field in place.fields]), path)
        line = json.dumps({"path": f"file://{path}", "size": path.stat().st_size, "isDir": False, "modificationTime": 1,
                           "blockReplication": 1, "blockSize": 1, "action": "add"})  # fmt: skip
        (folder / "_spark_metadata" / str(self.number)).write_text(f"v1\n{line}")
        self.path, self.number = path, self.number + 1

    @property
    def connector(self) -> Publication:
        return publication(self.source.table, str(self.folder), "subscribe")

    @property
    def stream(self) -> sq.Stream:
        return sq.subscribe(self.source.table, store=str(self.folder))

    def put_last(self) -> pa.Table:
        return pq.read_table(self.path)


PLACES: Mapping[str, type[Place]] = {
    "parquet": ParquetPlace,
    "orc": OrcPlace,
    "arrow": ArrowPlace,
    "feather": FeatherPlace,
    "csv": CsvPlace,
    "json": JsonPlace,
    "json.gz": CompressedPlace,
    "kafka json": JsonTopic,
    "kafka csv": CsvTopic,
    "kafka avro": AvroTopic,
    "kafka protobuf": ProtobufTopic,
    "delta": DeltaPlace,
    "changes of delta": FeedPlace,
    "publication": PublicationPlace,
}
"""Every connector, in every form that its rows have."""
