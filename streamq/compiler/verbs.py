"""What every room of verbs builds on: a plan, the tables behind its sources, and how to go on from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Self

from streamq.compiler.plan import Node
from streamq.errors import PlanError, sentence


class Verbs:
    """A plan and the tables by source name; each verb derives another one."""

    plan: Node
    tables: Mapping[str, Any]

    def _derive(self, plan: Node, *others: Verbs) -> Self:
        raise NotImplementedError


def not_a_stream(verb: str, found: Any) -> NoReturn:
    """Raise for what a verb was given instead of a stream."""
    kind = type(found).__name__
    hint = f"Begin with the scenario: scenario.{verb}(stream)." if kind == "Scenario" else ""
    raise PlanError(sentence(verb, "not a stream", f"found {kind}", hint))
