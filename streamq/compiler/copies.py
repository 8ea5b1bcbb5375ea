"""Copies of operators, and relays between them, which make a plan fit for stages.

Final rows of a result wait for no other result of the run, so what would let them wait is there twice. Rows that come to their
readers on many paths are handed on by an operator of their own, so that paths do not multiply from reader to reader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from streamq.choices import OutputForm
from streamq.compiler.results import Results, as_results, unsettled_nodes
from streamq.compiler.rewriter import read_more_than_once
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.select import Attempt
from streamq.plan.expr import fold
from streamq.plan.node import Node
from streamq.plan.schema import Schema


@dataclass(frozen=True, eq=False, repr=False)
class Copy(Node):
    """The rows of ``input`` for a second copy of the operator that reads them, whose rows a result has once they are final."""

    input: Node

    title = "copy"

    def _schema(self) -> Schema:
        return self.input.schema


def with_copies(plan: Results) -> Results:
    """Return the plans with copies of the operators whose final rows would wait for longer because other results read them, too.

    A final result shares no operator with a result that is not final if the operator's rows may be taken back: one that sends
    early rows cannot hold them as well, and what holds them behind it knows less of them than the operator. Nor does an operator
    of another result read the one that makes the rows of a final result. Of an operator that is there twice only the first sets
    events aside (``repeated_operators``).
    """
    if unsettled := unsettled_nodes(plan):
        plan = _with_final_results(plan, lambda one: fold(one, lambda node, inputs: _apart(node, inputs, unsettled)))
    shared = _read_by_operators(plan)
    return _with_final_results(plan, lambda one: _with_held_rows(one, shared)) if shared else plan


def _with_held_rows(plan: Node, shared: frozenset[str]) -> Node:
    """Return a plan with copies of the operators that make its rows, hold these, and are read by operators of other plans alone.

    ``shared``: the digests of the operators that others with state read.
    """
    shared -= _read_by_operators(plan)

    def visit(node: Node, inputs: list[Node]) -> Node:
        if not isinstance(node, EvaluatedOperator):
            return node.with_children(inputs)
        if node.digest not in shared:
            return node
        factory = node.evaluation.factory
        return _copy(node) if factory.can_hold and not factory.always_holds else node

    return fold(plan, visit)


def _read_by_operators(plan: Node) -> frozenset[str]:
    """Return the digests of the operators with state whose rows another such operator reads."""
    read: set[str] = set()

    def makers(node: Node, inputs: list[frozenset[str]]) -> frozenset[str]:
        """Return the operators with state whose rows a node passes on or makes; note those that such an operator reads."""
        makers_below = frozenset[str]().union(*inputs)
        if not isinstance(node, EvaluatedOperator):
            return makers_below
        read.update(makers_below)
        return frozenset([node.digest])

    fold(plan, makers)
    return frozenset(read)


def _with_final_results(plan: Results, rebuild: Callable[[Node], Node]) -> Results:
    """Return the plans, of which those of final results are rebuilt."""
    pairs = zip(plan.inputs, plan.egresses, strict=True)
    rebuilt = (rebuild(one) if egress.output == OutputForm.FINAL else one for one, egress in pairs)
    return replace(plan, inputs=tuple(rebuilt))


def _apart(node: Node, inputs: list[Node], unsettled: Collection[str]) -> Node:
    """Return a node over the inputs of a final result: a copy, if its rows may be taken back and others read them early."""
    if any(new.digest != old.digest for new, old in zip(inputs, node.children, strict=True)):
        return node.with_children(inputs)
    if not isinstance(node, EvaluatedOperator) or node.digest not in unsettled:
        return node
    retracts = node.evaluation.factory.corrects or any(child.traits.retracts for child in node.children)
    return _copy(node) if retracts else node


def _copy(node: Node) -> Node:
    return node.with_children([Copy(child) for child in node.children])


def is_copy(node: Node) -> bool:
    """Return True if a node is a copy of an operator that the plans have already."""
    return any(isinstance(child, Copy) for child in node.children)


def repeated_operators(plan: Results) -> frozenset[str]:
    """Return the digests of the operators that are in the plans a second time: also without the copies below them."""
    first: dict[str, str] = {}

    def visit(node: Node, inputs: list[Node]) -> Node:
        without = inputs[0] if isinstance(node, Copy) else node.with_children(inputs)
        first[node.digest] = without.digest
        return without

    fold(plan, visit)
    return frozenset(digest for digest, written in first.items() if digest != written and written in first)


MOST_PATHS = 16
"""The most paths on which rows come to the readers of a node, if it has several readers."""


def with_relays(plan: Results) -> Results:
    """Return the plans with a relay behind each node of more than MOST_PATHS paths that is read more than once.

    A path leads from a source, or an operator with state, through unions and steps. Each reader has all paths of what it reads,
    so a union of a stream with itself has twice as many, and n such unions on each other 2^n.
    """
    shared = read_more_than_once(plan)

    def visit(node: Node, inputs: list[tuple[Node, int]]) -> tuple[Node, int]:
        """Return a node over the inputs with relays, and the number of paths to its readers."""
        below = node.with_children([one for one, _ in inputs])
        paths = 1 if isinstance(node, EvaluatedOperator) else sum(number for _, number in inputs) or 1
        return (Attempt(below, ()), 1) if paths > MOST_PATHS and node.digest in shared else (below, paths)

    return as_results(fold(plan, visit)[0])
