"""A mean is a sum and a count, which can be merged; means cannot."""

from __future__ import annotations

from streamq.compiler.rules.restating import restate
from streamq.operators import WindowAggregate
from streamq.plan.node import Node


def expand_avg(node: Node) -> Node | None:
    """``window(a, avg(x)) => select(window(a, sum(x), count(x)), sum / count)``; NULL over no values."""
    return restate(node, ("avg",)) if isinstance(node, WindowAggregate) else None
