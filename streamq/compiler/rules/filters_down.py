"""Filters that go down, towards the sources: merged with one another, and below the operators without state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from streamq.compiler.rules.rule import (
    LARGEST,
    Rule,
    can_fail,
    expression_facts,
    inline,
    is_cheap,
    is_plain,
    nondeterminism,
    stays_small,
)
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import AlterLifetime, Explode, Select, Source, Union, Where
from streamq.plan.expr import Expr, show
from streamq.plan.node import Node
from streamq.plan.passes import columns, reads_lifetime
from streamq.plan.schema import shown_name


def merge_wheres(node: Node) -> Node | None:
    """``where(where(a, p), q) => where(a, p and q)``, if p and q are deterministic and q cannot fail.

    Before, q sees only rows for which p is true. In ``p and q`` it is also evaluated where p is NULL, and must not raise there. p
    and q together have fewer than LARGEST nodes.
    """
    match node:
        case Where(Where(source, p), q) if why_not_merge_wheres(node) is None:
            return Where(source, conjunction([p, *conjuncts(q)]))
    return None


def why_not_merge_wheres(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a where over a where; None if there is none."""
    match node:
        case Where(Where(source, p), q):
            if reason := nondeterminism(p) or nondeterminism(q):
                return reason
            if expression_facts(p).size + expression_facts(q).size >= LARGEST:
                return "the predicate would become too large"
            if can_fail(q, source.schema):
                return f"{show(q)} may fail on rows where {show(p)} is NULL"
    return None


@dataclass(frozen=True)
class FilterPassage:
    """The way of a filter below an operator, part by part of its conjunction.

    ``obstacle``: the reason why a part stays above, None if it may pass. ``filtered``: the operator over what the parts that pass
    filter. ``is_expected``: a user may expect a part to pass.
    """

    obstacle: Callable[[Expr], str | None]
    filtered: Callable[[list[Expr]], Node]
    is_expected: Callable[[Expr], bool] = lambda part: True


Passages = Callable[[Node], FilterPassage | None]
"""The passage of a filter below a node; None if filters do not go below it."""


def push_filter(node: Node, passages: Passages) -> Node | None:
    """Return a filter with the parts that pass below its input; None if there are none."""
    if not isinstance(node, Where) or (passage := passages(node.input)) is None:
        return None
    pushed: list[Expr] = []
    rest: list[Expr] = []
    for part in conjuncts(node.predicate):
        # a part that may fail must not see rows that a part before it removes
        stays = passage.obstacle(part) is not None or (rest and can_fail(part, node.input.schema))
        (rest if stays else pushed).append(part)
    if not pushed:
        return None
    below = passage.filtered(pushed)
    return Where(below, conjunction(rest)) if rest else below


def why_not_push_filter(node: Node, passages: Passages) -> str | None:
    """Return, for ``explain()``, the reason why a part of a filter that may be expected below stays above; None without one."""
    if isinstance(node, Where) and (passage := passages(node.input)) is not None:
        for part in conjuncts(node.predicate):
            if passage.is_expected(part) and (reason := passage.obstacle(part)):
                return reason
    return None


def push_where_below_select(node: Node) -> Node | None:
    """``where(select(a, x), p) => select(where(a, p[x]), x)``, if what p reads of x is cheap and all is deterministic.

    ``p[x]`` is p with the columns that x defines replaced by their expressions. A select does not change lifetimes, so p may read
    them. Of a conjunction, the parts that satisfy the conditions are pushed; a part that may raise an error stays if a part
    before it stays, because it must not see rows that the other removes. A select that only removes columns stays below the
    filter, because ``prune_columns`` has put it there. A part that would become too large stays, too (``stays_small``).
    """
    return push_filter(node, below_select)


