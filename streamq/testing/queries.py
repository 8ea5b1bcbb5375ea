"""Random queries over streams of one payload ``k, v``, as Hypothesis strategies: every operator, window and aggregate.

Needs ``hypothesis``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.choices import Anchor, JoinKind, LengthKind
from streamq.expressions import duration, start, when
from streamq.functions.arithmetic import ABS
from streamq.functions.choice import COALESCE
from streamq.functions.dates import UNIX_MICROS
from streamq.operators import (
    AlterLifetime,
    Chop,
    Clip,
    DistinctIds,
    Except,
    Join,
    JoinTable,
    Select,
    ToSignal,
    Union,
    Where,
    WindowedJoin,
)
from streamq.operators.lifetime_change import Length, Start
from streamq.plan.expr import Call, Cast, Col, Expr, Lit
from streamq.plan.inference import infer
from streamq.plan.node import Node
from streamq.plan.schema import Field, Schema
from streamq.testing.drawn_expressions import (
    Draw,
    evaluable,
    exact,
    is_a,
    is_plain_number,
    lifetime_parts,
    matched,
    numbers,
    predicates,
)
from streamq.testing.drawn_windows import aggregated, grids
from streamq.testing.intent import ANYTHING
from streamq.testing.oracle import arrow_type
from streamq.testing.payload_values import odd, pool, twin
from streamq.testing.table import fields_of
from streamq.time import TIMESTAMP

STATIC: dict[str, tuple[tuple[Field, ...], tuple[tuple[Any, int | None], ...]]] = {
    "names": (
        (Field("name", t.StringType()), Field("size", t.LongType())),
        (("a", 1), ("a", 2), ("b", 3), (None, 4), ("z", 5)),
    ),
    "numbers": (
        (Field("name", t.IntegerType()), Field("size", t.LongType())),
        ((0, 1), (1, 2), (1, None), (None, 4)),
    ),
}
"""Static tables by name: their columns and rows; there is one of every other type too, called as the type."""


def static(name: str) -> pa.Table:
    """A static table."""
    columns, rows = STATIC[name] if name in STATIC else _lookup(fields_of(f"name {name}")[0].type)
    arrays = [pa.array([row[i] for row in rows], arrow_type(f.type)) for i, f in enumerate(columns)]
    return pa.table(arrays, names=[f.name for f in columns])


def table_for(kind: t.DataType) -> str:
    """The name of the static table whose first column is of a type."""
    names = [name for name, (columns, _) in STATIC.items() if columns[0].type == kind]
    return names[0] if names else kind.simpleString()


def _lookup(kind: t.DataType) -> tuple[tuple[Field, ...], tuple[tuple[Any, int | None], ...]]:
    """Some values of a type, in the bits of others that they equal, some of them twice or odd, and NULL."""
    values = pool(kind, ANYTHING)
    chosen = [twin(values[0]), *values[:2], None, *values[-2:], *odd(kind, ANYTHING)[:2]]
    return (Field("name", kind), Field("size", t.LongType())), tuple((v, i or None) for i, v in enumerate(chosen))


@st.composite
def spans(draw: Draw, plan: Node, reads_end: bool = True, most: int = 2) -> Node:
    """Up to ``most`` (two) operators over one stream that keep names and types."""
    kinds = [
        (),
        ("where",),
        ("select",),
        ("select", "where"),
        ("where", "select"),
        ("lifetime",),
        ("lifetime", "where"),
    ]
    kinds += [("where", "lifetime"), ("signal",), ("chop",), ("ids",), ("lifetime", "lifetime")]
    for kind in draw(st.sampled_from(kinds if most > 1 else [k for k in kinds if len(k) == 1])):
        exact_columns = exact(plan)
        match kind:
            case "where":
                plan = Where(plan, draw(predicates(plan.schema, exact_columns, reads_end)))
            case "select":
                chosen: list[tuple[str, Expr]] = []
                for f in plan.schema.fields:
                    number = draw(numbers(plan.schema, f.name, reads_end))
                    chosen.append((f.name, number if infer(number, plan.schema, "select") == f.type else Col(f.name)))
                plan = Select(plan, tuple(chosen))
            case "lifetime":
                plan = draw(_altered(plan, exact_columns, reads_end))
            case "signal" if exact_columns:
                among = matched(plan.schema, exact_columns)
                plan = ToSignal(plan, tuple(draw(st.lists(st.sampled_from(among), max_size=1)) if among else ()))
            case "chop":
                plan = Chop(plan, draw(st.integers(1, 7)), draw(st.integers(-3, 3)))
            case "ids" if exact_columns >= set(plan.schema.names) <= set(matched(plan.schema, exact_columns)):
                plan = DistinctIds(plan, (draw(st.sampled_from(plan.schema.names)),), draw(st.integers(0, 6)))
    return plan


@st.composite
def _altered(draw: Draw, plan: Node, exact_columns: frozenset[str], reads_end: bool) -> Node:
    """Lifetimes moved, stretched, cut, made of the payload."""
    by = st.integers(-6, 6)
    ticks = Call(UNIX_MICROS, (start(),)) if plan.schema.axis == TIMESTAMP else start()
    numbers = [n for n in sorted(exact_columns) if is_a(plan.schema.type_of(n), t.IntegerType, t.LongType)]
    starts = [
        Start(),
        Start(by=draw(by)),
        Start(Anchor.GIVEN, 0, ticks - ticks % 4),
        Start(Anchor.GIVEN, 0, ticks + 3),
    ]
    lengths = [
        Length(),
        Length(LengthKind.SAME, draw(by)),
        Length(LengthKind.FIXED, 1),
        Length(LengthKind.FIXED, draw(st.integers(1, 9))),
    ]
    for name in sorted(exact_columns):
        # the promise is kept to the tick by every event that has a value
        within = draw(st.integers(0, 6))
        starts.append(Start(Anchor.GIVEN, 0, ticks - when(Col(name).is_not_null(), within).otherwise(0), within))
    for name in numbers:
        size = Cast(Call(COALESCE, (Call(ABS, (Col(name) % 8,)), Lit(0))), t.LongType())
        starts.append(Start(Anchor.GIVEN, 0, ticks - size, 7))
        lengths.append(Length(LengthKind.GIVEN, 0, Cast(Col(name), t.LongType())))
    if reads_end:
        starts.append(Start(Anchor.RE))
        lengths.append(Length(LengthKind.GIVEN, 0, duration() * 2))
    return AlterLifetime(plan, draw(st.sampled_from(starts)), draw(st.sampled_from(lengths)))


@st.composite
def paired(draw: Draw, one: Node, two: Node) -> Node:
    """Two streams of equal columns as one: joins of every kind, differences, cuts."""
    names = one.schema.names
    left, right = exact(one), exact(two)
    common = matched(one.schema, left & right)
    kind = draw(st.sampled_from(["union", "union", "join", "join", "join", "except", "clip", "windowed"]))
    keys = tuple((n, n) for n in draw(st.lists(st.sampled_from(common), max_size=1))) if common else ()
    if kind == "clip":
        return Clip(one, two, keys)
    if kind == "except" and set(common) == set(names) and one.schema.fields == two.schema.fields:
        return Except(one, two)
    if kind not in ("join", "windowed"):
        return Union((one, two))
    shared = {a for a, _ in keys}
    ours = tuple((n, n) for n in names)
    suffix = "_r"
    while any(f"{n}{suffix}" in names for n in names):
        suffix += "r"
    theirs = tuple((n, f"{n}{suffix}") for n in names if n not in shared)
    how = draw(st.sampled_from(list(JoinKind)))
    bare = Join(one, two, keys, None, JoinKind.INNER, ours, theirs)
    where = draw(st.one_of(st.none(), _conditions(bare.both, exact(bare), suffix)))
    if kind == "windowed":
        return WindowedJoin(one, two, draw(grids()), keys, where, ours, theirs)
    return Join(one, two, keys, where, how, ours, theirs)


@st.composite
def _conditions(draw: Draw, schema: Schema, among: frozenset[str], suffix: str) -> Expr | None:
    """A condition on a pair: one column alone, or two against each other."""
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


@st.composite
def finished(draw: Draw, plan: Node, label: str = "b", reads_end: bool = True) -> Node:
    """Maybe a where over a window's result, or a select that adds a column."""
    if draw(st.booleans()):
        return plan
    if draw(st.booleans()):
        return Where(plan, draw(predicates(plan.schema, exact(plan), reads_end)))
    name = draw(st.sampled_from(plan.schema.names))
    columns: list[tuple[str, Expr]] = [(n, Col(n)) for n in plan.schema.names]
    over = draw(numbers(plan.schema, name, reads_end)) / 4 if is_plain_number(plan.schema.type_of(name)) else Col(name)
    return Select(plan, (*columns, (label, draw(st.one_of(st.just(over), lifetime_parts(reads_end))))))


