"""The modules of a user's own that a plan calls."""

from __future__ import annotations

from streamq.plan.node import Node, expanded, expressions, nodes
from streamq.plan.passes import nodes as parts
from streamq.plan.user_module import UserModule


def called_modules(plan: Node) -> list[UserModule]:
    """Return the modules that a plan calls, in the order of its nodes; of those of one name the first."""
    modules: dict[str, UserModule] = {}
    for node in nodes(expanded(plan)):
        called = [getattr(part, "function", None) for expr in expressions(node) for part in parts(expr)]
        for module in (*called, getattr(node, "operator", None)):
            if isinstance(module, UserModule):
                modules.setdefault(module.name, module)
    return list(modules.values())


__all__ = ["called_modules"]
