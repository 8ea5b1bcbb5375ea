"""What every room of verbs builds on: a plan, the tables behind its sources, and how to go on from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from streamq.compiler.plan import Node


class Verbs:
    """A plan and the tables by source name; each verb derives another one."""

    plan: Node
    tables: Mapping[str, Any]

    def _derive(self, plan: Node, *others: Verbs) -> Self:
        raise NotImplementedError
