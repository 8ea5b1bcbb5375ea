"""Selects, merged and moved, and the removal of columns and aggregates that no operator above reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from streamq.compiler.rules.rule import (
    Rule,
    count_uses,
    expression_facts,
    inline,
    is_plain,
    nondeterminism,
    stays_small,
)
from streamq.operators import MergePartials, Select, Source, Union, Where, WindowAggregate
from streamq.plan.expr import Col, Expr, show
from streamq.plan.node import Node
from streamq.plan.schema import shown_name


def drop_identity_select(node: Node) -> Node | None:
    """``select(a, all columns of a, in order) => a``."""
    match node:
        case Select(source, columns) if [n for n, _ in columns] == list(source.schema.names):
            if all(isinstance(e, Col) and e.name == name for name, e in columns):
                return source
    return None


def merge_selects(node: Node) -> Node | None:
    """``select(select(a, x), y) => select(a, y[x])``, if no computed expression of x is then evaluated more than once.

    ``y[x]`` is y with the columns that x defines replaced by their expressions. y may only rename a nondeterministic expression
    of x. A pyspark Column in x or y forbids the rule, because only Spark knows the columns that it reads. An expression of y must
    not become too large (``stays_small``).
    """
    match node:
        case Select(Select(source, inner), outer) if why_not_merge_selects(node) is None:
            by = dict(inner)
            return Select(source, tuple((name, inline(e, by)) for name, e in outer))
    return None


def why_not_merge_selects(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a select over a select; None if there is none."""
    match node:
        case Select(Select(_, inner), outer):
            for name, e in (*inner, *outer):
                if expression_facts(e).opaque:
                    return f"column {name} hides what it reads: {show(e)}"
            count = count_uses(e for _, e in outer)
            renamed = {e.name for _, e in outer if isinstance(e, Col)}
            for name, e in inner:
                if count[name] > 1 and not is_plain(e):
                    return f"{shown_name(name)} = {show(e)} would be evaluated {count[name]} times"
                if count[name] and name not in renamed and not expression_facts(e).deterministic:
                    return f"{shown_name(name)} = {show(e)} is not deterministic"
            for name, e in outer:
                if not stays_small(e, dict(inner)):
                    return f"{name} would become too large"
    return None


def push_select_below_union(node: Node) -> Node | None:
    """``select(union(a, b), x) => union(select(a, x), select(b, x))``, if x is deterministic."""
    match node:
        case Select(Union(inputs), columns) if why_not_push_select(node) is None:
            return Union(tuple(Select(source, columns) for source in inputs))
    return None


def why_not_push_select(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a select over a union; None if there is none."""
    match node:
        case Select(Union(), columns):
            for name, e in columns:
                if reason := nondeterminism(e):
                    return f"{shown_name(name)} = {reason}"
    return None


def prune_columns(node: Node) -> Node | None:
    """``op(a) => op(select(a, c))``, where c are the columns of a that op and the filters between read, if not all.

    op is a select or a window; a is the source, select or union below it. A union counts only directly below a window, a source
    not directly below a select. If a is a select, the other columns are removed from that select instead. A pyspark Column
    counts as reading all columns.
    """
    wheres, bottom = filters_below(node)
    wanted = columns_read(node, wheres) if bottom is not node else None
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


def why_not_prune_columns(node: Node) -> str | None:
    """Return, for ``explain()``, a text on an expression that may read any column, so that none is removed; None without one."""
    wheres, bottom = filters_below(node)
    if isinstance(bottom, Source | Select | Union) and (wheres or not isinstance(node, Select)):
        for e in (*_expressions(node), *(w.predicate for w in wheres)):
            if expression_facts(e).opaque:
                return f"{show(e)} may read any column"
    return None


def prune_aggregates(node: Node) -> Node | None:
    """``op(window(a, m, n)) => op(window(a, m))``, if op, a select or window, and filters between do not read n."""
    wheres, bottom = filters_below(node)
    if bottom is node or not isinstance(bottom, WindowAggregate):
        return None
    wanted = columns_read(node, wheres)
    if wanted is None or all(name in wanted for name, _ in bottom.aggregates):
        return None
    wanted_aggregates = tuple((name, a) for name, a in bottom.aggregates if name in wanted)
    return refilter(node, wheres, replace(bottom, aggregates=wanted_aggregates))


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


PROJECTIONS = (
    Rule(drop_identity_select),
    Rule(merge_selects, why_not_merge_selects),
    Rule(push_select_below_union, why_not_push_select),
    Rule(prune_columns, why_not_prune_columns),
    Rule(prune_aggregates, recomputes=True, crosses_state=True),
)
