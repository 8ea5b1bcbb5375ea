"""Progress maps given by an expression over starts; a module of its own, because it ships the evaluator of expressions."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streamq.plan.expr import Expr
from streamq.plan.schema import Schema
from streamq.runtime.arrow.arrow_expr import attempt
from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY


@dataclass(frozen=True)
class ExprProgressMap:
    """A map from an instant to the value of ``expr``, an expression over a start alone."""

    expr: Expr
    schema: Schema

    def apply(self, t: int) -> int:
        """Return the expression's value in ticks, kept finite; MINUS_INFINITY, no progress, if it has none or would overflow."""
        axis = pa.timestamp("us", tz="UTC") if self.schema.axis == "timestamp" else pa.int64()
        value = attempt(self.expr, self.schema, {}, lambda part: pa.array([t]).cast(axis), 1)
        at = None if value.faults else value.array.cast(pa.int64())[0].as_py()
        return MINUS_INFINITY if at is None else max(FIRST_INSTANT, min(INFINITY - 1, int(at)))
