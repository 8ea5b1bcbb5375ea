"""Filter before an operator of a user's own, on columns of which it has promised that each value of them stands for itself."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import types as t

from streamq.compiler.rules.substitution import expression_facts, inline, is_cheap, is_plain, stays_small
from streamq.compiler.rules.totality import can_fail
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import Explode, Where, WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col, Expr
from streamq.plan.inference import infer
from streamq.plan.node import Node
from streamq.plan.own_names import shown_name
from streamq.plan.passes import columns, reads_lifetime
from streamq.plan.tree import show
from streamq.user_code.udo import UserOperator


def push_where_below_udo(node: Node) -> Node | None:
    """``where(explode(window(a, f)), p) => explode(window(where(a, p[f]), f))``, if f promises ``filters_on`` p's columns.

    ``p[f]`` is p with the arguments of f in the place of the columns that they are called as; p may read keys, too. By the
    promise a row with one k depends on events with that k alone, and without any there is none. It is about what a window
    holds, so the window must lie where it lies whatever the events are: hopping windows do, over events that all end. Where
    another window's place depends on all events, they stay, and f alone takes those for which p holds:
    ``explode(window(a, f where p[f]))``. A module whose failures are set aside forbids both, for a window that fails takes all
    its rows along. Else the side conditions are those of ``push_where_below_window``. Where p is a conjunction, each part goes
    below that may.
    """
    match node:
        case Where(Explode(input=WindowAggregate() as window) as explode, p) if (f := _operator(explode)) is not None:
            parts = conjuncts(p)
            going = [part for part in parts if _obstacle(window, f, part) is None]
            if going:
                below = conjunction(inline(part, _meaning(window, f)) for part in going)
                filtered = replace(explode, input=_filtered(window, explode.column, below))
                staying = [part for part in parts if _obstacle(window, f, part) is not None]
                return Where(filtered, conjunction(staying)) if staying else filtered
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, what forbids the rule at a filter on rows of an operator; None if nothing does."""
    match node:
        case Where(Explode(input=WindowAggregate() as window) as explode, p) if (f := _operator(explode)) is not None:
            for part in conjuncts(p):
                if columns(part) & set(explode.made) and (reason := _obstacle(window, f, part)):
                    return reason
    return None


def _operator(explode: Explode) -> Aggregate | None:
    """The operator whose rows are exploded, if that is what it is."""
    assert isinstance(explode.input, WindowAggregate)
    applied = dict(explode.input.aggregates).get(explode.column)
    return applied if applied is not None and isinstance(applied.function, UserOperator) else None


def _filtered(window: WindowAggregate, column: str, below: Expr) -> WindowAggregate:
    """The window over events that pass, or, where they place it, with an operator that takes only those of its members."""
    applied = dict(window.aggregates)[column]
    assert isinstance(applied.function, UserOperator)
    if not applied.function.events_that_stay(
        window.window.name, on_grid=window.window.grid is not None, endless=window.input.traits.infinite
    ):
        return replace(window, input=Where(window.input, below))
    passing = replace(applied, where=below if applied.where is None else conjunction([applied.where, below]))
    aggregates = tuple((name, passing if name == column else other) for name, other in window.aggregates)
    return replace(window, aggregates=aggregates)


def _meaning(window: WindowAggregate, applied: Aggregate) -> dict[str, Expr]:
    """What keys, and the columns that the operator filters on, are of the events below."""
    operator = applied.function
    assert isinstance(operator, UserOperator)
    arguments = operator.arguments(applied)
    filtered = {name: arguments[name] for name in operator.filter_columns if name in arguments}
    return {key: Col(key) for key in window.keys} | filtered


def _obstacle(window: WindowAggregate, applied: Aggregate, part: Expr) -> str | None:
    operator, source = applied.function, window.input.schema
    assert isinstance(operator, UserOperator)
    if not expression_facts(part).deterministic:
        return f"{show(part)} is not known to be deterministic"
    if reads_lifetime(part):
        return f"{show(part)} reads the lifetime of the rows"
    meaning = _meaning(window, applied)
    for name in sorted(columns(part)):
        if name in window.keys:
            kind = source.type_of(name)
        elif name not in operator.filter_columns:
            return f"{operator.name} does not promise sq.filters_on({name!r})"
        elif name not in meaning:
            hint = f"say columns= in its decorator, with {name!r} among them"
            return f"no argument of {operator.name} is called {name!r}: {hint}"
        else:
            kind = operator.type_of(name)
            argument = meaning[name]
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
    if not stays_small(part, meaning):
        return "the predicate would become too large"
    below = inline(part, meaning)
    if can_fail(below, source):
        return f"{show(below)} may fail, and would see events of no reported window"
    return None
