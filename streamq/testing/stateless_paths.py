"""The stateless steps from a source to the first stateful operators, and the ends of the windows after them."""

from __future__ import annotations

from collections.abc import Callable

from streamq.choices import Stamp
from streamq.compiler.results import Results, rewritten
from streamq.operators import (
    Source,
    TopK,
    Union,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.operators.step import Step
from streamq.plan.node import Node, expanded, nodes
from streamq.testing.windows.room import room_of
from streamq.time import INFINITY, MINUS_INFINITY


def last_window_end(plan: Node, source: Source) -> Callable[[int], int]:
    """Return the function from a CTI to the instant that lateness goes by: the last end up to it of the only reader's windows.

    That is the CTI itself if other operators read the source, or several, if the source has retractions, if a step before the
    windows moves starts, and if rows set their own lifetimes.
    """
    paths = _paths(plan, source)
    if len(paths) != 1 or not source.insert_only:
        return _unchanged
    steps, first = paths[0]
    if any(isinstance(step, Step) and step.moves_start for step in steps):
        return _unchanged
    if isinstance(first, WindowAggregate) and first.stamp == Stamp.TIME_BOUND:
        return _unchanged
    if isinstance(first, WindowAggregate | TopK | WindowedJoin):
        window = first.window
        return lambda c: c if c in (INFINITY, MINUS_INFINITY) else room_of(window).last_end(window, c)
    return _unchanged


def _unchanged(c: int) -> int:
    return c


def is_filtered(plan: Node, source: Source) -> bool:
    """True if a filter is on a path from a source to a first stateful operator, or comes there by the rewrite rules."""
    root = plan if isinstance(plan, Results) else Results((plan,))
    return any(
        isinstance(step, Where)
        for query in (root, rewritten(root))
        for node in nodes(query)
        if isinstance(node, Source) and node.table == source.table
        for steps, _ in _paths(query, node)
        for step in steps
    )


def _paths(plan: Node, source: Source) -> list[tuple[list[Node], Node | None]]:
    """Return, for each path from a source to a first stateful operator, the steps on it and the operator (None: the result)."""
    paths: list[tuple[list[Node], Node | None]] = []
    plan = expanded(plan)

    def follow(node: Node, steps: list[Node]) -> None:
        """Add the paths that continue from a node which ``steps`` have reached."""
        above = [parent for parent in nodes(plan) for child in parent.children if child.digest == node.digest]
        if node.digest == plan.digest:
            paths.append((steps, None))
        for parent in above:
            # nothing happens to rows at the root over several queries
            if isinstance(parent, Step | Union | Results):
                follow(parent, [*steps, parent])
            else:
                paths.append((steps, parent))

    follow(source, [])
    return paths


__all__ = ["is_filtered", "last_window_end"]
