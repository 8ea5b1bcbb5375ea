"""The order of inner joins, and of the parts of a SEQUENCE, by the rates that are expected: what makes fewest pairs comes first.

A pair lives while both of its events do, so inner joins are associative and commutative. An order costs the pairs that its joins
make (``LikelyFlows``). It is built greedily: the two inputs with fewest pairs first, then the input with which there are fewest;
inputs that no key and no condition connects come last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count
from typing import NamedTuple

from pyspark.sql.types import DataType

from streamq.choices import JoinKind
from streamq.compiler.estimates import LikelyFlows
from streamq.compiler.rules.rule import EXPANSION, Rule, can_fail, nondeterminism
from streamq.functions.logic import conjunction, conjuncts
from streamq.operators import Join, Select, Where
from streamq.plan.expr import Col, Expr, show
from streamq.plan.node import Node
from streamq.plan.passes import columns, reads_lifetime, substitute
from streamq.plan.schema import Field, Schema

LESS = 1 - 1e-6
"""The part of the pairs as written that another order makes at most: estimates of equal numbers differ by rounding."""


class _Place(NamedTuple):
    """A column of an input of a chain: the number of the input, and the column's name there."""

    part: int
    name: str


def order_joins(node: Node, likely: LikelyFlows) -> Node | None:
    """``join(join(a, b), c) => join(join(a, c), b)``, if less pairs are expected so; of inner joins, however many.

    Selects that rename columns, and filters of pairs, may stand between the joins. A condition goes to the first join that has
    its columns; equal keys of three inputs are equal in any two of them. Conditions must be deterministic and must not fail,
    because they see other pairs. The rows of all inputs must be estimated.
    """
    chain = _chain(node)
    if chain is None or chain.obstacle(likely) is not None:
        return None
    ordered = _JoinOrder(chain, likely).plan()
    before, after = likely.pairs(node), likely.pairs(ordered)
    return ordered if before is not None and after is not None and after < before * LESS else None


def why_not_order_joins(node: Node, likely: LikelyFlows) -> str | None:
    """Return, for ``explain()``, the reason that forbids the rule at joins of three inputs; None if a join below has it, too."""
    chain = _chain(node)
    if chain is None or (reason := chain.obstacle(likely)) is None:
        return None
    below = (_chain(child) for child in node.children)
    return None if any(one is not None and one.obstacle(likely) == reason for one in below) else reason


def order_parts(node: Node, likely: LikelyFlows) -> Node | None:
    """``SEQUENCE(a, b, c) => a join of the rare parts, then of the others``, if rows are expected; at the pattern as written."""
    ordered = node.expansion_by(likely)
    return None if ordered.digest == node.expansion.digest else ordered


@dataclass(frozen=True)
class _Chain:
    """Inner joins on each other as one set: ``parts`` are their inputs, in order, and ``schema`` is that of the result.

    Columns have labels that differ among all parts, with their ``places``; those of the result are labelled by their names.
    ``equal``: pairs of labels of different parts whose values must be equal; ``conditions``: those on pairs, over labels.
    """

    schema: Schema
    parts: Sequence[Node]
    places: Mapping[str, _Place]
    equal: Sequence[tuple[str, str]]
    conditions: Sequence[Expr]

    def obstacle(self, likely: LikelyFlows) -> str | None:
        """Return the reason why the parts stay in their order; None if they may come in any."""
        for part in self.parts:
            if likely.flow(part) is None:
                return f"the rows of {part.line} are not estimated"
        labelled = self.schema.with_fields(Field(label, self.type_of(label)) for label in self.places)
        for condition in self.conditions:
            if reason := nondeterminism(condition):
                return reason
            if can_fail(condition, labelled):
                return f"{show(condition)} may fail, and would see other pairs"
        return None

    def type_of(self, label: str) -> DataType:
        """Return the type of a column."""
        part, name = self.places[label]
        return self.parts[part].schema.type_of(name)


