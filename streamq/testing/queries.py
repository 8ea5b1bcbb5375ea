"""Random queries over streams of one payload ``k, v``, as Hypothesis strategies: every operator, window and aggregate.

Floats have few quarters, but the values computed from them are rounded; a column is *exact* where they cannot be, and only
those are grouped by, ordered by, compared and joined. Needs ``hypothesis``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.errors import NeedsSpark, PlanError, TypeMismatch
from streamq.expressions import duration, end, start, when
from streamq.operators import (
    AlterLifetime,
    Chop,
    Clip,
    DistinctIds,
    Except,
    Join,
    JoinTable,
    Points,
    Select,
    Source,
    TopK,
    ToSignal,
    Union,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.operators.alter_lifetime import FIXED, GIVEN, RE, SAME, Length, Start
from streamq.operators.window_aggregate import IN_ORDER, TIME_SENSITIVE
from streamq.plan.expr import Aggregate, Call, Cast, Col, Expr, Lit
from streamq.plan.inference import infer
from streamq.plan.keys import check_key
from streamq.plan.node import Node, fold
from streamq.plan.passes import columns, conjunction
from streamq.plan.schema import Field, Schema
from streamq.plan.tree import fold as fold_expr
from streamq.run.query import local_history
from streamq.runtime.arrow_expr import check
from streamq.testing.intent import ANYTHING
from streamq.testing.oracle import arrow_type
from streamq.testing.payloads import odd, pool, twin
from streamq.testing.table import fields_of
from streamq.time import TIMESTAMP
from streamq.windows import (
    ALIGN,
    CLIPS,
    POINT_AT_END,
    Count,
    Hopping,
    Landmark,
    Rows,
    Session,
    Snapshot,
    Window,
)

Draw = Callable[[st.SearchStrategy[Any]], Any]

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


EXACT = ("count_distinct", "sum", "min", "max", "first", "last")
"""Aggregates whose results are as exact as what they read."""


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


def grids(most: int = 9) -> st.SearchStrategy[Hopping]:
    """Tumbling, overlapping and gapped grids, hops that divide the size or do not, offsets of either sign."""
    length = st.integers(1, most)
    tumbling = length.map(lambda n: Hopping(n, n))
    return st.one_of(tumbling, st.builds(Hopping, length, length, st.integers(-most, most)))


def exact(plan: Node) -> frozenset[str]:
    """The columns whose values do not depend on how floats are rounded, nor do their sums."""
    return fold(plan, _exact)


def _exact(node: Node, inputs: list[frozenset[str]]) -> frozenset[str]:
    match node:
        case Source():
            return frozenset(node.schema.names)
        case Select():
            return frozenset(n for n, e in node.columns if columns(e) <= inputs[0] and not fold_expr(e, _divides))
        case Union():
            return frozenset.intersection(*inputs)
        case Join() | WindowedJoin():
            sides = zip((node.left_names, node.right_names), inputs, strict=True)
            made = {to for names, side in sides for name, to in names if name in side}
            return frozenset(made & set(node.schema.names))
        case JoinTable():
            return inputs[0] | {to for _, to in node.names}
        case TopK():
            return frozenset(node.schema.names)
        case WindowAggregate():
            return frozenset(node.keys) | {n for n, a in node.aggregates if _exactly(a, inputs[0])}
    return inputs[0]


def _divides(expr: Expr, parts: list[bool]) -> bool:
    return any(parts) or (isinstance(expr, Call) and expr.name == "/")


def _exactly(found: Aggregate, among: frozenset[str]) -> bool:
    known = all(columns(a) <= among and not fold_expr(a, _divides) for a in found.args)
    return found.name == "count" or (found.name in EXACT and known)


def _is(kind: t.DataType, *kinds: type[t.DataType]) -> bool:
    return isinstance(kind, kinds)


def _plain_number(kind: t.DataType) -> bool:
    return _is(kind, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType)


def matched(schema: Schema, among: Iterable[str]) -> list[str]:
    """The columns that verbs match, group and order by."""
    return [name for name in sorted(among) if _matches(schema.type_of(name))]


def _matches(kind: t.DataType) -> bool:
    try:
        check_key(kind, "")
    except TypeMismatch:
        return False
    return True


def evaluable(expr: Expr, schema: Schema) -> bool:
    """Whether an expression is one, and needs no Spark."""
    try:
        check(expr, schema, "testing")
    except (PlanError, NeedsSpark):
        return False
    return True


@st.composite
def predicates(draw: Draw, schema: Schema, among: frozenset[str], reads_end: bool = True) -> Expr:
    """A condition over columns ``among`` and the lifetime, with NULLs and NaN in its way."""
    parts = draw(st.lists(_comparisons(schema, among, reads_end), min_size=1, max_size=2))
    made: Expr = conjunction(parts) if draw(st.booleans()) or len(parts) < 2 else parts[0] | parts[1]
    return ~made if draw(st.sampled_from([False, False, True])) else made


@st.composite
def _comparisons(draw: Draw, schema: Schema, among: frozenset[str], reads_end: bool) -> Expr:
    at = draw(st.integers(-5, 20))
    instant: Any = (
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=at) if schema.axis == TIMESTAMP else at
    )
    found: list[Expr] = [start() >= instant, start() < instant]
    if reads_end:
        found += [end().is_null(), end() > instant, end() <= instant, duration() > 3]
    if draw(st.sampled_from([True, False, False])):
        return draw(st.sampled_from(found))
    for name in sorted(among):
        column, kind = Col(name), schema.type_of(name)
        found += [column.is_null(), column.is_not_null()]
        if _plain_number(kind):
            found += [column > 1, column <= 2, column == 0, column != 0, column.isin(0, 1, 7), column < column * 2]
        else:
            found += _of_value(column, kind)
        if _is(kind, t.FloatType, t.DoubleType):
            found += [column > 1.25, column == float("nan"), Call("isnan", (column,)), column < float("inf")]
        if _is(kind, t.StringType):
            found += [column == "a", column != "b", column.isin("a", "c"), column > "a", column.eq_null_safe(None)]
    return draw(st.sampled_from([expr for expr in found if evaluable(expr, schema)]))


def _of_value(column: Col, kind: t.DataType) -> list[Expr]:
    """Comparisons of a column that is no plain number: with values that can be written, and with itself."""
    if _is(kind, t.ArrayType, t.MapType, t.StructType):
        return [column == column, column.eq_null_safe(column), column <= column]
    value = pool(kind, ANYTHING)[-1]
    return [column == value, column < value, column >= value, column.eq_null_safe(value), column <= column]


@st.composite
def numbers(draw: Draw, schema: Schema, name: str, reads_end: bool) -> Expr:
    """An expression over a numeric column, as exact as the column is."""
    column, kind = Col(name), schema.type_of(name)
    if not _plain_number(kind):
        return column
    zero = Lit(0.0 if _is(kind, t.FloatType, t.DoubleType) else 0)
    found: list[Expr] = [column] * 5
    found += [column + 1, column * 2, 3 - column, -column, when(column > 1, column).otherwise(zero)]
    found += [Call("coalesce", (column, zero)), when(column.is_not_null(), column), Call("abs", (column,))]
    if reads_end:
        found += [when(end().is_null(), zero).otherwise(column)] * 3
    return draw(st.sampled_from(found))


LIFETIMES: Mapping[str, tuple[Expr, ...]] = {
    **dict.fromkeys(("min", "max", "count", "first", "last", "collect"), (end(), end(), duration(), start())),
    "count_distinct": (end(), duration()),
    **dict.fromkeys(("sum", "avg"), (duration(),)),
}
"""What aggregates of each name read of their members' lifetimes."""


