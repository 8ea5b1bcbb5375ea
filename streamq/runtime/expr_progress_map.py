"""Progress moved by an expression over starts; a module of its own, for it takes the evaluator of expressions to executors."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streamq.plan.expr import Expr
from streamq.plan.schema import Schema
from streamq.runtime.arrow_expr import attempt
from streamq.time import MINUS_INFINITY


@dataclass(frozen=True)
class ExprProgressMap:
    """Moved to where ``expr``, over a start alone, puts that instant."""

    expr: Expr
    schema: Schema

    def apply(self, t: int) -> int:
        """The expression's value, in ticks; where it has none, or would overflow, nothing is known of what is to come."""
        axis = pa.timestamp("us", tz="UTC") if self.schema.axis == "timestamp" else pa.int64()
        value = attempt(self.expr, self.schema, {}, lambda part: pa.array([t]).cast(axis), 1)
        at = None if value.faults else value.array.cast(pa.int64())[0].as_py()
        return MINUS_INFINITY if at is None else int(at)
