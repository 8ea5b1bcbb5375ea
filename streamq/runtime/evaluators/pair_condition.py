"""Conditions on pairs of events; a module of its own, because it ships the evaluator of expressions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.expr import Expr
from streamq.plan.schema import Schema
from streamq.runtime.arrow.arrow_expr import evaluate
from streamq.runtime.arrow.values import Mask


@dataclass(frozen=True)
class PairCondition:
    """A condition ``where`` over the columns of a pair, whose schema is ``pair``."""

    where: Expr
    pair: Schema

    def holds(self, pairs: pa.Table) -> Mask:
        """Mark the pairs for which it is true, neither false nor NULL."""
        if not pairs.num_rows:
            return np.zeros(0, bool)
        columns = {n: pairs.column(n).combine_chunks() for n in self.pair.names}
        passed = pc.fill_null(evaluate(self.where, self.pair, columns, _no_lifetime, pairs.num_rows), False)
        return np.asarray(passed.to_numpy(zero_copy_only=False), bool)


def _no_lifetime(part: str) -> pa.Array:
    """Raise AssertionError: a condition on a pair reads no lifetime."""
    raise AssertionError("a condition on two events has no lifetime")
