"""Remove columns that no operator above reads at their origin, so that they are neither shuffled nor kept in state."""

from __future__ import annotations

from collections.abc import Iterable

from streamq.compiler.rules.substitution import expression_facts
from streamq.operators import MergePartials, Select, Source, Union, Where, WindowAggregate
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node
from streamq.plan.tree import show


def prune_columns(node: Node) -> Node | None:
    """``op(a) => op(select(a, c))``, where c are the columns of a that op and the filters between read, if not all.

    op is a select or a window; a is the source, select or union below it. A union counts only directly below a window, a source
    not directly below a select. If a is a select, the other columns are removed from that select instead. A pyspark Column
    counts as reading all columns.
    """
    wheres, bottom = filters_below(node)
    wanted = _read(node, wheres)
    if not wheres and isinstance(node, Select) and not isinstance(bottom, Select):
        return None
    if wanted is None or not len(names := [n for n in bottom.schema.names if n in wanted]) < len(bottom.schema.names):
        return None
    match bottom:
        case Select(source, columns) if not any(expression_facts(e).opaque for _, e in columns):
            return refilter(node, wheres, Select(source, tuple((n, e) for n, e in columns if n in wanted)))
        case Source():
            return refilter(node, wheres, Select(bottom, tuple((n, Col(n)) for n in names)))
        case Union() if not wheres:
            return refilter(node, wheres, Select(bottom, tuple((n, Col(n)) for n in names)))
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, a text on an expression that may read any column, so that none is removed; None without one."""
    wheres, bottom = filters_below(node)
    if isinstance(bottom, Source | Select | Union) and (wheres or not isinstance(node, Select)):
        for e in (*_expressions(node), *(w.predicate for w in wheres)):
            if expression_facts(e).opaque:
                return f"{show(e)} may read any column"
    return None


def filters_below(node: Node) -> tuple[list[Where], Node]:
    """Return the filters directly below a select or window, top down, and the node that they filter.

    For any other node these are no filters, and the node itself.
    """
    if not isinstance(node, Select | WindowAggregate | MergePartials):
        return [], node
    wheres: list[Where] = []
    bottom = node.input
    while isinstance(bottom, Where):
        wheres.append(bottom)
        bottom = bottom.input
    return wheres, bottom


def refilter(node: Node, wheres: Iterable[Where], bottom: Node) -> Node:
    """Return the node over the same filters with another input, ``bottom``."""
    for where in reversed(list(wheres)):
        bottom = Where(bottom, where.predicate)
    return node.with_children([bottom])


def columns_read(node: Node, wheres: Iterable[Where]) -> frozenset[str] | None:
    """Return the columns that a node and the filters below it read; None if they may read any, or if the node reads all."""
    expressions = [*_expressions(node), *(w.predicate for w in wheres)]
    if any(expression_facts(e).opaque for e in expressions):
        return None
    keys = node.keys if isinstance(node, WindowAggregate | MergePartials) else ()
    if isinstance(node, WindowAggregate):
        if node.window.by_places or node.reads_all:
            # the whole payload orders events of equal starts, and events are set aside with their whole payload
            return None
    return frozenset(keys).union(*(expression_facts(e).uses for e in expressions))


def _read(node: Node, wheres: list[Where]) -> frozenset[str] | None:
    """Return the columns that a select or window and the filters below it read; None if they may read any, or for other nodes."""
    return columns_read(node, wheres) if isinstance(node, Select | WindowAggregate | MergePartials) else None


def _expressions(node: Node) -> list[Expr]:
    """Return the expressions that a select or window computes; none for other nodes."""
    match node:
        case Select(columns=columns):
            return [e for _, e in columns]
        case WindowAggregate(aggregates=aggregates):
            return [a for _, a in aggregates]
        case MergePartials(arguments=arguments):
            return [expr for _, expr in arguments]
    return []
