"""Draws of queries: operators over streams, windows, and aggregates, modules and best rows over them; and cases of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

import streamq as sq
from streamq.aggregates.time_sensitive import WINDOW_EDGES
from streamq.choices import Anchor, LengthKind, Stamp
from streamq.operators import AlterLifetime, JoinTable, Select, Source, TopK, Union, Where, WindowAggregate
from streamq.operators.lifetime_change import Length, Start
from streamq.operators.windowed_stream import rows_of
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node, nodes
from streamq.plan.schema import POINT, Field, Schema
from streamq.testing.arrival import TICKS, Item
from streamq.testing.case import Case
from streamq.testing.drawn_expressions import (
    Draw,
    aggregate,
    aggregate_functions,
    exact,
    is_plain_number,
    lifetime_parts,
    matched,
    numbers,
    predicates,
)
from streamq.testing.generate import KINDS, arriving, cuts, interleaved, source_of, with_clock
from streamq.testing.intent import ANYTHING, Intent
from streamq.testing.payload_values import NESTED, NUMBERS, OTHERS, key_types, value_types
from streamq.testing.payloads import static
from streamq.testing.sources.room import room_of_shape
from streamq.time import INTEGER, TIMESTAMP
from streamq.windows import Count, Hopping, Landmark, Rows, Window
from tests.drawn.operators import (
    OVER_ONE,
    OVER_TWO,
    draw_alter_lifetime,
    draw_select,
    draw_where,
    looked_up,
)
from tests.drawn.windows import windows

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
    operator: Any = all_members if isinstance(window, Count | Landmark | Rows) else earlier_members
    applied: Aggregate = operator()
    return applied


UNEVEN = ((5, 2), (7, 3), (8, 5), (3, 2))
"""Sizes and hops of overlapping windows whose hop does not divide the size."""


@st.composite
def aggregated(draw: Draw, plan: Node, label: str = "a") -> Node:
    """Draw an operator over windows, with or without a group_by.

    Mostly that is one to three aggregates called ``label0, ...``, and sometimes a bound of the window under the next such name;
    now and then it is a top_k, a user-defined operator that sets its own lifetimes, or a window of UNEVEN over derived points.
    """
    derived = plan.schema.shape != POINT and draw(st.sampled_from([False] * 7 + [True]))
    if derived:
        anchor = draw(st.sampled_from([Anchor.LE, Anchor.RE]))
        plan = AlterLifetime(plan, Start(anchor), Length(LengthKind.FIXED, 1))
    schema, exact_columns = plan.schema, exact(plan)
    groupable = matched(schema, exact_columns)
    keys = tuple(draw(st.lists(st.sampled_from(groupable), unique=True, max_size=2))) if groupable else ()
    window, clip, stamp = draw(windows(schema, exact_columns))
    if isinstance(window, Rows):
        window = replace(window, inner_keys=tuple(key for key in keys if draw(st.booleans())))
    if derived:
        size, hop = draw(st.sampled_from(UNEVEN))
        window = Hopping(size, hop, draw(st.integers(-3, 3)))
    elif COLUMN not in schema.names and draw(st.sampled_from([False] * 6 + [True])):
        return rows_of(time_bound_over(window), plan, keys, window, clip, draw(st.sampled_from(OWN_STAMPS)))
    whole = exact_columns >= set(schema.names)
    sortable = [name for name in groupable if not isinstance(schema.type_of(name), t.ArrayType | t.StructType)]
    if sortable and whole and "rank" not in schema.names and draw(st.sampled_from([False] * 5 + [True])):
        by, broken = Col(draw(st.sampled_from(sortable))), len(groupable) == len(schema.names)
        ties = draw(st.sampled_from(["keep", "break"] if broken else ["keep"]))
        k, desc = draw(st.integers(1, 3)), draw(st.booleans())
        return TopK(plan, keys, window, k, by, desc=desc, ties=ties, clip=clip, stamp=stamp)
    functions = draw(st.lists(st.sampled_from(aggregate_functions(schema, exact_columns)), min_size=1, max_size=3))
    drawn = [draw(aggregate(schema, exact_columns, function)) for function in functions]
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


IN_TURN = (
    (draw_select, draw_where),
    (draw_where, draw_select),
    (draw_alter_lifetime, draw_where),
    (draw_where, draw_alter_lifetime),
    (draw_alter_lifetime, draw_alter_lifetime),
)
"""Sequences of operators over one stream; each operator is also drawn alone."""


@st.composite
def spans(draw: Draw, plan: Node, most: int = 2) -> Node:
    """Draw none, one or two operators over one stream that keep its column names and types; if ``most`` is 1, just one.

    Operators that are not legal over the stream are left out, so that with 1 there may be none, too.
    """
    alone = [(drawing,) for drawing in OVER_ONE]
    for drawing in draw(st.sampled_from([(), *alone, *IN_TURN] if most > 1 else alone)):
        plan = drawing(draw, plan) or plan
    return plan


@st.composite
def paired(draw: Draw, one: Node, two: Node) -> Node:
    """Draw an operator over two streams of equal columns: a join of any kind, ``except_``, ``clip`` or a union.

    If it is not legal over them, it is a union.
    """
    drawing = draw(st.sampled_from(OVER_TWO))
    common = matched(one.schema, exact(one) & exact(two))
    on = tuple((n, n) for n in draw(st.lists(st.sampled_from(common), max_size=1))) if common else ()
    return drawing(draw, one, two, on) or Union((one, two))


@st.composite
def finished(draw: Draw, plan: Node, label: str = "b") -> Node:
    """Draw a window's result as it is, filtered by a where, or with a column ``label`` added by a select."""
    if draw(st.booleans()):
        return plan
    if draw(st.booleans()):
        return Where(plan, draw(predicates(plan.schema, exact(plan))))
    name = draw(st.sampled_from(plan.schema.names))
    columns: list[tuple[str, Expr]] = [(n, Col(n)) for n in plan.schema.names]
    over = draw(numbers(plan.schema, name)) / 4 if is_plain_number(plan.schema.type_of(name)) else Col(name)
    return Select(plan, (*columns, (label, draw(st.one_of(st.just(over), lifetime_parts())))))


