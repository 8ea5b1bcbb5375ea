"""Aggregates of windows, in forms that are computed once: from others, by basic window, by range of windows, and for several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streamq.choices import JoinKind, LengthKind, Stamp
from streamq.compiler.results import Results, unsettled_nodes
from streamq.compiler.rules.rule import Rule, can_fail, nondeterminism
from streamq.functions.logic import conjunction
from streamq.operators import (
    AlterLifetime,
    Join,
    LastRows,
    LatestPairs,
    LatestWindows,
    MergePartials,
    Select,
    Where,
    WindowAggregate,
    WindowedJoin,
    WindowSpan,
)
from streamq.operators.alter_lifetime import Length, Start
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.grid_factory import ResultWindows
from streamq.operators.member_operator import BOUNDS
from streamq.plan.aggregate import Aggregate
from streamq.plan.aggregation import expand, is_mergeable, is_restated, not_merged, restate
from streamq.plan.expr import Col, Expr, Lifetime, Lit, fold, show
from streamq.plan.node import Node, nodes
from streamq.plan.partial import Partial
from streamq.plan.passes import columns, reads_lifetime, rewrite_expression, substitute
from streamq.plan.schema import POINT
from streamq.runtime.kernels.windows_of_sizes import NUMBER
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
        case WindowAggregate(source, keys, Hopping() as window, aggregates) if node.is_grid and node.merges:
            split = expand(aggregates, source.schema)
            merged = MergePartials(source, keys, window, split.arguments, split.partials, node.stamp)
            return Select(merged, (*((k, Col(k)) for k in keys), *split.outputs))
    return None


def why_not_split(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule; None at windows off a grid whose aggregates all merge."""
    match node:
        case WindowAggregate(source, _, window, aggregates) if window.traits.grid is None and not node.merges:
            instead = "all members are kept"
            if node.keeps_values:
                instead = "settled members of one value are kept as one row"
            return f"{window.name} windows are on no grid, and {not_merged(aggregates, source.schema)}: {instead}"
        case WindowAggregate(source, _, window, aggregates) if window.traits.grid is not None and not (
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
    if pairs.window.grid.n == 1:
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


def number_last_rows(node: Node) -> Node | None:
    """``snapshot(where(last_rows(a))) => latest_windows(a)``: a slide adds up its step, and merges partial results of steps.

    Likewise ``snapshot(join(last_rows(a), last_rows(b))) => latest_pairs(a, b)``: of n steps a side a slide adds up 2n - 1 of the
    n * n pairs of steps (DataCell). The rows are all those of a stream, from sources by steps alone, and are never taken back, so
    that each gets its number once. The aggregates must merge, and depend neither on order nor on lifetimes, and each argument
    over pairs reads one side. Expressions between move into conditions and arguments; groups go by columns of the rows.
    """
    last = _last_rows_below(node)
    if last is None or not isinstance(node, WindowAggregate) or last.obstacle(node) is not None:
        return None
    aggregates = tuple((name, replaced(aggregate, last.columns)) for name, aggregate in node.aggregates)
    match last.rows:
        case LastRows(source, _, window):
            window = replace(window, inner_keys=node.keys)
            if not last.predicates:
                return LatestWindows(source, node.keys, window, aggregates)
            own = tuple((name, Col(name)) for name in source.schema.names)
            members = Select(source, (*own, (MEMBER, conjunction(last.predicates))))
            return LatestWindows(members, node.keys, replace(window, where=MEMBER), aggregates)
        case Join(LastRows(left, _, one), LastRows(right, _, other)) as join:
            return LatestPairs(
                left, right, (one, other), join.on, join.where, join.left_names, join.right_names, node.keys, aggregates
            )
    return None


def why_not_numbered(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at aggregates over last rows; None if there is none."""
    last = _last_rows_below(node)
    return None if last is None or not isinstance(node, WindowAggregate) else last.obstacle(node)


MEMBER = "__member"
"""The column of last rows that is true of those that are aggregated."""


@dataclass(frozen=True)
class _MembersBelow:
    """Last rows, or their join, below an aggregate: the columns and predicates between, in terms of theirs."""

    rows: LastRows | Join
    columns: Mapping[str, Expr]
    predicates: tuple[Expr, ...]

    @property
    def sides(self) -> list[LastRows]:
        """The last rows of one stream, or of both."""
        sides = [self.rows] if isinstance(self.rows, LastRows) else self.rows.children
        return [side for side in sides if isinstance(side, LastRows)]

    def obstacle(self, node: WindowAggregate) -> str | None:
        """Return the reason why an aggregate over them is computed from members; None if rows can be numbered for it."""
        if any(side.keys for side in self.sides):
            return "the rows of each key are counted by themselves"
        for side in self.sides:
            below = nodes(side.input)
            if side.input.traits.retracts or any(isinstance(one, EvaluatedOperator) for one in below):
                return "rows may be taken back, so that others get other numbers"
        if not node.adds_up_rows or node.set_aside or node.stamp != Stamp.ALIGN:
            return "an aggregate reads the members themselves, or their order or lifetimes"
        if any(self.columns[key].copied_column != key for key in node.keys):
            return "a group goes by a column that is computed of the last rows"
        aggregates = tuple((name, replaced(aggregate, self.columns)) for name, aggregate in node.aggregates)
        schema = self.rows.schema
        arguments = [expr for _, expr in expand(aggregates, schema).arguments]
        for expr in (*self.predicates, *arguments):
            if reads_lifetime(expr):
                return f"{show(expr)} reads the lifetimes of last rows"
            if can_fail(expr, schema):
                return f"{show(expr)} may fail on rows that are never among the last ones"
            if reason := nondeterminism(expr):
                return reason
        if not isinstance(self.rows, Join):
            return None
        if self.predicates:
            return "a filter on pairs is no condition of their join"
        names = [{to for _, to in side} for side in (self.rows.left_names, self.rows.right_names)]
        both = [expr for expr in arguments if not any(columns(expr) <= side for side in names)]
        return f"{show(both[0])} reads both sides of a pair" if both else None


def replaced(aggregate: Aggregate, by: Mapping[str, Expr]) -> Aggregate:
    """Return an aggregate over other columns, of which ``by`` has the present ones."""
    result = substitute(aggregate, by)
    assert isinstance(result, Aggregate)
    return result


def _last_rows_below(node: Node) -> _MembersBelow | None:
    """Return the last rows that a node aggregates, or pairs of them, with only selects and filters between; None: none."""
    if not isinstance(node, WindowAggregate) or not isinstance(node.window, Snapshot):
        return None
    exprs: dict[str, Expr] = {name: Col(name) for name in node.input.schema.names}
    predicates: list[Expr] = []
    below = node.input
    while isinstance(below, Select | Where):
        if isinstance(below, Where):
            predicates.append(below.predicate)
        else:
            own = dict(below.columns)
            exprs = {name: substitute(expr, own) for name, expr in exprs.items()}
            predicates = [substitute(predicate, own) for predicate in predicates]
        below = below.input
    match below:
        case LastRows() | Join(LastRows(), LastRows(), how=JoinKind.INNER):
            return _MembersBelow(below, exprs, tuple(predicates))
    return None


def share_sizes(node: Node) -> Node | None:
    """``merge(long), merge(short) => where(m, long), where(m, short)``, m: both from the partial results of the long ones.

    The windows are those of the results of a stream. Final windows of points read the basic windows of longer ones, if they
    consist of these: the longer ones hold them anyway, where those of a greatest common divisor could be many more. The rows of
    both come from one kernel, whose CTI is that of the longest windows, so shorter ones share only if no operator, and no
    result with CTIs, reads them. Otherwise windows share as by ``share_windows``.
    """
    return _share(node, several_sizes=True)


def share_windows(node: Node) -> Node | None:
    """``merge(a, x), merge(a, y) => select(merge(a, x + y), x), select(merge(a, x + y), y)``: a row is held once.

    The windows are those of the results of a stream. They share if they have one stream, one group, one grid and one stamp (Arasu
    and Widom, *Resource Sharing in Continuous Sliding-Window Aggregates*). Final results share only with final results: a
    changelog sends rows before they are final, and final results would have to hold these. Windows that call a user's code have
    partial results of their own, so that a change of that code changes nothing else.
    """
    return _share(node, several_sizes=False)


def _share(root: Node, *, several_sizes: bool) -> Node | None:
    """Return the results over windows that share; ``several_sizes``: only those share that are not all on one grid."""
    if not isinstance(root, Results) or not root.egresses:
        return None
    if sum(isinstance(node, MergePartials) for node in nodes(root)) < 2:
        return None
    every = _shareable(root)
    groups: dict[object, list[_Windows]] = {}
    for one in every:
        longest = max([one, *(other for other in every if several_sizes and one.may_read(other))], key=_by_length)
        groups.setdefault((longest.stream, longest.node.window), []).append(one)
    merged: dict[str, MergePartials] = {}
    for group in groups.values():
        if len({one.node.window for one in group}) > several_sizes and group[1:]:
            readers = [one.node for one in group]
            merged |= dict.fromkeys(
                (r.digest for r in readers), _merged(readers, max(group, key=_by_length).node.window)
            )
    return _over_merged(root, merged) if merged else None


@dataclass(frozen=True, kw_only=True)
class _Windows:
    """Windows of a plan.

    ``stream``: what windows that share a kernel have in common, beside the grid. ``may_be_shorter``: they may read the basic
    windows of longer ones.
    """

    node: MergePartials
    stream: object
    may_be_shorter: bool

    def may_read(self, longest: _Windows) -> bool:
        """Return True if these windows may read the basic windows of others, which are longer, or come more often."""
        return (
            self.may_be_shorter
            and self.stream == longest.stream
            and _by_length(self) < _by_length(longest)
            and consists_of_basic(self.node.window, longest.node.window)
        )


def _by_length(windows: _Windows) -> tuple[int, int, int]:
    """Return a key by which the windows whose basic windows others read come last."""
    grid = windows.node.window.grid
    return grid.size, -grid.hop, -grid.offset


def consists_of_basic(window: Hopping, longest: Hopping) -> bool:
    """Return True if windows on a grid consist of the basic windows of others, which are no shorter and a hop each."""
    own, basic = window.grid, longest.grid
    distances = (own.size, own.hop, own.offset - basic.offset)
    return basic.divides and own.size <= basic.size and not any(distance % basic.hop for distance in distances)


def _shareable(root: Results) -> list[_Windows]:
    """Return the windows of the results that merge partial results; without those that do so for others already."""
    plan, unsettled = nodes(root), unsettled_nodes(root)
    # operators with state need the CTI of the windows below them, and so do results with CTIs
    with_cti = {result.digest for result, out in zip(root.inputs, root.egresses, strict=True) if out.ctis}
    for node in reversed(plan):
        if isinstance(node, EvaluatedOperator) or node.digest in with_cti:
            with_cti.update(child.digest for child in node.children)
    corrected: set[str] = set()
    windows = []
    for node in plan:
        if any(child.digest in corrected for child in node.children) or _corrects(node, unsettled):
            corrected.add(node.digest)
        if isinstance(node, MergePartials) and not node.results:
            is_final = node.digest not in unsettled
            # a run could not go on with the others once the code has changed
            own = node.digest if node.factory.modules else ""
            # rows of windows of several sizes are final, and have one CTI
            may_be_shorter = (
                is_final
                and node.input.schema.shape == POINT
                and not node.input.traits.retracts
                and node.input.digest not in corrected
                and node.digest not in with_cti
            )
            stream = (_stream_of(node).digest, node.keys, node.stamp, own, is_final)
            windows.append(_Windows(node=node, stream=stream, may_be_shorter=may_be_shorter))
    return windows


def _corrects(node: Node, unsettled: frozenset[str]) -> bool:
    """Return True if the kernel of a node may take back what it has sent; ``unsettled`` are the nodes that send early rows."""
    factory = node.evaluation.factory if isinstance(node, EvaluatedOperator) else None
    return factory is not None and factory.corrects and (not factory.always_holds or node.digest in unsettled)


def _stream_of(windows: MergePartials) -> Node:
    """Return the events of windows, below selects that only leave out columns."""
    below = windows.input
    while isinstance(below, Select) and below.leaves_out_columns:
        below = below.input
    return below


def _merged(readers: Sequence[MergePartials], window: Hopping) -> MergePartials:
    """Return the partial results of all readers, each once, by basic windows of ``window``."""
    read: dict[Hopping, dict[str, Partial]] = {}
    for reader in readers:
        read.setdefault(reader.window, {}).update((partial.name, partial) for partial in reader.partials)
    return replace(
        readers[0],
        input=_stream_of(readers[0]),
        window=window,
        arguments=tuple({argument[0]: argument for reader in readers for argument in reader.arguments}.values()),
        partials=tuple({partial.name: partial for reader in readers for partial in reader.partials}.values()),
        results=tuple(ResultWindows(own, tuple(names)) for own, names in read.items()) if len(read) > 1 else (),
    )


def _over_merged(root: Node, merged: Mapping[str, MergePartials]) -> Node:
    """Return a plan in which each window of ``merged``, by digest, reads the partial results that it shares."""
    rebuilt: dict[str, Node] = {}
    rows: dict[str, Node] = {}

    def visit(node: Node, inputs: list[Node]) -> Node:
        over = node.with_children(inputs)
        if isinstance(node, MergePartials) and node.digest in merged:
            shared = merged[node.digest]
            if shared.digest not in rows:
                rows[shared.digest] = replace(shared, input=rebuilt[shared.input.digest])
            over = rows[shared.digest]
            if shared.results:
                number = [one.window for one in shared.results].index(node.window)
                over = Where(over, Col(NUMBER) == Lit(number))
            over = Select(over, tuple((name, Col(name)) for name in node.schema.names))
        rebuilt[node.digest] = over
        return over

    return fold(root, visit)


WINDOW_AGGREGATES = (
    Rule(pair_basic_windows, why_not_pair, phase=1),
    Rule(restate_aggregates, phase=1),
    Rule(split_basic_windows, why_not_split, phase=1),
    Rule(number_last_rows, why_not_numbered, phase=1),
    Rule(share_sizes, phase=1, crosses_state=True),
    Rule(share_windows, phase=1),
)
