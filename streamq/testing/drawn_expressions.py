"""Draws of expressions and aggregates over a stream, and the columns that may stand in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, singledispatch

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.aggregates import built_in
from streamq.aggregates.basic import COUNT
from streamq.errors import NeedsSpark, PlanError, TypeMismatch
from streamq.expressions import duration, end, start, when
from streamq.functions.logic import COALESCE, ISNAN, conjunction
from streamq.functions.numbers import ABS, DIVIDE
from streamq.operators import Join, Source, WindowAggregate, WindowedJoin
from streamq.plan.aggregate import Aggregate, AggregateFunction
from streamq.plan.expr import Call, Col, Expr, Lifetime, Lit, fold
from streamq.plan.node import Node
from streamq.plan.passes import columns
from streamq.plan.schema import Field, Schema, check_key
from streamq.run.batch.answers import local_history
from streamq.runtime.arrow.arrow_expr import check_in_process
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.sources.insert_only import Points
from streamq.testing.arrival import instant_at
from streamq.testing.intent import ANYTHING, Draw
from streamq.testing.payload_values import pool
from streamq.windows import Hopping


def exact(plan: Node) -> frozenset[str]:
    """Return the columns whose values, and whose sums, do not depend on how floats are rounded."""
    return fold(plan, exact_columns)


@singledispatch
def exact_columns(node: Node, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the exact columns of a node, given those of its inputs; those of the first input unless a room registers more."""
    return inputs[0]


exact_columns.register(Source, lambda node, inputs: frozenset(node.schema.names))


def is_exact(expr: Expr, among: frozenset[str]) -> bool:
    """True if an expression reads exact columns only and does not divide."""
    return columns(expr) <= among and not fold(expr, _divides)


def _divides(expr: Expr, parts: list[bool]) -> bool:
    return any(parts) or (isinstance(expr, Call) and expr.function == DIVIDE)


PLAIN_NUMBERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType)
"""The types of numbers but decimals."""


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
def predicates(draw: Draw, schema: Schema, among: frozenset[str]) -> Expr:
    """Draw a condition over the columns ``among`` and the lifetime, which NULL and NaN can meet."""
    parts = draw(st.lists(_comparisons(schema, among), min_size=1, max_size=2))
    predicate: Expr = conjunction(parts) if draw(st.booleans()) or len(parts) < 2 else parts[0] | parts[1]
    return ~predicate if draw(st.sampled_from([False, False, True])) else predicate


@st.composite
def _comparisons(draw: Draw, schema: Schema, among: frozenset[str]) -> Expr:
    """Draw a legal comparison of a column in ``among``, or of the lifetime, with a constant, with itself or with NULL."""
    at = draw(st.integers(-5, 20))
    instant = instant_at(at, schema.axis)
    comparisons: list[Expr] = [start() >= instant, start() < instant]
    comparisons += [end().is_null(), end() > instant, end() <= instant, duration() > 3]
    if draw(st.sampled_from([True, False, False])):
        return draw(st.sampled_from(comparisons))
    for name in sorted(among):
        column, kind = Col(name), schema.type_of(name)
        comparisons += [column.is_null(), column.is_not_null()]
        if isinstance(kind, PLAIN_NUMBERS):
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
        if isinstance(kind, t.FloatType | t.DoubleType):
            comparisons += [column > 1.25, column == float("nan"), Call(ISNAN, (column,)), column < float("inf")]
        if isinstance(kind, t.StringType):
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
    if isinstance(kind, t.ArrayType | t.MapType | t.StructType):
        return [column == column, column.eq_null_safe(column), column <= column]
    value = pool(kind, ANYTHING)[-1]
    return [column == value, column < value, column >= value, column.eq_null_safe(value), column <= column]


