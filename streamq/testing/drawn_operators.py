"""Registries of the operators that are drawn over one stream or two, and draws of their expressions and pairs of columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, TypeVar

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.choices import JoinKind
from streamq.errors import NeedsSpark, PlanError, TypeMismatch
from streamq.expressions import duration, end, start, when
from streamq.functions.arithmetic import ABS, DIVIDE
from streamq.functions.choice import COALESCE, ISNAN
from streamq.functions.logic import conjunction
from streamq.operators import Join, Source, WindowedJoin
from streamq.plan.expr import Call, Col, Expr, Lit
from streamq.plan.node import Node
from streamq.plan.passes import columns
from streamq.plan.schema import Schema, check_key
from streamq.plan.tree import fold
from streamq.runtime.arrow.arrow_expr import check_in_process
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


Pairs = tuple[tuple[str, str], ...]
"""Pairs of columns, one of each of two streams, that a join compares for equality."""

DrawnOverOne = Callable[[Draw, Node, bool], Node | None]
"""``(draw, input, reads_end)``: draw an operator over ``input`` that has the same column names and types.

``reads_end``: expressions may read ends. Returns None if the operator is not legal over the input.
"""

DrawnOverTwo = Callable[[Draw, Node, Node, Pairs], Node | None]
"""``(draw, left, right, on)``: draw an operator over two streams of equal columns, matched by the columns ``on``.

Returns None if the operator is not legal over these inputs.
"""

One = TypeVar("One", bound=DrawnOverOne)
Two = TypeVar("Two", bound=DrawnOverTwo)

OVER_ONE: dict[str, DrawnOverOne] = {}
"""Operators over one stream, by name."""

OVER_TWO: list[DrawnOverTwo] = []
"""Operators over two streams; each is listed as often as it is to be drawn."""


def over_one(drawing: One) -> One:
    """Register the function that draws a room's operator over one stream."""
    OVER_ONE[drawing.__name__.removeprefix("draw_")] = drawing
    return drawing


def over_two(weight: int = 1) -> Callable[[Two], Two]:
    """Register the function that draws a room's operator over two streams, ``weight`` times as often as others."""

    def register(drawing: Two) -> Two:
        OVER_TWO.extend([drawing] * weight)
        return drawing

    return register


@dataclass(frozen=True)
class PairOfEvents:
    """The columns of both events, as (input name, output name), and the condition on the pair, if any."""

    left_names: Pairs
    right_names: Pairs
    where: Expr | None


@st.composite
def drawn_pairs(draw: Draw, one: Node, two: Node, on: Pairs) -> PairOfEvents:
    """Draw names and a condition for pairs of two streams of equal columns; columns ``on`` come from the first stream only."""
    names, shared = one.schema.names, {a for a, _ in on}
    suffix = "_r"
    while any(f"{n}{suffix}" in names for n in names):
        suffix += "r"
    ours = tuple((n, n) for n in names)
    theirs = tuple((n, f"{n}{suffix}") for n in names if n not in shared)
    bare = Join(one, two, on, where=None, how=JoinKind.INNER, left_names=ours, right_names=theirs)
    where = draw(st.one_of(st.none(), _conditions(bare.both, exact(bare), suffix)))
    return PairOfEvents(ours, theirs, where)


@st.composite
def _conditions(draw: Draw, schema: Schema, among: frozenset[str], suffix: str) -> Expr | None:
    """Draw a condition on one column of a pair, or on the same column of both events; None if none is legal.

    The second event's columns are named with ``suffix``.
    """
    conditions: list[Expr] = []
    for name in sorted(among):
        kind = schema.type_of(name)
        conditions.append(Col(name).is_not_null())
        other = f"{name}{suffix}"
        if other in among and schema.type_of(other) == kind:
            conditions += [Col(name) == Col(other), Col(name) != Col(other), Col(name) < Col(other)]
            conditions += [Col(name).eq_null_safe(Col(other))]
    conditions = [expr for expr in conditions if evaluable(expr, schema)]
    return draw(st.sampled_from(conditions)) if conditions else None


def exact_of_pairs(node: Join | WindowedJoin, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the exact columns of a join: those that are exact in the input they come from."""
    sides = zip((node.left_names, node.right_names), inputs, strict=True)
    exact_names = {to for names, side in sides for name, to in names if name in side}
    return frozenset(exact_names & set(node.schema.names))
