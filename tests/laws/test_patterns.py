"""Patterns: of what arrives in any order, corrected and repeated, the matches are those of the rules of the language.

The rules, match by match in Python, share nothing with the compiler but the parser.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streamq.choices import OutputForm
from streamq.patterns.parser import parse
from streamq.testing.backends import execute
from streamq.testing.case import Case
from streamq.testing.execution import STREAM, Execution
from streamq.testing.oracle import oracle
from streamq.testing.patterns.matches import UndeterminedAnswer
from streamq.testing.patterns.rules import matches_by_rules, primitives, rows_of
from tests.patterns.pattern_cases import CASES, CHOICES, SETS, SPARSE, bag, histories, matching, one_by_one

Bag = Counter[tuple[Any, ...]]

SOAK = 20 if os.environ.get("STREAMQ_SOAK") else 1

FINAL = Execution(STREAM, OutputForm.FINAL, restart=True)
CHANGELOG = Execution(STREAM, OutputForm.CHANGELOG)

LEVELS = Execution(STREAM, OutputForm.CHANGELOG, restart=True, buckets=2, blocks=(0, None, 5), ctis=True)
"""The level of consistency is another one after each micro-batch, and no row lies behind a CTI of the result."""

WAYS = (FINAL, CHANGELOG, LEVELS)

FAST = list(SETS)[::24]
"""A few of the texts; the slow tests have all of them, each operator in every other."""


def some(examples: int) -> settings:
    return settings(
        max_examples=examples * SOAK,
        derandomize=SOAK == 1,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


MANY = 24
"""Cases among which one with matches of a text is looked for."""

ENOUGH = 8
"""Matches of a text with which a case is not passed over for one that has more."""


program = functools.cache(parse)
"""Returns the syntax of a text, which is parsed once for all cases."""


class Sampled:
    """A case that many texts share, with what all of them read of it: the histories and the events of its streams."""

    def __init__(self, case: Case):
        self.case = case
        self.histories = histories(case)
        self.events = {name: primitives(name, history) for name, history in self.histories.items()}

    def matches_by_rules(self, text: str) -> Bag:
        """Return the matches of a text by the rules of the language; raise UndeterminedAnswer if they allow several answers."""
        return bag(rows_of(matches_by_rules(program(text), self.events)))

    def answer(self, text: str, how: Execution) -> Bag:
        """Return the matches of a text over what arrives."""
        return bag(execute(matching(self.case, text), how).to_pylist())


@functools.cache
def sample(count: int, drawn: st.SearchStrategy[Case] = CASES) -> Sequence[Sampled]:
    """Return a few cases, the same for each text."""
    cases = []

    @some(count)
    @given(drawn)
    def draw(case: Case) -> None:
        cases.append(Sampled(case))

    draw()
    return cases


def check(text: str, sampled: Sampled, ways: Sequence[Execution]) -> Bag:
    """Hold the answers of a text, over what arrives in a case, against the rules of the language; return the matches."""
    expected = sampled.matches_by_rules(text)
    for how in ways:
        assert sampled.answer(text, how) == expected, (how, sampled.case)
    return expected


def check_apart(text: str, sampled: Sampled, how: Execution, expected: Bag) -> None:
    """Hold the answer with each definition as a type of the next against the matches, and the oracle as well."""
    case = sampled.case
    apart = one_by_one(case, text)
    if apart.plan != matching(case, text).plan:
        assert bag(execute(apart, how).to_pylist()) == bag(oracle(apart.plan, case.tables).to_pylist()) == expected


def check_choices(text: str, sampled: Sampled, ways: Sequence[Execution]) -> bool:
    """True if the rules determine some matches of a text, against which its answers are then held."""
    try:
        expected = sampled.matches_by_rules(text)
    except UndeterminedAnswer:
        return False
    for how in ways:
        assert sampled.answer(text, how) == expected, (how, sampled.case)
    return bool(expected)


@pytest.mark.slow
@pytest.mark.parametrize("text", list(CHOICES)[::9])
def test_what_is_selected_and_consumed(text: str) -> None:
    """In the first of a few cases in which there is something; as a changelog, which is taken back where something comes late."""
    assert any(check_choices(CHOICES[text], case, [CHANGELOG]) for case in sample(MANY))


@pytest.mark.slow
@pytest.mark.parametrize("text", CHOICES)
def test_whatever_is_selected_and_consumed(text: str) -> None:
    """In all of a few cases, in one way after the other; that it is the same in any order is what the disorder in them shows."""
    turns = enumerate(sample(MANY)[: 2 * SOAK], list(CHOICES).index(text))
    answered = [check_choices(CHOICES[text], case, ways(turn)) for turn, case in turns]
    more = (case for drawn in (CASES, SPARSE) for case in sample(MANY, drawn))
    assert any(answered) or any(check_choices(CHOICES[text], case, [CHANGELOG]) for case in more)


def ways(turn: int) -> Sequence[Execution]:
    """One way after the other; with many examples all of them."""
    return WAYS if SOAK > 1 else [WAYS[turn % len(WAYS)]]


def with_matches(text: str) -> Sampled:
    """Return the first of a few cases that has enough matches, or the one that has most."""
    numbers = []
    for sampled in sample(MANY):
        numbers.append(sampled.matches_by_rules(text).total())
        if numbers[-1] >= ENOUGH:
            return sampled
    assert any(numbers)
    return sample(MANY)[numbers.index(max(numbers))]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
def test_the_matches_are_those_of_the_rules(name: str) -> None:
    check(SETS[name], with_matches(SETS[name]), ways(list(SETS).index(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_every_operator_in_every_other(name: str) -> None:
    """A case with matches, in one way or another; of every fourth text each definition apart, of every sixth another case."""
    turn = list(SETS).index(name)
    sampled = with_matches(SETS[name])
    expected = check(SETS[name], sampled, ways(turn + (name in FAST)))
    if SOAK > 1 or turn % 4 == 0:
        check_apart(SETS[name], sampled, WAYS[turn // 4 % len(WAYS)], expected)
    if SOAK > 1 or turn % 6 == 0:
        for other in sample(MANY)[turn % MANY :: MANY]:
            check(SETS[name], other, ways(turn + 2))