def lifetime_parts(reads_end: bool = True) -> st.SearchStrategy[Expr]:
    """What a column may say of a lifetime."""
    parts: list[Expr] = [start(), end(), duration()] if reads_end else [start()]
    return st.sampled_from(parts)


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
        known = exact(plan)
        match kind:
            case "where":
                plan = Where(plan, draw(predicates(plan.schema, known, reads_end)))
            case "select":
                chosen: list[tuple[str, Expr]] = []
                for f in plan.schema.fields:
                    made = draw(numbers(plan.schema, f.name, reads_end))
                    chosen.append((f.name, made if infer(made, plan.schema, "select") == f.type else Col(f.name)))
                plan = Select(plan, tuple(chosen))
            case "lifetime":
                plan = draw(_altered(plan, known, reads_end))
            case "signal" if known:
                among = matched(plan.schema, known)
                plan = ToSignal(plan, tuple(draw(st.lists(st.sampled_from(among), max_size=1)) if among else ()))
            case "chop":
                plan = Chop(plan, draw(st.integers(1, 7)), draw(st.integers(-3, 3)))
            case "ids" if known >= set(plan.schema.names) <= set(matched(plan.schema, known)):
                plan = DistinctIds(plan, (draw(st.sampled_from(plan.schema.names)),), draw(st.integers(0, 6)))
    return plan


