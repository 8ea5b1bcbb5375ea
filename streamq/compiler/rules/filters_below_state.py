"""Filters that go below operators which keep events, as deep as a condition may, so that what they remove keeps no state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import types as t

from streamq.choices import JoinKind
from streamq.compiler.rules.rule import (
    Rule,
    can_fail,
    expression_facts,
    inline,
    is_cheap,
    is_plain,
    nondeterminism,
    stays_small,
)
from streamq.compiler.rules.steps import FilterPassage, filter_rule
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import (
    Chop,
    Clip,
    DistinctIds,
    Except,
    Explode,
    Join,
    LastRows,
    Scan,
    TopK,
    ToSignal,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.operators.operator import Operator
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col, Expr, show
from streamq.plan.node import Node
from streamq.plan.passes import columns, infer, reads_lifetime, substitute
from streamq.plan.schema import shown_name
from streamq.runtime.time.endpoints import Bound
from streamq.user_code.udo import UserOperator

FLOATING = t.FloatType | t.DoubleType
"""The types with values that are equal and differ: -0.0 and 0.0."""

ENDLESS = "events may never end, and then the windows of one group depend on the endpoints of all"
"""Why windows that are reported up to the last endpoint need all events."""


@dataclass(frozen=True)
class _JudgedInput:
    """The columns of an operator's rows that a condition may read to become one on the events of an input.

    ``columns``: columns of the result, each with that of the input that has its value. ``keys``: those of them by which the
    operator tells events apart, so that it may take values for equal that differ, as -0.0 and 0.0. ``decides``: a row whose
    events of this input satisfy the condition satisfies it, too.
    """

    columns: Mapping[str, str]
    keys: frozenset[str] = frozenset()
    decides: bool = True


def push_where_below_state(node: Node) -> FilterPassage | None:
    """``where(op(a, ..), p) => op(where(a, p), ..)``, if p reads of a row only what an event of a has as well.

    Of operators over groups these are the keys; of joins the columns of a side, of an outer, semi or anti join those of the left
    one; of ``clip`` the columns of what is clipped; of ``except_`` all, of ``distinct_ids`` the ids. What p reads of keys alone
    that both inputs must have equal filters both. p must not read the lifetime, which is another one above. It must not fail,
    because below it sees events that are in no row. A key of type float or double forbids the rule, because -0.0 and 0.0 are
    equal keys. The windows of a group must not depend on other groups: an endless event is reported in windows up to the last
    endpoint of *all* events. An operator that calls a module whose failures are set aside forbids the rule, because failures of
    every group are. Of a conjunction, the parts that satisfy the conditions are pushed.
    """
    if not isinstance(node, Operator) or not (sides := _sides(node)):
        return None
    of_inputs = frozenset().union(*(side.columns for side in sides))
    padded = {name for _, name in node.right_names} if isinstance(node, Join) and node.how == JoinKind.LEFT else set()

    def obstacle(part: Expr) -> str | None:
        if reason := nondeterminism(part):
            return reason
        judges = [side for side in sides if side.decides and _can_judge(side, part)]
        if not judges:
            if columns(part) <= of_inputs:
                return f"{show(part)} reads both inputs"
            if read := sorted(padded & columns(part)):
                return f"{read[0]} is NULL where a left event has no partner"
            return f"{min(columns(part) - sides[0].columns.keys())} is no key"
        if reads_lifetime(part):
            return f"{show(part)} reads the lifetime"
        for key in sorted(columns(part) & judges[0].keys):
            if isinstance(node.schema.type_of(key), FLOATING):
                return f"key {key} is floating: -0.0 and 0.0 are one group"
        if node.set_aside:
            return f"what fails of {node.set_aside[0].module} is set aside, of every group"
        if reason := _reason_against_fewer_events(node):
            return reason
        return f"{show(part)} may fail, and would see events of no row" if can_fail(part, node.schema) else None

    def filtered(pushed: list[Expr]) -> Node:
        return node.with_children(
            [_filtered(source, side, pushed) for source, side in zip(node.children, sides, strict=True)]
        )

    def is_expected(part: Expr) -> bool:
        read = columns(part)
        return bool(read) and (read <= of_inputs or bool(read & padded))

    return FilterPassage(obstacle, filtered, is_expected)


def _sides(below: Operator) -> tuple[_JudgedInput, ...]:
    """Return the sides of an operator's inputs, in their order; none for an operator below which no filter goes."""
    match below:
        case WindowAggregate() | TopK():
            return (_group(below.outer_keys),)
        case ToSignal(keys=keys) | LastRows(keys=keys) | Scan(keys=keys):
            return (_group(keys),)
        case DistinctIds(ids=ids):
            return (_group(ids),)
        case Chop():
            return (_JudgedInput({name: name for name in below.schema.names}),)
        case Clip(on=on):
            ours = {name: name for name in below.schema.names}
            return _JudgedInput(ours), _JudgedInput(_of_one_value(below, dict(on)), decides=False)
        case Except():
            every = _group(below.schema.names)
            return every, _JudgedInput(every.columns, every.keys, decides=False)
        case Join(how=JoinKind.INNER) | WindowedJoin():
            return _inner_sides(below)
        case Join(how=how):
            own = {to if how == JoinKind.LEFT else n: n for n, to in below.left_names}
            theirs = {name: right for name, n in own.items() for left, right in below.on if n == left}
            return _JudgedInput(own), _JudgedInput(_of_one_value(below, theirs), decides=False)
    return ()


