"""Where rows are written, a table of every sink that keeps them: what a user says of it, and what a reader finds there."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pytest
import sqlalchemy
from deltalake import DeltaTable

import streamq as sq
from scripts.broker import Broker
from scripts.postgres import PostgresServer
from streamq.choices import OutputForm
from streamq.compiler.results import Result, ResultColumns, choose_egress, result_columns
from streamq.connectors.connector import schema_text
from streamq.connectors.iceberg_catalog import IcebergPlace, iceberg_place
from streamq.connectors.kafka import KafkaTopic
from streamq.connectors.messages import row_schema
from streamq.connectors.stored_files import Files
from streamq.connectors.written_tables import MergedTable, PostgresTable, SqlTable
from streamq.plan.schema import Field
from streamq.run.delta_sink import DeltaSink
from streamq.run.iceberg_sink import IcebergSink
from streamq.run.kafka_sink import KafkaSink
from streamq.run.postgres_sink import PostgresSink
from streamq.run.sink_arguments import sink_of
from streamq.run.sql_sink import SqlSink
from streamq.run.transactional_sink import TransactionalSink, committing
from tests.registry_server import Registry

T = TypeVar("T", bound="Target")

ROWS = (OutputForm.FINAL, OutputForm.CHANGELOG)
"""The outputs whose rows are there side by side."""


@dataclass
class Servers:
    """What sinks need beside a folder; a server is started by the first that asks for it."""

    kafka: Callable[[], Broker]
    schemas: Callable[[], Registry]
    postgres: Callable[[], PostgresServer]


def servers_of(request: pytest.FixtureRequest) -> Servers:
    """The servers of a run of tests."""
    return Servers(
        *(lambda fixture=fixture: request.getfixturevalue(fixture) for fixture in ("kafka", "schemas", "postgres"))
    )


@dataclass
class Target(ABC):
    """A place of its own for the rows of one result, in ``folder`` or at one of ``servers``.

    ``says``: the type of what a user says. ``transactional``: that of the sink, if micro-batches are transactions. ``outputs``:
    those that it takes. ``lacks``: the types of columns that it does not take.
    """

    folder: Path
    servers: Servers
    name: str = field(default_factory=lambda: f"rows_{uuid.uuid4().hex}")

    says: ClassVar[type]
    transactional: ClassVar[type[TransactionalSink] | None] = None
    outputs: ClassVar[Sequence[OutputForm]] = tuple(OutputForm)
    lacks: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def sink(self, **arguments: Any) -> Any:
        """What a user says of the place."""

    @abstractmethod
    def rows(self, columns: tuple[Field, ...], key: Sequence[str] = ()) -> pa.Table:
        """What a reader finds: all rows, or, with a ``key``, the last one of each, but for those that are deleted."""

    def opened(self, columns: ResultColumns, **arguments: Any) -> TransactionalSink:
        """The sink of a run that has begun."""
        sink = sink_of(self.sink(**arguments), "run")
        sink.check("run", name=None, finish=False)
        sink.create(columns, "run")
        placed = sink.placed(columns, "nowhere")
        assert isinstance(placed, TransactionalSink)
        return placed


@dataclass
class FilesTarget(Target):
    says = Files
    outputs = ROWS
    arguments: ClassVar[Mapping[str, Any]] = {}

    def sink(self, **arguments: Any) -> Any:
        return sq.files(self.folder / self.name, **self.arguments, **arguments)

    def rows(self, columns: tuple[Field, ...], key: Sequence[str] = ()) -> pa.Table:
        files = sq.files(self.folder / self.name, schema=schema_text(columns), **self.arguments)
        return files.in_memory("show").select([column.name for column in columns])


class CsvTarget(FilesTarget):
    arguments = {"format": "csv", "header": True, "escape": '"'}
    lacks = ("array<int>", "binary")


class JsonTarget(FilesTarget):
    arguments = {"format": "json"}
    lacks = ("binary",)


class DeltaTarget(Target):
    says = MergedTable
    transactional = DeltaSink

    @property
    def path(self) -> str:
        return str(self.folder / self.name)

    def sink(self, **arguments: Any) -> Any:
        return sq.merge_into("delta", self.path, **arguments)

    def rows(self, columns: tuple[Field, ...], key: Sequence[str] = ()) -> pa.Table:
        table = pa.table(DeltaTable(self.path).to_pyarrow_table())
        return table.select([column.name for column in columns]).cast(row_schema(columns))


class IcebergTarget(Target):
    """A table of a namespace ``db`` in a catalog ``lake``, which is a file."""

    says = MergedTable
    transactional = IcebergSink

    @property
    def place(self) -> IcebergPlace:
        options = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}"}
        return iceberg_place(f"lake.db.{self.name}", options)

    def sink(self, **arguments: Any) -> Any:
        place = self.place
        return sq.merge_into("iceberg", f"lake.{place.identifier}", options=place.properties, **arguments)

    def stored(self) -> Any:
        """The table, as pyiceberg has it."""
        return self.place.catalog().load_table(self.place.identifier)

    def tuples(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.stored().scan().to_arrow().to_pylist()]

    def rows(self, columns: tuple[Field, ...], key: Sequence[str] = ()) -> pa.Table:
        return self.stored().scan().to_arrow().select([column.name for column in columns]).cast(row_schema(columns))


class SqliteTarget(Target):
    """SQLite has no NaN, no decimals, and instants without a zone."""

    says = SqlTable
    transactional = SqlSink
    lacks = ("array<int>", "double")

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/database.db"

    def sink(self, **arguments: Any) -> Any:
        return sq.sql_table(self.url, self.name, **arguments)

    def tuples(self, *names: str) -> list[tuple[Any, ...]]:
        engine = sqlalchemy.create_engine(self.url)
        with engine.connect() as connection:
            stored = sqlalchemy.Table(self.name, sqlalchemy.MetaData(), autoload_with=connection)
            columns = [stored.columns[name] for name in names] or stored.columns
            rows = [tuple(row) for row in connection.execute(sqlalchemy.select(*columns))]
        engine.dispose()
        return rows

    def rows(self, columns: tuple[Field, ...], key: Sequence[str] = ()) -> pa.Table:
        values = list(zip(*self.tuples(*(column.name for column in columns)), strict=True)) or [()] * len(columns)
        schema = row_schema(columns)
        local = [pa.timestamp("us") if pa.types.is_timestamp(f.type) else f.type for f in schema]
        return pa.table([pa.array(of, kind) for of, kind in zip(values, local, strict=True)], schema.names).cast(schema)


class PostgresTarget(Target):
    says = PostgresTable
    transactional = PostgresSink

    def sink(self, **arguments: Any) -> Any:
        return sq.postgres(self.servers.postgres().dsn(), self.name, **arguments)

    def rows(self, columns: tuple[Field, ...], key: Sequence[str] = ()) -> pa.Table:
        names = ", ".join('"{}"'.format(column.name.replace('"', '""')) for column in columns)
        rows = self.servers.postgres().rows(f"SELECT {names} FROM {self.name}")
        values = list(zip(*rows, strict=True)) or [()] * len(columns)
        schema = row_schema(columns)
        return pa.table([pa.array(of, f.type) for of, f in zip(values, schema, strict=True)], schema)


@dataclass
class KafkaTarget(Target):
    says = KafkaTopic
    transactional = KafkaSink
    lacks = ("binary",)

    def __post_init__(self) -> None:
        self.servers.kafka().create(self.name, 1)

    @property
    def form(self) -> dict[str, Any]:
        """The arguments that say what values are."""
        return {}

    def sink(self, **arguments: Any) -> Any:
        return sq.kafka(self.servers.kafka().servers, self.name, **self.form, **arguments)

    def rows(self, columns: tuple[Field, ...], key: Sequence[str] = ()) -> pa.Table:
        servers, metadata = self.servers.kafka().servers, ["key"] if key else []
        topic = sq.kafka(servers, self.name, schema=schema_text(columns), metadata=metadata, **self.form)
        self.servers.kafka().settle(self.name)
        read = topic.in_memory("show")
        assert read.column("_wrong").null_count == read.num_rows, read.column("_wrong").drop_null()
        rows = read.select([column.name for column in columns])
        if not key:
            return rows
        last = {of: n for n, of in enumerate(read.column("key").to_pylist())}
        # of what is gone there is a message without a value, and a row has a start
        return rows.take(pa.array(sorted(last.values()), pa.int64())).filter(pa.compute.field("start").is_valid())


class AvroTarget(KafkaTarget):
    lacks = ()

    @property
    def form(self) -> dict[str, Any]:
        return {"value": "avro", "registry": self.servers.schemas().url}


TARGETS: Mapping[str, type[Target]] = {
    "parquet": FilesTarget,
    "csv": CsvTarget,
    "json": JsonTarget,
    "delta": DeltaTarget,
    "iceberg": IcebergTarget,
    "sqlite": SqliteTarget,
    "postgres": PostgresTarget,
    "kafka": KafkaTarget,
    "kafka avro": AvroTarget,
}
"""Every sink that lasts, but for publications, whose readers are streams."""

TRANSACTIONAL = tuple(name for name, kind in TARGETS.items() if kind.transactional is not None)
"""Those whose micro-batches are transactions."""


def in_folder(kind: type[T], folder: object, name: str = "rows") -> T:
    """A place that needs no server."""
    return kind(Path(str(folder)), Servers(pytest.fail, pytest.fail, pytest.fail), name)


def columns_of(query: sq.Stream, output: OutputForm = OutputForm.FINAL, key: str | Sequence[str] = ()) -> ResultColumns:
    egress = choose_egress(query.plan, output, key=key, verb="run")
    return result_columns(Result(number=0, plan=query.plan, egress=egress, in_order=False), packed=False)


def commit(sink: TransactionalSink, number: int, rows: pa.Table, *, run: str = "a") -> None:
    """What a task does with a micro-batch, its rows in batches of two, and one without any."""
    batches = [rows.slice(0, 0).to_batches(), rows.to_batches(2)]
    assert len(list(committing(begun(sink, run), number)(b for some in batches for b in some))) <= 1


def begun(sink: TransactionalSink, run: str = "a") -> Any:
    """What begins a transaction of a run, which has the same numbers in all tables of a schema of PostgreSQL's."""
    return sink.transaction(f"{run} of {getattr(sink, 'table', '')}")
