"""A table of Iceberg's as a sink, by the package pyiceberg: a commit a micro-batch, with its number in a property."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type

from streamq.compiler.results import ResultColumns
from streamq.connectors.connector import option_values
from streamq.connectors.iceberg_catalog import IcebergPlace, iceberg_place
from streamq.connectors.written_tables import MergedTable
from streamq.errors import PlanError, SourceError, StreamqError
from streamq.run.transactional_sink import (
    Transaction,
    TransactionalSink,
    check_client,
    check_parts,
    check_table,
    table_columns,
)
from streamq.runtime.arrow.arrow_types import arrow_type

NAMED = 200
"""The number of values of a column that a filter names, as many as pyiceberg looks for in a file; of more it has the range."""

COMMITS = 10
"""The number of times that a transaction tries to commit; others may commit to the table meanwhile."""


@dataclass(frozen=True)
class IcebergSink(TransactionalSink):
    """The rows of a ``table``, which is at ``place``."""

    table: MergedTable
    place: IcebergPlace

    def create(self, columns: ResultColumns, verb: str) -> None:
        """Create the table; raise PlanError if there is one that does not fit, SourceError if its catalog refuses."""
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.transforms import IdentityTransform

        types, parts = table_columns(columns, self.table.key, verb), list(self.table.partition_by)
        check_parts(parts, types, verb)
        stored = {name: _stored_type(name, kind, verb) for name, kind in types.items()}
        identifier = self.place.identifier
        with self._errors_of_catalog(verb):
            catalog = self.place.catalog()
            try:
                table = catalog.load_table(identifier)
            except NoSuchTableError:
                catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
                schema = pa.schema([(name, arrow_type(kind)) for name, kind in stored.items()])
                with catalog.create_table_transaction(identifier, schema) as creation, creation.update_spec() as spec:
                    for name in parts:
                        spec.add_identity(name)
                return
            columns_there, fields_there = table.schema().as_arrow(), table.spec().fields
            names_of_parts = [table.schema().find_column_name(part.source_id) for part in fields_there]
        held = {column.name: from_arrow_type(column.type, prefer_timestamp_ntz=True) for column in columns_there}
        texts, held_texts = ({n: kind.simpleString() for n, kind in some.items()} for some in (stored, held))
        check_table(self._title, texts, held_texts, [n for n in held if held_texts[n] != texts.get(n)], verb)
        is_divided_so = parts == names_of_parts and all(
            isinstance(f.transform, IdentityTransform) for f in fields_there
        )
        if parts and not is_divided_so:
            divided = ", ".join(
                f"{f.transform} of {name}" for f, name in zip(fields_there, names_of_parts, strict=True)
            )
            wrong = f"{self._title} is divided by {divided or 'no column'}"
            raise PlanError(verb, wrong, f"found partition_by={parts}", "Leave it out.")

    @property
    def _title(self) -> str:
        return f"the table {self.table.place}"

    @contextmanager
    def _errors_of_catalog(self, verb: str) -> Iterator[None]:
        """Translate the errors of a catalog, which has a client of its own."""
        try:
            yield
        except StreamqError:
            raise
        except Exception as error:
            wrong = f"{self._title} cannot be read or created in the catalog {self.place.name}"
            hint = "Say where the catalog is, as options={'uri': ...}, or in pyiceberg's configuration."
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise SourceError(verb, wrong, first, "" if self.place.properties else hint) from None

    def transaction(self, run: str) -> Callable[[], Transaction]:
        return partial(IcebergTransaction, self.place, self.key, run)


def _stored_type(name: str, kind: t.DataType, verb: str) -> t.DataType:
    """Return the type that a column has in a table, Iceberg's integers being wider; raise PlanError if it has none."""
    match kind:
        case t.ByteType() | t.ShortType():
            return t.IntegerType()
        case t.ArrayType():
            return t.ArrayType(_stored_type(name, kind.elementType, verb))
        case t.MapType():
            return t.MapType(_stored_type(name, kind.keyType, verb), _stored_type(name, kind.valueType, verb))
        case t.StructType():
            return t.StructType([t.StructField(f.name, _stored_type(name, f.dataType, verb)) for f in kind])
        case t.DayTimeIntervalType() | t.NullType():
            hint = f"Cast it, as to bigint or string, or leave it out: q.drop({name!r})."
            raise PlanError(verb, f"column {name!r} is {kind.simpleString()}, which Iceberg lacks", "", hint)
    return kind


