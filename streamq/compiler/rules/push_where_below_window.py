"""Filter on a window's keys before the window, so that groups which the filter removes keep no state."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import types as t

from streamq.compiler.rules.substitution import expression_facts
from streamq.compiler.rules.totality import can_fail
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import Where, WindowAggregate
from streamq.plan.expr import Expr
from streamq.plan.node import Node
from streamq.plan.passes import columns, reads_lifetime
from streamq.plan.tree import show
from streamq.runtime.time.endpoints import Bound


def push_where_below_window(node: Node) -> Node | None:
    """``where(window(a by k), p) => window(where(a, p) by k)``, if p reads only keys, cannot fail, and all of a ends.

    An endless event is reported in windows up to the last endpoint of *all* groups, which may be another one without the other
    groups' events. p must not read the lifetime: above it is the window's, below an event's. p must not raise an error, because
    below it sees events that are in no reported window. A key of type float or double forbids the rule, because the group of -0.0
    has the key 0.0. Of a conjunction, the parts that satisfy the conditions are pushed. A window that calls a module whose
    failures are set aside forbids the rule, because failures of every group are.
    """
    match node:
        case Where(WindowAggregate(input=source) as below, p):
            parts = conjuncts(p)
            pushed = [part for part in parts if _obstacle(below, part) is None]
            if pushed:
                filtered = replace(below, input=Where(source, conjunction(pushed)))
                rest = [part for part in parts if _obstacle(below, part) is not None]
                return Where(filtered, conjunction(rest)) if rest else filtered
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at a filter on keys over a window; None if there is none."""
    match node:
        case Where(WindowAggregate(keys=keys) as below, p):
            for part in conjuncts(p):
                if columns(part) and columns(part) <= set(keys) and (reason := _obstacle(below, part)):
                    return reason
    return None


def _obstacle(below: WindowAggregate, part: Expr) -> str | None:
    """Return the reason why a part of the filter cannot be pushed; None if it can."""
    if not expression_facts(part).deterministic:
        return f"{show(part)} is not known to be deterministic"
    if no_keys := sorted(columns(part) - set(below.keys)):
        return f"{no_keys[0]} is no key"
    if reads_lifetime(part):
        return f"{show(part)} reads the window's lifetime"
    for key in sorted(columns(part)):
        if isinstance(below.schema.type_of(key), t.FloatType | t.DoubleType):
            return f"key {key} is floating: -0.0 and 0.0 are one group"
    if below.set_aside:
        return f"what fails of {below.set_aside[0].module} is set aside, of every group"
    if below.window.bound is Bound.ALWAYS:
        return f"{below.window.name} windows are reported up to the last endpoint of all groups"
    if below.input.traits.infinite:
        return "events may never end, and then the windows of one group depend on the endpoints of all"
    if can_fail(part, below.schema):
        return f"{show(part)} may fail, and would see events of no reported window"
    return None
