"""The built-in functions by name: those of the rooms beside this file, and any other of ``pyspark.sql.functions``.

A room's functions are the values of its module: there is no list of them to keep.
"""

from __future__ import annotations

from functools import cache

from streamq.functions import (
    arithmetic,
    choice,
    comparison,
    dates,
    logic,
    nondeterministic,
    numbers,
    patterns,
    structures,
    text,
)  # fmt: skip
from streamq.functions.built_in import BuiltIn
from streamq.plan.function import BUILT_IN, Function
from streamq.plan.spark_types import function_names

ROOMS = (arithmetic, choice, comparison, dates, logic, nondeterministic, numbers, patterns, structures, text)

BUILT_IN.update({f.name: f for room in ROOMS for f in vars(room).values() if isinstance(f, BuiltIn)})


def function_of(name: str) -> Function:
    """Return the function of a name, or the operator of a sign; a function that no room has is left to Spark, with its type."""
    return BUILT_IN[name] if name in BUILT_IN else _of_spark(name)


@cache
def _of_spark(name: str) -> Function:
    return BuiltIn(name)


@cache
def legal_names() -> frozenset[str]:
    """Return the names that a call may have: those of all functions, and the signs of operators."""
    return frozenset({*BUILT_IN, *function_names()})
