"""A standard deviation is the root of a variance."""

from __future__ import annotations

from streamq.compiler.rules.restating import restate
from streamq.operators import WindowAggregate
from streamq.plan.node import Node


def expand_stddev(node: Node) -> Node | None:
    """``window(a, stddev(x)) => select(window(a, var(x)), sqrt(var))``, of the sample and of the population alike."""
    return restate(node, ("stddev", "stddev_pop")) if isinstance(node, WindowAggregate) else None