@st.composite
def _altered(draw: Draw, plan: Node, known: frozenset[str], reads_end: bool) -> Node:
    """Lifetimes moved, stretched, cut, made of the payload."""
    by = st.integers(-6, 6)
    ticks = Call("unix_micros", (start(),)) if plan.schema.axis == TIMESTAMP else start()
    numbers = [n for n in sorted(known) if _is(plan.schema.type_of(n), t.IntegerType, t.LongType)]
    starts = [Start(), Start(by=draw(by)), Start(GIVEN, 0, ticks - ticks % 4), Start(GIVEN, 0, ticks + 3)]
    lengths = [Length(), Length(SAME, draw(by)), Length(FIXED, 1), Length(FIXED, draw(st.integers(1, 9)))]
    for name in sorted(known):
        # the promise is kept to the tick by every event that has a value
        within = draw(st.integers(0, 6))
        starts.append(Start(GIVEN, 0, ticks - when(Col(name).is_not_null(), within).otherwise(0), within))
    for name in numbers:
        size = Cast(Call("coalesce", (Call("abs", (Col(name) % 8,)), Lit(0))), t.LongType())
        starts.append(Start(GIVEN, 0, ticks - size, 7))
        lengths.append(Length(GIVEN, 0, Cast(Col(name), t.LongType())))
    if reads_end:
        starts.append(Start(RE))
        lengths.append(Length(GIVEN, 0, duration() * 2))
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
    how = draw(st.sampled_from(["inner", "left", "semi", "anti"]))
    bare = Join(one, two, keys, None, "inner", ours, theirs)
    where = draw(st.one_of(st.none(), _conditions(bare.both, exact(bare), suffix)))
    if kind == "windowed":
        return WindowedJoin(one, two, draw(grids()), keys, where, ours, theirs)
    return Join(one, two, keys, where, how, ours, theirs)


@st.composite
def _conditions(draw: Draw, schema: Schema, among: frozenset[str], suffix: str) -> Expr | None:
    """A condition on a pair: one column alone, or two against each other."""
    found: list[Expr] = []
    for name in sorted(among):
        kind = schema.type_of(name)
        found.append(Col(name).is_not_null())
        other = f"{name}{suffix}"
        if other in among and schema.type_of(other) == kind:
            found += [Col(name) == Col(other), Col(name) != Col(other), Col(name) < Col(other)]
            found += [Col(name).eq_null_safe(Col(other))]
    found = [expr for expr in found if evaluable(expr, schema)]
    return draw(st.sampled_from(found)) if found else None


