"""The operators of patterns: their rules, match by match, and their functions and verbs."""

from __future__ import annotations

from collections import abc
from itertools import permutations
from typing import Any

from streamq.choices import Consumption
from streamq.patterns.operators.at_least import All, AnyOf, AtLeast, AtMost
from streamq.patterns.operators.negation import CancelWhen, Not, Unless, UnlessBefore
from streamq.patterns.operators.repeat import Repeat
from streamq.patterns.operators.sequence import Sequence
from streamq.patterns.syntax import Part
from streamq.testing.patterns.conditions import Bound
from streamq.testing.patterns.matches import (
    SCOPES,
    Match,
    OperatorRoom,
    counts,
    match_id,
    ordered_occurrences,
    variables,
)
from streamq.testing.patterns.rules import Evaluation


def orders(parts: abc.Sequence[Part], count: int) -> list[tuple[int, ...]]:
    """Return the orders in which events of ``count`` parts may come."""
    return list(permutations(range(len(parts)), count))


def some_of(parts: abc.Sequence[Part], count: int, within: int, evaluation: Evaluation) -> list[Match]:
    """Return the matches of ``count`` of the parts in any order."""
    return evaluation.ordered_matches(f"ATLEAST {count} {within}", parts, orders(parts, count), within)


class AtLeastRoom(OperatorRoom[AtLeast]):
    """The room of :class:`AtLeast`."""

    kind = AtLeast
    function = "at_least"
    arguments = {("at_least", "within"): SCOPES, ("at_least", "count"): counts(1, 2)}

    def positive(self, tree: AtLeast) -> tuple[Part, ...]:
        return tree.parts

    def matches(self, tree: AtLeast, evaluation: Evaluation) -> list[Match]:
        return some_of(tree.parts, tree.count, evaluation.ticks(tree.within), evaluation)


class AllRoom(OperatorRoom[All]):
    """The room of :class:`All`."""

    kind = All
    function = "all_of"
    arguments = {("all_of", "within"): SCOPES}

    def positive(self, tree: All) -> tuple[Part, ...]:
        return tree.parts

    def matches(self, tree: All, evaluation: Evaluation) -> list[Match]:
        return some_of(tree.parts, len(tree.parts), evaluation.ticks(tree.within), evaluation)


class AnyRoom(OperatorRoom[AnyOf]):
    """The room of :class:`AnyOf`."""

    kind = AnyOf
    function = "any_of"

    def positive(self, tree: AnyOf) -> tuple[Part, ...]:
        return tree.parts

    def matches(self, tree: AnyOf, evaluation: Evaluation) -> list[Match]:
        return some_of(tree.parts, 1, 1, evaluation)


class AtMostRoom(OperatorRoom[AtMost]):
    """The room of :class:`AtMost`."""

    kind = AtMost
    function = "at_most"
    arguments = {("at_most", "within"): SCOPES, ("at_most", "count"): counts(1, 3)}

    def positive(self, tree: AtMost) -> tuple[Part, ...]:
        return tree.parts

    def matches(self, tree: AtMost, evaluation: Evaluation) -> list[Match]:
        """Return each event that has few enough events, itself counted, in the scope that ends with it, without consumed ones.

        Events of other parts count if the conditions on both hold, those of its own part whatever the conditions; with unequal
        keys none counts. An event that one part consumes is still there for the other parts that it is in.
        """
        parts, within = tree.parts, evaluation.ticks(tree.within)
        inputs = [evaluation.part(part) for part in parts]
        matches: list[Match] = []
        consumed: set[Any] = set()
        for completing in ordered_occurrences([(i, e) for i, es in enumerate(inputs) for e in es], parts):
            gone: set[Any] = set()
            for i, e in completing:
                if e.id in consumed:
                    continue
                around = {
                    x.id
                    for j, others in enumerate(inputs)
                    for x in others
                    if e.vs - within < x.vs <= e.vs and x.id not in consumed
                    if i == j or evaluation.holds({**e.bound, **x.bound})
                    if evaluation.agree(e.bound, x.bound)
                }
                if len(around) <= tree.count:
                    text, ids = evaluation.identify(f"ATMOST {tree.count} {within}", [(i, e)], parts, is_whole=False)
                    others_absent: Bound = {v: None for j, part in enumerate(parts) if j != i for v in variables(part)}
                    matches.append(
                        Match(
                            id=(id(parts), i, e.id),
                            rank=None,
                            vs=e.vs,
                            till=e.vs + within,
                            root=e.root,
                            contributors=(e.vs,),
                            bound={**others_absent, **e.bound},
                            text=text,
                            inputs=ids,
                        )
                    )
                    if parts[i].consumption == Consumption.CONSUME:
                        gone.add(e.id)
            consumed |= gone
        return matches


MANY = 2**31
"""More than a run has."""


