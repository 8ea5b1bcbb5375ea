"""Filters and selects, merged and moved: filters go down, towards the sources, below the operators without state.

Columns and aggregates that no operator above reads are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import wraps

from streamq.choices import JoinKind
from streamq.compiler.rules.rule import (
    LARGEST,
    Rule,
    can_fail,
    count_uses,
    expression_facts,
    inline,
    is_cheap,
    is_plain,
    nondeterminism,
    stays_small,
)
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import (
    AlterLifetime,
    Chop,
    Clip,
    DistinctIds,
    Except,
    Explode,
    Join,
    LastRows,
    MergePartials,
    Select,
    Source,
    TopK,
    ToSignal,
    Union,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.plan.expr import Col, Expr, show
from streamq.plan.node import Node, expressions
from streamq.plan.passes import columns, reads_lifetime
from streamq.plan.schema import shown_name

NARROWED = AlterLifetime | Chop | Clip | Join | ToSignal | TopK | WindowedJoin
"""The operators through which columns go that nobody reads: they do not tell events apart by them."""


def merge_wheres(node: Node) -> Node | None:
    """``where(where(a, p), q) => where(a, p and q)``, if p and q are deterministic and q cannot fail.

    Before, q sees only rows for which p is true. In ``p and q`` it is also evaluated where p is NULL, and must not raise there. p
    and q together have fewer than LARGEST nodes. What both ask is asked once.
    """
    match node:
        case Where(Where(source, p), q) if why_not_merge_wheres(node) is None:
            first = {part.digest for part in conjuncts(p)}
            return Where(source, conjunction([p, *(part for part in conjuncts(q) if part.digest not in first)]))
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
"""A function with the name and the law of a rule: it returns the passage of a filter below a node, None if there is none."""


def push_filter(node: Node, passages: Passages) -> Node | None:
    """Return a filter with the parts that pass below its input; None if there are none."""
    if not isinstance(node, Where) or _meets_many(node) or (passage := passages(node.input)) is None:
        return None
    if passage.obstacle(node.predicate) is None:
        # what keeps a part above keeps the whole above
        return passage.filtered([node.predicate])
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


def _meets_many(node: Where) -> bool:
    """Return True if a filter would meet one below its input with which it is too large to be merged.

    Of many filters and operators each filter then passes but some; else it would pass all, and be written out for each input.
    """
    size = expression_facts(node.predicate).size
    below = (expression_facts(one.predicate).size for one in node.input.children if isinstance(one, Where))
    return any(size + other >= LARGEST > max(size, other) for other in below)


def filter_rule(passages: Passages, *, recomputes: bool = False, crosses_state: bool = False) -> Rule:
    """Return the rule by which filters go below a kind of nodes."""

    @wraps(passages)
    def push(node: Node) -> Node | None:
        return push_filter(node, passages)

    def why_not(node: Node) -> str | None:
        if isinstance(node, Where) and (passage := passages(node.input)) is not None:
            if _meets_many(node):
                return "it would meet a filter below with which it is too large to be one"
            for part in conjuncts(node.predicate):
                if passage.is_expected(part) and (reason := passage.obstacle(part)):
                    return reason
        return None

    return Rule(push, why_not, recomputes=recomputes, crosses_state=crosses_state)


def push_where_below_select(node: Node) -> FilterPassage | None:
    """``where(select(a, x), p) => select(where(a, p[x]), x)``, if what p reads of x is cheap and all is deterministic.

    ``p[x]`` is p with the columns that x defines replaced by their expressions. A select does not change lifetimes, so p may read
    them. Of a conjunction, the parts that satisfy the conditions are pushed; a part that may raise an error stays if a part
    before it stays, because it must not see rows that the other removes. A select that only removes columns stays below the
    filter, because ``prune_columns`` has put it there. A part that would become too large stays, too (``stays_small``).
    """
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


def push_where_below_union(node: Node) -> FilterPassage | None:
    """``where(union(a, b), p) => union(where(a, p), where(b, p))``, if p is deterministic."""
    if not isinstance(node, Union):
        return None
    inputs = node.inputs
    return FilterPassage(
        nondeterminism, lambda pushed: Union(tuple(Where(source, conjunction(pushed)) for source in inputs))
    )


def push_where_below_alter_lifetime(node: Node) -> FilterPassage | None:
    """``where(alter_lifetime(a, s, d), p) => alter_lifetime(where(a, p), s, d)``, if p reads no lifetime and cannot fail.

    p, s and d must be deterministic. Below, p also sees events that alter_lifetime drops, so it must not raise an error. Of a
    conjunction, the parts that satisfy the conditions are pushed.
    """
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


def push_where_below_explode(node: Node) -> FilterPassage | None:
    """``where(explode(a, c), p) => explode(where(a, p), c)``, if p reads nothing of c, is deterministic and cannot fail.

    Rows keep the lifetime of their event, so p may read it. Below, p also sees events whose array is empty or NULL, so it must
    not raise an error. Of a conjunction, the parts that satisfy the conditions are pushed.
    """
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
    filter_rule(push_where_below_select),
    filter_rule(push_where_below_union, recomputes=True),
    filter_rule(push_where_below_alter_lifetime),
    filter_rule(push_where_below_explode),
)


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
            # most columns of wide selects are copied
            computed = [(name, e) for name, e in outer if not isinstance(e, Col)]
            computed_below = [(name, e) for name, e in inner if not isinstance(e, Col)]
            for name, e in (*computed_below, *computed):
                if expression_facts(e).opaque:
                    return f"column {name} hides what it reads: {show(e)}"
            count = count_uses(e for _, e in outer)
            renamed = {e.name for _, e in outer if isinstance(e, Col)}
            for name, e in computed_below:
                if count[name] > 1 and not is_plain(e):
                    return f"{shown_name(name)} = {show(e)} would be evaluated {count[name]} times"
                if count[name] and name not in renamed and not expression_facts(e).deterministic:
                    return f"{shown_name(name)} = {show(e)} is not deterministic"
            by = dict(inner)
            for name, e in computed:
                if not stays_small(e, by):
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


def prune_columns_below(node: Node) -> Node | None:
    """``op(f(a, ..)) => op(f(select(a, c), ..))``, where c is what op, f and filters between read of a.

    op is a select or a window; f alters lifetimes, clips, chops, makes a signal, keeps the best or joins. It must not tell events
    apart by their other columns. A pyspark Column counts as reading all columns.
    """
    wheres, below = filters_below(node)
    if below is node or (wanted := columns_read(node, wheres)) is None:
        return None
    narrow = _narrowed(below, wanted)
    return None if narrow is below else refilter(node, wheres, narrow)


def prune_columns_beside(node: Node) -> Node | None:
    """``f(a, b) => f(a, select(b, c))``, where f is a join or clip whose rows have no other columns of b than c."""
    narrow = _narrowed(node, frozenset(node.schema.names)) if isinstance(node, Clip | Join | WindowedJoin) else node
    return None if narrow is node else narrow


def _narrowed(below: Node, wanted: frozenset[str]) -> Node:
    """Return an operator over selects of what it reads and of ``wanted``; the operator itself if no column can go."""
    facts = [expression_facts(expr) for expr in expressions(below)]
    if any(fact.opaque for fact in facts):
        return below
    read = frozenset[str]().union(*(fact.uses for fact in facts))
    match below:
        case Join() | WindowedJoin():
            return narrow_join(below, wanted, read)
        case Clip(on=on):
            each = [wanted.union(a for a, _ in on), frozenset(b for _, b in on)]
        case ToSignal(keys=keys, order_by=()):
            each = [wanted.union(keys)]
        case TopK(keys=keys, ties="keep", row_number=False) if not below.window.traits.counts_rows:
            each = [wanted.union(keys, read)]
        case AlterLifetime() | Chop():
            each = [wanted | read]
        case _:
            return below
    inputs = [only_columns(source, names) for source, names in zip(below.children, each, strict=True)]
    return below if inputs == list(below.children) else below.with_children(inputs)


def narrow_join(join: Join | WindowedJoin, wanted: frozenset[str], of_pairs: frozenset[str]) -> Join | WindowedJoin:
    """Return a join over selects of what it and its readers read; the join itself if its inputs have no other columns.

    ``wanted``: the columns of its rows that are read; ``of_pairs``: those that its condition reads.
    """
    is_pair = isinstance(join, WindowedJoin) or join.how in (JoinKind.INNER, JoinKind.LEFT)
    ours = [n for n, to in join.left_names if to in of_pairs or (to if is_pair else n) in wanted]
    left = only_columns(join.left, [*ours, *(a for a, _ in join.on)])
    right_names = tuple((n, to) for n, to in join.right_names if to in of_pairs or (is_pair and to in wanted))
    right = only_columns(join.right, [*(n for n, _ in right_names), *(b for _, b in join.on)])
    if left is join.left and right is join.right:
        return join
    # rows of a semi or anti join have all columns of the left side, its keys included
    left_names = tuple((n, to) for n, to in join.left_names if n in left.schema.names)
    return replace(join, left=left, right=right, left_names=left_names, right_names=right_names)


def only_columns(source: Node, names: Collection[str]) -> Node:
    """Return a node with only the columns ``names``, in its order; the node itself if it has no other."""
    if all(name in names for name in source.schema.names):
        return source
    return Select(source, tuple((name, Col(name)) for name in source.schema.names if name in names))


def why_not_prune_columns(node: Node) -> str | None:
    """Return, for ``explain()``, a text on an expression that may read any column, so that none is removed; None without one."""
    wheres, bottom = filters_below(node)
    if isinstance(bottom, Source | Select | Union) and (wheres or not isinstance(node, Select)):
        return _any_column([*_expressions(node), *(w.predicate for w in wheres)])
    return None


def why_not_prune_below(node: Node) -> str | None:
    """Return, for ``explain()``, why columns that nobody reads stay below an operator; None if there is no reason."""
    wheres, below = filters_below(node)
    if below is node:
        return None
    if isinstance(below, NARROWED):
        return _any_column([*_expressions(node), *(w.predicate for w in wheres), *expressions(below)])
    if isinstance(below, DistinctIds | Except | LastRows):
        wanted = columns_read(node, wheres)
        return None if wanted is None or wanted >= {*below.schema.names} else f"{below.title} compares all columns"
    return None


def _any_column(read: Iterable[Expr]) -> str | None:
    return next((f"{show(e)} may read any column" for e in read if expression_facts(e).opaque), None)


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
    read = [*_expressions(node), *(w.predicate for w in wheres)]
    if any(expression_facts(e).opaque for e in read):
        return None
    keys = node.keys if isinstance(node, WindowAggregate | MergePartials) else ()
    if isinstance(node, WindowAggregate):
        if node.window.traits.counts_rows or node.reads_all:
            # the whole payload orders events of equal starts, and events are set aside with their whole payload
            return None
    return frozenset(keys).union(*(expression_facts(e).uses for e in read))


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
    Rule(push_select_below_union, why_not_push_select, recomputes=True),
    Rule(prune_columns, why_not_prune_columns),
    Rule(prune_aggregates, recomputes=True, crosses_state=True),
)

COLUMNS_DOWN = (
    Rule(prune_columns_below, why_not_prune_below, phase=2, recomputes=True, crosses_state=True),
    Rule(prune_columns_beside, phase=2, crosses_state=True),
)
"""Behind all rules on windows over joins, which it would hide from them, and which make joins that several of them read."""
