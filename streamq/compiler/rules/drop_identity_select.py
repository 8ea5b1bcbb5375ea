"""Remove a select that returns all columns of its input, unchanged and in their order."""

from __future__ import annotations

from streamq.operators import Select
from streamq.plan.expr import Col
from streamq.plan.node import Node


def drop_identity_select(node: Node) -> Node | None:
    """``select(a, all columns of a, in order) => a``."""
    match node:
        case Select(source, columns) if [n for n, _ in columns] == list(source.schema.names):
            if all(isinstance(e, Col) and e.name == name for name, e in columns):
                return source
    return None
