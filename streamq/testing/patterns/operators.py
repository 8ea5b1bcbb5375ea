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
from streamq.testing.patterns.matches import SCOPES, Match, by_rule, counts, match_id, ordered_occurrences, variables
from streamq.testing.patterns.rules import Evaluation


def some_of(parts: abc.Sequence[Part], count: int, within: int, evaluation: Evaluation) -> list[Match]:
    """Return the matches of ``count`` of the parts in any order."""
    return evaluation.ordered_matches(
        f"ATLEAST {count} {within}", parts, list(permutations(range(len(parts)), count)), within
    )


@by_rule(AtLeast, "at_least", "parts", within=SCOPES, count=counts(1, 2))
def matches_of_at_least(tree: AtLeast, evaluation: Evaluation) -> list[Match]:
    return some_of(tree.parts, tree.count, evaluation.ticks(tree.within), evaluation)


@by_rule(All, "all_of", "parts", within=SCOPES)
def matches_of_all_of(tree: All, evaluation: Evaluation) -> list[Match]:
    return some_of(tree.parts, len(tree.parts), evaluation.ticks(tree.within), evaluation)


@by_rule(AnyOf, "any_of", "parts")
def matches_of_any_of(tree: AnyOf, evaluation: Evaluation) -> list[Match]:
    return some_of(tree.parts, 1, 1, evaluation)


@by_rule(AtMost, "at_most", "parts", within=SCOPES, count=counts(1, 3))
def matches_of_at_most(tree: AtMost, evaluation: Evaluation) -> list[Match]:
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


@by_rule(Repeat, "repeat", "pattern", repeats=True, within=SCOPES, count=counts(1, 3), most=counts(3, 4))
def matches_of_repeat(tree: Repeat, evaluation: Evaluation) -> list[Match]:
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


@by_rule(Sequence, "sequence", "parts", within=SCOPES)
def matches_of_sequence(tree: Sequence, evaluation: Evaluation) -> list[Match]:
    within = evaluation.ticks(tree.within)
    return evaluation.ordered_matches(f"SEQUENCE {within}", tree.parts, [tuple(range(len(tree.parts)))], within)


# negations


@by_rule(Unless, "unless", "pattern", "negated", within=SCOPES)
def matches_of_unless(tree: Unless, evaluation: Evaluation) -> list[Match]:
    """Return the matches with no negated one after their start, or their nth contributor, and within the scope.

    They keep their start and last until the scope after it; their only contributor is that start.
    """
    scope, nth = evaluation.ticks(tree.within), tree.nth
    alone = evaluation.matches_without(
        tree.pattern, tree.negated, lambda e, z: 0 < z - (e.contributors[nth - 1] if nth else e.vs) < scope
    )
    return [e.alone("unless", f"UNLESS {nth or 0} {scope}", e.vs + scope) for e in alone]


@by_rule(UnlessBefore, "unless_before", "pattern", "negated", within=SCOPES)
def matches_of_unless_before(tree: UnlessBefore, evaluation: Evaluation) -> list[Match]:
    scope = evaluation.ticks(tree.within)
    alone = evaluation.matches_without(tree.pattern, tree.negated, lambda e, z: e.vs - scope <= z < e.vs)
    return [e.alone("unless before", f"UNLESS_BEFORE {scope}", e.vs + 1) for e in alone]


@by_rule(Not, "without", "negated", "pattern")
def matches_of_without(tree: Not, evaluation: Evaluation) -> list[Match]:
    return evaluation.matches_without(
        tree.pattern, tree.negated, lambda e, z: e.contributors[0] < z < e.contributors[-1]
    )


@by_rule(CancelWhen, "cancel_when", "pattern", "negated")
def matches_of_cancel_when(tree: CancelWhen, evaluation: Evaluation) -> list[Match]:
    return evaluation.matches_without(tree.pattern, tree.negated, lambda e, z: e.root < z < e.vs)
