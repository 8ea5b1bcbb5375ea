"""Aggregates of windows, in forms that are computed once: from others, by basic window, and by range of windows."""

from __future__ import annotations

from dataclasses import replace

from streamq.choices import JoinKind, LengthKind, Stamp
from streamq.compiler.rules.rule import Rule, nondeterminism
from streamq.operators import (
    AlterLifetime,
    Join,
    MergePartials,
    Select,
    Where,
    WindowAggregate,
    WindowedJoin,
    WindowSpan,
)
from streamq.operators.lifetime_change import Length, Start
from streamq.operators.member_operator import BOUNDS
from streamq.plan.aggregate import Aggregate
from streamq.plan.aggregation import expand, is_mergeable, is_restated, not_merged, restate
from streamq.plan.expr import Col, Expr, Lifetime
from streamq.plan.node import Node
from streamq.plan.passes import columns, reads_lifetime, rewrite_expression
from streamq.plan.tree import show
from streamq.windows import Hopping, Snapshot


def restate_aggregates(node: Node) -> Node | None:
    """``window(a, f(x)) => select(window(a, g(x), h(x)), f of g and h)``, where g and h restate f; each is computed once.

    An average is a sum divided by a count, NULL if no value is counted; a standard deviation is the root of a variance.
    """
    if not isinstance(node, WindowAggregate):
        return None
    source = node.input.schema
    again = {name for name, a in node.aggregates if is_restated(a, source)}
    if not again:
        return None
    known: dict[str, tuple[str, Aggregate]] = {}
    for name, a in node.aggregates:
        if name not in again:
            known.setdefault(a.digest, (name, a))
    names = {name for name, _ in node.aggregates}

    def column(expr: Expr) -> Expr | None:
        """Return the column of an aggregate, which is added under an unused name if it is new; None for other expressions."""
        if not isinstance(expr, Aggregate):
            return None
        if expr.digest not in known:
            number = next(i for i in range(len(names) + 1) if f"__{expr.name}{i}" not in names)
            known[expr.digest] = (f"__{expr.name}{number}", expr)
            names.add(f"__{expr.name}{number}")
        return Col(known[expr.digest][0])

    outputs = [(n, rewrite_expression(restate(a, source) if n in again else a, column)) for n, a in node.aggregates]
    below = replace(node, aggregates=tuple(known.values()))
    return Select(below, (*((k, Col(k)) for k in node.keys), *outputs))


def split_basic_windows(node: Node) -> Node | None:
    """``window(a by k) => select(merge(a by k), results)``: no event is aggregated twice.

    Each aggregate becomes partial results that can be merged: counts, sums, least and greatest values as they are, a mean as sum
    and count, a variance as count, mean and sum of squared differences (DataCell's compensating and expanding replication). The
    law holds for windows on a grid whose aggregates all merge. In a batch the merging operator may still aggregate the events
    directly if that is cheaper (``choose_form``). Where some aggregates do not merge but read values alone, a stream keeps
    these with their numbers, and the others as partial results (``GridFactory``).
    """
    match node:
        case WindowAggregate(source, keys, window, aggregates) if node.is_grid and node.merges:
            split = expand(aggregates, source.schema)
            merged = MergePartials(source, keys, window, split.arguments, split.partials, node.stamp)
            return Select(merged, (*((k, Col(k)) for k in keys), *split.outputs))
    return None


