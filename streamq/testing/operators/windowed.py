"""Operators over windows, and the scan: members of windows as SQL, aggregates, the best rows of each, steps over events."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import types as t

from streamq.choices import Stamp
from streamq.errors import QueryFailed
from streamq.operators import Scan, TopK, WindowAggregate
from streamq.plan.aggregate import Aggregate, Rounding
from streamq.plan.expr import Expr
from streamq.plan.passes import infer
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.deltas import LE, RE
from streamq.runtime.groups import number_groups
from streamq.runtime.user_code.code_values import FAILURES
from streamq.testing.drawn_expressions import exact_columns, is_exact
from streamq.testing.oracle.aggregates import ORACLE_OF, Arguments
from streamq.testing.oracle.python_functions import ModuleValue, plain_value, sets_aside
from streamq.testing.oracle.run import Run, defines
from streamq.testing.oracle.values import (
    floating,
    from_duckdb,
    has_own_key,
    key,
    keys,
    listed,
    order_of,
    payload,
    to_duckdb,
)
from streamq.testing.window_kinds import Members, room_of
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP
from streamq.user_code.uda import WindowModule
from streamq.user_code.udo import StatefulOperator


def members(node: WindowAggregate | TopK, events: str, groups: Sequence[str], run: Run) -> str:
    """Return the table of members: each event once for each of its windows, with ``w`` (a number), ``w_le`` and ``w_re``.

    ``groups`` are the columns of the node's keys; those of keys by which only members are grouped make no windows. Windows are
    made of all events, then those that do not satisfy the windows' condition are left out.
    """
    window, schema = node.window, node.input.schema
    own = [g for g, key in zip(groups, node.keys, strict=True) if key not in window.traits.counting.inner_keys]
    every = room_of(window).members(window, Members(events, own, schema), run)
    where = window.traits.counting.where
    return run.table(f"SELECT * FROM {every} WHERE p{schema.names.index(where)}") if where else every


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


exact_columns.register(
    WindowAggregate,
    lambda node, inputs: frozenset(node.keys) | {name for name, a in node.aggregates if _is_exact(a, inputs[0])},
)


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


exact_columns.register(TopK, lambda node, inputs: frozenset(node.schema.names))


@defines(Scan)
def scan(node: Scan, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the rows of a scan: the events are sorted by group and (LE, payload) and stepped over in a loop.

    A row is a point at the start of its event, with the keys and the operator's own columns. Events that do not pass the scan's
    filter are not stepped over. An event that is set aside, as its step fails, has no rows, and the state goes on from before it.
    Raises QueryFailed if another module fails. A pattern's scan is evaluated by streamq's own code, because patterns are judged
    by their rules (``Detect``).
    """
    if not isinstance(node.operator, StatefulOperator):
        return _evaluated(node, inputs[0], run)
    source = node.input.schema
    passes = [] if node.where is None else [("f", node.where, "")]
    values = [(f"v{i}", arg, "f" if passes else "") for i, arg in enumerate(node.args)]
    events, groups = events_in_groups(node, [*passes, *values], inputs[0], run)
    number = f"dense_rank() OVER (ORDER BY {listed(*groups)})" if groups else "0"
    keys = [f"p{source.names.index(key)}" for key in node.keys]
    shown = listed("le", f"{number} AS number", *keys, *(name for name, _, _ in values))
    order = listed("number", "le", *(f"{o} NULLS FIRST" for o in order_of(source)))
    rows = run.arrow(f"SELECT {shown} FROM {events} {'WHERE f' if passes else ''} ORDER BY {order}")
    columns = [from_duckdb(rows.column(name), infer(arg, source, "oracle")).to_pylist() for name, arg, _ in values]
    starts, numbers = rows.column("le").to_pylist(), rows.column("number").to_pylist()
    arguments = list(zip(*columns, strict=True)) if columns else [()] * len(starts)
    fields = node.operator.fields
    try:
        results = list(_results(node, starts, numbers, arguments, run.functions.set_aside))
        own = [pa.array([row[i] for _, row in results], arrow_type(field.dataType)) for i, field in enumerate(fields)]
    except FAILURES as error:
        raise QueryFailed("oracle", f"{node.operator.name} failed", repr(error)) from error
    result = rows.select(["le", *dict.fromkeys(keys)]).take(pa.array([at for at, _ in results], pa.int64()))
    for i, (column, field) in enumerate(zip(own, fields, strict=True)):
        result = result.append_column(f"own{i}", to_duckdb(column, field.dataType))
    names = [*keys, *(f"own{i}" for i in range(len(own)))]
    return f"SELECT {listed('le', 'le + 1 AS re', *(f'{n} AS c{i}' for i, n in enumerate(names)))} FROM {run.registered(result)}"


