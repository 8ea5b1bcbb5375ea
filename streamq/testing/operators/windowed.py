"""Operators over windows: the members of windows as SQL, aggregates and the best rows of each."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as t

from streamq.choices import Stamp
from streamq.operators import Scan, TopK, WindowAggregate
from streamq.plan.aggregate import Aggregate, Rounding
from streamq.plan.expr import Expr
from streamq.plan.passes import infer
from streamq.testing.drawn_expressions import exact_columns, is_exact
from streamq.testing.oracle.aggregates import ORACLE_OF, Arguments
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.modules import ModuleValue
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import floating, has_own_key, key, keys, listed, order_of, payload
from streamq.testing.windows.room import Members, room_of
from streamq.time import INFINITY
from streamq.user_code.window_module import WindowModule


def members(node: WindowAggregate | TopK, events: str, groups: Sequence[str], run: Run) -> str:
    """Return the table of members: each event once for each of its windows, with ``w`` (a number), ``w_le`` and ``w_re``."""
    return room_of(node.window).members(node.window, Members(events, groups, node.input.schema), run)


def stamped(node: WindowAggregate | TopK) -> tuple[str, str, str]:
    """Return SQL for start and end of a window's result, and the condition under which a window has a result."""
    if node.stamp == Stamp.POINT_AT_END:
        return "w_re AS le", "w_re + 1 AS re", f"w_re < {INFINITY}"
    return "w_le AS le", "w_re AS re", "true"


def events_in_groups(
    node: WindowAggregate | TopK | Scan, values: Sequence[tuple[str, Expr, str]], source: str, run: Run
) -> tuple[str, list[str]]:
    """Return the table of events with groups ``g0, ...``, computed values and payload ``p0, ...``; and the group columns.

    It also has those columns ``o0, ...`` of :func:`order_of` that are no plain payload columns. A value is (name, expression,
    condition): it is computed where the earlier value ``condition`` is true, else NULL; "" for always. No event is left out: a
    filter is a value for the caller to apply.
    """
    schema = node.input.schema
    groups = [f"g{i}" for i in range(len(node.keys))]
    group_columns = [f"{keys(schema)[schema.names.index(k)]} AS {g}" for g, k in zip(groups, node.keys, strict=True)]
    calls = [(run.sql(e, schema), name, condition) for name, e, condition in values]
    computed = [
        f"CASE WHEN {condition} THEN {call} END AS {name}" if condition else f"{call} AS {name}"
        for call, name, condition in calls
    ]
    own = [f"{c} AS p{i}" for i, c in enumerate(payload(schema))]
    own += [f"{c} AS {o}" for c, o in zip(keys(schema), order_of(schema), strict=True) if o.startswith("o")]
    return run.table(f"SELECT {listed('le', 're', *group_columns, *computed, *own)} FROM {source}"), groups


