"""Draws of operators over one stream or two, of any type, that keep the names and types of columns where they can."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.aggregates.basic import FIRST
from streamq.aggregates.holistic import COLLECT
from streamq.choices import Anchor, JoinKind, LengthKind
from streamq.expressions import duration, start, when
from streamq.functions.dates import UNIX_MICROS
from streamq.functions.logic import COALESCE
from streamq.functions.numbers import ABS
from streamq.operators import (
    AlterLifetime,
    Chop,
    Clip,
    DistinctIds,
    Except,
    Explode,
    Join,
    JoinTable,
    LastRows,
    Scan,
    Select,
    ToSignal,
    Union,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.operators.lifetime_change import Length, Start
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Call, Cast, Col, Expr, Lit
from streamq.plan.node import Node
from streamq.plan.passes import infer, reads_end
from streamq.plan.schema import POINT, Schema
from streamq.testing.drawn_expressions import Draw, evaluable, exact, matched, numbers, predicates
from streamq.testing.payloads import fields_of_table
from streamq.time import TIMESTAMP
from streamq.user_code.udso import StatefulOperator, udso
from streamq.windows import Hopping, Rows
from tests.drawn.windows import hoppings

Pairs = tuple[tuple[str, str], ...]
"""Pairs of columns, one of each of two streams, that a join compares for equality."""


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


def draw_select(draw: Draw, plan: Node) -> Select:
    """Draw, for each column, an expression over it of the same type, or the column itself."""
    columns: list[tuple[str, Expr]] = []
    for f in plan.schema.fields:
        number = draw(numbers(plan.schema, f.name))
        columns.append((f.name, number if infer(number, plan.schema, "select") == f.type else Col(f.name)))
    return Select(plan, tuple(columns))


def draw_where(draw: Draw, plan: Node) -> Where:
    return Where(plan, draw(predicates(plan.schema, exact(plan))))


def draw_union(draw: Draw, one: Node, two: Node, on: Pairs) -> Union:
    return Union((one, two))


def draw_distinct_ids(draw: Draw, plan: Node) -> DistinctIds | None:
    """Draw an id column and ``within``; None unless all columns are exact and can be keys."""
    names, exact_names = plan.schema.names, exact(plan)
    if not exact_names >= set(names) <= set(matched(plan.schema, exact_names)):
        return None
    return DistinctIds(plan, (draw(st.sampled_from(names)),), draw(st.integers(0, 6)))


def draw_except(draw: Draw, one: Node, two: Node, on: Pairs) -> Except | None:
    common = matched(one.schema, exact(one) & exact(two))
    fits = set(common) == set(one.schema.names) and one.schema.fields == two.schema.fields
    return Except(one, two) if fits else None


def draw_last_rows(draw: Draw, plan: Node) -> LastRows | None:
    """Draw last rows of the stream, or by one column; None unless all columns are exact, as ties go by the whole payload."""
    among = matched(plan.schema, plan.schema.names)
    if set(among) != set(plan.schema.names) or not exact(plan) >= set(plan.schema.names):
        return None
    by, order = (tuple(draw(st.lists(st.sampled_from(among), max_size=1))) for _ in range(2))
    return LastRows(plan, by, Rows(draw(st.integers(1, 3)), draw(st.integers(1, 4)), order))


def draw_alter_lifetime(draw: Draw, plan: Node) -> AlterLifetime:
    """Draw a change of lifetimes: moved, stretched, shortened, or computed from the payload."""
    by = st.integers(-6, 6)
    names = sorted(exact(plan))
    ticks = Call(UNIX_MICROS, (start(),)) if plan.schema.axis == TIMESTAMP else start()
    starts = [
        Start(),
        Start(by=draw(by)),
        Start(Anchor.GIVEN, 0, ticks - ticks % 4),
        Start(Anchor.GIVEN, 0, ticks + 3),
        Start(Anchor.GIVEN, 0, when(ticks > 12, ticks + 3)),
    ]
    durations = [
        Length(),
        Length(LengthKind.SAME, draw(by)),
        Length(LengthKind.FIXED, 1),
        Length(LengthKind.FIXED, draw(st.integers(1, 9))),
    ]
    for name in names:
        # every event that has a value moves by exactly ``within``, the most that the promise allows
        within = draw(st.integers(0, 6))
        starts.append(Start(Anchor.GIVEN, 0, ticks - when(Col(name).is_not_null(), within).otherwise(0), within))
    for name in names:
        if isinstance(plan.schema.type_of(name), t.IntegerType | t.LongType):
            size = Cast(Call(COALESCE, (Call(ABS, (Col(name) % 8,)), Lit(0))), t.LongType())
            starts.append(Start(Anchor.GIVEN, 0, ticks - size, 7))
            durations.append(Length(LengthKind.GIVEN, 0, Cast(Col(name), t.LongType())))
    starts.append(Start(Anchor.RE))
    durations.append(Length(LengthKind.GIVEN, 0, duration() * 2))
    return AlterLifetime(plan, draw(st.sampled_from(starts)), draw(st.sampled_from(durations)))


def draw_chop(draw: Draw, plan: Node) -> Chop:
    return Chop(plan, draw(st.integers(1, 7)), draw(st.integers(-3, 3)))


def draw_clip(draw: Draw, one: Node, two: Node, on: Pairs) -> Clip:
    return Clip(one, two, on)


def draw_explode(draw: Draw, plan: Node) -> Explode:
    """Draw an explode of the values of a column that tumbling windows collect; other columns have their first value."""
    column = draw(st.sampled_from(plan.schema.names))
    functions = {name: COLLECT if name == column else FIRST for name in plan.schema.names}
    aggregates = tuple((name, Aggregate(function, (Col(name),))) for name, function in functions.items())
    size = draw(st.integers(2, 7))
    return Explode(WindowAggregate(plan, (), Hopping(size, size), aggregates), column)


def draw_to_signal(draw: Draw, plan: Node) -> ToSignal | None:
    """Draw a signal by one column or none, and by an order or none; None if no column is exact."""
    exact_names = exact(plan)
    if not exact_names:
        return None
    among = matched(plan.schema, exact_names)
    if not among:
        return ToSignal(plan, ())
    key = tuple(draw(st.lists(st.sampled_from(among), max_size=1)))
    order = tuple(draw(st.lists(st.sampled_from(among), max_size=2, unique=True))) if draw(st.booleans()) else ()
    return ToSignal(plan, key, order)


def draw_join(draw: Draw, one: Node, two: Node, on: Pairs) -> Join:
    how = draw(st.sampled_from(list(JoinKind)))
    both = draw(drawn_pairs(one, two, on))
    return Join(one, two, on, both.where, how, left_names=both.left_names, right_names=both.right_names)


def draw_windowed_join(draw: Draw, one: Node, two: Node, on: Pairs) -> WindowedJoin:
    both = draw(drawn_pairs(one, two, on))
    grid = draw(hoppings())
    return WindowedJoin(one, two, grid, on, both.where, left_names=both.left_names, right_names=both.right_names)


@st.composite
def looked_up(draw: Draw, plan: Node) -> Node:
    """Draw a look-up of column ``k`` in a static table of its type, inner or left, which adds columns ``name`` and ``size``.

    Returns the plan as it is unless ``k`` is an exact column that can be a key, or if columns would clash.
    """
    if "k" not in matched(plan.schema, exact(plan)) or {"name", "size"}.intersection(plan.schema.names):
        return plan
    name = plan.schema.type_of("k").simpleString()
    how = draw(st.sampled_from(["inner", "left"]))
    return JoinTable(
        plan, name, fields_of_table(name), on=(("k", "name"),), how=how, names=(("name", "name"), ("size", "size"))
    )


class ResettingSum:
    """A sum of values that is reduced beyond a limit; in turn, events have one row, two rows and none."""

    def __init__(self, limit: int = 40):
        self.limit = limit

    def initial(self) -> tuple[int, int]:
        return 0, 0

    def step(self, state: tuple[int, int], value: Any) -> tuple[tuple[int, int], list[int]]:
        """Return the state (number of events, sum) after an event, and its rows: none, one or two numbers."""
        count, total = state
        match value:
            case bool() | int():
                weight = value % 7
            case float() if math.isfinite(value):
                weight = int(value * 4) % 7
            case str() | bytes() | list() | dict():
                weight = len(value)
            case _:
                weight = 1
        # double the sum, so that it depends on the order of events
        total = 2 * total + weight
        total = total - self.limit if total > self.limit else total
        return (count + 1, total % self.limit), [total % self.limit, count % 7][: (1, 2, 0)[count % 3]]


RESETTING_SUM: StatefulOperator = udso("total bigint", name="resetting_sum")(ResettingSum)
"""The operator of drawn scans; it is in the repository, so that plans with it can be written as JSON."""


def draw_scan(draw: Draw, plan: Node) -> Node | None:
    """Draw a scan of the events as points, by a column or none, some with a filter; the input's columns are there again.

    Those that are not keys are the sums, cast to the column's type, or NULL.

    Returns None unless all columns are exact.
    """
    schema, exact_names = plan.schema, exact(plan)
    if not exact_names >= set(schema.names):
        # the whole payload orders events of equal starts, so it must be exact
        return None
    groupable = [name for name in matched(schema, exact_names) if name.lower() != "total"]
    keys = tuple(draw(st.lists(st.sampled_from(groupable), max_size=1))) if groupable else ()
    value = Col(draw(st.sampled_from(schema.names)))
    where = (
        draw(predicates(schema, exact_names).filter(lambda one: not reads_end(one)))
        if draw(st.sampled_from([False, False, True]))
        else None
    )
    points = plan if schema.shape == POINT else AlterLifetime(plan, Start(), Length(LengthKind.FIXED, 1))
    sums = Scan(points, keys, RESETTING_SUM, (value,), where)
    total, columns = Col("total"), []
    for field in schema.fields:
        cast: Expr = total if infer(total, sums.schema, "select") == field.type else Cast(total, field.type)
        # the oracle does not translate casts of numbers to instants
        is_instant = isinstance(field.type, t.TimestampType | t.DateType)
        other = cast if evaluable(cast, sums.schema) and not is_instant else Cast(Lit(None), field.type)
        columns.append((field.name, Col(field.name) if field.name in keys else other))
    return Select(sums, tuple(columns))


OVER_ONE: tuple[Callable[[Draw, Node], Node | None], ...] = (
    draw_alter_lifetime,
    draw_chop,
    draw_distinct_ids,
    draw_explode,
    draw_last_rows,
    draw_scan,
    draw_select,
    draw_to_signal,
    draw_where,
)
"""Operators over one stream; each returns None where it is not legal."""

OVER_TWO: tuple[Callable[[Draw, Node, Node, Pairs], Node | None], ...] = (
    draw_clip,
    draw_except,
    *[draw_join] * 3,
    *[draw_union] * 2,
    draw_windowed_join,
)
"""Operators over two streams of equal columns, matched by pairs of these, each as often as it is to be drawn."""