def _chain(node: Node) -> _Chain | None:
    """Return the inner joins at and below a node as a chain; None if they have less than three inputs."""
    if not isinstance(node, Join) or node.how != JoinKind.INNER:
        return None
    parts: list[Node] = []
    places: dict[str, _Place] = {}
    equal: list[tuple[str, str]] = []
    conditions: list[Expr] = []
    used = {name.lower() for name in node.schema.names}

    def labelled(schema: Schema, given: Mapping[str, str]) -> dict[str, str]:
        """Return the labels of all columns of a schema: the given ones, and new ones for the others."""
        labels = dict(given)
        for name in schema.names:
            if name not in labels:
                labels[name] = next(new for n in count(1) if (new := f"{name}@{n}").lower() not in used)
                used.add(labels[name].lower())
        return labels

    todo: list[tuple[Node, dict[str, str]]] = [(node, labelled(node.schema, {}) | {n: n for n in node.schema.names})]
    while todo:
        top, labels = todo.pop()
        steps, join = _steps_to_join(top)
        if join is None:
            places |= {label: _Place(len(parts), name) for name, label in labels.items()}
            parts.append(top)
            continue
        for step in steps:
            if isinstance(step, Where):
                conditions += conjuncts(substitute(step.predicate, {n: Col(to) for n, to in labels.items()}))
            else:
                labels = labelled(
                    step.input.schema, {step.copied_column(n) or "": labels[n] for n in step.schema.names}
                )
        if join.where is not None:
            conditions += conjuncts(substitute(join.where, {n: Col(to) for n, to in labels.items()}))
        ours = labelled(join.left.schema, {n: labels[to] for n, to in join.left_names})
        theirs = labelled(join.right.schema, {n: labels[to] for n, to in join.right_names})
        equal += [(ours[a], theirs[b]) for a, b in join.on]
        todo += [(join.right, theirs), (join.left, ours)]
    return _Chain(node.schema, parts, places, equal, conditions) if len(parts) > 2 else None


def _steps_to_join(top: Node) -> tuple[list[Select | Where], Join | None]:
    """Return the selects and filters between a node and the inner join below it, top down, and the join; None without one.

    A select must only copy columns, each once; a filter must not read the lifetime, which is another one below.
    """
    steps: list[Select | Where] = []
    below = top
    while isinstance(below, Select | Where):
        if isinstance(below, Select):
            copied = [e.copied_column for _, e in below.columns]
            is_between = None not in copied and len(set(copied)) == len(copied)
        else:
            is_between = not reads_lifetime(below.predicate, "start", "end", "duration")
        if not is_between:
            return [], None
        steps.append(below)
        below = below.input
    return (steps, below) if isinstance(below, Join) and below.how == JoinKind.INNER else ([], None)


