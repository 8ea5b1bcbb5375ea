"""The stateless steps from a source to the first stateful operators, and the grid of the windows after them."""

from __future__ import annotations

from streamq.choices import Stamp
from streamq.compiler.results import Results, rewritten
from streamq.grid import Grid
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


def window_grid(plan: Node, source: Source) -> Grid | None:
    """Return the grid of the windows that are a source's only reader, so that lateness goes by their ends; else None.

    It is also None if the source has retractions, if a step before the windows moves starts, and if rows set their own lifetimes.
    """
    paths = _paths(plan, source)
    if len(paths) != 1 or not source.insert_only:
        return None
    steps, first = paths[0]
    if any(isinstance(step, Step) and step.moves_start for step in steps):
        return None
    if isinstance(first, WindowAggregate) and first.stamp == Stamp.TIME_BOUND:
        return None
    if isinstance(first, WindowAggregate | TopK | WindowedJoin):
        return room_of(first.window).lateness_grid(first.window)
    return None


def is_filtered(plan: Node, source: Source) -> bool:
    """True if a filter is on a path from a source to a first stateful operator, or comes there by the rewrite rules."""
    moved = rewritten(Results((plan,))).inputs[0]
    return any(
        isinstance(step, Where)
        for query in (plan, moved)
        for node in nodes(query)
        if isinstance(node, Source) and node.table == source.table
        for steps, _ in _paths(query, node)
        for step in steps
    )


def window_end(grid: Grid, c: int) -> int:
    """Return the greatest end of a window that is not after ``c``; an infinite ``c`` is returned as it is."""
    if c in (INFINITY, MINUS_INFINITY):
        return c
    return c - (c - grid.offset - grid.size) % grid.hop


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
            if isinstance(parent, Step | Union):
                follow(parent, [*steps, parent])
            else:
                paths.append((steps, parent))

    follow(source, [])
    return paths


__all__ = ["is_filtered", "window_end", "window_grid"]