class RepeatRoom(OperatorRoom[Repeat]):
    """The room of :class:`Repeat`."""

    kind = Repeat
    repeats = True
    function = "repeat"
    arguments = {("repeat", "within"): SCOPES, ("repeat", "count"): counts(1, 3), ("repeat", "most"): counts(3, 4)}

    def positive(self, tree: Repeat) -> tuple[Part, ...]:
        return (tree.pattern,)

    def matches(self, tree: Repeat, evaluation: Evaluation) -> list[Match]:
        """Return the run that ends with each occurrence, if its length is right: those of equal keys that are not consumed.

        A run has all such occurrences within the scope; with more than ``most`` there is no match, instead of a shorter run.
        """
        within = evaluation.ticks(tree.within)
        matches: list[Match] = []
        gone: set[Any] = set()
        before: list[Match] = []
        events = [(0, e) for e in evaluation.part(tree.pattern)]
        for ((_, e),) in ordered_occurrences(events, (tree.pattern,), are_ordered=True):
            before.append(e)
            near = (x for x in before if x.vs > e.vs - within and x.id not in gone)
            run = [x for x in near if evaluation.agree(e.bound, x.bound)]
            if not tree.count <= len(run) <= (tree.most or MANY):
                continue
            there = [fields for fields in e.bound.values() if fields is not None]
            keys = {k: next(fields[k] for fields in there if k in fields) for k in evaluation.keys}
            bound: Bound = {f"{name}@": {"@run": [x.bound[name] for x in run], **keys} for name in e.bound}
            times, ids = tuple(x.vs for x in run), tuple(x.text for x in run)
            matches.append(
                Match(
                    id=("repeat", *(x.id for x in run)),
                    rank=None,
                    vs=e.vs,
                    till=times[0] + within,
                    root=min(x.root for x in run),
                    contributors=times,
                    bound=bound,
                    text=match_id(f"REPEAT {tree.count} {tree.most or 0} {within}", ids),
                    inputs=ids,
                )
            )
            if tree.pattern.consumption == Consumption.CONSUME:
                gone |= {x.id for x in run}
        return matches


class SequenceRoom(OperatorRoom[Sequence]):
    """The room of :class:`Sequence`."""

    kind = Sequence
    function = "sequence"
    arguments = {("sequence", "within"): SCOPES}

    def positive(self, tree: Sequence) -> tuple[Part, ...]:
        return tree.parts

    def matches(self, tree: Sequence, evaluation: Evaluation) -> list[Match]:
        within = evaluation.ticks(tree.within)
        return evaluation.ordered_matches(f"SEQUENCE {within}", tree.parts, [tuple(range(len(tree.parts)))], within)


# negations


class UnlessRoom(OperatorRoom[Unless]):
    """The room of :class:`Unless`."""

    kind = Unless
    verb = "unless"
    arguments = {("unless", "within"): SCOPES}

    def positive(self, tree: Unless) -> tuple[Part, ...]:
        return (tree.pattern,)

    def negated(self, tree: Unless) -> tuple[Part, ...]:
        return (tree.negated,)

    def matches(self, tree: Unless, evaluation: Evaluation) -> list[Match]:
        """Return the matches with no negated one after their start, or their nth contributor, and within the scope.

        They keep their start and last until the scope after it; their only contributor is that start.
        """
        scope, nth = evaluation.ticks(tree.within), tree.nth
        alone = evaluation.matches_without(
            tree.pattern, tree.negated, lambda e, z: 0 < z - (e.contributors[nth - 1] if nth else e.vs) < scope
        )
        return [e.alone("unless", f"UNLESS {nth or 0} {scope}", e.vs + scope) for e in alone]


class UnlessBeforeRoom(OperatorRoom[UnlessBefore]):
    """The room of :class:`UnlessBefore`."""

    kind = UnlessBefore
    verb = "unless_before"
    arguments = {("unless_before", "within"): SCOPES}

    def positive(self, tree: UnlessBefore) -> tuple[Part, ...]:
        return (tree.pattern,)

    def negated(self, tree: UnlessBefore) -> tuple[Part, ...]:
        return (tree.negated,)

    def matches(self, tree: UnlessBefore, evaluation: Evaluation) -> list[Match]:
        scope = evaluation.ticks(tree.within)
        alone = evaluation.matches_without(tree.pattern, tree.negated, lambda e, z: e.vs - scope <= z < e.vs)
        return [e.alone("unless before", f"UNLESS_BEFORE {scope}", e.vs + 1) for e in alone]


class NotRoom(OperatorRoom[Not]):
    """The room of :class:`Not`."""

    kind = Not
    verb = "without"

    def positive(self, tree: Not) -> tuple[Part, ...]:
        return (tree.pattern,)

    def negated(self, tree: Not) -> tuple[Part, ...]:
        return (tree.negated,)

    def children(self, tree: Not) -> tuple[Part, ...]:
        return (tree.negated, tree.pattern)

    def matches(self, tree: Not, evaluation: Evaluation) -> list[Match]:
        return evaluation.matches_without(
            tree.pattern, tree.negated, lambda e, z: e.contributors[0] < z < e.contributors[-1]
        )


class CancelWhenRoom(OperatorRoom[CancelWhen]):
    """The room of :class:`CancelWhen`."""

    kind = CancelWhen
    verb = "cancel_when"

    def positive(self, tree: CancelWhen) -> tuple[Part, ...]:
        return (tree.pattern,)

    def negated(self, tree: CancelWhen) -> tuple[Part, ...]:
        return (tree.negated,)

    def matches(self, tree: CancelWhen, evaluation: Evaluation) -> list[Match]:
        return evaluation.matches_without(tree.pattern, tree.negated, lambda e, z: e.root < z < e.vs)
