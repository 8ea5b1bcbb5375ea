"""A table of Delta's as a sink, by the package deltalake: a version a micro-batch, which has the micro-batch's number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from streamq.compiler.results import ResultColumns
from streamq.connectors.connector import option_values
from streamq.connectors.written_tables import MergedTable
from streamq.errors import PlanError, SourceError
from streamq.run.storage.raw_files import local_path
from streamq.run.transactional_sink import (
    Transaction,
    TransactionalSink,
    check_client,
    check_parts,
    check_table,
    table_columns,
)
from streamq.runtime.arrow.arrow_types import arrow_type


@dataclass(frozen=True)
class DeltaSink(TransactionalSink):
    """The rows of a ``table``; ``settings``: those of its place, with the values of environment variables."""

    table: MergedTable
    settings: Mapping[str, str] = field(repr=False)

    def create(self, columns: ResultColumns, verb: str) -> None:
        """Create the table; raise PlanError if there is one that does not fit, SourceError if its place refuses."""
        from deltalake import DeltaTable, Schema

        types, parts = table_columns(columns, self.table.key, verb), list(self.table.partition_by)
        check_parts(parts, types, verb)
        path, settings = self.table.place, dict(self.settings)
        with self._errors_of_place(verb):
            if not DeltaTable.is_deltatable(path, settings):
                here = local_path(path)
                if here is not None and here.is_dir() and any(here.iterdir()):
                    hint = "Name an empty folder, or a new one."
                    raise PlanError(verb, f"{path} is no table of Delta's", "a folder with other files", hint)
                schema = Schema.from_arrow(pa.schema([_field_of_delta(*column, verb) for column in types.items()]))
                DeltaTable.create(path, schema, partition_by=parts, storage_options=settings)
                return
            table = DeltaTable(path, storage_options=settings)
            held_parts = table.metadata().partition_columns
        # Delta's form of a schema is that of Spark
        schema_there = StructType.fromJson(json.loads(table.schema().to_json()))
        texts = {name: kind.simpleString() for name, kind in types.items()}
        held = {column.name: column.dataType.simpleString() for column in schema_there}
        check_table(self._title, texts, held, [name for name in held if held[name] != texts.get(name)], verb)
        if parts and parts != held_parts:
            wrong = f"{self._title} is divided by {', '.join(held_parts) or 'no column'}"
            raise PlanError(verb, wrong, f"found partition_by={parts}", "Leave it out.")

    @property
    def _title(self) -> str:
        return f"the table {self.table.place}"

    @contextmanager
    def _errors_of_place(self, verb: str) -> Iterator[None]:
        """Translate errors of deltalake."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError) as error:
            raise SourceError(verb, f"{self._title} cannot be read or created", str(error).splitlines()[0]) from error

    def transaction(self, run: str) -> Callable[[], Transaction]:
        return partial(DeltaTransaction, self.table.place, dict(self.settings), self.key, run)


def _field_of_delta(name: str, kind: DataType, verb: str) -> pa.Field:
    """Return a column of a new table; raise PlanError for a type that Delta lacks."""
    from deltalake import Schema

    column = pa.field(name, arrow_type(kind))
    try:
        Schema.from_arrow(pa.schema([column]))
    except Exception as error:
        # deltalake has no class of its own for this
        hint = f"Cast it, as to bigint or string, or leave it out: q.drop({name!r})."
        raise PlanError(verb, f"column {name!r} is {kind.simpleString()}, which Delta lacks", "", hint) from error
    return column


def delta_sink(table: MergedTable, verb: str) -> DeltaSink:
    """Return a table as a sink; raise PlanError without the package that writes it."""
    check_client("deltalake", "deltalake", "delta", verb)
    return DeltaSink(table, {name: str(value) for name, value in option_values(table.options).items()})


class DeltaTransaction(Transaction):
    """A new version of the table at ``path``; it fails if the ``run`` commits another one meanwhile."""

    def __init__(self, path: str, settings: Mapping[str, str], key: tuple[str, ...], run: str):
        from deltalake import DeltaTable

        self.table, self.key, self.run = DeltaTable(path, storage_options=dict(settings)), key, run

    def done(self, number: int) -> bool:
        last = self.table.transaction_version(self.run)
        return last is not None and last >= number

    def write(self, rows: pa.RecordBatchReader, number: int) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        commit = CommitProperties(app_transactions=[Transaction(self.run, number)])
        if not self.key:
            write_deltalake(self.table, rows, mode="append", commit_properties=commit)
            return
        whose = " AND ".join(f"(t.{_quoted(name)} IS NOT DISTINCT FROM s.{_quoted(name)})" for name in self.key)
        columns = {_quoted(name): f"s.{_quoted(name)}" for name in rows.schema.names if name != "op"}
        # not as a stream: so only files are read whose rows can have keys of these
        merge = self.table.merge(rows, whose, "s", "t", streamed_exec=False, commit_properties=commit)
        (
            merge.when_matched_delete("s.op = 'delete'")
            .when_matched_update(columns, "s.op = 'upsert'")
            .when_not_matched_insert(columns, "s.op = 'upsert'")
            .execute()
        )

    def close(self) -> None:
        del self.table


def _quoted(name: str) -> str:
    """Return a column's name in an expression of Delta's."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