@st.composite
def windows(draw: Draw, schema: Schema, known: frozenset[str]) -> tuple[Window, str, str]:
    """A window of any kind, with clip and stamp."""
    kinds = ["hopping", "hopping", "hopping", "snapshot", "snapshot", "count", "session", "landmark"]
    whole = known >= set(schema.names)
    ordered = matched(schema, schema.names)
    kind = draw(st.sampled_from([*kinds, "rows"] if whole else kinds))
    stamp, clip = draw(st.sampled_from([ALIGN, ALIGN, POINT_AT_END])), draw(st.sampled_from(CLIPS))
    match kind:
        case "hopping":
            return draw(grids()), clip, draw(st.sampled_from([ALIGN, ALIGN, ALIGN, stamp]))
        case "snapshot":
            return Snapshot(), clip, stamp
        case "count":
            by = draw(st.sampled_from(["start", "end"]))
            clip = draw(st.sampled_from(["none", "right"])) if by == "end" else clip
            return Count(draw(st.integers(1, 3)), by), clip, stamp
        case "session":
            return Session(draw(st.integers(2, 6))), clip, stamp
        case "landmark":
            period = draw(st.one_of(st.none(), st.integers(2, 15)))
            return Landmark(draw(st.integers(1, 6)), draw(st.integers(-5, 5)), period), clip, stamp
    order = draw(st.lists(st.sampled_from(ordered), max_size=1)) if ordered else []
    return Rows(draw(st.integers(1, 3)), draw(st.integers(1, 4)), tuple(order)), clip, stamp


AGGREGATES = (
    *("count(*)", "sum", "min", "max", "count", "avg", "var", "stddev", "var_pop", "stddev_pop"),
    *("count_distinct", "percentile", "first", "last", "collect", "covar", "covar_pop", "corr", "time_weighted_avg"),
)
"""What windows are asked for."""

PAIRED = ("covar", "covar_pop", "corr")
"""Aggregates of two columns, of which each is drawn from whole numbers: sums of products of others round apart."""

OFTEN = ("count(*)", "sum", "min", "max", "avg")
"""What windows are asked for most, alone and beside each other: basic windows have parts of all of them."""


@st.composite
def aggregated(draw: Draw, plan: Node, label: str = "a", reads_end: bool = True) -> Node:
    """A group_by (or none), a window and one to three aggregates called ``label0, ...``, or its greatest members."""
    schema, known = plan.schema, exact(plan)
    groupable = matched(schema, known)
    keys = tuple(draw(st.lists(st.sampled_from(groupable), unique=True, max_size=2))) if groupable else ()
    window, clip, stamp = draw(windows(schema, known))
    whole = known >= set(schema.names)
    sortable = [name for name in groupable if not isinstance(schema.type_of(name), t.ArrayType | t.StructType)]
    if sortable and whole and "rank" not in schema.names and draw(st.sampled_from([False] * 5 + [True])):
        by, broken = Col(draw(st.sampled_from(sortable))), len(groupable) == len(schema.names)
        ties = draw(st.sampled_from(["keep", "break"] if broken else ["keep"]))
        return TopK(plan, keys, window, draw(st.integers(1, 3)), by, draw(st.booleans()), ties, clip, stamp)
    names = draw(st.lists(st.sampled_from(_askable(schema, known)), min_size=1, max_size=3))
    drawn = [draw(aggregate(schema, known, name, reads_end)) for name in names]
    # equal ones are one
    aggregates = {f"{label}{i}": one for i, one in enumerate({a.digest: a for a in drawn}.values())}
    # where a result lives on its window its lifetime has the bounds
    bound = draw(st.sampled_from([None] * 4 + ["window_start", "window_end"])) if stamp == POINT_AT_END else None
    if bound is None:
        return WindowAggregate(plan, keys, window, tuple(aggregates.items()), clip, stamp)
    # as the verb has it: the bound is an aggregate with a name of its own, below a select
    own = f"__{bound}{len(aggregates)}"
    below = WindowAggregate(plan, keys, window, (*aggregates.items(), (own, Aggregate(bound, ()))), clip, stamp)
    outputs = [(name, Col(name)) for name in (*keys, *aggregates)]
    return Select(below, (*outputs, (f"{label}{len(aggregates)}", Col(own))))


