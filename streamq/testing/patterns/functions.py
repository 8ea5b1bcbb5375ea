"""Translate conditions of a pattern that are functions to the conditions of a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamq.patterns import syntax as s
from streamq.plan.expr import Call, Col, Expr, Lit
from streamq.testing.patterns.conditions import Unjudged

IN_TEXTS: Mapping[str, str] = {
    "==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "+": "+", "-": "-", "*": "*",
    "and": "and", "or": "or", "not": "not", "isin": "in", "isnull": "is null", "negative": "negative",
}  # fmt: skip
"""Operators of the language by those of expressions."""

OWN = {"@": "@Vs", "@.root": "@root"}
"""Names in the rules of a variable's built-in columns."""


def parts_of_condition(condition: Expr) -> Iterator[s.Expression]:
    """Yield the conditions that AND connects, at any depth, in the language; raise Unjudged as :func:`in_text`.

    They are apart because each is checked as soon as its variables are bound.
    """
    match in_text(condition):
        case s.Apply("and", parts):
            for part in parts:
                yield from _flatten(part)
        case one:
            yield one


def _flatten(part: s.Expression) -> Iterator[s.Expression]:
    """Yield a condition, or instead of an AND, at any depth, the conditions that it connects."""
    match part:
        case s.Apply("and", parts):
            for inner in parts:
                yield from _flatten(inner)
        case _:
            yield part


def in_text(expr: Expr) -> s.Expression:
    """Translate an expression over columns ``x.field`` to the language.

    Raises Unjudged unless it has only columns, constants without a type, and operators of IN_TEXTS: a CASE or a cast has no
    translation here, though the language has both.
    """
    match expr:
        case Col(name=name):
            variable, _, field = name.partition(".")
            return s.EventField(variable, OWN.get(field, field))
        case Lit(value=value, type=None):
            return s.Literal(value)
        case Call(function=function) if function.identity in IN_TEXTS:
            return s.Apply(IN_TEXTS[function.identity], tuple(map(in_text, expr.children)))
    raise Unjudged(f"the expression {expr!r}")


__all__ = ["in_text", "parts_of_condition"]
