"""The functions with which users begin an expression: a column, a constant, a case, a part of the lifetime.

This module also loads the functions that operators and methods of expressions call.
"""

from __future__ import annotations

from typing import Any

import streamq.functions  # noqa: F401 (what operators on expressions call)
from streamq.errors import PlanError, check_keywords
from streamq.plan.expr import Case, Col, Expr, Lifetime, Lit, WindowBound, as_expr


@check_keywords
def col(name: str) -> Col:
    """Return the payload column of a name; the verb that uses the expression looks the column up."""
    if not isinstance(name, str):
        raise PlanError("col", "a column name is a string", f"found {name!r}")
    return Col(name)


@check_keywords
def lit(value: Any) -> Expr:
    """Return a constant as an expression."""
    return as_expr(value)


@check_keywords
def when(condition: Any, value: Any) -> Case:
    """Return ``value`` where ``condition`` is true; else the value of ``.otherwise(...)``, or NULL without one."""
    return Case((as_expr(condition), as_expr(value), Lit(None)))


@check_keywords
def start() -> Expr:
    """Return the start (LE) of the event: a timestamp, or ticks on an integer axis."""
    return Lifetime("start")


@check_keywords
def end() -> Expr:
    """Return the end (RE) of the event, NULL while it is still alive."""
    return Lifetime("end")


@check_keywords
def duration() -> Expr:
    """Return RE - LE in ticks (microseconds on a timestamp axis), NULL while the event is still alive."""
    return Lifetime("duration")


@check_keywords
def window_start() -> Expr:
    """Return the start of the window, in a window's ``select`` or over its result; used elsewhere it raises PlanError."""
    return WindowBound("start")


@check_keywords
def window_end() -> Expr:
    """Return the end of the window, in a window's ``select`` or over its result; used elsewhere it raises PlanError."""
    return WindowBound("end")