def _evaluated(node: Scan, table: str, run: Run) -> str:
    """Return SQL for the rows of a scan over the events in a table, by its evaluator."""
    source = node.input.schema
    columns = node.evaluation.inputs[0].columns
    events, _ = events_in_groups(node, [(f"v{i}", expr, "") for i, (_, expr) in enumerate(columns)], table, run)
    rows = run.arrow(f"SELECT {listed('le', *(f'v{i}' for i in range(len(columns))))} FROM {events}")
    start = rows.column("le").to_numpy()
    values = {
        name: from_duckdb(rows.column(f"v{i}"), infer(expr, source, "oracle")) for i, (name, expr) in enumerate(columns)
    }
    evaluator = node.evaluation.evaluator
    histories = number_groups([pa.table({**values, LE: start, RE: start + 1})], evaluator.group_columns)
    result = evaluator.rows(histories, MINUS_INFINITY, INFINITY)
    own = {f"c{i}": to_duckdb(result.column(f.name), f.type) for i, f in enumerate(node.schema.fields)}
    return f"SELECT * FROM {run.registered(pa.table({'le': result.column(LE), 're': result.column(RE), **own}))}"


def _results(
    node: Scan, starts: list[int], numbers: list[int], arguments: list[Any], set_aside: Counter[str]
) -> Iterator[tuple[int, list[Any]]]:
    """Yield, for each row of the result, the position of its event and its values.

    ``starts``, ``numbers`` (of groups) and ``arguments`` are those of the sorted events; each group begins with a new state.
    ``set_aside`` counts the events that are set aside.
    """
    operator: Any = node.operator
    initial, step = _code_of(operator)
    state: Any = None
    for at, values in enumerate(arguments):
        if at == 0 or numbers[at] != numbers[at - 1]:
            state = initial()
        if operator.time_sensitive:
            is_timed = node.schema.axis == TIMESTAMP
            values = (pd.Timestamp(starts[at], unit="us", tz="UTC") if is_timed else starts[at], *values)
        if sets_aside(operator):
            try:
                # a step may change a state before it fails
                after, rows = step(copy.deepcopy(state), *values)
                results = [_typed_values(operator, row) for row in rows or ()]
            except FAILURES:
                set_aside[operator.name] += 1
                continue
            state = after
        else:
            state, rows = step(state, *values)
            results = [_own_values(operator, row) for row in rows or ()]
        yield from ((at, row) for row in results)


def _parts(operator: StatefulOperator, row: Any) -> list[Any]:
    """Return the values of a row that a step gives: a mapping, a named tuple, a tuple, or a value alone."""
    names = [f.name for f in operator.fields]
    fields = getattr(row, "_fields", getattr(row, "__fields__", ())) if isinstance(row, tuple) else ()
    row = dict(zip(fields, row, strict=True)) if fields else row
    return [row[n] for n in names] if isinstance(row, dict) else list(row) if isinstance(row, tuple) else [row]


def _own_values(operator: StatefulOperator, row: Any) -> list[Any]:
    """Return the values of a row of the user's operator as Python's."""
    return [plain_value(part) for part in _parts(operator, row)]


def _typed_values(operator: StatefulOperator, row: Any) -> list[Any]:
    """Return the values of a row of the user's operator as Python's; raise one of FAILURES if a column cannot hold its value."""
    values = _own_values(operator, row)
    for value, field in zip(values, operator.fields, strict=True):
        pa.array([value], arrow_type(field.dataType))
    return values


def _code_of(operator: StatefulOperator) -> tuple[Callable[[], Any], Callable[..., Any]]:
    """Return the functions for the initial state and the step: user code without the product's wrapper."""
    module: Any = operator.code
    if inspect.isclass(module):
        module = module(**operator.options)
    if hasattr(module, "step"):
        return module.initial, module.step
    return partial(copy.deepcopy, operator.initial), partial(module, **operator.options)


exact_columns.register(Scan, lambda node, inputs: frozenset(node.schema.names))
