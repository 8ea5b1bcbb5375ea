"""Progress maps: how the steps of a path change the CTI and the watermark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from streamq.plan.expr import Expr
from streamq.plan.schema import Schema
from streamq.runtime.arrow.arrow_expr import attempt
from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY, saturating_add


class ProgressMap(Protocol):
    """A step that moves lifetimes."""

    def apply(self, t: int) -> int:
        """Return the instant that the step gives for an instant between the ends of the axis."""


@dataclass(frozen=True)
class ProgressShift:
    """A shift by ``by`` ticks, kept on the axis."""

    by: int = 0

    def apply(self, t: int) -> int:
        return min(INFINITY - 1, saturating_add(t, self.by))


def map_progress(t: int, steps: Sequence[ProgressMap]) -> int:
    """Return an instant of progress after the steps of a path; both ends of the axis stay as they are."""
    for step in steps:
        if t in (INFINITY, MINUS_INFINITY):
            return t
        t = step.apply(t)
    return t


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