def _askable(schema: Schema, known: frozenset[str]) -> Sequence[str]:
    names = [*OFTEN * 2, *AGGREGATES, *[TIME_SENSITIVE] * 2]
    return names if known >= set(schema.names) else [a for a in names if a not in IN_ORDER]


@cache
def _takes(aggregate: str, kind: t.DataType) -> bool:
    """Whether an aggregate of values of a type is one, and needs no Spark: tried over NULL."""
    source = Points("s", (Field("at", t.LongType()), Field("x", kind)), "at")
    options = (0.5,) if aggregate == "percentile" else ()
    try:
        made = WindowAggregate(source, (), Hopping(1, 1), (("a", Aggregate(aggregate, (Col("x"),), None, options)),))
        local_history(made, {"s": pa.table({"at": pa.array([0], pa.int64()), "x": pa.nulls(1, arrow_type(kind))})})
    except (TypeMismatch, NeedsSpark):
        return False
    except Exception:
        # it is no refusal: a case is to show it
        return True
    return True


@st.composite
def aggregate(
    draw: Draw, schema: Schema, known: frozenset[str], name: str | None = None, reads_end: bool = True
) -> Aggregate:
    """An aggregate of a name (None: of any) over one of the columns that it can read, maybe filtered; else a count."""
    name = draw(st.sampled_from(_askable(schema, known))) if name is None else name
    numeric = [n for n in schema.names if _is(schema.type_of(n), t.NumericType)]
    whole_numbers = [n for n in numeric if _is(schema.type_of(n), t.IntegerType, t.LongType)]
    among = numeric
    if name in ("count", "min", "max", "count_distinct", *IN_ORDER):
        among = [n for n in schema.names if name != "count_distinct" or n in known]
    among = [n for n in among if name in ("count(*)", *PAIRED) or _takes(name, schema.type_of(n))]
    filters = st.sampled_from([False, False, True])
    where = draw(predicates(schema, known, reads_end)) if draw(filters) else None
    if reads_end and name in LIFETIMES and draw(st.sampled_from([False] * 3 + [True] * 2)):
        return Aggregate(name, (draw(st.sampled_from(LIFETIMES[name])),), where)
    if name in PAIRED and (exactly := [*map(Col, whole_numbers), *([duration()] if reads_end else [])]):
        pairs = st.tuples(st.sampled_from(exactly), st.sampled_from(exactly))
        return Aggregate(name, draw(pairs), where)
    if name in ("count(*)", *PAIRED) or not among:
        return Aggregate("count", (), where)
    column = draw(st.sampled_from(among))
    options: tuple[float, ...] = ()
    if name == "percentile":
        options = (draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])),)
    return Aggregate(name, (draw(numbers(schema, column, reads_end)),), where, options)


@st.composite
def finished(draw: Draw, plan: Node, label: str = "b", reads_end: bool = True) -> Node:
    """Maybe a where over a window's result, or a select that adds a column."""
    if draw(st.booleans()):
        return plan
    if draw(st.booleans()):
        return Where(plan, draw(predicates(plan.schema, exact(plan), reads_end)))
    name = draw(st.sampled_from(plan.schema.names))
    kept: list[tuple[str, Expr]] = [(n, Col(n)) for n in plan.schema.names]
    over = draw(numbers(plan.schema, name, reads_end)) / 4 if _plain_number(plan.schema.type_of(name)) else Col(name)
    return Select(plan, (*kept, (label, draw(st.one_of(st.just(over), lifetime_parts(reads_end))))))


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


__all__ = [
    "AGGREGATES", "STATIC", "aggregate", "aggregated", "evaluable", "exact", "finished", "grids", "looked_up", "matched",
    "lifetime_parts", "numbers", "paired",
    "predicates", "queries", "spans", "static", "table_for", "windows",
]  # fmt: skip