def why_not_split(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule; None at windows off a grid whose aggregates all merge."""
    match node:
        case WindowAggregate(source, _, window, aggregates) if window.grid is None and not node.merges:
            instead = "all members are kept"
            if node.keeps_values:
                instead = "settled members of one value are kept as one row"
            return f"{window.name} windows are on no grid, and {not_merged(aggregates, source.schema)}: {instead}"
        case WindowAggregate(source, _, window, aggregates) if window.grid is not None and not (
            node.is_grid and node.merges
        ):
            if node.stamp == Stamp.TIME_BOUND:
                return "the operator says how long rows live"
            instead = "all members are kept"
            if node.keeps_states:
                instead = "a stream keeps a state for each window"
            elif node.is_grid:
                instead = "a stream counts their values, beside partial results of the others"
            return f"{not_merged(aggregates, source.schema)}: {instead}"
    return None


def pair_basic_windows(node: Node) -> Node | None:
    """``per_window(windowed_join(a, b)) => extend(tumbling(join(span(a), span(b))))``: a pair is made once, not once a window.

    A span (``WindowSpan``) has a hop for each window of an event, so spans of two events overlap in a hop for each window that
    both lie in. Windows of one hop over the spans of pairs have the pairs of a window as members; ``split_basic_windows`` then
    keeps partial results by range of windows (DataCell's pairs of basic windows), and values with their numbers where aggregates
    do not merge. A result is extended from its hop to its window. The windows must overlap, else a pair is in one window anyway,
    and lifetimes must end, because up to which window an endless pair is reported depends on all events. The aggregates must
    merge, or read values alone, and must not depend on order or lifetimes, because their members live on spans. No expression
    between reads a lifetime, except for columns that are the window's bounds. Where others read the pairs themselves, these are
    joined by themselves: aggregates over rows of pairs would come a window later.
    """
    pairs = _pairs_below(node)
    match node:
        case WindowAggregate(Select(source, members)) if pairs is not None and _obstacle(node, pairs) is None:
            bounds = {name: expr for name, expr in members if isinstance(expr, Lifetime)}
            others = tuple((name, expr) for name, expr in members if name not in bounds)
            hops = Hopping(pairs.window.hop, pairs.window.hop, pairs.window.offset)
            keys = tuple(key for key in node.keys if key not in bounds)
            rows = replace(node, input=Select(_over_spans(source), others), keys=keys, window=hops)
            windows = AlterLifetime(rows, Start(), Length(LengthKind.SAME, pairs.window.size - pairs.window.hop))
            return Select(windows, tuple((name, bounds.get(name, Col(name))) for name in node.schema.names))
    return None


def why_not_pair(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at aggregates per window of pairs; None if there is none."""
    pairs = _pairs_below(node)
    return None if pairs is None or not isinstance(node, WindowAggregate) else _obstacle(node, pairs)


def _pairs_below(node: Node) -> WindowedJoin | None:
    """Return the join whose pairs a node aggregates per window, with only selects and filters between; None if it does not."""
    match node:
        case WindowAggregate(Select(below), keys, Snapshot()) if BOUNDS.keys() <= set(keys):
            while isinstance(below, Select | Where):
                below = below.input
            return below if isinstance(below, WindowedJoin) else None
    return None


def _obstacle(node: WindowAggregate, pairs: WindowedJoin) -> str | None:
    """Return the reason why aggregates per window of ``pairs`` are not computed by range of windows; None if they can be."""
    source = node.input.schema
    if pairs.window.windows_of_a_point == 1:
        return "windows do not overlap: a pair of points is in one window"
    if pairs.left.traits.infinite or pairs.right.traits.infinite:
        return "events may never end (set_duration and to_points end them): the last window of such a pair depends on all events"
    for name, aggregate in node.aggregates:
        if not (aggregate.function.of_values or is_mergeable(aggregate, source)):
            return f"{aggregate.function.builder(aggregate.options)[0]} does not merge"
        if aggregate.function.timed or aggregate.function.ordered or reads_lifetime(aggregate):
            return f"{name} depends on the lifetimes of pairs"
    if node.set_aside or node.stamp != Stamp.ALIGN:
        return "what fails is set aside with its window"
    bounds = _bounds(node)
    if any(bounds & columns(aggregate) for _, aggregate in node.aggregates):
        return "an aggregate reads the lifetimes of pairs"
    for expr in _between(node, pairs):
        if reads_lifetime(expr):
            return f"{show(expr)} reads the window's lifetime"
        if reason := nondeterminism(expr):
            return reason
    return None


def _bounds(node: WindowAggregate) -> set[str]:
    """Return the columns of the aggregated rows that are a start, an end or a duration."""
    assert isinstance(node.input, Select)
    return {name for name, expr in node.input.columns if isinstance(expr, Lifetime)}


def _between(node: WindowAggregate, pairs: WindowedJoin) -> list[Expr]:
    """Return the expressions from the join to the aggregates, without columns that are parts of a lifetime as they are."""
    exprs = [] if pairs.where is None else [pairs.where]
    below = node.input
    bounds = _bounds(node)
    while isinstance(below, Select | Where):
        exprs += [below.predicate] if isinstance(below, Where) else [e for n, e in below.columns if n not in bounds]
        below, bounds = below.input, set()
    return exprs


def _over_spans(node: Node) -> Node:
    """Return selects and filters over a windowed join as the same over a join of the spans of its inputs."""
    match node:
        case WindowedJoin(left, right, window, on, where, left_names, right_names):
            sides = WindowSpan(left, window), WindowSpan(right, window)
            return Join(*sides, on, where, JoinKind.INNER, left_names, right_names)
        case _:
            return node.with_children([_over_spans(child) for child in node.children])


WINDOW_AGGREGATES = (
    Rule(pair_basic_windows, why_not_pair, phase=1),
    Rule(restate_aggregates, phase=1),
    Rule(split_basic_windows, why_not_split, phase=1),
)