def iceberg_sink(table: MergedTable, verb: str) -> IcebergSink:
    """Return a table as a sink; raise PlanError without the package that writes it."""
    check_client("pyiceberg", "pyiceberg", "iceberg", verb)
    options = {name: str(value) for name, value in option_values(table.options).items()}
    return IcebergSink(table, iceberg_place(table.place, options))


class IcebergTransaction(Transaction):
    """A commit to the table at ``place``; it fails if the ``run`` commits the same micro-batch meanwhile."""

    def __init__(self, place: IcebergPlace, key: tuple[str, ...], run: str):
        self.table, self.key, self.mark = place.catalog().load_table(place.identifier), key, f"streamq.batch.{run}"

    def done(self, number: int) -> bool:
        return int(self.table.metadata.properties.get(self.mark, -1)) >= number

    def write(self, rows: pa.RecordBatchReader, number: int) -> None:
        from pyiceberg.exceptions import CommitFailedException

        changes = rows.read_all()
        for attempt in range(COMMITS):
            if self.done(number):
                raise RuntimeError(f"micro-batch {number} has been committed by another run")
            try:
                self._commit(changes, number)
                return
            except CommitFailedException:
                if attempt == COMMITS - 1:
                    raise
                self.table.refresh()

    def _commit(self, changes: pa.Table, number: int) -> None:
        """Replace the rows whose key the changes have by their upserts, or append them, as the table stands now."""
        # pyiceberg's own attempts do not look for the number again
        once = {**self.table.metadata.properties, "commit.retry.num-retries": "0"}
        self.table.metadata = self.table.metadata.model_copy(update={"properties": once})
        schema = self.table.schema()
        arrow = schema.as_arrow()
        new = changes.filter(pc.field("op") == "upsert") if self.key else changes
        new = new.select(arrow.names).cast(arrow)
        with self.table.transaction() as transaction:
            transaction.set_properties({self.mark: str(number)})
            if self.key:
                specs = self.table.specs().values()
                divided = {schema.find_column_name(part.source_id) for spec in specs for part in spec.fields}
                where = _rows_with_keys(changes, self.key, divided)
                old = self.table.scan(row_filter=where).to_arrow().cast(arrow)
                if old.num_rows:
                    others = old.filter(pa.array(~_is_in(old, changes, self.key)))
                    transaction.overwrite(pa.concat_tables([others, new]), where)
                    return
            transaction.append(new)

    def close(self) -> None:
        del self.table


def _rows_with_keys(changes: pa.Table, key: tuple[str, ...], divided: set[str | None]) -> Any:
    """Return a filter of the rows that may have one of the keys: each column has a value that it has in some key, or one between.

    ``divided`` are the columns by which the table is: pyiceberg knows no range of them where a part is that of NULL.
    """
    from pyiceberg import expressions

    # their types are those of their fields, not of their arguments
    e: Any = expressions
    where = e.AlwaysTrue()
    for name in key:
        column = changes.column(name)
        if pa.types.is_nested(column.type):
            continue
        values = [value for value in column.unique().drop_null().to_pylist() if value == value]
        is_some = e.AlwaysFalse()
        if values:
            is_in_range = e.And(e.GreaterThanOrEqual(name, min(values)), e.LessThanOrEqual(name, max(values)))
            is_some = is_in_range if len(values) > NAMED and name not in divided else e.In(name, values)
        if column.null_count:
            is_some = e.Or(is_some, e.IsNull(name))
        if pa.types.is_floating(column.type):
            is_some = e.Or(is_some, e.IsNaN(name))
        where = e.And(where, is_some)
    return where


def _is_in(old: pa.Table, changes: pa.Table, key: tuple[str, ...]) -> Any:
    """Mark the rows whose key a change has; NULL is a value, and NaN."""
    codes = np.zeros(old.num_rows + changes.num_rows, np.int64)
    for name in key:
        values = old.column(name)
        both = pa.chunked_array([*values.chunks, *changes.column(name).cast(values.type).chunks], values.type)
        if pa.types.is_nested(both.type):
            both = pa.chunked_array([[repr(value) for value in both.to_pylist()]])
        encoded = both.combine_chunks().dictionary_encode("encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes * len(encoded.dictionary) + indices, return_inverse=True)[1]
    return np.isin(codes[: old.num_rows], codes[old.num_rows :])
