"""Arithmetic on arrays of instants, in numpy, without overflow."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY

Ticks = np.ndarray[Any, np.dtype[np.int64]]


def saturating(base: Ticks, by: Ticks | int) -> Ticks:
    """Return ``base + by`` of int64 ticks; a sum beyond the axis becomes FIRST_INSTANT or INFINITY.

    INFINITY on either side stays.
    """
    base = np.asarray(base, np.int64)
    by = np.broadcast_to(np.asarray(by, np.int64), base.shape)
    with np.errstate(over="ignore"):
        moved = base + by
    moved = np.where((by > 0) & (moved < base), INFINITY, moved)
    moved = np.where((by < 0) & ((moved > base) | (moved == MINUS_INFINITY)), FIRST_INSTANT, moved)
    return np.where((base == INFINITY) | (by == INFINITY), INFINITY, moved)