def _group(keys: tuple[str, ...]) -> _JudgedInput:
    return _JudgedInput({key: key for key in keys}, frozenset(keys))


def _inner_sides(below: Join | WindowedJoin) -> tuple[_JudgedInput, _JudgedInput]:
    """Return the sides of pairs: each side's columns, and the other's keys, which have equal values."""
    left, right = ({to: n for n, to in names} for names in (below.left_names, below.right_names))
    of_left = {name: b for name, n in left.items() for a, b in below.on if n == a}
    of_right = {name: a for name, n in right.items() for a, b in below.on if n == b}
    theirs, ours = _of_one_value(below, of_left), _of_one_value(below, of_right)
    return _JudgedInput({**ours, **left}), _JudgedInput({**theirs, **right})


def _of_one_value(below: Join | WindowedJoin | Clip, keys: Mapping[str, str]) -> dict[str, str]:
    """Return the keys, by the result's column, whose equal values are the same value: of one type, and not floating."""
    left, right = (child.schema for child in below.children)
    pairs = [(a, b) for a, b in below.on if left.type_of(a) == right.type_of(b)]
    same = {name for a, b in pairs if not isinstance(left.type_of(a), FLOATING) for name in (a, b)}
    return {name: column for name, column in keys.items() if column in same}


def _filtered(source: Node, side: _JudgedInput, parts: list[Expr]) -> Node:
    """Return an input filtered by the conditions that it can judge."""
    below = {n: Col(c) for n, c in side.columns.items() if n != c}
    each = (part for pushed in parts for part in ([pushed] if _can_judge(side, pushed) else conjuncts(pushed)))
    own = [substitute(part, below) for part in each if _can_judge(side, part)]
    return Where(source, conjunction(own)) if own else source


def _can_judge(side: _JudgedInput, part: Expr) -> bool:
    return expression_facts(part).uses.keys() <= side.columns.keys()


def _reason_against_fewer_events(node: Operator) -> str:
    """Return why windows or pieces depend on events that are not in them; "" if their members alone decide."""
    match node:
        case WindowAggregate(window=window) | TopK(window=window) | WindowedJoin(window=window):
            if window.bound is Bound.ALWAYS:
                return f"{window.name} windows are reported up to the last endpoint of all groups"
            is_bounded = window.bound is Bound.ENDLESS
        case _:
            is_bounded = isinstance(node, Chop)
    if is_bounded and any(source.traits.infinite for source in node.children):
        return ENDLESS
    return ""


