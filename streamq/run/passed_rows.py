"""The rows that a query reads in memory: its own tables, or those that a user passes in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa

from streamq.errors import PlanError, SourceError, kind_of, sentence, unknown_column
from streamq.operators import Source
from streamq.operators.input_table import input_table
from streamq.plan.node import Node, nodes
from streamq.run.tables import is_dataframe
from streamq.runtime.arrow_types import arrow_type


def tables_in_memory(plan: Node, tables: Mapping[str, Any], rows: Any, *, verb: str) -> dict[str, pa.Table]:
    """Return the tables of a plan as Arrow tables; those of ``rows`` replace the query's own.

    ``rows``: a table for the only source, or tables by the sources' names. Raises PlanError if rows are left that only Spark
    can read, and for names that no source has; UnknownColumn for rows without a column of their source. Errors name ``verb``.
    """
    readers = {table: node for node in nodes(plan) if (table := getattr(node, "table", None)) is not None}
    names = {node.shown_name() if isinstance(node, Source) else table: table for table, node in readers.items()}
    read = {table: tables[table] for table in readers}
    for name, passed in _rows_by_name(list(names), rows, verb).items():
        read[names[name]] = _rows_of_reader(readers[names[name]], name, passed, verb)
    for name, table in names.items():
        if not isinstance(read[table], pa.Table):
            example = "df.limit(1000)" if len(names) == 1 else f"{{{name!r}: df.limit(1000)}}"
            hint = f"Pass rows in its place, as {example}, or of a stream those of run.sample(); they are read into memory."
            raise PlanError(sentence(verb, f"source {name} is a DataFrame", f"{verb} reads rows in memory", hint))
    return read


def _rows_by_name(names: list[str], rows: Any, verb: str) -> Mapping[str, Any]:
    """Return the rows that a user passes by the name of the source that they replace."""
    if rows is None:
        return {}
    if not isinstance(rows, Mapping):
        if len(names) == 1:
            return {names[0]: rows}
        hint = f"Write {{{names[0]!r}: rows, ...}}."
        raise PlanError(sentence(verb, "rows for one of several sources", f"there are: {', '.join(names)}", hint))
    for name in rows:
        if name not in names:
            hint = f"Rows are tables by the names of their sources: {{{names[0]!r}: table}}."
            raise PlanError(sentence(verb, f"no source {name!r}", f"there are: {', '.join(names)}", hint))
    return rows


def _rows_of_reader(reader: Node, name: str, rows: Any, verb: str) -> pa.Table:
    """Return rows in memory, with the columns that a source reads, of their types; those of a static table as they are."""
    if isinstance(rows, pd.DataFrame):
        rows = pa.Table.from_pandas(rows, preserve_index=False)
    if is_dataframe(rows):
        if rows.isStreaming:
            hint = "Pass rows that were read as a batch, by spark.read, or recorded by run.sample()."
            raise PlanError(sentence(verb, "a streaming DataFrame has no rows yet", f"source {name}", hint))
        rows = rows.toArrow()
    if not isinstance(rows, pa.Table):
        columns = (
            ", ".join(column.name for column in reader.columns) if isinstance(reader, Source) else "those of the table"
        )
        hint = f"Pass a pyarrow Table, a pandas or a batch DataFrame with its columns: {columns}."
        raise SourceError(sentence(verb, f"the rows of source {name} are no table", f"found {kind_of(rows)}", hint))
    table: pa.Table = input_table(rows, verb).rows
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
            raise SourceError(sentence(verb, wrong, f"{column.name}: {str(error).splitlines()[0]}")) from error
    return pa.table(typed)


__all__ = ["tables_in_memory"]
