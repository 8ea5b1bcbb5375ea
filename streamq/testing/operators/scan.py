"""Scan: its definition, its generator, and a user module whose rows depend on the order of all events before."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa

from streamq.errors import QueryFailed, sentence
from streamq.operators import Scan
from streamq.plan.passes import infer
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.event import LE, RE
from streamq.runtime.groups import number_groups
from streamq.runtime.user_code.code_values import FAILURES
from streamq.testing.drawn_expressions import exact_columns
from streamq.testing.operators.windowed import events_in_groups
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.modules import plain_value, sets_aside
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import from_duckdb, listed, order_of, to_duckdb
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP
from streamq.user_code.udso import StatefulOperator


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
        raise QueryFailed(sentence("oracle", f"{node.operator.name} failed", repr(error))) from error
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


@exact_columns.register(Scan)
def exact_of_scan(node: Scan, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset(node.schema.names)
