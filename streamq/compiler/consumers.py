"""Readers in a plan: the nodes that are read more than once, and the ways from sources to the first operators with state."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from streamq.grid import WindowEnds
from streamq.operators.operator import Operator
from streamq.operators.source import Source
from streamq.operators.step import Step
from streamq.plan.expr import Expr
from streamq.plan.node import Node, expressions, nodes
from streamq.plan.passes import reads_lifetime
from streamq.plan.tree import fold
from streamq.windows import Window


@dataclass(frozen=True)
class Consumer:
    """One way of a source's events to the first operator that keeps state, or to the result.

    ``source``: the source's digest. ``reads``: the expressions on the way, the last operator's included. ``steps``: the steps on
    the way. ``has_state``: the way ends at an operator with state. ``window``: that operator's window, if it has one.
    ``bounds_windows``: the operator's events decide up to which instant windows of endless lifetimes are reported.
    ``reads_judged_rows``: the operator cannot judge lateness.
    """

    source: str
    reads: tuple[Expr, ...] = ()
    steps: tuple[Step, ...] = ()
    has_state: bool = False
    window: Window | None = None
    bounds_windows: bool = False
    reads_judged_rows: bool = False

    def past(self, node: Node) -> Consumer:
        """Return the way extended by a node."""
        steps = (*self.steps, node) if isinstance(node, Step) else self.steps
        return replace(self, reads=(*self.reads, *expressions(node)), steps=steps)

    @property
    def changes_rows(self) -> bool:
        """True if a step on the way moves rows in time or makes several of one."""
        return any(step.progress_map is not None or step.multiplies for step in self.steps)

    @property
    def moves_alike(self) -> bool:
        """True if no step makes several rows of one, each moves rows as it moves progress, and none before spans of windows."""
        is_moved_first = self._spans is not None and self.ends is None
        return not is_moved_first and all(not step.multiplies and step.moves_as_progress for step in self.steps)

    @property
    def ends(self) -> WindowEnds | None:
        """The ends of the windows whose members the events are; None if they go by events, and if a step before moves starts."""
        before = self.steps if self._spans is None else self.steps[: self._spans]
        window = self.window if self._spans is None else self.steps[self._spans].event_windows
        return None if window is None or any(step.moves_start for step in before) else window.fixed_ends

    @property
    def _spans(self) -> int | None:
        """The place of the first step that replaces lifetimes by spans of windows; None without one."""
        return next((place for place, step in enumerate(self.steps) if step.event_windows is not None), None)

    @property
    def reads_lifetime(self) -> bool:
        """True if an expression on the way reads some part of a lifetime."""
        return any(reads_lifetime(expr, "start", "end", "duration") for expr in self.reads)


def consumers(plan: Node) -> dict[str, list[Consumer]]:
    """Return the consumers of each source, by the source's digest: one for each way to an operator with state or the result."""
    by_source: dict[str, list[Consumer]] = {}

    def visit(node: Node, inputs: list[list[Consumer]]) -> list[Consumer]:
        if isinstance(node, Source):
            return [Consumer(node.digest)]
        ways = [way.past(node) for ways in inputs for way in ways]
        if not isinstance(node, Operator) or not node.keeps_state:
            return ways
        for way in ways:
            end = replace(
                way,
                has_state=True,
                window=node.event_windows,
                bounds_windows=node.bounds_windows,
                reads_judged_rows=node.reads_judged_rows,
            )
            by_source.setdefault(way.source, []).append(end)
        return []

    for way in fold(plan, visit):
        by_source.setdefault(way.source, []).append(way)
    return by_source


def read_more_than_once(plan: Node) -> set[str]:
    """Return the digests of the nodes that are inputs of several nodes, or several inputs of one."""
    read = Counter(child.digest for node in nodes(plan) for child in node.children)
    return {digest for digest, times in read.items() if times > 1}
