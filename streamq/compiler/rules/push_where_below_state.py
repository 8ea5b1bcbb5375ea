"""Filter below an operator that keeps events, as deep as a condition may, so that what the filter removes keeps no state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import types as t

from streamq.choices import JoinKind
from streamq.compiler.rules.substitution import expression_facts
from streamq.compiler.rules.totality import can_fail
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import (
    Clip,
    DistinctIds,
    Except,
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
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node
from streamq.plan.passes import columns, reads_lifetime, substitute
from streamq.plan.tree import show
from streamq.runtime.time.endpoints import Bound
from streamq.windows import Window

FLOATING = t.FloatType | t.DoubleType
"""The types with values that are equal and differ: -0.0 and 0.0."""


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


def push_where_below_state(node: Node) -> Node | None:
    """``where(op(a, ..), p) => op(where(a, p), ..)``, if p reads of a row only what an event of a has as well.

    Of operators over groups these are the keys; of joins the columns of a side, of an outer, semi or anti join those of the left
    one; of ``clip`` the columns of what is clipped; of ``except_`` all, of ``distinct_ids`` the ids. What p reads of keys alone
    that both inputs must have equal filters both. p must not read the lifetime, which is another one above. It must not fail,
    because below it sees events that are in no row. A key of type float or double forbids the rule, because -0.0 and 0.0 are
    equal keys. The windows of a group must not depend on other groups: an endless event is reported in windows up to the last
    endpoint of *all* events. An operator that calls a module whose failures are set aside forbids the rule, because failures of
    every group are. Of a conjunction, the parts that satisfy the conditions are pushed.
    """
    match node:
        case Where(Operator() as below, p) if sides := _sides(below):
            pushed: list[Expr] = []
            rest: list[Expr] = []
            for part in conjuncts(p):
                (pushed if _obstacle(below, sides, part) is None else rest).append(part)
            if pushed:
                inputs = [_filtered(source, side, pushed) for source, side in zip(below.children, sides, strict=True)]
                filtered = below.with_children(inputs)
                return Where(filtered, conjunction(rest)) if rest else filtered
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a filter that reads columns of an input; None without."""
    match node:
        case Where(Operator() as below, p) if sides := _sides(below):
            of_inputs = frozenset().union(*(side.columns for side in sides))
            for part in conjuncts(p):
                if columns(part) and columns(part) <= of_inputs and (reason := _obstacle(below, sides, part)):
                    return reason
            if isinstance(below, Join) and below.how == JoinKind.LEFT:
                right = {name for _, name in below.right_names}
                if read := sorted(right & columns(p)):
                    return f"{read[0]} is NULL where a left event has no partner"
    return None


def _sides(below: Operator) -> tuple[_JudgedInput, ...]:
    """Return the sides of an operator's inputs, in their order; none for an operator below which no filter goes."""
    match below:
        case WindowAggregate(keys=keys) | TopK(keys=keys):
            return (_group(below.window.outer_keys(keys)),)
        case ToSignal(keys=keys) | LastRows(keys=keys) | Scan(keys=keys):
            return (_group(keys),)
        case DistinctIds(ids=ids):
            return (_group(ids),)
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
    own = [substitute(part, {n: Col(c) for n, c in side.columns.items()}) for part in parts if _can_judge(side, part)]
    return Where(source, conjunction(own)) if own else source


def _can_judge(side: _JudgedInput, part: Expr) -> bool:
    return columns(part) <= side.columns.keys()


def _obstacle(below: Operator, sides: tuple[_JudgedInput, ...], part: Expr) -> str | None:
    """Return the reason why a part of the filter cannot be pushed; None if it can."""
    if not expression_facts(part).deterministic:
        return f"{show(part)} is not known to be deterministic"
    judges = [side for side in sides if side.decides and _can_judge(side, part)]
    if not judges:
        if columns(part) <= frozenset().union(*(side.columns for side in sides)):
            return f"{show(part)} reads both inputs"
        return f"{min(columns(part) - sides[0].columns.keys())} is no key"
    if reads_lifetime(part):
        return f"{show(part)} reads the lifetime"
    for key in sorted(columns(part) & judges[0].keys):
        if isinstance(below.schema.type_of(key), FLOATING):
            return f"key {key} is floating: -0.0 and 0.0 are one group"
    if below.set_aside:
        return f"what fails of {below.set_aside[0].module} is set aside, of every group"
    if reason := _reason_of_windows(below):
        return reason
    if can_fail(part, below.schema):
        return f"{show(part)} may fail, and would see events of no row"
    return None


def _reason_of_windows(below: Operator) -> str:
    """Return why the windows of a group depend on events of others; "" if they do not, or there are none."""
    if isinstance(below, WindowAggregate | TopK | WindowedJoin):
        return reason_against_fewer_events(below.window, below.children)
    return ""


def reason_against_fewer_events(window: Window, inputs: Sequence[Node]) -> str:
    """Return why windows depend on events that are not in them; "" if their members alone decide."""
    if window.bound is Bound.ALWAYS:
        return f"{window.name} windows are reported up to the last endpoint of all groups"
    if any(source.traits.infinite for source in inputs):
        return "events may never end, and then the windows of one group depend on the endpoints of all"
    return ""