class _JoinOrder:
    """The joins of a chain in another order: ``order`` has the parts that are joined so far, ``node`` their pairs, by labels.

    ``groups``: for each label those that are equal to it, directly or by others, and of its type; ``unlike``: equalities between
    types, by which no third column is equal. ``checked``: the labels that are equal to all of their group in every pair so far.
    """

    def __init__(self, chain: _Chain, likely: LikelyFlows):
        self.chain, self.likely = chain, likely
        self.labels: list[list[str]] = [[] for _ in chain.parts]
        for label, place in chain.places.items():
            self.labels[place.part].append(label)
        self.groups: dict[str, list[str]] = {}
        self.unlike: list[tuple[str, str]] = []
        for a, b in chain.equal:
            if chain.type_of(a) != chain.type_of(b):
                self.unlike += [(a, b), (b, a)]
                continue
            one, other = (self.groups.setdefault(label, [label]) for label in (a, b))
            if one is not other:
                one += other
                self.groups |= dict.fromkeys(other, one)
        self.checked: set[str] = set()
        self.conditions = list(chain.conditions)
        self.order: list[int] = []

    def plan(self) -> Node:
        """Return the joins in the order of fewest pairs, with the columns of the chain."""
        every = range(len(self.chain.parts))
        self.order = [min(combinations(every, 2), key=lambda pair: (*self._cost([pair[0]], pair[1]), pair))[0]]
        self.node = self.chain.parts[self.order[0]]
        names = {label: self.chain.places[label].name for label in self.labels[self.order[0]]}
        while rest := [at for at in every if at not in self.order]:
            self._join(min(rest, key=lambda at: (*self._cost(self.order, at), at)), names)
            names = {name: name for name in self.node.schema.names}
        columns_there = self.chain.schema.names
        return self.node if self.node.schema.names == columns_there else selected(self.node, columns_there)

    def _join(self, at: int, names: Mapping[str, str]) -> None:
        """Join the pairs so far, whose columns have these ``names`` by label, with the part number ``at``."""
        on = self._keys(self.order, at)
        self.order.append(at)
        for a, b in on:
            if (a, b) not in self.unlike:
                self.checked.update(self._joined(self.groups[a], self.order))
        there = set(self._joined(self.chain.places, self.order))
        where = [condition for condition in self.conditions if columns(condition) <= there]
        self.conditions = [condition for condition in self.conditions if not columns(condition) <= there]
        read = self._read_later() | {name for condition in where for name in columns(condition)}
        places = self.chain.places
        self.node = Join(
            self.node,
            self.chain.parts[at],
            on=tuple((names[a], places[b].name) for a, b in on),
            where=conjunction(where) if where else None,
            how=JoinKind.INNER,
            left_names=tuple((name, label) for label, name in names.items() if label in read),
            right_names=tuple((places[label].name, label) for label in self.labels[at] if label in read),
        )

    def _read_later(self) -> set[str]:
        """Return the labels that the result, conditions and keys of joins to come read."""
        read = {*self.chain.schema.names, *(name for condition in self.conditions for name in columns(condition))}
        rest = [at for at in range(len(self.chain.parts)) if at not in self.order]
        return read | {a for at in rest for a, _ in self._keys(self.order, at)}

    def _joined(self, labels: Iterable[str], order: Sequence[int]) -> list[str]:
        """Return those of some labels whose parts are in an order, part by part."""
        there = [label for label in labels if self.chain.places[label].part in order]
        return sorted(there, key=lambda label: order.index(self.chain.places[label].part))

    def _keys(self, order: Sequence[int], at: int) -> list[tuple[str, str]]:
        """Return the keys of a join of the parts in ``order`` with another one: labels of theirs, each with one of its own."""
        keys = [
            (a, b) for a, b in self.unlike if self.chain.places[a].part in order and self.chain.places[b].part == at
        ]
        for group in {id(group): group for label in self.labels[at] if (group := self.groups.get(label))}.values():
            own, theirs = self._joined(group, [at]), self._joined(group, order)
            if theirs:
                first = next((label for label in theirs if label in self.checked), theirs[0])
                keys += [(first, label) for label in own]
                keys += [(label, own[0]) for label in theirs if label != first and label not in self.checked]
        return keys

    def _cost(self, order: Sequence[int], at: int) -> tuple[bool, float]:
        """Return whether nothing connects the parts in ``order`` with another one, and the rate of their pairs."""
        keys, places = self._keys(order, at), self.chain.places
        there = set(self._joined(places, [*order, at]))
        own, parts = set(self.labels[at]), self.chain.parts
        is_connected = bool(keys) or any(
            columns(condition) <= there and columns(condition) & own and not columns(condition) <= own
            for condition in self.chain.conditions
        )
        left = self.likely.flow(self.node if len(order) > 1 else parts[order[0]])
        right = self.likely.flow(parts[at])
        assert left is not None and right is not None, "the rows of all parts are estimated"
        values = math.prod(
            max(
                self.likely.values(parts[places[a].part], places[a].name), self.likely.values(parts[at], places[b].name)
            )
            for a, b in keys
        )
        return not is_connected, left.joined(right, values).rate


def selected(node: Node, names: Iterable[str]) -> Select:
    """Return some columns of a node."""
    return Select(node, tuple((name, Col(name)) for name in names))


JOIN_ORDER = (
    Rule(order_parts, phase=EXPANSION, crosses_state=True, reads_rates=True),
    Rule(order_joins, why_not_order_joins, phase=1, recomputes=True, crosses_state=True, reads_rates=True),
)
