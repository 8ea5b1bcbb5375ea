"""The reading of a scenario that is filled in: what its verbs mean, from the language's own pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamq.operators.group_apply import Group, apply_to_groups
from streamq.patterns.pattern import Pattern
from streamq.plan.folding import fold
from streamq.plan.node import Node
from streamq.stream import Stream
from streamq.testing.scenario import CALL, OPERATOR, STREAM_ITSELF, Scenario
from streamq.testing.verbs.patterns import FUNCTIONS, matches_of
from streamq.testing.verbs.streams import Events

NOT_READ = {
    "quarantine": "its result is no stream, so no scenario ends in it",
    "pipe": "it calls the function at once, with the scenario",
}
"""The verbs of which there is no reading, and why."""


def meaning(written: Scenario) -> Node:
    """Return the plan that a scenario with nothing left out means, whatever plan its verbs make."""
    plan: Node = _Reader().read(written).plan
    return plan


class _Reader:
    """One reading: what each part of the scenario means, read once; of groups of ``apply``, those that are meant."""

    def __init__(self) -> None:
        self.done: dict[int, Any] = {}
        self.groups: dict[str, Node] = {}

    def read(self, part: Any) -> Any:
        """Return what a part means; what is no scenario means itself."""
        if not isinstance(part, Scenario):
            return part
        if id(part) not in self.done:
            self.done[id(part)] = self._read_node(part)
        return self.done[id(part)]

    def _read_node(self, node: Scenario) -> Any:
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
        """The verbs of a sub-plan are read; how it goes on in every group is the compiler's."""
        (stream,) = argument.args
        self.groups[stream.plan.digest] = group
        return events.of(apply_to_groups(self.read(sub_plan).plan, group))


def _over(plan: Node, inputs: Sequence[Node], others: Sequence[Node]) -> Node:
    """A plan with others in place of its inputs."""
    instead = {one.digest: other for one, other in zip(inputs, others, strict=True)}
    return fold(plan, lambda node, below: instead.get(node.digest) or (node.with_children(below) if below else node))


__all__ = ["NOT_READ", "meaning"]