@st.composite
def numbers(draw: Draw, schema: Schema, name: str) -> Expr:
    """Draw a numeric column or an expression over it, exact if it is, such as 0 for events without an end.

    A decimal, and a column that is no number, is returned as it is.
    """
    column, kind = Col(name), schema.type_of(name)
    if not isinstance(kind, PLAIN_NUMBERS):
        return column
    zero = Lit(0.0 if isinstance(kind, t.FloatType | t.DoubleType) else 0)
    expressions: list[Expr] = [column] * 5
    expressions += [column + 1, column * 2, 3 - column, -column, when(column > 1, column).otherwise(zero)]
    expressions += [Call(COALESCE, (column, zero)), when(column.is_not_null(), column), Call(ABS, (column,))]
    expressions += [when(end().is_null(), zero).otherwise(column)] * 3
    return draw(st.sampled_from(expressions))


def lifetime_parts() -> st.SearchStrategy[Expr]:
    """Draw the start, the end or the duration of the lifetime."""
    return st.sampled_from([start(), end(), duration()])


# aggregates


@cache
def _takes(function: AggregateFunction, kind: t.DataType) -> bool:
    """True unless running an aggregate, with its first option, over one NULL of a type raises TypeMismatch or NeedsSpark.

    Any other error counts as legal, as it is a defect that a drawn case shall show.
    """
    source = Points("s", (Field("at", t.LongType()), Field("x", kind)), "at")
    values = (Col("x"),) * function.drawing.arguments
    try:
        tried = Aggregate(function, values, None, function.drawing.options[0])
        window = WindowAggregate(source, (), Hopping(1, 1), (("a", tried),))
        local_history(window, {"s": pa.table({"at": pa.array([0], pa.int64()), "x": pa.nulls(1, arrow_type(kind))})})
    except (TypeMismatch, NeedsSpark):
        return False
    except Exception:
        # another error is a defect, which a drawn case shall show
        return True
    return True


@st.composite
def aggregate(draw: Draw, schema: Schema, exact_columns: frozenset[str]) -> Aggregate:
    """Draw an aggregate, maybe filtered, over columns or a part of the lifetime that it can read; by its weight among all.

    It may have no argument if the function allows that; if there is nothing that it can read, it is a count instead. One that
    goes by the order of members is drawn only if all columns are exact.
    """
    is_ordered = exact_columns >= set(schema.names)
    functions = [f for f in built_in().values() if is_ordered or not f.ordered]
    function: AggregateFunction = draw(st.sampled_from([f for f in functions for _ in range(f.drawing.weight)]))
    drawing = function.drawing
    where = draw(predicates(schema, exact_columns)) if draw(st.sampled_from([False, False, True])) else None
    if drawing.optional and draw(st.sampled_from([True, True, True, False])):
        return Aggregate(function, (), where)
    lifetimes = [Lifetime(part) for part in drawing.lifetimes]
    if lifetimes and draw(st.sampled_from([False] * 3 + [True] * 2)):
        return Aggregate(function, (draw(st.sampled_from(lifetimes)),), where)
    among = [n for n in schema.names if not drawing.exact_arguments or n in exact_columns]
    choices: st.SearchStrategy[Expr] | None
    if drawing.whole_numbers:
        exactly: list[Expr] = [Col(n) for n in among if isinstance(schema.type_of(n), t.IntegerType | t.LongType)]
        exactly.append(duration())
        choices = st.sampled_from(exactly)
    else:
        among = [n for n in among if drawing.any_type or isinstance(schema.type_of(n), t.NumericType)]
        among = [n for n in among if _takes(function, schema.type_of(n))]
        choices = st.sampled_from(among).flatmap(lambda n: numbers(schema, n)) if among else None
    if choices is None:
        return Aggregate(COUNT, (), where)
    args = tuple(draw(choices) for _ in range(drawing.arguments))
    options = draw(st.sampled_from(drawing.options))
    more = draw(st.integers(0, drawing.more_arguments)) if drawing.more_arguments else 0
    return Aggregate(function, (*args, *(draw(choices) for _ in range(more))), where, options)


def exact_of_pairs(node: Join | WindowedJoin, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the exact columns of a join: those that are exact in the input they come from."""
    sides = zip((node.left_names, node.right_names), inputs, strict=True)
    exact_names = {to for names, side in sides for name, to in names if name in side}
    return frozenset(exact_names & set(node.schema.names))
