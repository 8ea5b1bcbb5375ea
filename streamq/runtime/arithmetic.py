"""Arithmetic of instants and window numbers, so that a rule is written once: over integers, numpy arrays and SQL columns."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

Number = Any
"""An integer, an int64 array or a bigint column; they add, subtract and compare with ``+``, ``-``, ``<`` and ``==``."""


class Arithmetic(Protocol):
    """Operations that integers, arrays and Spark's columns each write in their own way.

    Those of columns are in ``streamq/windows/grid_columns.py``.
    """

    def quotient(self, x: Number, by: int) -> Number:
        """``floor(x / by)``, exact."""

    def remainder(self, x: Number, by: int) -> Number:
        """``x - by * floor(x / by)``, from 0 to ``by - 1``."""

    def choose(self, condition: Any, then: Number, otherwise: Number) -> Number:
        """``then`` where the condition holds, else ``otherwise``."""


class _Integers:
    def quotient(self, x: Number, by: int) -> Number:
        return x // by

    def remainder(self, x: Number, by: int) -> Number:
        return x % by

    def choose(self, condition: Any, then: Number, otherwise: Number) -> Number:
        return then if condition else otherwise


class _Arrays(_Integers):
    def choose(self, condition: Any, then: Number, otherwise: Number) -> Number:
        return np.where(condition, then, otherwise)


INTEGERS: Arithmetic = _Integers()
ARRAYS: Arithmetic = _Arrays()
