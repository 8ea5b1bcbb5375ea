"""Read queries from JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from streamq.compiler.plan_json import from_text, plan_from_json
from streamq.connectors.connector import Connector
from streamq.connectors.kafka import kafka_from_json
from streamq.connectors.outside_table import table_from_json
from streamq.connectors.publication import publication_from_json
from streamq.connectors.stored_files import files_from_json
from streamq.errors import PlanError, TypeMismatch, check_keywords, nearest, unknown_column
from streamq.operators import JoinTable, Source
from streamq.operators.input_table import input_table, source_name, static_table
from streamq.patterns import operators
from streamq.plan.expr import fold
from streamq.plan.node import Node, nodes, rename_tables
from streamq.plan.schema import BESIDE_ROWS, INTERVAL, Field, users_columns
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.stream import Stream


@check_keywords
def from_json(text: str, /, tables: Mapping[str, Any] | None = None, **named: Any) -> Stream:
    """Return the query that :meth:`to_json` wrote, over tables that are passed by the names of sources and static tables.

    A table is a DataFrame, an Arrow table or ``sq.files(...)`` that has the columns of the source, with the same types; it may
    have more. Or it is a stream with the source's payload and time axis, which replaces the source and its policies: this is
    the way to pass ``sq.changes`` and ``sq.events``, and to let one query read the result of another. ``tables`` is for names
    that are no identifiers: sources without a name are called "#1", "#2", ..., in the order in which the text lists them. A
    table that was ``sq.files(...)`` may be left out: the text has it. Nothing in the text is run or imported: code of your own
    is looked up in ``sq.modules`` by its name in the text, and must be the code that the query was written with.

    Raises PlanError for a text that is no plan, has another version or has been changed, for modules that do not exist or
    have other code, and for missing and surplus tables; UnknownColumn and TypeMismatch for a table or a stream that does
    not fit.

    >>> import pyarrow as pa
    >>> import streamq as sq
    >>> trips = sq.points(pa.table({"at": [1, 2], "fare": [3, 8]}), time="at", name="trips")
    >>> text = trips.where(sq.col("fare") > 5).to_json()
    >>> sq.from_json(text, trips=pa.table({"at": [4, 7], "fare": [9, 4]})).show()
    fare  start  end
       9      4    5
    """
    operators.rooms()  # defines the scans of pattern operators, which a text may name
    document = from_text(text)
    plan = plan_from_json(document)
    if tables is not None and not isinstance(tables, Mapping):
        raise PlanError("from_json", "tables are given by name", f"found {tables!r}", "As {'trips': df}.")
    in_both = sorted(named.keys() & (tables or {}).keys())
    if in_both:
        raise PlanError("from_json", f"table {in_both[0]!r} twice", "once in tables, once by its name")
    tables = {**_connectors(document), **(tables or {}), **named}
    readers = table_readers(plan)
    _check_names(list(tables), list(readers))
    # a number is a place in the text; in this process the same number may name another source
    names = {name: source_name(None) if name.startswith("#") else name for name in readers}
    streams: dict[str, Stream] = {}
    rows: dict[str, Any] = {}
    for name, nodes_of_table in readers.items():
        if isinstance(tables[name], Stream):
            streams[names[name]] = _fitting_stream(name, tables[name], nodes_of_table)
        else:
            rows[names[name]] = _fitting_rows(name, tables[name], nodes_of_table)
    query = Stream(rename_tables(plan, names), rows)
    return query._derive(_with_streams(query.plan, streams), *streams.values())


def _connectors(document: Mapping[str, Any]) -> dict[str, Connector]:
    """Return the connectors that a plan names, by table; raise PlanError for one that does not exist."""
    connectors: dict[str, Connector] = {}
    for name, entry in document.get("tables", {}).items():
        kind = entry.get("connector") if isinstance(entry, Mapping) else None
        if kind not in CONNECTORS:
            raise PlanError("from_json", f"no connector {kind!r}", f"there are: {', '.join(CONNECTORS)}")
        connectors[name] = CONNECTORS[kind](entry)
    return connectors


CONNECTORS: Mapping[Any, Callable[[Mapping[str, Any]], Connector]] = {
    "files": files_from_json,
    "kafka": kafka_from_json,
    "publication": publication_from_json,
    "table": table_from_json,
}
"""The functions that make a connector of an entry of a plan, by the connector's name."""


