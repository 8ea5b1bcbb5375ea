"""Filter before a user's operator, on columns that it declares by ``sq.filters_on``: each of their values is independent."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import types as t

from streamq.compiler.rules.substitution import expression_facts, inline, is_cheap, is_plain, stays_small
from streamq.compiler.rules.totality import can_fail
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import Explode, Where, WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node
from streamq.plan.passes import columns, infer, reads_lifetime
from streamq.plan.schema import shown_name
from streamq.plan.tree import show
from streamq.user_code.udo import UserOperator


def push_where_below_udo(node: Node) -> Node | None:
    """``where(explode(window(a, f)), p) => explode(window(where(a, p[f]), f))``, if f promises ``filters_on`` p's columns.

    ``p[f]`` is p with f's columns replaced by the arguments of the same names; p may read keys, too. The promise: a row with the
    value k depends only on events with the value k, and without such events there is no such row. It is about one window's
    members, so filtering must not change the windows: it does not for hopping windows over events that all end. If the windows
    depend on all events, the events stay, and only f's members are filtered: ``explode(window(a, f where p[f]))``. A module whose
    failures are quarantined forbids both, because a failing window loses all its rows. The other side conditions are those of
    ``push_where_below_state``. Of a conjunction, the parts that satisfy the conditions are pushed.
    """
    match node:
        case Where(Explode(input=WindowAggregate() as window) as explode, p) if (f := _operator(explode)) is not None:
            parts = conjuncts(p)
            pushed = [part for part in parts if _obstacle(window, f, part) is None]
            if pushed:
                below = conjunction(inline(part, _definitions(window, f)) for part in pushed)
                filtered = replace(explode, input=_filtered(window, explode.column, below))
                rest = [part for part in parts if _obstacle(window, f, part) is not None]
                return Where(filtered, conjunction(rest)) if rest else filtered
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a filter on an operator's rows; None if there is none."""
    match node:
        case Where(Explode(input=WindowAggregate() as window) as explode, p) if (f := _operator(explode)) is not None:
            for part in conjuncts(p):
                if columns(part) & set(explode.element_columns) and (reason := _obstacle(window, f, part)):
                    return reason
    return None


def _operator(explode: Explode) -> Aggregate | None:
    """Return the user's operator whose rows are exploded; None if the column holds anything else."""
    assert isinstance(explode.input, WindowAggregate)
    applied = dict(explode.input.aggregates).get(explode.column)
    return applied if applied is not None and isinstance(applied.function, UserOperator) else None


def _filtered(window: WindowAggregate, column: str, below: Expr) -> WindowAggregate:
    """Return the window over the filtered events or, if all events decide where windows lie, with filtered members of f."""
    applied = dict(window.aggregates)[column]
    assert isinstance(applied.function, UserOperator)
    if not applied.function.events_that_stay(
        window.window.name, on_grid=window.window.grid is not None, endless=window.input.traits.infinite
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


def _obstacle(window: WindowAggregate, applied: Aggregate, part: Expr) -> str | None:
    """Return the reason why a part of the filter cannot be pushed; None if it can."""
    operator, source = applied.function, window.input.schema
    assert isinstance(operator, UserOperator)
    if not expression_facts(part).deterministic:
        return f"{show(part)} is not known to be deterministic"
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
            if not expression_facts(argument).deterministic:
                return f"{show(argument)} is not known to be deterministic"
            if not is_plain(argument) and not is_cheap(argument):
                return f"{shown_name(name)} = {show(argument)} would be evaluated twice"
            if reads_lifetime(argument):
                return f"{shown_name(name)} = {show(argument)} reads the lifetime of the events"
        if isinstance(kind, t.FloatType | t.DoubleType) or not isinstance(kind, t.AtomicType):
            return f"{name} is {kind.simpleString()}: values that are equal may differ"
    if operator.filters_above:
        return operator.filters_above
    if not stays_small(part, definitions):
        return "the predicate would become too large"
    below = inline(part, definitions)
    if can_fail(below, source):
        return f"{show(below)} may fail, and would see events of no reported window"
    return None