def below_select(node: Node) -> FilterPassage | None:
    """Return the passage below a select that does not only remove columns of a source or a select."""
    if not isinstance(node, Select):
        return None
    x, source = node.exprs, node.input
    if isinstance(source, Source | Select) and node.leaves_out_columns:
        return None

    def obstacle(part: Expr) -> str | None:
        for name, e in x.items():
            if reason := nondeterminism(e):
                return f"{shown_name(name)} = {reason}"
        if reason := nondeterminism(part):
            return reason
        for name in sorted(expression_facts(part).uses):
            if not is_plain(x[name]) and not is_cheap(x[name]):
                return f"{shown_name(name)} = {show(x[name])} would be evaluated twice"
        return None if stays_small(part, x) else "the predicate would become too large"

    return FilterPassage(
        obstacle, lambda pushed: replace(node, input=Where(source, conjunction(inline(part, x) for part in pushed)))
    )


def push_where_below_union(node: Node) -> Node | None:
    """``where(union(a, b), p) => union(where(a, p), where(b, p))``, if p is deterministic."""
    return push_filter(node, below_union)


def below_union(node: Node) -> FilterPassage | None:
    """Return the passage below a union, into each branch."""
    if not isinstance(node, Union):
        return None
    inputs = node.inputs
    return FilterPassage(
        nondeterminism, lambda pushed: Union(tuple(Where(source, conjunction(pushed)) for source in inputs))
    )


def push_where_below_alter_lifetime(node: Node) -> Node | None:
    """``where(alter_lifetime(a, s, d), p) => alter_lifetime(where(a, p), s, d)``, if p reads no lifetime and cannot fail.

    p, s and d must be deterministic. Below, p also sees events that alter_lifetime drops, so it must not raise an error. Of a
    conjunction, the parts that satisfy the conditions are pushed.
    """
    return push_filter(node, below_alter_lifetime)


def below_alter_lifetime(node: Node) -> FilterPassage | None:
    """Return the passage below a change of lifetimes."""
    if not isinstance(node, AlterLifetime):
        return None

    def obstacle(part: Expr) -> str | None:
        for expr in (node.start.expr, node.length.expr, part):
            if expr is not None and (reason := nondeterminism(expr)):
                return reason
        if reads_lifetime(part):
            return f"{show(part)} reads the new lifetime"
        if can_fail(part, node.schema):
            return f"{show(part)} may fail, and would see events that get no lifetime"
        return None

    return FilterPassage(
        obstacle,
        lambda pushed: replace(node, input=Where(node.input, conjunction(pushed))),
        lambda part: not reads_lifetime(part),
    )


def push_where_below_explode(node: Node) -> Node | None:
    """``where(explode(a, c), p) => explode(where(a, p), c)``, if p reads nothing of c, is deterministic and cannot fail.

    Rows keep the lifetime of their event, so p may read it. Below, p also sees events whose array is empty or NULL, so it must
    not raise an error. Of a conjunction, the parts that satisfy the conditions are pushed.
    """
    return push_filter(node, below_explode)


def below_explode(node: Node) -> FilterPassage | None:
    """Return the passage before the elements of an array become rows."""
    if not isinstance(node, Explode):
        return None
    elements = set(node.element_columns)

    def obstacle(part: Expr) -> str | None:
        if reason := nondeterminism(part):
            return reason
        if read := sorted(columns(part) & elements):
            return f"{read[0]} is of the elements"
        if can_fail(part, node.schema):
            return f"{show(part)} may fail, and would see events without elements"
        return None

    return FilterPassage(
        obstacle,
        lambda pushed: Explode(Where(node.input, conjunction(pushed)), node.column, node.flatten),
        lambda part: not columns(part) & elements,
    )


FILTERS_DOWN = (
    Rule(merge_wheres, why_not_merge_wheres),
    Rule(push_where_below_select, partial(why_not_push_filter, passages=below_select)),
    Rule(push_where_below_union, partial(why_not_push_filter, passages=below_union)),
    Rule(push_where_below_alter_lifetime, partial(why_not_push_filter, passages=below_alter_lifetime)),
    Rule(push_where_below_explode, partial(why_not_push_filter, passages=below_explode)),
)
