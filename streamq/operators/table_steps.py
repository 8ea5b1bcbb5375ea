"""Steps as workers apply them to tables of deltas, with exactly Spark's answer and errors, and as the in-process backend does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType

from streamq.errors import NeedsSpark
from streamq.operators.lifetime_change import ChangedLifetimes
from streamq.operators.step import StepRows
from streamq.plan.expr import Expr
from streamq.plan.passes import types
from streamq.plan.schema import Schema
from streamq.plan.tree import fold
from streamq.runtime.arrow.arrow_expr import check_in_process, evaluate, lifetime_part
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.deltas import with_ends, with_weights
from streamq.runtime.event import LE, RE
from streamq.runtime.hosts.hosted_kernel import TECHNICAL, RenamedColumns, TableStep


@dataclass(frozen=True)
class ArrowRows(StepRows[pa.Array]):
    """Rows in Arrow arrays: the ``payload`` columns of ``schema``, and ``technical`` columns such as ``__le`` and ``__re``.

    ``count``: the number of rows. ``tables``: the static tables of the query, by name.
    """

    count: int
    schema: Schema
    technical: Mapping[str, pa.Array]
    payload: Mapping[str, pa.Array]
    tables: Mapping[str, pa.Table]

    @staticmethod
    def from_table(table: pa.Table, schema: Schema, tables: Mapping[str, pa.Table]) -> ArrowRows:
        """Return the rows of a table: of its columns those of ``schema`` are payload, those named ``__...`` technical."""
        technical = {n: _array(table.column(n)) for n in table.column_names if n.startswith("__")}
        payload = {n: _array(table.column(n)) for n in schema.names}
        return ArrowRows(table.num_rows, schema, technical, payload, tables)

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        return pa.table({**self.technical, **self.payload})

    @property
    def starts(self) -> pa.Array:
        """The starts of the rows, in ticks."""
        return self.technical[LE]

    @property
    def ends(self) -> pa.Array:
        """The ends of the rows, in ticks."""
        return _array(self.lifetimes.column(RE))

    @property
    def lifetimes(self) -> pa.Table:
        """The technical columns of the rows, ends and weights included."""
        return with_weights(with_ends(pa.table(dict(self.technical))))

    def evaluate(self, expr: Expr) -> pa.Array:
        return _array(evaluate(expr, self.schema, dict(self.payload), self._lifetime, self.count))

    def _lifetime(self, part: str) -> Any:
        return lifetime_part(part, self.starts, self.ends, arrow_type(self.schema.axis_type))

    def filter(self, is_kept: pa.Array) -> ArrowRows:
        is_kept = pc.fill_null(is_kept, False)
        return self.take(pc.indices_nonzero(is_kept).cast(pa.int64()))

    def take(self, places: pa.Array) -> ArrowRows:
        """Return the rows at these places, in this order; a place may occur several times."""
        technical = {name: column.take(places) for name, column in self.technical.items()}
        payload = {name: column.take(places) for name, column in self.payload.items()}
        return replace(self, count=len(places), technical=technical, payload=payload)

    def with_payload(self, columns: Mapping[str, pa.Array], schema: Schema) -> ArrowRows:
        return replace(self, payload=columns, schema=schema)

    def with_lifetimes(self, starts: pa.Array, ends: pa.Array, is_alive: pa.Array, schema: Schema) -> ArrowRows:
        """Return the rows where ``is_alive`` is true, with new lifetimes in ticks."""
        technical = {**self.technical, LE: starts, RE: ends}
        return replace(self, technical=technical, schema=schema).filter(is_alive)


def _array(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


@dataclass(frozen=True)
class ComputedColumns:
    """A new payload: ``columns`` are pairs of a name and the expression that computes it from rows of ``schema``."""

    columns: tuple[tuple[str, Expr], ...]
    schema: Schema

    def applied_to(self, rows: pa.Table) -> pa.Table:
        """Return the deltas with the new payload; raise the error of the first row on which Spark raises."""
        events = ArrowRows.from_table(rows, self.schema, {})
        payload = {name: events.evaluate(expr) for name, expr in self.columns}
        return pa.table({**{name: rows.column(name) for name in TECHNICAL}, **payload})


@dataclass(frozen=True)
class FilteredRows:
    """A filter: the rows of ``schema`` for which ``predicate`` is true, neither false nor NULL."""

    predicate: Expr
    schema: Schema

    def applied_to(self, rows: pa.Table) -> pa.Table:
        """Return the deltas that pass; raise the error of the first row on which Spark raises."""
        events = ArrowRows.from_table(rows, self.schema, {})
        return _table(events.filter(events.evaluate(self.predicate)))


@dataclass(frozen=True)
class MovedRows:
    """A change of the lifetimes of rows of ``schema``; rows that are left without a duration are dropped."""

    change: ChangedLifetimes
    schema: Schema

    def applied_to(self, rows: pa.Table) -> pa.Table:
        """Return the deltas on their new lifetimes."""
        events = ArrowRows.from_table(rows, self.schema, {})
        return _table(events.with_lifetimes(*self.change.lifetimes(events), self.schema))


def _table(events: ArrowRows) -> pa.Table:
    """Return events as a table of deltas."""
    technical = {name: events.technical[name] for name in TECHNICAL}
    return pa.table({**technical, **{name: events.payload[name] for name in events.schema.names}})


def columns_step(columns: Sequence[tuple[str, Expr]], schema: Schema) -> TableStep | None:
    """Return the step that computes a payload from rows of ``schema``; None if a column is not exact.

    ``columns`` are pairs of a name and an expression. Plain columns need no evaluator of expressions.
    """
    plain = tuple((name, copied) for name, expr in columns if (copied := expr.copied_column) is not None)
    if len(plain) == len(columns):
        return RenamedColumns(plain)
    if all(is_exact(expr, schema) for _, expr in columns):
        return ComputedColumns(tuple(columns), schema)
    return None


def is_exact(root: Expr, schema: Schema) -> bool:
    """Return True if Arrow computes an expression over ``schema`` as Spark does, to the last bit and with the same failures."""
    kinds = types(root, schema, "stream")
    exact: list[bool] = []

    def visit(node: Expr, operands: list[DataType | None]) -> DataType | None:
        kind = kinds[node.digest]
        typed = [operand for operand in operands if operand is not None]
        exact.append(kind is not None and len(typed) == len(operands) and node.is_exact(typed, kind))
        return kind

    fold(root, visit)
    if not all(exact):
        return False
    try:
        check_in_process(root, schema, "stream")
    except NeedsSpark:
        return False
    return True