def table_readers(plan: Node) -> dict[str, list[Source | JoinTable]]:
    """Return the nodes that read each table, by the table's name."""
    readers: dict[str, list[Source | JoinTable]] = {}
    for node in nodes(plan):
        if isinstance(node, Source | JoinTable):
            readers.setdefault(node.table, []).append(node)
    return readers


def _check_names(names: list[str], read: list[str]) -> None:
    """Raise PlanError if a table that the query reads is not among ``names``, or one of ``names`` is not among ``read``.

    ``names``: the tables that the caller passes; ``read``: those that the query reads.
    """
    for name in read:
        if name not in names:
            hint = f"from_json(text, {name}=df)" if name.isidentifier() else f"from_json(text, {{{name!r}: df}})"
            there = ", ".join(names) or "none"
            raise PlanError("from_json", f"no table {name!r}", f"there are: {there}", f"Give it: {hint}.")
    for name in names:
        if name not in read:
            there = f"there are: {', '.join(read)}"
            raise PlanError("from_json", f"the query has no table {name!r}", there, nearest(name, read))


def _with_streams(plan: Node, streams: Mapping[str, Stream]) -> Node:
    """Return the plan with each source whose table is a key of ``streams`` replaced by the plan of that stream."""

    def visit(node: Node, inputs: list[Node]) -> Node:
        if isinstance(node, Source) and node.table in streams:
            return streams[node.table].plan
        return node.with_children(inputs)

    return fold(plan, visit)


def _fitting_stream(name: str, stream: Stream, readers: list[Source | JoinTable]) -> Stream:
    """Return the stream unchanged if it can replace the sources that read table ``name``.

    Raises TypeMismatch if a source has another payload or time axis, and PlanError if one of ``readers`` is a static table.
    """
    verb = f"from_json: table {name!r}"
    for reader in readers:
        if isinstance(reader, JoinTable):
            raise PlanError(verb, "a stream", "a table is static", "Join streams with join(...).")
        ours, theirs = (s.with_shape(INTERVAL).describe() for s in (stream.schema, reader.schema))
        if ours != theirs:
            wrong = "a stream of other columns or another time axis"
            raise TypeMismatch(verb, wrong, f"found ({ours}) instead of ({theirs})", "Use select first.")
    return stream


def _fitting_rows(name: str, table: Any, readers: list[Source | JoinTable]) -> Any:
    """Return the table's rows, as its readers take them.

    Raises UnknownColumn or TypeMismatch if the table lacks a column of theirs, or has it with another type. Raises SourceError
    for what is no table, and for a streaming one that is to be static.
    """
    verb = f"from_json: table {name!r}"
    is_static = any(isinstance(reader, JoinTable) for reader in readers)
    source = static_table(table, verb) if is_static else input_table(table, verb)
    types = {column.name: column.type for column in source.columns}
    rows = source.rows
    for column in (column for reader in readers for column in reader.columns):
        if column.name in BESIDE_ROWS and column.name not in types:
            rows = _without_malformed(rows, column)
            continue
        if column.name not in types:
            unknown_column(verb, column.name, users_columns(types), lifetime=False)
        there, wanted = types[column.name].simpleString(), column.type.simpleString()
        if there != wanted:
            wrong = f"column {column.name!r} is of another type"
            raise TypeMismatch(verb, wrong, f"found {there} instead of {wanted}", "Cast it first.")
    return rows


def _without_malformed(rows: Any, mark: Field) -> Any:
    """Return a table's rows, of which none is malformed, with a column of malformed ones."""
    if isinstance(rows, pa.Table):
        return rows.append_column(mark.name, pa.nulls(rows.num_rows, arrow_type(mark.type)))
    return rows if isinstance(rows, Connector) else rows.withColumn(mark.name, F.lit(None).cast(mark.type))
