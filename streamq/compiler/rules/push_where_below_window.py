"""Filter on a window's keys before the window, so that groups which the filter removes have no state."""

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


def push_where_below_window(node: Node) -> Node | None:
    """``where(window(a by k), p) => window(where(a, p) by k)``, if p reads only keys, cannot fail, and all of a ends.

    An event that never ends is reported in windows up to the last endpoint of *all* groups; without the other groups' events
    that would be another one. p must not read the lifetime, for above it is the window's and below an event's. p must not
    raise an error, for below it sees events that are in no reported window. A key of type float or double forbids it: the group
    of -0.0 is called 0.0. Where p is a conjunction, each part goes below that may.
    """
    match node:
        case Where(WindowAggregate(input=source) as below, p):
            parts = conjuncts(p)
            going = [part for part in parts if _obstacle(below, part) is None]
            if going:
                filtered = replace(below, input=Where(source, conjunction(going)))
                staying = [part for part in parts if _obstacle(below, part) is not None]
                return Where(filtered, conjunction(staying)) if staying else filtered
    return None


def why_not(node: Node) -> str | None:
    """Return, for ``explain()``, what forbids the rule at a filter on keys over a window; None if nothing does."""
    match node:
        case Where(WindowAggregate(keys=keys) as below, p):
            for part in conjuncts(p):
                if columns(part) and columns(part) <= set(keys) and (reason := _obstacle(below, part)):
                    return reason
    return None


def _obstacle(below: WindowAggregate, part: Expr) -> str | None:
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
    if reason := below.window.depends_on_other_groups(endless=below.input.traits.infinite):
        return reason
    if can_fail(part, below.schema):
        return f"{show(part)} may fail, and would see events of no reported window"
    return None