def push_condition_below_join(node: Node) -> Node | None:
    """``join(a, b, q and r) => join(a, where(b, q), r)``, if q reads columns of b alone.

    If the join is inner or semi, what reads a alone filters a as well. A left event without a partner stays in a left or an anti
    join, so conditions on it decide there whom it meets, and stay. q must be deterministic, and must not read a lifetime, nor
    fail, because below it sees events that meet nobody. The windows of a ``windowed_join`` must not depend on how long the events
    that q removes live.
    """
    match node:
        case Join(where=p) | WindowedJoin(where=p) if p is not None and not _reason_against_fewer_events(node):
            sides = _names_in_pairs(node)
            parts = conjuncts(p)
            chosen = [_side_of(node, sides, part) for part in parts]
            if all(number is None for number in chosen):
                return None
            inputs = []
            for number, (source, names) in enumerate(zip(node.children, sides, strict=True)):
                own = [_renamed(part, names) for part, of in zip(parts, chosen, strict=True) if of == number]
                inputs.append(Where(source, conjunction(own)) if own else source)
            rest = [part for part, of in zip(parts, chosen, strict=True) if of is None]
            return replace(node, left=inputs[0], right=inputs[1], where=conjunction(rest) if rest else None)
    return None


def why_not_push_condition(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that keeps a condition on one input in a join; None if there is none."""
    match node:
        case Join(where=p) | WindowedJoin(where=p) if p is not None:
            for part in conjuncts(p):
                number = next(
                    (n for n, names in enumerate(_names_in_pairs(node)) if columns(part) <= names.keys()), None
                )
                if number is not None and (
                    reason := _reason_against_fewer_events(node) or _obstacle_in_join(node, number, part)
                ):
                    return reason
    return None


def _names_in_pairs(node: Join | WindowedJoin) -> list[dict[str, str]]:
    """Return each input's columns by their names in a pair."""
    return [{to: n for n, to in names} for names in (node.left_names, node.right_names)]


def _side_of(node: Join | WindowedJoin, sides: list[dict[str, str]], part: Expr) -> int | None:
    """Return the number of the input that a part of the condition filters; None if it stays."""
    fitting = (
        n for n, names in enumerate(sides) if columns(part) <= names.keys() and not _obstacle_in_join(node, n, part)
    )
    return next(fitting, None) if columns(part) else None


def _renamed(part: Expr, names: dict[str, str]) -> Expr:
    return substitute(part, {to: Col(n) for to, n in names.items()})


def _obstacle_in_join(node: Join | WindowedJoin, number: int, part: Expr) -> str | None:
    """Return the reason why a part that reads one input alone stays in the join; None if it filters that input."""
    if number == 0 and isinstance(node, Join) and node.how in (JoinKind.LEFT, JoinKind.ANTI):
        return f"{show(part)} decides which partners a left event has, and not whether it stays"
    if reason := nondeterminism(part):
        return reason
    if reads_lifetime(part):
        return f"{show(part)} reads a lifetime"
    pair = node.both if isinstance(node, Join) else node.schema
    if can_fail(part, pair):
        return f"{show(part)} may fail, and would see events that meet nobody"
    return None


def push_where_below_udo(node: Node) -> FilterPassage | None:
    """``where(explode(window(a, f)), p) => explode(window(where(a, p[f]), f))``, if f promises ``filters_on`` p's columns.

    ``p[f]`` is p with f's columns replaced by the arguments of the same names; p may read keys, too. The promise: a row with the
    value k depends only on events with the value k, and without such events there is no such row. It is about one window's
    members, so filtering must not change the windows: it does not for hopping windows over events that all end. If the windows
    depend on all events, the events stay, and only f's members are filtered: ``explode(window(a, f where p[f]))``. A module whose
    failures are quarantined forbids both, because a failing window loses all its rows. The other side conditions are those of
    ``push_where_below_state``. Of a conjunction, the parts that satisfy the conditions are pushed.
    """
    if not isinstance(node, Explode) or not isinstance(window := node.input, WindowAggregate):
        return None
    applied = dict(window.aggregates).get(node.column)
    if applied is None or not isinstance(applied.function, UserOperator):
        return None

    def filtered(pushed: list[Expr]) -> Node:
        below = conjunction(inline(part, _definitions(window, applied)) for part in pushed)
        return replace(node, input=_members_filtered(window, node.column, below))

    return FilterPassage(
        lambda part: _obstacle_in_udo(window, applied, part),
        filtered,
        lambda part: bool(columns(part) & set(node.element_columns)),
    )


def _members_filtered(window: WindowAggregate, column: str, below: Expr) -> WindowAggregate:
    """Return the window over the filtered events or, if all events decide where windows lie, with filtered members of f."""
    applied = dict(window.aggregates)[column]
    assert isinstance(applied.function, UserOperator)
    if not applied.function.events_that_stay(
        window.window.name, on_grid=window.window.traits.grid is not None, endless=window.input.traits.infinite
    ):
        return replace(window, input=Where(window.input, below))
    with_filter = replace(applied, where=below if applied.where is None else conjunction([applied.where, below]))
    aggregates = tuple((name, with_filter if name == column else other) for name, other in window.aggregates)
    return replace(window, aggregates=aggregates)


def _definitions(window: WindowAggregate, applied: Aggregate) -> dict[str, Expr]:
    """Return the keys, and the columns that the operator filters on, as expressions over the events below the window."""
    operator = applied.function
    assert isinstance(operator, UserOperator)
    arguments = operator.arguments_by_name(applied)
    filtered = {name: arguments[name] for name in operator.filter_columns if name in arguments}
    return {key: Col(key) for key in window.keys} | filtered


def _obstacle_in_udo(window: WindowAggregate, applied: Aggregate, part: Expr) -> str | None:
    """Return the reason why a part of the filter cannot be pushed; None if it can."""
    operator, source = applied.function, window.input.schema
    assert isinstance(operator, UserOperator)
    if reason := nondeterminism(part):
        return reason
    if reads_lifetime(part):
        return f"{show(part)} reads the lifetime of the rows"
    definitions = _definitions(window, applied)
    for name in sorted(columns(part)):
        if name in window.keys:
            kind = source.type_of(name)
        elif name not in operator.filter_columns:
            return f"{operator.name} does not promise sq.filters_on({name!r})"
        elif name not in definitions:
            hint = f"say columns= in its decorator, with {name!r} among them"
            return f"no argument of {operator.name} is called {name!r}: {hint}"
        else:
            kind = operator.type_of(name)
            argument = definitions[name]
            if infer(argument, source, "rewrite") != kind:
                return f"{name} has another type as an argument of {operator.name} than as its column"
            if reason := nondeterminism(argument):
                return reason
            if not is_plain(argument) and not is_cheap(argument):
                return f"{shown_name(name)} = {show(argument)} would be evaluated twice"
            if reads_lifetime(argument):
                return f"{shown_name(name)} = {show(argument)} reads the lifetime of the events"
        if isinstance(kind, FLOATING) or not isinstance(kind, t.AtomicType):
            return f"{name} is {kind.simpleString()}: values that are equal may differ"
    if operator.filters_above:
        return operator.filters_above
    if not stays_small(part, definitions):
        return "the predicate would become too large"
    below = inline(part, definitions)
    if can_fail(below, source):
        return f"{show(below)} may fail, and would see events of no reported window"
    return None


BELOW_STATE = (
    filter_rule(push_where_below_state, recomputes=True, crosses_state=True),
    Rule(push_condition_below_join, why_not_push_condition, crosses_state=True),
    filter_rule(push_where_below_udo, recomputes=True, crosses_state=True),
)
