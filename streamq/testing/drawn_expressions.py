"""Hypothesis strategies for conditions and values over a stream's columns, and which of the columns are exact.

A column is *exact* if no value in it depends on how floats are rounded. Generated floats are multiples of a quarter, but values
computed from them may be rounded. Queries group by, order by, compare and join exact columns only. Needs ``hypothesis``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from functools import singledispatch
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.errors import NeedsSpark, PlanError, TypeMismatch
from streamq.expressions import duration, end, start, when
from streamq.functions.arithmetic import ABS, DIVIDE
from streamq.functions.choice import COALESCE, ISNAN
from streamq.functions.logic import conjunction
from streamq.operators import Source
from streamq.plan.expr import Call, Col, Expr, Lit
from streamq.plan.node import Node
from streamq.plan.passes import columns
from streamq.plan.schema import Schema, check_key
from streamq.plan.tree import fold
from streamq.runtime.arrow_expr import check_in_process
from streamq.testing.intent import ANYTHING
from streamq.testing.payload_values import pool
from streamq.time import TIMESTAMP

Draw = Callable[[st.SearchStrategy[Any]], Any]


def exact(plan: Node) -> frozenset[str]:
    """Return the columns whose values, and whose sums, do not depend on how floats are rounded."""
    return fold(plan, exact_columns)


@singledispatch
def exact_columns(node: Node, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the exact columns of a node, given those of its inputs; those of the first input unless a room registers more."""
    return inputs[0]


@exact_columns.register(Source)
def exact_of_source(node: Source, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset(node.schema.names)


def is_exact(expr: Expr, among: frozenset[str]) -> bool:
    """True if an expression reads exact columns only and does not divide."""
    return columns(expr) <= among and not fold(expr, _divides)


def _divides(expr: Expr, parts: list[bool]) -> bool:
    return any(parts) or (isinstance(expr, Call) and expr.function == DIVIDE)


def is_a(kind: t.DataType, *kinds: type[t.DataType]) -> bool:
    return isinstance(kind, kinds)


PLAIN_NUMBERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType)


def is_plain_number(kind: t.DataType) -> bool:
    return isinstance(kind, PLAIN_NUMBERS)


def matched(schema: Schema, among: Iterable[str]) -> list[str]:
    """Return the columns, sorted by name, whose types verbs can match, group and order by."""
    return [name for name in sorted(among) if _matches(schema.type_of(name))]


def _matches(kind: t.DataType) -> bool:
    """True if a column of a type can be a key."""
    try:
        check_key(kind, "")
    except TypeMismatch:
        return False
    return True


def evaluable(expr: Expr, schema: Schema) -> bool:
    """True if an expression is legal over the schema and can be evaluated without Spark."""
    try:
        check_in_process(expr, schema, "testing")
    except (PlanError, NeedsSpark):
        return False
    return True


@st.composite
def predicates(draw: Draw, schema: Schema, among: frozenset[str], reads_end: bool = True) -> Expr:
    """Draw a condition over the columns ``among`` and the lifetime, which NULL and NaN can meet.

    Unless ``reads_end``, it reads only the start of the lifetime.
    """
    parts = draw(st.lists(_comparisons(schema, among, reads_end), min_size=1, max_size=2))
    predicate: Expr = conjunction(parts) if draw(st.booleans()) or len(parts) < 2 else parts[0] | parts[1]
    return ~predicate if draw(st.sampled_from([False, False, True])) else predicate


@st.composite
def _comparisons(draw: Draw, schema: Schema, among: frozenset[str], reads_end: bool) -> Expr:
    """Draw a legal comparison of a column in ``among``, or of the lifetime, with a constant, with itself or with NULL."""
    at = draw(st.integers(-5, 20))
    instant: Any = (
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=at) if schema.axis == TIMESTAMP else at
    )
    comparisons: list[Expr] = [start() >= instant, start() < instant]
    if reads_end:
        comparisons += [end().is_null(), end() > instant, end() <= instant, duration() > 3]
    if draw(st.sampled_from([True, False, False])):
        return draw(st.sampled_from(comparisons))
    for name in sorted(among):
        column, kind = Col(name), schema.type_of(name)
        comparisons += [column.is_null(), column.is_not_null()]
        if is_plain_number(kind):
            comparisons += [
                column > 1,
                column <= 2,
                column == 0,
                column != 0,
                column.isin(0, 1, 7),
                column < column * 2,
            ]
        else:
            comparisons += _value_comparisons(column, kind)
        if is_a(kind, t.FloatType, t.DoubleType):
            comparisons += [column > 1.25, column == float("nan"), Call(ISNAN, (column,)), column < float("inf")]
        if is_a(kind, t.StringType):
            comparisons += [
                column == "a",
                column != "b",
                column.isin("a", "c"),
                column > "a",
                column.eq_null_safe(None),
            ]
    return draw(st.sampled_from([expr for expr in comparisons if evaluable(expr, schema)]))


def _value_comparisons(column: Col, kind: t.DataType) -> list[Expr]:
    """Return comparisons of a column that is not a plain number, with itself and, for simple types, with a constant."""
    if is_a(kind, t.ArrayType, t.MapType, t.StructType):
        return [column == column, column.eq_null_safe(column), column <= column]
    value = pool(kind, ANYTHING)[-1]
    return [column == value, column < value, column >= value, column.eq_null_safe(value), column <= column]


@st.composite
def numbers(draw: Draw, schema: Schema, name: str, reads_end: bool) -> Expr:
    """Draw a numeric column or an expression over it, exact if it is; ``reads_end``: also 0 for events without an end.

    A decimal, and a column that is no number, is returned as it is.
    """
    column, kind = Col(name), schema.type_of(name)
    if not is_plain_number(kind):
        return column
    zero = Lit(0.0 if is_a(kind, t.FloatType, t.DoubleType) else 0)
    expressions: list[Expr] = [column] * 5
    expressions += [column + 1, column * 2, 3 - column, -column, when(column > 1, column).otherwise(zero)]
    expressions += [Call(COALESCE, (column, zero)), when(column.is_not_null(), column), Call(ABS, (column,))]
    if reads_end:
        expressions += [when(end().is_null(), zero).otherwise(column)] * 3
    return draw(st.sampled_from(expressions))


def lifetime_parts(reads_end: bool = True) -> st.SearchStrategy[Expr]:
    """Draw the start, the end or the duration of the lifetime; only the start unless ``reads_end``."""
    parts: list[Expr] = [start(), end(), duration()] if reads_end else [start()]
    return st.sampled_from(parts)