@defines(WindowAggregate)
def window_aggregate(node: WindowAggregate, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the aggregates over all members of each window and group, with the lifetime that the stamp asks for.

    A window without members has no row, one whose members do not pass any aggregate's filter has one. A result at the end of an
    endless window is left out.
    """
    source = node.input.schema
    values: list[tuple[str, Expr, str]] = []
    kinds: dict[str, t.DataType] = {}
    for i, (_, a) in enumerate(node.aggregates):
        if a.where is not None:
            values.append((f"f{i}", a.where, ""))
        for j, arg in enumerate(a.args):
            # do not evaluate the argument for members that the aggregate's filter drops
            values.append((f"v{i}_{j}", arg, f"f{i}" if a.where is not None else ""))
            kinds[f"v{i}_{j}"] = infer(arg, source, "oracle")
    events, groups = events_in_groups(node, values, inputs[0], run)
    membership = members(node, events, groups, run)
    window = listed("w", "w_le", "w_re", *groups)
    membership = _with_means(node, membership, window, run)
    order = listed("le", *(f"{o} NULLS FIRST" for o in order_of(source)), "re")
    results = []
    for i, (name, a) in enumerate(node.aggregates):
        columns = [f"v{i}_{j}" for j in range(len(a.args))]
        types = tuple(kinds[column] for column in columns)
        passes = f"FILTER (WHERE f{i})" if a.where is not None else ""
        if isinstance(a.function, WindowModule):
            module = ModuleValue(a, types, node.schema.type_of(name), node.clip, source.axis_type)
            results.append(module.sql(columns, passes=passes, order=order, functions=run.functions))
            continue
        arguments = Arguments(
            columns,
            types,
            a.options,
            passes=passes,
            order=order,
            clip=node.clip,
            axis=source.axis,
            overflow=run.overflow,
        )
        results.append(ORACLE_OF[a.function].sql(arguments))
    shown = [_group(node, g, k) for g, k in zip(groups, node.keys, strict=True)]
    outputs = [f"{e} AS c{i}" for i, e in enumerate([*shown, *results])]
    start, end, there = stamped(node)
    return f"""
        SELECT {listed(start, end, *outputs)} FROM {membership}
        WHERE {there} GROUP BY {window}"""


def _with_means(node: WindowAggregate, membership: str, window: str, run: Run) -> str:
    """Return the table of members with the means that deviations need, and without half pairs of arguments.

    Of an aggregate with two arguments, both are NULL where one of them is. The mean of column ``v0_0`` over its window is column
    ``v0_0_mean``. ``membership`` itself is returned if there is nothing to add. ``window``: the columns that tell windows apart.
    """
    built_in = [(i, a) for i, (_, a) in enumerate(node.aggregates) if not isinstance(a.function, WindowModule)]
    both = [
        f"CASE WHEN v{i}_{1 - j} IS NOT NULL THEN v{i}_{j} END AS v{i}_{j}"
        for i, a in built_in
        for j in range(len(a.args))
        if len(a.args) == 2
    ]
    if both:
        membership = run.table(f"SELECT * REPLACE ({listed(*both)}) FROM {membership}")
    # the mean of equal numbers is that number, not rounded
    means = [
        f"CASE WHEN min(v{i}_{j}) OVER own = max(v{i}_{j}) OVER own THEN CAST(min(v{i}_{j}) OVER own AS DOUBLE) "
        f"ELSE avg(CAST(v{i}_{j} AS DOUBLE)) OVER own END AS v{i}_{j}_mean"
        for i, a in built_in
        for j in range(len(a.args))
        if ORACLE_OF[a.function].reads_means
    ]
    if not means:
        return membership
    return run.table(f"SELECT {listed('*', *means)} FROM {membership} WINDOW own AS (PARTITION BY {window})")


def _group(node: WindowAggregate, group: str, name: str) -> str:
    """Return the SQL of a group's key: a value of the group; for floats the key itself, which has 0.0 for -0.0."""
    schema = node.input.schema
    nested = has_own_key(schema.type_of(name)) and not floating(schema.type_of(name))
    return f"any_value(p{schema.names.index(name)})" if nested else group


@exact_columns.register(WindowAggregate)
def exact_of_window_aggregate(node: WindowAggregate, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset(node.keys) | {name for name, a in node.aggregates if _is_exact(a, inputs[0])}


def _is_exact(aggregate: Aggregate, among: frozenset[str]) -> bool:
    """True if an aggregate's value does not depend on how floats are rounded; ``among`` are the exact columns of its input."""
    match aggregate.function.drawing.rounding:
        case Rounding.NONE:
            return True
        case Rounding.OF_ARGUMENTS:
            return all(is_exact(argument, among) for argument in aggregate.args)
    return False


@defines(TopK)
def top_k(node: TopK, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the members of each window whose RANK by value is at most k; with broken ties, those whose row number is.

    The payload breaks ties, then the lifetime. The rank is a column, too, and the row number if it is asked for; a NULL value is
    less than any other.
    """
    source = node.input.schema
    events, groups = events_in_groups(node, [("v", node.by, "")], inputs[0], run)
    membership = members(node, events, groups, run)
    window = listed("w", "w_le", "w_re", *groups)
    by = key("v", infer(node.by, source, "oracle")) + (" DESC NULLS LAST" if node.desc else " ASC NULLS FIRST")
    own = [f"p{i}" for i in range(len(source.fields))]
    ties = listed(by, *(f"{o} NULLS FIRST" for o in order_of(source)), "le", "re")
    ranked = f"""
        SELECT *, rank() OVER (PARTITION BY {window} ORDER BY {by}) AS rank,
            row_number() OVER (PARTITION BY {window} ORDER BY {ties}) AS number FROM {membership}"""
    start, end, there = stamped(node)
    columns = [f"{e} AS c{i}" for i, e in enumerate([*own, "rank", *(["number"] if node.row_number else [])])]
    limit = "rank" if node.ties == "keep" else "number"
    return f"SELECT {listed(start, end, *columns)} FROM ({ranked}) WHERE {there} AND {limit} <= {node.k}"


@exact_columns.register(TopK)
def exact_of_top_k(node: TopK, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset(node.schema.names)
