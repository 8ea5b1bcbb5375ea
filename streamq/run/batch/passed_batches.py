"""The micro-batches of a query in-process: those that a user passes, or the rows of tables one by one, by their times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.errors import PlanError, SourceError, kind_of, unknown_column
from streamq.operators import Source
from streamq.operators.input_table import as_arrow, input_table
from streamq.plan.node import Node, nodes
from streamq.run.batch.answers import is_dataframe, read_connectors
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.columnar import concat
from streamq.runtime.deltas import LE
from streamq.time import MINUS_INFINITY


def tables_in_memory(plan: Node, tables: Mapping[str, Any], rows: Any, *, verb: str) -> dict[str, pa.Table]:
    """Return the tables of a plan as Arrow tables; those of ``rows`` replace the query's own.

    ``rows``: a table for the only source, or tables by the sources' names. Raises PlanError if rows are left that only Spark
    can read, and for names that no source has; UnknownColumn for rows without a column of their source. Errors name ``verb``.
    """
    readers = {table: node for node in nodes(plan) if (table := getattr(node, "table", None)) is not None}
    names = {node.shown_name() if isinstance(node, Source) else table: table for table, node in readers.items()}
    read: dict[str, Any] = {table: tables[table] for table in readers}
    for name, passed in _rows_by_name(list(names), rows, verb).items():
        read[names[name]] = _rows_of_reader(readers[names[name]], name, passed, verb)
    read = read_connectors(read, verb)
    for name, table in names.items():
        if not isinstance(read[table], pa.Table):
            example = "df.limit(1000)" if len(names) == 1 else f"{{{name!r}: df.limit(1000)}}"
            hint = f"Pass rows in its place, as {example}, or of a stream those of run.sample(); they are read into memory."
            raise PlanError(verb, f"source {name} is a DataFrame", f"{verb} reads rows in memory", hint)
    return read


def _rows_by_name(names: list[str], rows: Any, verb: str) -> Mapping[str, Any]:
    """Return the rows that a user passes by the name of the source that they replace."""
    if rows is None:
        return {}
    if not isinstance(rows, Mapping):
        if len(names) == 1:
            return {names[0]: rows}
        hint = f"Write {{{names[0]!r}: rows, ...}}."
        raise PlanError(verb, "rows for one of several sources", f"there are: {', '.join(names)}", hint)
    for name in rows:
        if name not in names:
            hint = f"Rows are tables by the names of their sources: {{{names[0]!r}: table}}."
            raise PlanError(verb, f"no source {name!r}", f"there are: {', '.join(names)}", hint)
    return rows


def _rows_of_reader(reader: Node, name: str, rows: Any, verb: str) -> pa.Table:
    """Return rows in memory, with the columns that a source reads, of their types; those of a static table as they are."""
    if is_dataframe(rows):
        if rows.isStreaming:
            hint = "Pass rows that were read as a batch, by spark.read, or recorded by run.sample()."
            raise PlanError(verb, "a streaming DataFrame has no rows yet", f"source {name}", hint)
        rows = rows.toArrow()
    if (in_memory := as_arrow(rows, verb)) is None:
        columns = (
            ", ".join(column.name for column in reader.columns) if isinstance(reader, Source) else "those of the table"
        )
        hint = f"Pass an Arrow table, or a DataFrame, with its columns: {columns}."
        raise SourceError(verb, f"the rows of source {name} are no table", f"found {kind_of(rows)}", hint)
    table: pa.Table = input_table(in_memory, verb).rows
    if not isinstance(reader, Source):
        return table
    typed: dict[str, pa.ChunkedArray] = {}
    for column in reader.columns:
        if column.name not in table.column_names:
            unknown_column(f"{verb}, rows of source {name}", column.name, table.column_names, lifetime=False)
        try:
            typed[column.name] = table.column(column.name).cast(arrow_type(column.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            wrong = f"rows that do not fit source {name}"
            raise SourceError(verb, wrong, f"{column.name}: {str(error).splitlines()[0]}") from error
    return pa.table(typed)


MOST_STEPS = 200
"""The most micro-batches into which tables are cut: of longer ones several rows arrive at once."""

ArrivingRows = Mapping[str, pa.Table]
"""The rows that arrive together, by table."""


@dataclass(frozen=True)
class PassedBatches:
    """The micro-batches that arrive at a query, at least one, and its static tables, both by table."""

    batches: list[ArrivingRows]
    static: Mapping[str, pa.Table]

    @property
    def count(self) -> int:
        """The number of rows of all sources."""
        return sum(table.num_rows for batch in self.batches for table in batch.values())

    def all_rows(self) -> dict[str, pa.Table]:
        """Return all rows of each source, and the static tables."""
        return {**self.static, **{name: concat([batch[name] for batch in self.batches]) for name in self.batches[0]}}


def passed_batches(plan: Node, tables: Mapping[str, Any], rows: Any, *, verb: str) -> PassedBatches:
    """Return the input of a query in micro-batches; errors, those of ``tables_in_memory``, name ``verb``.

    ``rows``: None for the query's own ``tables``; a table for the only source, or tables by the sources' names, in place of them;
    or a list of micro-batches, each of one of these forms, in which a source that it does not name has no rows. A static table is
    whole in any of them; two that differ are an error.
    """
    sources = [node for node in nodes(plan) if isinstance(node, Source)]
    if isinstance(rows, list | tuple):
        bare = {**tables, **{source.table: _empty(source) for source in sources}}
        unread = {name: pa.table({}) for name in tables.keys() - {source.table for source in sources}}
        passed = [tables_in_memory(plan, bare | unread, batch, verb=verb) for batch in rows or [{}]]
        static = tables_in_memory(plan, bare, _static_tables(passed, unread, verb), verb=verb)
        batches: list[ArrivingRows] = [{source.table: batch[source.table] for source in sources} for batch in passed]
    else:
        static = tables_in_memory(plan, tables, rows, verb=verb)
        batches = _one_by_one(sources, static)
    fed = {source.table for source in sources}
    return PassedBatches(batches, {name: table for name, table in static.items() if name not in fed})


def passed_tables(plan: Node, tables: Mapping[str, Any], rows: Any, *, verb: str) -> dict[str, pa.Table]:
    """Return the rows of a query's sources, and its static tables, by table; ``rows`` and errors as of ``passed_batches``."""
    if isinstance(rows, list | tuple):
        return passed_batches(plan, tables, rows, verb=verb).all_rows()
    return tables_in_memory(plan, tables, rows, verb=verb)