@st.composite
def queries(draw: Draw, inputs: Sequence[Node], depth: int = 2) -> Node:
    """Draw a plan over inputs with payload ``k, v``: operators over one and two streams, and up to ``depth`` nested windows.

    An input with other columns than the query so far is left out.
    """
    parts = [draw(spans(plan)) for plan in inputs]
    if draw(st.sampled_from([False, False, True])):
        parts.append(draw(spans(inputs[0])))
    query = parts[0]
    for other in parts[1:]:
        query = draw(paired(query, other)) if query.schema.names == other.schema.names else query
    if draw(st.sampled_from([False] * 5 + [True])):
        query = draw(looked_up(query))
    for level in range(draw(st.sampled_from([n for n in (0, 1, 1, 2, 2) if n <= depth]))):
        query = draw(finished(draw(aggregated(query, f"a{level}")), f"b{level}"))
    return query


TYPES: Mapping[str, t.DataType] = {**OTHERS, **NUMBERS, **NESTED, "decimal": NUMBERS["decimal(5,2)"]}
"""Types of columns ``k`` and ``v`` by name."""


@dataclass(frozen=True)
class DrawnSource:
    """A source, its items in order of arrival, and a plan over it with payload ``k, v``."""

    source: Source
    items: tuple[Item, ...]
    plan: Node


@st.composite
def sources(
    draw: Draw,
    name: str,
    kind: str = "intervals",
    key: t.DataType = OTHERS["string"],
    value: t.DataType = NUMBERS["int"],
    axis: str = INTEGER,
    causal: bool | None = None,
    intent: Intent = ANYTHING,
) -> DrawnSource:
    """Draw a source of a kind (of KINDS or WITH_IDS) and its items, with a policy under which no item is late.

    ``key`` and ``value`` are the types of its columns ``k`` and ``v``; ``causal``: a retraction
    arrives after the item that it retracts (None: drawn).
    """
    plan = draw(source_of(name, kind, (Field("k", key), Field("v", value)), axis))
    bare = nodes(plan)[0]
    assert isinstance(bare, Source)
    source, items = draw(arriving(bare, intent, causal=causal))
    return DrawnSource(source, tuple(items), plan.with_children([source]) if plan.children else source)


@st.composite
def cases(
    draw: Draw,
    kinds: Sequence[str] = KINDS,
    values: Sequence[str] | None = None,
    axes: Sequence[str] = (INTEGER, TIMESTAMP),
    most_sources: int = 2,
    depth: int = 2,
    causal: bool | None = None,
    query: Callable[[Sequence[Node]], st.SearchStrategy[Node]] | None = None,
    intent: Intent = ANYTHING,
) -> Case:
    """Draw a query over at most ``most_sources`` sources called ``a`` and ``b``, their items, and a cut.

    ``kinds``: kinds of sources; ``values``: types of column ``v`` by name (None: any); ``axes``: time axes; ``depth``
    as in :func:`queries`; ``causal`` as in :class:`ArrivalPlan`; ``query``: the strategy for
    plans over the inputs (None: :func:`queries`).
    """
    key = draw(key_types())[0]
    value = draw(value_types())[0] if values is None else TYPES[draw(st.sampled_from(values))]
    axis = draw(st.sampled_from(axes))
    if not matched(Schema((Field("k", key),), axis), ["k"]):
        kinds = [kind for kind in kinds if not room_of_shape(kind).goes_by_key] or ["intervals"]
    drawn_sources = [
        draw(sources(name, draw(st.sampled_from(kinds)), key, value, axis=axis, causal=causal, intent=intent))
        for name in "ab"[: draw(st.integers(1, most_sources))]
    ]
    inputs = [a.plan for a in drawn_sources]
    plan = draw(query(inputs) if query else queries(inputs, depth))
    arrival = draw(interleaved({a.source.table: a.items for a in drawn_sources}))
    looked_up = {n.table: static(n.table) for n in nodes(plan) if isinstance(n, JoinTable)}
    return draw(with_clock(Case(plan, arrival, draw(cuts(len(arrival))), static=looked_up), TICKS))
