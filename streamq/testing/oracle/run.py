"""One evaluation of the oracle: a database, the rows of the sources, the tables made on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from streamq.compiler.operators import Edges, Intervals, JoinTable, Physical, Points, Source
from streamq.errors import QueryFailed, SourceError, sentence

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa


@cache
def database() -> duckdb.DuckDBPyConnection:
    # to open one costs more than most queries; a cursor of it has its own temporary tables
    import duckdb

    return duckdb.connect(config={"threads": 1})


@dataclass
class Run:
    """One evaluation: the connection, the rows of the sources, the bound on infinite lifetimes, the tables made."""

    connection: duckdb.DuckDBPyConnection
    tables: Mapping[str, pa.Table | pd.DataFrame]
    until: int | None = None
    made: list[str] = field(default_factory=list)

    def _name(self) -> str:
        self.made.append(f"t{len(self.made)}")
        return self.made[-1]

    def table(self, query: str) -> str:
        """The name of a new table that holds a query's result."""
        import duckdb

        name = self._name()
        try:
            self.connection.execute(f"CREATE TEMP TABLE {name} AS {query}")
        except (duckdb.OutOfRangeException, duckdb.ConversionException, duckdb.InvalidInputException) as error:
            reason = str(error).splitlines()[0]
            raise QueryFailed(sentence("oracle", "the query fails by Spark's rules", reason)) from error
        return name

    def arrow(self, query: str) -> pa.Table:
        """A query's result."""
        return self.connection.sql(query).to_arrow_table()

    def value(self, query: str) -> Any:
        """A query's only value; None if there is no row."""
        found = self.connection.execute(query).fetchall()
        return found[0][0] if found else None

    def source(self, node: Source) -> str:
        """A source's rows: ``n``, their number in order of arrival, and ``x0, x1, ...`` as in ``node.columns``.

        Times are ticks.
        """
        import pyarrow as pa

        given = self.tables[node.table]
        table = given if isinstance(given, pa.Table) else pa.Table.from_pandas(given, preserve_index=False)
        columns: dict[str, Any] = {"n": pa.array(range(table.num_rows), pa.int64())}
        for i, f in enumerate(node.columns):
            if f.name not in table.column_names:
                there = ", ".join(table.column_names)
                raise SourceError(sentence("oracle", f"no column {f.name!r} in {node.table!r}", f"there are: {there}"))
            column = table[f.name]
            columns[f"x{i}"] = _ticks(column) if f.name in _times(node) else taken_in(column, arrow_type(f.type))
        name = self._name()
        self.connection.register(name, pa.table(columns))
        return name

    def static(self, node: JoinTable) -> str:
        """The rows of a static table: ``c0, c1, ...`` as in ``node.columns``."""
        import pyarrow as pa

        given = self.tables[node.table]
        table = given if isinstance(given, pa.Table) else pa.Table.from_pandas(given, preserve_index=False)
        columns = {f"c{i}": taken_in(table[f.name], arrow_type(f.type)) for i, f in enumerate(node.columns)}
        name = self._name()
        self.connection.register(name, pa.table(columns))
        return name


def arrow_type(kind: t.DataType) -> pa.DataType:
    """Arrow's type for a Spark type; timestamps are in UTC."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    return pa.timestamp("us", "UTC") if isinstance(kind, t.TimestampType) else to_arrow_type(kind)


def _times(node: Source) -> tuple[str, ...]:
    match node:
        case Points() | Edges():
            return (node.time,)
        case Intervals():
            return (node.start, node.end)
        case Physical():
            return (node.start, node.end, node.new_end)
    return ()


def _ticks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    if pa.types.is_date(kind):
        return pc.multiply(column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), 86_400_000_000)
    return column.cast(pa.int64())


def taken_in(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    # inside, a timestamp is a naive one in UTC
    import pyarrow as pa

    return _ticks(column).cast(pa.timestamp("us")) if pa.types.is_timestamp(kind) else column.cast(kind)


def handed_out(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    import pyarrow as pa

    return _ticks(column).cast(kind) if pa.types.is_timestamp(kind) else column.cast(kind)
