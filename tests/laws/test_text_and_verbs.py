"""A pattern verb by verb is the query that its text is: one plan, and under other names of types one history.

UNLESS, UNLESS_BEFORE and CANCEL_WHEN are verbs of patterns. Over a type they are verbs of ``any_of`` of it, whose matches are its
events.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import streamq as sq
from streamq.choices import Consumption, Selection
from streamq.errors import StreamqError
from streamq.patterns.operators.at_least import AnyOf
from streamq.patterns.pattern import Pattern
from streamq.patterns.pattern_text import render
from streamq.patterns.pattern_tree import (
    ArgumentKind,
    Contributor,
    PatternTree,
    Type,
    leaves,
    parts_of,
    repeated_below,
    variables_below,
)
from streamq.patterns.syntax import Definition, Part, Program
from streamq.testing.patterns.matches import room_of
from tests.drawn.programs import Draw, ProgramDrawing
from tests.patterns.pattern_cases import bag

SOAK = 50 if os.environ.get("STREAMQ_SOAK") else 1

law = settings(
    derandomize=SOAK == 1,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Condition:
    """A condition as a text, with the variables in it; it is about all variables if it has none."""

    text: str
    variables: frozenset[str] = frozenset()


def text_of(whole: Part, conditions: Sequence[Condition]) -> str:
    """Return the text of a pattern with conditions."""
    where = " AND ".join(f"({c.text})" for c in conditions)
    text = render(Program((Definition("Pattern", whole),)))
    return f"{text}\nWHERE {where}" if where else text


def receivers(tree: PatternTree) -> list[Part]:
    """Return the part of an operator of which its verb is; none of an operator that a function makes."""
    return [] if room_of(tree).verb in sq.__all__ else list(tree.positive)


@dataclass(frozen=True)
class Tree:
    """A pattern, the variables of which are named after their types, with its conditions."""

    whole: Part
    conditions: Sequence[Condition]

    def text(self) -> str:
        """Return it in the language."""
        return text_of(self.whole, self.conditions)

    def verbs_text(self, conditions: Sequence[Condition]) -> str:
        """Return what verbs say: types are called by their first variables, and a type of which a verb is stands in ANY."""
        names = self.first_variables

        def by_type(part: Part, *, is_receiver: bool = False) -> Part:
            tree = part.pattern
            if isinstance(tree, Type):
                event = replace(part, pattern=Type(names[tree.name]))
                return Part(AnyOf((event,))) if is_receiver else event
            return replace(
                part, pattern=tree.with_children(lambda one: by_type(one, is_receiver=one in receivers(tree)))
            )

        return text_of(by_type(self.whole, is_receiver=True), conditions)

    @property
    def first_variables(self) -> dict[str, str]:
        """The first variable of each type, by the type."""
        return {kind.name: name for name, _, kind in reversed(list(leaves(self.whole)))}


@dataclass
class Verbs:
    """Say a tree verb by verb over streams; ``ordered`` are its conditions in the order in which the pattern then has them.

    A condition belongs to the innermost pattern that has its variables.
    """

    streams: Mapping[str, sq.Stream]
    conditions: list[Condition]
    ordered: list[Condition] = field(default_factory=list)

    def pattern(self, part: Part, *, is_whole: bool = False) -> Pattern:
        """Return a part without a name as a pattern."""
        tree = part.pattern
        if isinstance(tree, Type):
            return self._narrowed(sq.any_of(self.part(part)), part, is_whole)
        verb = room_of(tree).verb
        function = verb in sq.__all__
        say: Any = getattr(sq, verb) if function else getattr(self.pattern(*receivers(tree)), verb)
        arguments: list[Any] = []
        options: dict[str, Any] = {}
        for argument in tree.signature:
            value = getattr(tree, argument.field)
            match argument.form:
                case ArgumentKind.PARTS:
                    arguments += map(self.part, value)
                case ArgumentKind.PART if function or argument.is_negated:
                    arguments.append(self.part(value))
                case ArgumentKind.COUNT if function and value is not None:
                    arguments.append(value)
                case ArgumentKind.COUNT | ArgumentKind.SCOPE if value is not None:
                    options[argument.field] = value
        return self._narrowed(say(*arguments, **options), part, is_whole)

    def part(self, part: Part) -> Contributor | Pattern:
        """Return a part under its name, if it has one."""
        stream = self.streams[part.pattern.name] if isinstance(part.pattern, Type) else self.pattern(part)
        if part.variable is None:
            assert isinstance(stream, Pattern)
            return stream
        named = stream.alias(part.variable)
        if part.selection != Selection.EACH:
            named = named.first() if part.selection == Selection.FIRST else named.last()
        return named.consume() if part.consumption == Consumption.CONSUME else named

    def _narrowed(self, pattern: Pattern, part: Part, is_whole: bool) -> Pattern:
        """Return the pattern of a part with the conditions that belong to it; the whole has all that are left."""
        named = {p.variable for p in parts_of(part) if p is not part}
        own = [c for c in self.conditions if is_whole or (c.variables and c.variables <= named)]
        self.conditions = [c for c in self.conditions if c not in own]
        self.ordered += own
        for condition in own:
            pattern = pattern.where(condition.text)
        return pattern


def named(part: Part, numbers: Iterator[int], *, is_receiver: bool = False) -> Part:
    """Return a part whose variables are named after their types; one of which a verb is has no name, and does not choose."""
    number, tree = next(numbers), part.pattern
    if isinstance(tree, Type):
        return replace(part, variable=f"{tree.name.lower()}{number}")
    silent = {id(one) for one in receivers(tree)}
    tree = tree.with_children(lambda one: named(one, numbers, is_receiver=id(one) in silent))
    if is_receiver:
        return Part(tree)
    chooses = part.selection != Selection.EACH or part.consumption != Consumption.REUSE
    return replace(part, pattern=tree, variable=f"s{number}" if chooses or part.variable is not None else None)


@st.composite
def trees(draw: Draw) -> Tree:
    """Draw a pattern over the types A, B and C with conditions, not all of which are legal."""
    drawing = ProgramDrawing(
        draw, (f"p{n}" for n in count()), 2, types=st.sampled_from("AABC"), scopes=st.integers(3, 9)
    )
    whole = named(Part(drawing.pattern()), count(1), is_receiver=True)
    variables, repeated = variables_below(whole), repeated_below(whole)

    def read(variable: str, name: str) -> str:
        return f"max({variable}.{name})" if variable in repeated else f"{variable}.{name}"

    conditions = []
    for x, y in draw(st.lists(st.tuples(st.sampled_from(variables), st.sampled_from(variables)), max_size=2)):
        texts = (
            [f"{read(x, 'v')} > 0"]
            if x == y
            else [f"{read(x, 'k')} = {read(y, 'k')}", f"{read(x, 'v')} <= {read(y, 'v')}"]
        )
        conditions.append(Condition(draw(st.sampled_from(texts)), frozenset({x, y})))
    of_all = ["CorrelationKey(k, EQUAL)", "CorrelationKey(v, UNIQUE)", "[k EQUAL 'a']"]
    conditions += [Condition(text) for text in draw(st.lists(st.sampled_from(of_all), max_size=1))]
    return Tree(whole, conditions)


Rows = Sequence[tuple[int, str | None, int]]

ROWS = st.lists(
    st.tuples(st.integers(1, 12), st.sampled_from(["a", "a", "b", None]), st.integers(0, 3)), min_size=3, max_size=9
)
SCHEMA = {"k": "string", "v": "bigint"}


def streams(a: Rows, b: Rows) -> dict[str, sq.Stream]:
    """Return two streams of events, and one of the matches of a pattern."""
    types = {
        name: sq.events([(at, at + 1, {"k": k, "v": v}) for at, k, v in rows], name=name, schema=SCHEMA)
        for name, rows in {"A": a, "B": b}.items()
    }
    pairs = sq.cedr("EVENT P WHEN SEQUENCE(A AS x LAST CONSUME, B AS y, 6) OUTPUT x.k AS k, y.v AS v", **types)
    return {**types, "C": pairs}


SOME = streams([(1, "a", 1)], [(2, "a", 2)])


def outcome(make: Callable[[], Pattern]) -> tuple[object, ...]:
    """Return the plan and the text of a pattern, or else what is wrong with it, without the place."""
    try:
        pattern = make()
        return pattern.plan, pattern.text
    except StreamqError as error:
        return (str(error).partition(": ")[2].splitlines()[0],)


@pytest.mark.filterwarnings("ignore::streamq.errors.StreamqWarning")
@settings(law, max_examples=60 * SOAK)
@given(trees())
def test_verbs_and_text_are_one_plan(tree: Tree) -> None:
    """Types of the text are called by the first variables of their streams, as the verbs call them."""
    note(tree.text())
    verbs = Verbs(SOME, list(tree.conditions))
    by_verbs = outcome(lambda: verbs.pattern(tree.whole, is_whole=True))
    types = {name: SOME[kind] for kind, name in tree.first_variables.items()}
    assert outcome(lambda: sq.cedr(tree.verbs_text(verbs.ordered), **types)) == by_verbs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::streamq.errors.StreamqWarning")
@settings(law, max_examples=40 * SOAK)
@given(trees(), ROWS, ROWS)
def test_verbs_and_text_have_one_history(tree: Tree, a: Rows, b: Rows) -> None:
    """Types of the text are called otherwise, in the same order."""
    note(tree.text())
    types = streams(a, b)
    try:
        text = sq.cedr(tree.text(), **types)
    except StreamqError:
        return
    verbs = Verbs(types, list(tree.conditions)).pattern(tree.whole, is_whole=True)
    assert bag(verbs.to_arrow().to_pylist()) == bag(text.to_arrow().to_pylist())
