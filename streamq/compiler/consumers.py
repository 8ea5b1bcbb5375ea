"""Who reads what in a plan: how often a node is read, and what is read of a source on the way to its windows."""

from __future__ import annotations

from streamq.compiler.hosting import HOSTED
from streamq.operators import MergePartials, PartialAggregate, Select, Source, Where, WindowAggregate
from streamq.operators.alter_lifetime import AlterLifetime
from streamq.operators.join_table import JoinTable
from streamq.plan.expr import Expr
from streamq.plan.node import Node, fold, nodes
from streamq.plan.passes import reads_lifetime


def readers(plan: Node) -> dict[str, int]:
    """How often each node is read."""
    found = {plan.digest: 1}
    for node in nodes(plan):
        for child in node.children:
            found[child.digest] = found.get(child.digest, 0) + 1
    return found


def consumers(plan: Node) -> dict[str, list[tuple[object, ...]]]:
    """For each source: a chain (expressions read on the way, then the window's grid) for every window it feeds first."""
    found: dict[str, list[tuple[object, ...]]] = {}

    def visit(node: Node, inputs: list[list[tuple[str, tuple[object, ...]]]]) -> list[tuple[str, tuple[object, ...]]]:
        flat = [chain for chains in inputs for chain in chains]
        match node:
            case Source():
                return [(node.digest, ())]
            case Where(predicate=p):
                return [(d, (*read, p)) for d, read in flat]
            case AlterLifetime() | JoinTable():
                return [(d, (*read, node)) for d, read in flat]
            case Select(columns=columns):
                return [(d, (*read, *(e for _, e in columns))) for d, read in flat]
            case PartialAggregate(arguments=arguments):
                return [(d, (*read, *(expr for _, expr in arguments))) for d, read in flat]
            case MergePartials(input=part):
                for d, read in flat:
                    found.setdefault(d, []).append((*read, part.window))
                return []
            case WindowAggregate(aggregates=aggregates, window=window):
                for d, read in flat:
                    found.setdefault(d, []).append((*read, *(a for _, a in aggregates), window))
                return []
        if type(node) in HOSTED:
            for d, read in flat:
                found.setdefault(d, []).append((*read, getattr(node, "window", node.title)))
            return []
        return flat

    open_chains = fold(plan, visit)
    for d, read in open_chains:
        found.setdefault(d, []).append((*read, None))
    return found


def reads(chain: tuple[object, ...], *parts: str) -> bool:
    """Whether an expression of a chain reads some of these parts of a lifetime."""
    return any(isinstance(e, Expr) and reads_lifetime(e, *parts) for e in chain)
