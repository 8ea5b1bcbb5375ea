"""The scale of a query: the lengths of time in it, at which events are generated so that they lie in and between its windows."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterator
from functools import singledispatch
from typing import Any

from streamq.operators import Source
from streamq.plan.expr import Expr, Lit
from streamq.plan.node import Node, expanded, nodes
from streamq.plan.tree import fold as fold_expr
from streamq.testing.arrival import tick
from streamq.testing.scale import Bounds, Scale
from streamq.testing.windows.room import room_of
from streamq.time import INFINITY
from streamq.windows import Window

SMALL = 16
"""A query whose lengths are all smaller is tested tick by tick."""

DENSE = 10
"""The greatest unit, in hops of the densest windows; greater ones would give millions of windows."""


MOST_HOPS = 25 * DENSE
"""The greatest length of the query, in hops of the densest windows, that is used as the length of a lifetime."""


def scale(plan: Node) -> Scale:
    """Return the scale of a query.

    Its units are a quarter of the finest, the middle and the coarsest length in the query; a step where lengths are below SMALL.
    Units of more than DENSE hops of the densest windows do not count. The anchor is the first instant in the query, else 0.
    """
    every = nodes(expanded(plan))
    query_lengths = [n for node in [*nodes(plan), *every] for n in (*lengths(node), *spans(node)) if n > 0]
    dense = [n for node in every for n in recurrences(node)]
    step = max((tick(n) for n in nodes(plan) if isinstance(n, Source)), default=1)
    # a length of one tick comes from points and is ignored if there are others
    query_lengths = [n for n in query_lengths if n > step] or query_lengths
    units = {max(step, n // 4 // step * step) if n >= SMALL else step for n in query_lengths}
    least = min(dense, default=INFINITY)
    units = {u for u in units if u <= least * DENSE} or {max(step, min(least, min(units, default=step)))}
    if all(n < SMALL for n in query_lengths):
        units = {step}
    ordered = sorted(units)
    middle = ordered[len(ordered) // 2]
    anchors = [n for node in every for n in _instants(node)]
    # the units of the finest, the middle and the coarsest length
    chosen = tuple(sorted({ordered[0], middle, ordered[-1]}))
    anchor = anchors[0] // step * step if anchors else 0
    exact = sorted({n // step * step for n in query_lengths if step <= n <= least * MOST_HOPS})
    reach = 13 * chosen[0] + sum(query_lengths)
    around = tuple(dict.fromkeys(of_node for node in every for of_node in bounds(node)))
    return Scale(anchor, chosen, step, reach=reach, lengths=tuple(exact), bounds=around)


@singledispatch
def lengths(node: Node) -> Iterator[int]:
    """Yield the lengths of time among a node's parameters; those of its window unless the node's room registers others."""
    window = getattr(node, "window", None)
    if isinstance(window, Window):
        yield from room_of(window).lengths(window)


@singledispatch
def recurrences(node: Node) -> Iterator[int]:
    """Yield the distances at which an endless lifetime gives row after row; its window's hop unless its room registers others."""
    window = getattr(node, "window", None)
    if isinstance(window, Window):
        yield from room_of(window).recurrences(window)


@singledispatch
def bounds(node: Node) -> Iterator[Bounds]:
    """Yield the bounds of a node's windows or pieces; those of its window unless the node's room registers others."""
    window = getattr(node, "window", None)
    if isinstance(window, Window):
        yield from room_of(window).bounds(window)


def expressions(node: Node) -> Iterator[Expr]:
    """Yield the expressions in a node's fields."""
    yield from (e for f in dataclasses.fields(node) for e in _within(getattr(node, f.name)))


def _within(value: Any) -> Iterator[Expr]:
    """Yield the expressions in a field's value: itself, or those in the parts of a tuple or of a dataclass that is no node."""
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple):
        yield from (e for part in value for e in _within(part))
    elif dataclasses.is_dataclass(value) and not isinstance(value, Node):
        yield from (e for f in dataclasses.fields(value) for e in _within(getattr(value, f.name)))


def literals(node: Node) -> list[Any]:
    """Return the constants in a node's expressions, in order, without repetitions; NULL and booleans are left out."""
    by_text: dict[str, Any] = {}

    def visit(expr: Expr, parts: list[None]) -> None:
        if isinstance(expr, Lit) and expr.value is not None and not isinstance(expr.value, bool):
            by_text.setdefault(repr(expr.value), expr.value)

    for expr in expressions(node):
        fold_expr(expr, visit)
    return list(by_text.values())


def spans(node: Node) -> Iterator[int]:
    """Yield the absolute values of the durations in a node's expressions, in ticks."""
    for value in literals(node):
        if isinstance(value, dt.timedelta):
            yield abs(value // dt.timedelta(microseconds=1))


def _instants(node: Node) -> Iterator[int]:
    """Yield the instants in a node's expressions and window, in ticks."""
    for value in literals(node):
        if isinstance(value, dt.datetime):
            moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
            yield (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    window = getattr(node, "window", None)
    if isinstance(window, Window):
        yield from room_of(window).instants(window, node.schema.axis)