def _static_tables(passed: list[dict[str, pa.Table]], unread: Mapping[str, pa.Table], verb: str) -> dict[str, pa.Table]:
    """Return the static tables that micro-batches bring; ``unread``: what stands for one in a micro-batch without it."""
    static: dict[str, pa.Table] = {}
    for name, nothing in unread.items():
        for batch in passed:
            if batch[name] is not nothing and not static.setdefault(name, batch[name]).equals(batch[name]):
                raise PlanError(verb, f"two tables for {name}", "a static table never changes")
    return static


def _empty(source: Source) -> pa.Table:
    return pa.schema([(column.name, arrow_type(column.type)) for column in source.columns]).empty_table()


def _one_by_one(sources: list[Source], tables: Mapping[str, pa.Table]) -> list[ArrivingRows]:
    """Return micro-batches of a row each, or of some rows if there are many.

    The rows of a table stay in their order. Of several tables the row that comes next is the one whose start, or that of an
    earlier row of its table, is the least.
    """
    counts = [tables[source.table].num_rows for source in sources]
    latest = [np.maximum.accumulate(_starts(source, tables[source.table])) for source in sources]
    owner = np.repeat(np.arange(len(sources)), counts)
    order = np.argsort(np.concatenate(latest), kind="stable")
    at_once = -(-len(order) // MOST_STEPS) or 1
    batches: list[ArrivingRows] = []
    begun = [0] * len(sources)
    for first in range(0, max(1, len(order)), at_once):
        batch = {}
        here = np.bincount(owner[order[first : first + at_once]], minlength=len(sources)).tolist()
        for number, source in enumerate(sources):
            batch[source.table] = tables[source.table].slice(begun[number], here[number])
            begun[number] += here[number]
        batches.append(batch)
    return batches


def _starts(source: Source, table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the start of each row, in ticks; MINUS_INFINITY for a row without one."""
    starts = pc.fill_null(source.item_rules.in_arrow(table).columns[LE], MINUS_INFINITY)
    return starts.to_numpy().astype(np.int64)
