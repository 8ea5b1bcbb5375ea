"""Random queries over streams of one payload ``k, v``, as Hypothesis strategies: every operator, window and aggregate.

Floats have few quarters, but the values computed from them are rounded; a column is *exact* where they cannot be, and only
those are grouped by, ordered by, compared and joined. Needs ``hypothesis``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.compiler.operators import (
    AlterLifetime,
    Chop,
    Clip,
    DistinctIds,
    Except,
    Join,
    JoinTable,
    Select,
    TopK,
    ToSignal,
    Union,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.compiler.operators.alter_lifetime import FIXED, GIVEN, RE, SAME, Length, Start
from streamq.compiler.operators.window_aggregate import IN_ORDER
from streamq.compiler.plan import Node
from streamq.expr import Aggregate, Call, Cast, Col, Expr, Lit, as_expr, conjunction, duration, end, start, when
from streamq.schema import Field, Schema, infer
from streamq.testing.oracle import arrow_type
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
"""Static tables by name: their columns and rows."""


def static(name: str) -> pa.Table:
    """A static table."""
    columns, rows = STATIC[name]
    arrays = [pa.array([row[i] for row in rows], arrow_type(f.type)) for i, f in enumerate(columns)]
    return pa.table(arrays, names=[f.name for f in columns])


def grids(most: int = 9) -> st.SearchStrategy[Hopping]:
    """Tumbling, overlapping and gapped grids, hops that divide the size or do not, offsets of either sign."""
    length = st.integers(1, most)
    tumbling = length.map(lambda n: Hopping(n, n))
    return st.one_of(tumbling, st.builds(Hopping, length, length, st.integers(-most, most)))


@dataclass(frozen=True)
class _Query:
    """A plan and those of its columns whose values do not depend on how floats are rounded."""

    plan: Node
    exact: frozenset[str]

    @property
    def schema(self) -> Schema:
        return self.plan.schema


def _is(kind: t.DataType, *kinds: type[t.DataType]) -> bool:
    return isinstance(kind, kinds)


def _plain_number(kind: t.DataType) -> bool:
    return _is(kind, t.IntegerType, t.LongType, t.DoubleType)


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
        found += [end().is_null(), end() > instant, duration() > 3]
    for name in sorted(among):
        column, kind = Col(name), schema.type_of(name)
        found += [column.is_null(), column.is_not_null()]
        if _plain_number(kind):
            found += [column > 1, column <= 2, column == 0, column != 0, column.isin(0, 1, 7), column < column * 2]
        if _is(kind, t.DoubleType):
            found += [column > 1.25, column == float("nan"), Call("isnan", (column,)), column < float("inf")]
        if _is(kind, t.StringType):
            found += [column == "a", column != "b", column.isin("a", "c"), column > "a", column.eq_null_safe(None)]
    return draw(st.sampled_from(found))


@st.composite
def _numbers(draw: Draw, schema: Schema, name: str, reads_end: bool) -> Expr:
    """An expression over a numeric column, as exact as the column is."""
    column, kind = Col(name), schema.type_of(name)
    if not _plain_number(kind):
        return column
    zero = Lit(0.0 if _is(kind, t.DoubleType) else 0)
    found = [column, column, column + 1, column * 2, 3 - column, -column, when(column > 1, column).otherwise(zero)]
    found += [Call("coalesce", (column, zero)), when(column.is_not_null(), column), Call("abs", (column,))]
    if reads_end:
        found.append(when(end().is_null(), zero).otherwise(column))
    return draw(st.sampled_from(found))


@st.composite
def _spans(draw: Draw, query: _Query, reads_end: bool) -> _Query:
    """Up to two operators over one stream that keep names and types."""
    plan = query.plan
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
    for kind in draw(st.sampled_from(kinds)):
        exact = query.exact >= set(plan.schema.names)
        match kind:
            case "where":
                plan = Where(plan, draw(predicates(plan.schema, query.exact, reads_end)))
            case "select":
                columns: list[tuple[str, Expr]] = []
                for f in plan.schema.fields:
                    made = draw(_numbers(plan.schema, f.name, reads_end))
                    columns.append((f.name, made if infer(made, plan.schema, "select") == f.type else Col(f.name)))
                plan = Select(plan, tuple(columns))
            case "lifetime":
                plan = draw(_altered(plan, query.exact, reads_end))
            case "signal" if query.exact:
                plan = ToSignal(plan, tuple(draw(st.lists(st.sampled_from(sorted(query.exact)), max_size=1))))
            case "chop":
                plan = Chop(plan, draw(st.integers(1, 7)), draw(st.integers(-3, 3)))
            case "ids" if exact:
                plan = DistinctIds(plan, (draw(st.sampled_from(plan.schema.names)),), draw(st.integers(0, 6)))
    return _Query(plan, query.exact)


@st.composite
def _altered(draw: Draw, plan: Node, exact: frozenset[str], reads_end: bool) -> Node:
    """Lifetimes moved, stretched, cut, made of the payload."""
    by = st.integers(-6, 6)
    ticks = Call("unix_micros", (start(),)) if plan.schema.axis == TIMESTAMP else start()
    numbers = [n for n in sorted(exact) if _is(plan.schema.type_of(n), t.IntegerType, t.LongType)]
    starts = [Start(), Start(by=draw(by)), Start(GIVEN, 0, ticks - ticks % 4), Start(GIVEN, 0, ticks + 3)]
    lengths = [Length(), Length(SAME, draw(by)), Length(FIXED, 1), Length(FIXED, draw(st.integers(1, 9)))]
    for name in numbers:
        size = Cast(Call("coalesce", (Call("abs", (Col(name) % 8,)), Lit(0))), t.LongType())
        starts.append(Start(GIVEN, 0, ticks - size, 8))
        lengths.append(Length(GIVEN, 0, Cast(Col(name), t.LongType())))
    if reads_end:
        starts.append(Start(RE))
        lengths.append(Length(GIVEN, 0, duration() * 2))
    return AlterLifetime(plan, draw(st.sampled_from(starts)), draw(st.sampled_from(lengths)))


@st.composite
def _paired(draw: Draw, left: _Query, right: _Query) -> _Query:
    """Two streams of equal columns as one: joins of every kind, differences, cuts."""
    one, two = left.plan, right.plan
    names = one.schema.names
    exact = sorted(left.exact & right.exact)
    kind = draw(st.sampled_from(["union", "union", "join", "join", "join", "except", "clip", "windowed"]))
    keys = tuple((n, n) for n in draw(st.lists(st.sampled_from(exact), max_size=1))) if exact else ()
    if kind == "clip":
        return _Query(Clip(one, two, keys), left.exact)
    if kind == "except" and len(exact) == len(names) and one.schema.fields == two.schema.fields:
        return _Query(Except(one, two), left.exact)
    if kind not in ("join", "windowed"):
        return _Query(Union((one, two)), frozenset(exact))
    shared = {a for a, _ in keys}
    ours = tuple((n, n) for n in names)
    theirs = tuple((n, f"{n}_r") for n in names if n not in shared)
    made_exact = left.exact | {f"{n}_r" for n in right.exact if n not in shared}
    how = draw(st.sampled_from(["inner", "left", "semi", "anti"]))
    bare = Join(one, two, keys, None, "inner", ours, theirs)
    where = draw(st.one_of(st.none(), _conditions(bare.both, made_exact)))
    if kind == "windowed":
        return _Query(WindowedJoin(one, two, draw(grids()), keys, where, ours, theirs), made_exact)
    made = Join(one, two, keys, where, how, ours, theirs)
    return _Query(made, made_exact & set(made.schema.names))


@st.composite
def _conditions(draw: Draw, schema: Schema, among: frozenset[str]) -> Expr | None:
    """A condition on a pair: one column alone, or two against each other."""
    found: list[Expr] = []
    for name in sorted(among):
        kind = schema.type_of(name)
        found.append(Col(name).is_not_null())
        other = f"{name}_r"
        if other in among and schema.type_of(other) == kind:
            found += [Col(name) == Col(other), Col(name) != Col(other), Col(name) < Col(other)]
    return draw(st.sampled_from(found)) if found else None


@st.composite
def windows(draw: Draw, schema: Schema, exact: frozenset[str]) -> tuple[Window, str, str]:
    """A window of any kind, with clip and stamp."""
    kinds = ["hopping", "hopping", "hopping", "snapshot", "snapshot", "count", "session", "landmark"]
    whole = exact >= set(schema.names)
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
    order = draw(st.lists(st.sampled_from(schema.names), max_size=1))
    return Rows(draw(st.integers(1, 3)), draw(st.integers(1, 4)), tuple(order)), clip, stamp


AGGREGATES = (
    *("count(*)", "sum", "min", "max", "count", "avg", "var", "stddev", "var_pop", "stddev_pop"),
    *("count_distinct", "percentile", "first", "last", "collect", "covar", "covar_pop", "corr", "time_weighted_avg"),
)
"""What windows are asked for."""


@st.composite
def _aggregated(draw: Draw, query: _Query, depth: int, reads_end: bool) -> _Query:
    """A group_by (or none), a window and one to three aggregates, or its greatest members."""
    schema = query.schema
    groupable = sorted(n for n in query.exact if not _is(schema.type_of(n), t.DecimalType, t.ArrayType))
    keys = tuple(draw(st.lists(st.sampled_from(groupable), unique=True, max_size=2))) if groupable else ()
    window, clip, stamp = draw(windows(schema, query.exact))
    whole = query.exact >= set(schema.names)
    if groupable and whole and "rank" not in schema.names and draw(st.sampled_from([False] * 5 + [True])):
        by, ties = Col(draw(st.sampled_from(groupable))), draw(st.sampled_from(["keep", "break"]))
        top = TopK(query.plan, keys, window, draw(st.integers(1, 3)), by, draw(st.booleans()), ties, clip, stamp)
        return _Query(top, frozenset(top.schema.names))
    numeric = [n for n in schema.names if _is(schema.type_of(n), t.NumericType)]
    whole_numbers = [n for n in numeric if _is(schema.type_of(n), t.IntegerType, t.LongType)]
    scalar = [n for n in schema.names if not _is(schema.type_of(n), t.ArrayType)]
    made: dict[str, Aggregate] = {}
    exact = set(keys)
    wanted = AGGREGATES if whole and len(scalar) == len(schema.names) else [a for a in AGGREGATES if a not in IN_ORDER]
    for i, name in enumerate(draw(st.lists(st.sampled_from(wanted), min_size=1, max_size=3))):
        own = f"a{depth}{i}"
        among = numeric
        if name in ("count", "min", "max", "count_distinct", *IN_ORDER):
            among = [n for n in scalar if name != "count_distinct" or n in query.exact]
        elif name in ("covar", "covar_pop", "corr"):
            among = whole_numbers
        filters = st.sampled_from([False, False, True])
        where = draw(predicates(schema, query.exact, reads_end)) if draw(filters) else None
        if name == "count(*)" or not among:
            made[own] = Aggregate("count", (), where)
            exact.add(own)
            continue
        column = draw(st.sampled_from(among))
        args: tuple[Expr, ...] = (draw(_numbers(schema, column, reads_end)),)
        options: tuple[float, ...] = ()
        if name == "percentile":
            options = (draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])),)
        if name in ("covar", "covar_pop", "corr"):
            args = (Col(column), Col(draw(st.sampled_from(whole_numbers))))
        made[own] = Aggregate(name, args, where, options)
        if name in ("count", "count_distinct") or (
            name in ("sum", "min", "max", "first", "last") and column in query.exact
        ):
            exact.add(own)
    node = WindowAggregate(query.plan, keys, window, tuple(made.items()), clip, stamp)
    return _Query(node, frozenset(exact))


@st.composite
def _finished(draw: Draw, query: _Query, depth: int, reads_end: bool) -> _Query:
    """Maybe a where over a window's result, or a select that adds a column."""
    if draw(st.booleans()):
        return query
    if draw(st.booleans()):
        return _Query(Where(query.plan, draw(predicates(query.schema, query.exact, reads_end))), query.exact)
    name = draw(st.sampled_from(query.schema.names))
    kept: list[tuple[str, Expr]] = [(n, Col(n)) for n in query.schema.names]
    over = draw(_numbers(query.schema, name, reads_end)) / 4 if _plain_number(query.schema.type_of(name)) else Col(name)
    added = draw(st.sampled_from([over, as_expr(start()), duration()]))
    return _Query(Select(query.plan, (*kept, (f"b{depth}", added))), query.exact)


