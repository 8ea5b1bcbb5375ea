"""Draws of queries: operators over streams, windows, and aggregates, modules and best rows over them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import types as t

import streamq as sq
from streamq.aggregates import built_in
from streamq.aggregates.sums import COUNT
from streamq.aggregates.time_sensitive import WINDOW_EDGES
from streamq.choices import Anchor, ClipInput, LengthKind, Stamp
from streamq.errors import NeedsSpark, TypeMismatch
from streamq.expressions import duration
from streamq.operators import AlterLifetime, Select, TopK, Union, Where, WindowAggregate
from streamq.operators.lifetime_change import Length, Start
from streamq.operators.windowed_stream import rows_of
from streamq.plan.aggregate import Aggregate, AggregateFunction
from streamq.plan.expr import Col, Expr, Lifetime
from streamq.plan.node import Node
from streamq.plan.schema import POINT, Field, Schema
from streamq.run.batch.answers import local_history
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.sources.points import Points
from streamq.testing.drawn_operators import (
    OVER_ONE,
    OVER_TWO,
    Draw,
    exact,
    is_a,
    is_plain_number,
    lifetime_parts,
    matched,
    numbers,
    predicates,
)
from streamq.testing.operators.joins import looked_up
from streamq.testing.windows.room import room_of, rooms
from streamq.windows import Hopping, Window

OWN_STAMPS = (Stamp.TIME_BOUND, Stamp.TIME_BOUND, Stamp.UNCHANGED, Stamp.CLIP)
"""Stamps for operators that set their own lifetimes; a stamp is listed as often as it is to be drawn."""

COLUMN = "others"
"""The column that these operators return."""


@sq.udo(f"{COLUMN} bigint", time_sensitive=True, properties=[sq.time_bound])
def earlier_members(events: Any, window: Any) -> Iterator[tuple[Any, Any, int]]:
    """Yield each member's lifetime within the window (None: no end) and the number of members that started before it.

    Members that start later do not change such a row.
    """
    import pandas as pd

    starts = sorted(events["start"])
    for start, end in zip(events["start"], events["end"], strict=True):
        ends = [instant for instant in (end, window.end) if not pd.isna(instant)]
        yield max(start, window.start), min(ends, default=None), bisect_left(starts, start)


@sq.udo(f"{COLUMN} bigint", time_sensitive=True, properties=[sq.time_bound])
def all_members(events: Any, window: Any) -> Iterator[tuple[Any, Any, int]]:
    """Yield, for a finite window only, its last instant, its end, and the number of members, all of which are known then."""
    import pandas as pd

    if not pd.isna(window.end):
        tick = pd.Timedelta(microseconds=1) if isinstance(window.end, pd.Timestamp) else 1
        yield window.end - tick, window.end, len(events)


def time_bound_over(window: Window) -> Aggregate:
    """Return a time-bound operator that keeps its promise over windows of this kind.

    A window that begins with its last member has no result before its last instant, so it takes :func:`all_members`.
    """
    operator: Any = all_members if room_of(window).begins_with_its_last_member else earlier_members
    applied: Aggregate = operator()
    return applied


UNEVEN = ((5, 2), (7, 3), (8, 5), (3, 2))
"""Sizes and hops of overlapping windows whose hop does not divide the size."""


@st.composite
def windows(draw: Draw, schema: Schema, exact_columns: frozenset[str]) -> tuple[Window, ClipInput, Stamp]:
    """Draw a window of any kind, with clip and stamp; kinds that need exact columns only if all columns are exact."""
    whole = exact_columns >= set(schema.names)
    ordered = matched(schema, schema.names)
    every = rooms().values()
    kinds = [room for room in every if not room.needs_exact_columns for _ in range(room.weight)]
    kinds += [room for room in every if room.needs_exact_columns and whole for _ in range(room.weight)]
    room = draw(st.sampled_from(kinds))
    stamp, clip = (
        draw(st.sampled_from([Stamp.ALIGN, Stamp.ALIGN, Stamp.POINT_AT_END])),
        draw(st.sampled_from(ClipInput)),
    )
    drawn: tuple[Window, ClipInput, Stamp] = room.drawn(draw, clip, stamp, ordered)
    return drawn


@st.composite
def aggregated(draw: Draw, plan: Node, label: str = "a", reads_end: bool = True) -> Node:
    """Draw an operator over windows, with or without a group_by.

    Mostly that is one to three aggregates called ``label0, ...``, and sometimes a bound of the window under the next such name;
    now and then it is a top_k, a user-defined operator that sets its own lifetimes, or a window of UNEVEN over derived points.
    Unless ``reads_end``, nothing in it reads the ends of events.
    """
    derived = plan.schema.shape != POINT and draw(st.sampled_from([False] * 7 + [True]))
    if derived:
        anchor = draw(st.sampled_from([Anchor.LE, Anchor.RE] if reads_end else [Anchor.LE]))
        plan = AlterLifetime(plan, Start(anchor), Length(LengthKind.FIXED, 1))
    schema, exact_columns = plan.schema, exact(plan)
    groupable = matched(schema, exact_columns)
    keys = tuple(draw(st.lists(st.sampled_from(groupable), unique=True, max_size=2))) if groupable else ()
    window, clip, stamp = draw(windows(schema, exact_columns))
    if derived:
        size, hop = draw(st.sampled_from(UNEVEN))
        window = Hopping(size, hop, draw(st.integers(-3, 3)))
    elif reads_end and COLUMN not in schema.names and draw(st.sampled_from([False] * 6 + [True])):
        return rows_of(time_bound_over(window), plan, keys, window, clip, draw(st.sampled_from(OWN_STAMPS)))
    whole = exact_columns >= set(schema.names)
    sortable = [name for name in groupable if not isinstance(schema.type_of(name), t.ArrayType | t.StructType)]
    if sortable and whole and "rank" not in schema.names and draw(st.sampled_from([False] * 5 + [True])):
        by, broken = Col(draw(st.sampled_from(sortable))), len(groupable) == len(schema.names)
        ties = draw(st.sampled_from(["keep", "break"] if broken else ["keep"]))
        k, desc = draw(st.integers(1, 3)), draw(st.booleans())
        return TopK(plan, keys, window, k, by, desc=desc, ties=ties, clip=clip, stamp=stamp)
    functions = draw(st.lists(st.sampled_from(_askable(schema, exact_columns)), min_size=1, max_size=3))
    drawn = [draw(aggregate(schema, exact_columns, function, reads_end)) for function in functions]
    # keep one of equal aggregates
    aggregates = {f"{label}{i}": one for i, one in enumerate({a.digest: a for a in drawn}.values())}
    # with ALIGN the lifetime of a result holds the window's bounds, so draw them as columns for points only
    bounds = [None] * 4 + list(WINDOW_EDGES.values())
    bound = draw(st.sampled_from(bounds)) if stamp == Stamp.POINT_AT_END else None
    if bound is None:
        return WindowAggregate(plan, keys, window, tuple(aggregates.items()), clip, stamp)
    # as the verb builds it: an aggregate under a name that users cannot write, renamed by a select
    own = f"__{bound.name}{len(aggregates)}"
    below = WindowAggregate(plan, keys, window, (*aggregates.items(), (own, Aggregate(bound, ()))), clip, stamp)
    outputs = [(name, Col(name)) for name in (*keys, *aggregates)]
    return Select(below, (*outputs, (f"{label}{len(aggregates)}", Col(own))))


def _askable(schema: Schema, exact_columns: frozenset[str]) -> Sequence[AggregateFunction]:
    """Return the aggregates, each as often as it is to be drawn; ordered ones only if all columns are exact."""
    is_ordered = exact_columns >= set(schema.names)
    functions = [f for f in built_in().values() if is_ordered or not f.ordered]
    return [function for function in functions for _ in range(function.drawing.weight)]


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
def aggregate(
    draw: Draw,
    schema: Schema,
    exact_columns: frozenset[str],
    function: AggregateFunction | None = None,
    reads_end: bool = True,
) -> Aggregate:
    """Draw the aggregate ``function`` (None: any), maybe filtered, over columns or a part of the lifetime that it can read.

    It may have no argument if the function allows that; if there is nothing that it can read, it is a count instead. Unless
    ``reads_end``, neither it nor its filter reads the ends of events.
    """
    function = draw(st.sampled_from(_askable(schema, exact_columns))) if function is None else function
    drawing = function.drawing
    where = draw(predicates(schema, exact_columns, reads_end)) if draw(st.sampled_from([False, False, True])) else None
    if drawing.optional and draw(st.sampled_from([True, True, True, False])):
        return Aggregate(function, (), where)
    lifetimes = [Lifetime(part) for part in drawing.lifetimes] if reads_end else []
    if lifetimes and draw(st.sampled_from([False] * 3 + [True] * 2)):
        return Aggregate(function, (draw(st.sampled_from(lifetimes)),), where)
    among = [n for n in schema.names if not drawing.exact_arguments or n in exact_columns]
    if drawing.whole_numbers:
        exactly: list[Expr] = [Col(n) for n in among if is_a(schema.type_of(n), t.IntegerType, t.LongType)]
        exactly += [duration()] if reads_end else []
        choices = st.sampled_from(exactly) if exactly else None
    else:
        among = [n for n in among if drawing.any_type or is_a(schema.type_of(n), t.NumericType)]
        among = [n for n in among if _takes(function, schema.type_of(n))]
        choices = st.sampled_from(among).flatmap(lambda n: numbers(schema, n, reads_end)) if among else None
    if choices is None:
        return Aggregate(COUNT, (), where)
    args = tuple(draw(choices) for _ in range(drawing.arguments))
    options = draw(st.sampled_from(drawing.options))
    more = draw(st.integers(0, drawing.more_arguments)) if drawing.more_arguments else 0
    return Aggregate(function, (*args, *(draw(choices) for _ in range(more))), where, options)


IN_TURN = (
    ("select", "where"),
    ("where", "select"),
    ("alter_lifetime", "where"),
    ("where", "alter_lifetime"),
    ("alter_lifetime", "alter_lifetime"),
)
"""Sequences of operators over one stream, by room; each operator is also drawn alone."""


@st.composite
def spans(draw: Draw, plan: Node, reads_end: bool = True, most: int = 2) -> Node:
    """Draw none, one or two operators over one stream that keep its column names and types; if ``most`` is 1, just one.

    Operators that are not legal over the stream are left out, so that with 1 there may be none, too.
    """
    rooms = [*((room,) for room in sorted(OVER_ONE)), *(IN_TURN if most > 1 else [])]
    for room in draw(st.sampled_from([(), *rooms] if most > 1 else rooms)):
        plan = OVER_ONE[room](draw, plan, reads_end) or plan
    return plan


@st.composite
def paired(draw: Draw, one: Node, two: Node) -> Node:
    """Draw an operator over two streams of equal columns: a join of any kind, ``except_``, ``clip`` or a union.

    If it is not legal over them, it is a union.
    """
    drawing = draw(st.sampled_from(sorted(OVER_TWO, key=lambda drawing: drawing.__name__)))
    common = matched(one.schema, exact(one) & exact(two))
    on = tuple((n, n) for n in draw(st.lists(st.sampled_from(common), max_size=1))) if common else ()
    return drawing(draw, one, two, on) or Union((one, two))


@st.composite
def finished(draw: Draw, plan: Node, label: str = "b", reads_end: bool = True) -> Node:
    """Draw a window's result as it is, filtered by a where, or with a column ``label`` added by a select."""
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
    """Draw a plan over inputs with payload ``k, v``: operators over one and two streams, and up to ``depth`` nested windows.

    ``reads_end``: expressions may read ends of lifetimes. An input with other columns than the query so far is left out.
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