@st.composite
def queries(draw: Draw, inputs: Sequence[Node], depth: int = 2, reads_end: bool = True) -> Node:
    """A plan over inputs of one payload ``k, v``: operators over one and two streams, up to ``depth`` windows over one another.

    ``reads_end``: whether expressions may read ends of lifetimes.
    """
    parts = [draw(spans(plan, reads_end)) for plan in inputs]
    if draw(st.sampled_from([False, False, True])):
        parts.append(draw(spans(inputs[0], reads_end)))
    query = parts[0]
    for other in parts[1:]:
        query = draw(paired(query, other)) if query.schema.names == other.schema.names else query
    if draw(st.sampled_from([False] * 5 + [True])):
        query = draw(looked_up(query))
    for level in range(draw(st.sampled_from([n for n in (0, 1, 1, 2, 2) if n <= depth]))):
        query = draw(finished(draw(aggregated(query, f"a{level}", reads_end)), f"b{level}", reads_end))
    return query


@st.composite
def looked_up(draw: Draw, plan: Node) -> Node:
    """Column ``k`` looked up in a static table, if it can be."""
    if "k" not in matched(plan.schema, exact(plan)) or "size" in plan.schema.names:
        return plan
    name = table_for(plan.schema.type_of("k"))
    fields = STATIC[name][0] if name in STATIC else _lookup(plan.schema.type_of("k"))[0]
    how = draw(st.sampled_from(["inner", "left"]))
    return JoinTable(plan, name, fields, (("k", "name"),), how, (("name", "name"), ("size", "size")))


__all__ = ["STATIC", "finished", "looked_up", "paired", "queries", "spans", "static", "table_for"]
