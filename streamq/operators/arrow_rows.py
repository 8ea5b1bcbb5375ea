"""Rows in Arrow arrays, to which the in-process backend applies steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamq.operators.step import StepRows
from streamq.plan.expr import Expr
from streamq.plan.schema import Schema
from streamq.runtime.arrow_expr import evaluate, lifetime_part
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.deltas import with_ends, with_weights
from streamq.runtime.event import LE, RE


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


__all__ = ["ArrowRows"]
