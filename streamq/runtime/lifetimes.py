"""Arithmetic of many lifetimes at once, in numpy: moved without overflow, or those of a grid's windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows import Hopping

Ticks = np.ndarray[Any, np.dtype[np.int64]]


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
