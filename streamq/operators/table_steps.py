"""Steps as workers apply them to tables of deltas, with exactly Spark's answer and errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import DataType

from streamq.errors import NeedsSpark
from streamq.operators.arrow_rows import ArrowRows
from streamq.operators.changed_lifetimes import ChangedLifetimes
from streamq.plan.expr import Expr
from streamq.plan.folding import fold
from streamq.plan.inference import types
from streamq.plan.schema import Schema
from streamq.runtime.arrow_expr import check_in_process
from streamq.runtime.inner_path import TECHNICAL, RenamedColumns, TableStep


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
        return _table(events.with_lifetimes(*self.change.of(events), self.schema))


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


__all__ = ["ComputedColumns", "FilteredRows", "MovedRows", "columns_step", "is_exact"]
