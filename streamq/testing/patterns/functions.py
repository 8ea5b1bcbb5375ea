"""Conditions of a pattern that are functions, as the conditions of a text that say the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamq.patterns import syntax as s
from streamq.plan.expr import Call, Col, Expr, Lit
from streamq.testing.patterns.conditions import Unjudged

IN_TEXTS: Mapping[str, str] = {
    "==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "+": "+", "-": "-", "*": "*",
    "and": "and", "or": "or", "not": "not", "isin": "in", "isnull": "is null", "negative": "negative",
}  # fmt: skip
"""What the language calls the operators of expressions."""

OWN = {"@": "@Vs", "@.root": "@root"}
"""What the rules call the columns that a variable has beside its payload."""


def parts_of_condition(condition: Expr) -> Iterator[s.Expression]:
    """Yield the conditions that AND connects, each of which is checked where its variables are decided."""
    match in_text(condition):
        case s.Apply("and", parts):
            for part in parts:
                yield from _flatten(part)
        case one:
            yield one


def _flatten(part: s.Expression) -> Iterator[s.Expression]:
    match part:
        case s.Apply("and", parts):
            for inner in parts:
                yield from _flatten(inner)
        case _:
            yield part


def in_text(expr: Expr) -> s.Expression:
    """An expression over columns ``x.field`` as the language has it; raises Unjudged for what it has not."""
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
