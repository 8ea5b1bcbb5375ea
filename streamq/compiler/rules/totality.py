"""Totality: decides if an expression may raise an error on some row, for then rules must not evaluate it on more rows.

Errors are overflow, division by zero, failing casts and the like.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.plan.expr import Alias, Call, Case, Cast, Col, Expr, Lifetime, Lit
from streamq.plan.passes import expression_nodes, operands_of, types
from streamq.plan.schema import Schema

_WIDENING: list[type[DataType]] = [t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType]


_answers: ContextVar[dict[tuple[str, str], bool] | None] = ContextVar("answers", default=None)
"""The answers of ``can_fail`` so far, by the digests of expression and schema; None where they are not kept."""


@contextmanager
def answers_kept() -> Iterator[None]:
    """Keep the answers of ``can_fail``: a filter that goes down asks again at each operator."""
    token = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(token)


def can_fail(expr: Expr, schema: Schema) -> bool:
    """Return True if, by Spark's ANSI rules, an expression may raise an error on some row of a schema, or it is not known."""
    answers = _answers.get()
    asked = expr.digest, schema.digest
    if answers is not None and asked in answers:
        return answers[asked]
    kinds = types(expr, schema, "rewrite")
    answer = not all(_is_total(n, kinds) for n in expression_nodes(expr))
    if answers is not None:
        answers[asked] = answer
    return answer


def _is_total(node: Expr, kinds: dict[str, DataType | None]) -> bool:
    """Return True if a node itself never raises an error; ``kinds``: the types of nodes, by digest."""
    kind = kinds[node.digest]
    match node:
        case Col() | Lifetime() | Alias():
            return True
        case Lit(type=to):
            return to is None or kind == to
        case Case():
            return kind is not None
        case Cast(arg=arg, type=to):
            return _widens(kinds[arg.digest], to)
        case Call():
            operands = operands_of(node, [kinds[c.digest] for c in node.children], any_literal=True)
            return node.function.is_total(operands, kind)
    return False


def _widens(kind: DataType | None, to: DataType) -> bool:
    """Return True if a cast from ``kind`` to another type surely never fails; False for None, a type that is not known."""
    if kind is None:
        return False
    if type(kind) in _WIDENING and type(to) in _WIDENING:
        return _WIDENING.index(type(kind)) <= _WIDENING.index(type(to))
    return (
        kind == to or isinstance(kind, t.NullType) or (isinstance(to, t.StringType) and isinstance(kind, t.AtomicType))
    )
