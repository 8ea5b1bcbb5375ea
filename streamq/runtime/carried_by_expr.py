"""Progress moved by an expression over starts; a module of its own, for it takes the evaluator of expressions to executors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.expr import Expr
from streamq.runtime.arrow_expr import evaluate
from streamq.schema import Schema


@dataclass(frozen=True)
class CarriedByExpr:
    """Moved to where ``expr``, over a start alone, puts that instant."""

    expr: Expr
    schema: Schema

    def of(self, t: int) -> int:
        """The expression's value, in ticks."""
        axis = pa.timestamp("us", tz="UTC") if self.schema.axis == "timestamp" else pa.int64()
        made = evaluate(self.expr, self.schema, {}, lambda part: pa.array([t]).cast(axis), 1)
        return int(np.asarray(made.to_numpy(zero_copy_only=False), dtype=np.int64)[0])
