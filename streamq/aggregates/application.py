"""Apply aggregates to columns, and check these."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import DoubleType

from streamq.errors import PlanError, TypeMismatch, sentence
from streamq.plan.aggregate import Aggregate, AggregateFunction, Application, Options
from streamq.plan.expr import Cast, Expr, as_expr
from streamq.plan.resolve import column_or_expr
from streamq.plan.spark_types import is_numeric


def apply_aggregate(function: AggregateFunction, *columns: Any, where: Any = None, options: Options = ()) -> Aggregate:
    """Return the aggregate of ``columns``, names or expressions, over members for which ``where`` is true.

    ``options`` are the function's plain values. Raises PlanError for a Python function in place of a column, and for a text or
    a Python function as ``where``.
    """
    for column in columns:
        if callable(column) and not isinstance(column, Expr):
            hint = f'Write the column\'s name, or an expression: sq.{function.name}(sq.col("fare") * 2).'
            raise PlanError(
                sentence(function.name, "a Python function instead of a column", f"found {_name(column)}", hint)
            )
    if isinstance(where, str) or (callable(where) and not isinstance(where, Expr)):
        hint = 'Write it over columns: where=sq.col("fare") > 5.'
        raise PlanError(sentence(function.name, "where is a condition over columns", f"found {_name(where)}", hint))
    args = tuple(as_expr(column_or_expr(column)) for column in columns)
    return Aggregate(function, args, None if where is None else as_expr(where), options)


def _name(value: Any) -> str:
    """Return a function or a text as messages show it."""
    return repr(value) if isinstance(value, str) else f"function {getattr(value, '__name__', repr(value))}"


def check_numbers(of: Application) -> None:
    """Raise TypeMismatch for an argument that is no number."""
    for i, kind in enumerate(of.types):
        if not is_numeric(kind):
            detail = of.shown if i else f"{kind.simpleString()} in {of.shown}"
            raise TypeMismatch(sentence(of.aggregate.name, "needs numbers", f"found {detail}", "Cast it."))


def as_doubles(of: Application) -> tuple[Expr, ...]:
    """Return the arguments as doubles."""
    return tuple(
        arg if isinstance(kind, DoubleType) else Cast(arg, DoubleType())
        for arg, kind in zip(of.args, of.types, strict=True)
    )
