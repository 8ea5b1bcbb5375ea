"""Convert NumPy scalars to Python values, and suggest fixes for values that are not expressions."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamq.errors import TypeMismatch, sentence
from streamq.time import check_microseconds


def plain_value(value: Any) -> Any:
    """Return a NumPy scalar as a Python value, anything else unchanged; raise TypeMismatch for a scalar without one.

    NaT becomes None; a time that is finer than a microsecond raises TimeError.
    """
    if not isinstance(value, np.generic):
        return value
    if isinstance(value, np.datetime64 | np.timedelta64):
        check_microseconds(value, "expression")
        # for units finer than a microsecond NumPy would return a plain integer
        value = value.astype(f"{'datetime64' if isinstance(value, np.datetime64) else 'timedelta64'}[us]")
    plain = value.item()
    if isinstance(plain, np.generic):
        raise TypeMismatch(
            sentence("expression", "a number of no Spark type", f"found {value!r}", "Give a Python one.")
        )
    return plain


def hint_for(value: Any, otherwise: str = "") -> str:
    """Return what to write instead of a value that is neither an expression nor a column's name; ``otherwise`` if unknown."""
    if isinstance(value, list | tuple | set | frozenset | dict | np.ndarray):
        return (
            "Columns are given one by one; membership is .isin(...); arrays are made by sq.functions.array(...), "
            "structs by sq.functions.struct(...)."
        )
    if callable(value):
        return (
            'Call it on the columns; a function of your own is made one of expressions by sq.udf("double")(function).'
        )
    return "t.ANY stands in scenarios only: begin with t.stream(...)." if type(value).__name__ == "_Any" else otherwise
