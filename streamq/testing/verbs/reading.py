"""Read a filled scenario: compute the plan that its verbs mean, after the language's own pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamq.operators.grouped_stream import Group, apply_to_groups
from streamq.patterns.pattern import Pattern
from streamq.plan.node import Node
from streamq.plan.tree import fold
from streamq.stream import Stream
from streamq.testing.scenario import CALL, OPERATOR, STREAM_ITSELF, Scenario
from streamq.testing.verbs.patterns import FUNCTIONS, matches_of
from streamq.testing.verbs.streams import Events

NOT_READ = {
    "quarantine": "its result is not a stream, so no scenario ends in it",
    "pipe": "it calls the function at once, with the scenario",
}
"""The verbs that have no second reading, and the reason."""


def meaning(written: Scenario) -> Node:
    """Return the plan that a scenario with nothing left out means, whatever plan its verbs build."""
    plan: Node = _Reader().read(written).plan
    return plan


class _Reader:
    """The reading of one scenario: ``done`` holds the meaning of each part, ``groups`` that of each group of an ``apply``."""

    def __init__(self) -> None:
        self.done: dict[int, Any] = {}
        self.groups: dict[str, Node] = {}

    def read(self, part: Any) -> Any:
        """Return the meaning of a part; an object that is not a scenario means itself."""
        if not isinstance(part, Scenario):
            return part
        if id(part) not in self.done:
            self.done[id(part)] = self._read_node(part)
        return self.done[id(part)]

    def _read_node(self, node: Scenario) -> Any:
        """Return the meaning of a node: a stream, a drawn operator, a function's call, or a verb's call."""
        match node.verb, node.args:
            case str(verb), (Stream() as stream,) if verb == STREAM_ITSELF:
                if isinstance(stream, Pattern):
                    return matches_of(stream)
                return Events(self.groups.get(stream.plan.digest, stream.plan))
            case str(verb), (Stream() as drawn, plans, inputs) if verb == OPERATOR:
                return Events(_over(drawn.plan, plans, [self.read(i).plan for i in inputs]))
            case str(verb), (function, *args) if verb == CALL:
                kwargs = {name: self.read(value) for name, value in node.kwargs.items()}
                return FUNCTIONS[function.__name__](*map(self.read, args), **kwargs)
        target = self.read(node.target)
        if node.verb == "apply":
            return self._applied(target.events, Group(target.plan, target.keys), *node.args)
        kwargs = {name: self.read(value) for name, value in node.kwargs.items()}
        return getattr(target, node.verb)(*map(self.read, node.args), **kwargs)

    def _applied(self, events: Events, group: Group, argument: Scenario, sub_plan: Scenario) -> Events:
        """Read the verbs of a sub-plan of ``apply``; the product's rewrite puts it over the groups."""
        (stream,) = argument.args
        self.groups[stream.plan.digest] = group
        return events.of(apply_to_groups(self.read(sub_plan).plan, group))


def _over(plan: Node, inputs: Sequence[Node], others: Sequence[Node]) -> Node:
    """Return a plan in which ``inputs``, wherever they stand, are replaced by ``others``, one for one."""
    instead = {one.digest: other for one, other in zip(inputs, others, strict=True)}
    return fold(plan, lambda node, below: instead.get(node.digest) or (node.with_children(below) if below else node))


__all__ = ["NOT_READ", "meaning"]
