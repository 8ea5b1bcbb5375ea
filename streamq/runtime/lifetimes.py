"""Lifetimes moved along a path: in Arrow, and what that makes of the progress of those who move them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.expr import Expr
from streamq.runtime.arrow_expr import evaluate
from streamq.schema import Schema
from streamq.time import INFINITY, MINUS_INFINITY, saturating_add
from streamq.windows import Hopping

Ticks = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Carried:
    """What a step of a path makes of c and W: moved by ``by`` ticks, or where ``expr`` over a start puts that instant."""

    by: int = 0
    expr: Expr | None = None
    schema: Schema | None = None


def carry(t: int, steps: Sequence[Carried]) -> int:
    """An instant of progress after the steps of a path; one that has not spoken, or has ended, stays so."""
    for step in steps:
        if t in (INFINITY, MINUS_INFINITY):
            return t
        if step.expr is None:
            t = max(MINUS_INFINITY + 1, min(INFINITY - 1, saturating_add(t, step.by)))
        else:
            assert step.schema is not None
            t = int(instants(step.expr, step.schema, np.array([t]))[0])
    return t


def instants(expr: Expr, schema: Schema, le: Ticks) -> Ticks:
    """An expression over starts alone, in ticks."""
    starts = pa.array(le)
    axis = pa.timestamp("us", tz="UTC") if schema.axis == "timestamp" else pa.int64()
    made = evaluate(expr, schema, {}, lambda part: starts.cast(axis), len(le))
    return np.asarray(made.to_numpy(zero_copy_only=False), dtype=np.int64)


def saturating(base: Ticks, by: Ticks | int) -> Ticks:
    """``base + by`` of int64 ticks; INFINITY stays, nothing overflows."""
    base = np.asarray(base, np.int64)
    by = np.broadcast_to(np.asarray(by, np.int64), base.shape)
    with np.errstate(over="ignore"):
        made = base + by
    made = np.where((by > 0) & (made < base), INFINITY, made)
    made = np.where((by < 0) & (made > base), MINUS_INFINITY + 1, made)
    return np.where((base == INFINITY) | (by == INFINITY), INFINITY, made)


def grid_index(x: Ticks, shift: int, hop: int) -> Ticks:
    """``floor((x - shift) / hop)`` without forming ``x - shift``, which could overflow at the ends of the axis."""
    whole, part = divmod(shift, hop)
    return x // hop - whole - np.where(x % hop < part, 1, 0)


def grid_lifetimes(window: Hopping, index: Ticks) -> tuple[Ticks, Ticks]:
    """LE and RE of the windows of a grid by their numbers, kept on the axis."""
    if len(index) and (
        int(index.min()) * window.hop + window.offset < MINUS_INFINITY or window.end(int(index.max())) == INFINITY
    ):
        # at the very ends of the axis, where int64 would overflow
        numbers = index.tolist()
        return np.array([window.start(i) for i in numbers]), np.array([window.end(i) for i in numbers])
    start = index * window.hop + window.offset
    return start, start + window.size
