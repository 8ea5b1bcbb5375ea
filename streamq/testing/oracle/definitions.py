"""The registry of the operators' definitions, by the class of their node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from streamq.plan.node import Node
from streamq.testing.oracle.run import Run

Definition = Callable[[Any, Sequence[str], Run], str]
"""``(node, names of the input histories, Run)``: return a query with the columns ``le``, ``re`` and ``c0, c1, ...``."""

D = TypeVar("D", bound=Definition)

ORACLE: dict[type[Node], Definition] = {}
"""The definition of every operator that users write."""


class FalseClaim(AssertionError):
    """Raised for a false claim of a plan: that rows are points, that none lives for ever, that two different parts are equal."""


def defines(kind: type[Node]) -> Callable[[D], D]:
    """Make a function the oracle's definition of a node: ``@defines(Where)``."""

    def register(definition: D) -> D:
        ORACLE[kind] = definition
        return definition

    return register


__all__ = ["ORACLE", "Definition", "FalseClaim", "defines"]
