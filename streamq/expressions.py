"""How a user begins an expression: a column, a constant, a case, a part of the lifetime.

Whoever has begun one also has the functions that its operators and methods call: they are loaded here.
"""

from __future__ import annotations

from typing import Any

import streamq.functions  # noqa: F401 (what operators on expressions call)
from streamq.errors import PlanError, sentence
from streamq.keywords import check_keywords
from streamq.plan.case import Case
from streamq.plan.expr import Col, Expr, Lit, as_expr
from streamq.plan.lifetime import Lifetime, WindowBound


@check_keywords
def col(name: str) -> Col:
    """A payload column by name, resolved by the verb that uses it."""
    if not isinstance(name, str):
        raise PlanError(sentence("col", "a column name is a string", f"found {name!r}"))
    return Col(name)


@check_keywords
def lit(value: Any) -> Expr:
    """A constant."""
    return as_expr(value)


@check_keywords
def when(condition: Any, value: Any) -> Case:
    """``when(c, v).otherwise(w)``: v where c holds, else w, else NULL."""
    return Case((as_expr(condition), as_expr(value), Lit(None)))


@check_keywords
def start() -> Expr:
    """The start (LE) of the event: a timestamp, or ticks on an integer axis."""
    return Lifetime("start")


@check_keywords
def end() -> Expr:
    """The end (RE) of the event, NULL while it is still alive."""
    return Lifetime("end")


@check_keywords
def duration() -> Expr:
    """RE - LE in ticks (microseconds on a timestamp axis), NULL while the event is still alive."""
    return Lifetime("duration")


@check_keywords
def window_start() -> Expr:
    """The start of the window, in a window's ``select`` or over its result; elsewhere a PlanError."""
    return WindowBound("start")


@check_keywords
def window_end() -> Expr:
    """The end of the window, in a window's ``select`` or over its result; elsewhere a PlanError."""
    return WindowBound("end")
