"""The results of a program: its plans under one root, so that parts which they share are compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from streamq.choices import OutputForm
from streamq.compiler.egress import Egress
from streamq.errors import PlanError
from streamq.operators.source import Source
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.node import ADDED, Node, nodes
from streamq.plan.schema import Schema
from streamq.plan.tree import fold


@dataclass(frozen=True, eq=False, repr=False)
class Results(Node):
    """The root over the plans of a program, which all have one time axis; it has no rows itself.

    ``egresses``: the forms in which a stream writes the results; () in a batch.
    """

    inputs: tuple[Node, ...]
    egresses: tuple[Egress, ...] = field(default=(), metadata=ADDED)

    title = "results"

    @classmethod
    def from_plans(cls, plans: Sequence[Node], verb: str = "run_all") -> Self:
        """Return the root over some plans; raise PlanError, worded for ``verb``, if their time axes differ."""
        axes = sorted({plan.schema.axis for plan in plans})
        if len(axes) > 1:
            hint = "Run those on each axis by themselves."
            raise PlanError(verb, "queries on different time axes", f"found {' and '.join(axes)}", hint)
        return cls(tuple(plans))

    def _schema(self) -> Schema:
        return Schema((), self.inputs[0].schema.axis)


def as_results(root: Node) -> Results:
    """Return a node as the root that it is: rewriting a root returns a root, because no law applies to one."""
    assert isinstance(root, Results)
    return root


def without_policies(plan: Results) -> tuple[Results, dict[str, SourcePolicy]]:
    """Return the plans with the default policy at every source, and the sources' own policies by table.

    Raises PlanError if two sources of one table differ.
    """
    sources: dict[str, Source] = {}
    for source in (n for n in nodes(plan) if isinstance(n, Source)):
        if sources.setdefault(source.table, source) != source:
            wrong = f"two sources of one table, {source.shown_name()}"
            raise PlanError("stream", wrong, "they read it in different ways", "Give each its own name=.")

    def visit(node: Node, inputs: list[Node]) -> Node:
        return without_policy(node) if isinstance(node, Source) else node.with_children(inputs)

    return as_results(fold(plan, visit)), {table: source.policy for table, source in sources.items()}


def without_policy(source: Source) -> Source:
    """Return a source with the default policy."""
    return source if source.policy == SourcePolicy() else replace(source, policy=SourcePolicy())


def unsettled_nodes(plan: Results) -> frozenset[str]:
    """Return the digests of the nodes whose rows reach a result of a stream before they are final."""
    pairs = zip(plan.inputs, plan.egresses, strict=True)
    early = [one for one, egress in pairs if egress.output != OutputForm.FINAL]
    return frozenset(node.digest for one in early for node in nodes(one))


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result number ``number`` of a program: the rows of ``plan``, written in the form ``egress``.

    ``in_order``: a changelog is written in the order of sync time.
    """

    number: int
    plan: Node
    egress: Egress
    in_order: bool

    def described(self) -> str:
        """Return the output as explain shows it, on one line."""
        match self.egress.output:
            case OutputForm.UPSERT:
                return f"upsert, by {', '.join(self.egress.key)}"
            case OutputForm.CHANGELOG if self.egress.ctis:
                return f"changelog with CTIs{', by sync time' if self.in_order else ''}, written by one task"
            case OutputForm.CHANGELOG if self.in_order:
                return "changelog, each micro-batch by sync time, written by one task"
        return self.egress.output