@st.composite
def queries(draw: Draw, inputs: Sequence[Node], depth: int = 2, reads_end: bool = True) -> Node:
    """A plan over inputs of one payload ``k, v``: operators over one and two streams, up to ``depth`` windows over one another.

    ``reads_end``: whether expressions may read ends of lifetimes.
    """
    parts = [draw(_spans(_Query(plan, frozenset({"k", "v"})), reads_end)) for plan in inputs]
    if draw(st.sampled_from([False, False, True])):
        parts.append(draw(_spans(_Query(inputs[0], frozenset({"k", "v"})), reads_end)))
    query = parts[0]
    for other in parts[1:]:
        query = draw(_paired(query, other)) if query.schema.names == other.schema.names else query
    if "k" in query.exact and draw(st.sampled_from([False] * 5 + [True])):
        query = draw(_looked_up(query))
    for level in range(draw(st.sampled_from([n for n in (0, 1, 1, 2, 2) if n <= depth]))):
        query = draw(_finished(draw(_aggregated(query, level, reads_end)), level, reads_end))
    return query.plan


@st.composite
def _looked_up(draw: Draw, query: _Query) -> _Query:
    name = "names" if _is(query.schema.type_of("k"), t.StringType) else "numbers"
    if not _is(query.schema.type_of("k"), t.StringType, t.IntegerType) or "size" in query.schema.names:
        return query
    how = draw(st.sampled_from(["inner", "left"]))
    return _Query(
        JoinTable(query.plan, name, STATIC[name][0], (("k", "name"),), how, (("size", "size"),)), query.exact | {"size"}
    )


__all__ = ["AGGREGATES", "STATIC", "grids", "predicates", "queries", "static", "windows"]
