"""Arithmetic of instants and window numbers, so that a rule is written once for integers, numpy arrays and SQL.

On arrays of instants nothing overflows: lifetimes saturate.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY, saturating_add

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


Number = Any
"""An integer, an int64 array or SQL of a bigint; they add, subtract and compare with ``+``, ``-``, ``<`` and ``==``."""


class Arithmetic(Protocol):
    """The operations that integers, arrays and SQL each write in their own way.

    Those of SQL are in ``streamq/windows/batch_events.py``.
    """

    def quotient(self, x: Number, by: int) -> Number:
        """Return ``floor(x / by)``, exact."""

    def remainder(self, x: Number, by: int) -> Number:
        """Return ``x - by * floor(x / by)``, from 0 to ``by - 1``."""

    def choose(self, condition: Any, then: Number, otherwise: Number) -> Number:
        """Return ``then`` where the condition holds, else ``otherwise``."""

    def moved(self, x: Number, by: int) -> Number:
        """Return ``x + by``, kept on the axis; ``x`` is an instant or INFINITY, not MINUS_INFINITY."""

    def floor(self, x: Number, by: int) -> Number:
        """Return the greatest multiple of ``by`` that is not above x, kept on the axis."""


class _Integers:
    def quotient(self, x: Number, by: int) -> Number:
        return x // by

    def remainder(self, x: Number, by: int) -> Number:
        return x % by

    def choose(self, condition: Any, then: Number, otherwise: Number) -> Number:
        return then if condition else otherwise

    def moved(self, x: Number, by: int) -> Number:
        return saturating_add(x, by)

    def floor(self, x: Number, by: int) -> Number:
        return max(FIRST_INSTANT, x // by * by)


class _Arrays(_Integers):
    def choose(self, condition: Any, then: Number, otherwise: Number) -> Number:
        return np.where(condition, then, otherwise)

    def moved(self, x: Number, by: int) -> Number:
        return saturating(x, by)

    def floor(self, x: Number, by: int) -> Number:
        rest = x % by
        return np.where(x < FIRST_INSTANT + rest, FIRST_INSTANT, x - rest)


INTEGERS: Arithmetic = _Integers()
ARRAYS: Arithmetic = _Arrays()
