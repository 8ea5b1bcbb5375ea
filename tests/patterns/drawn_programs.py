"""Random programs in the form that the parser makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from hypothesis import strategies as st

from streamq.choices import Consumption, Selection
from streamq.patterns.legal_words import keywords
from streamq.patterns.operator import Operator
from streamq.patterns.operators.at_least import All, AnyOf, AtLeast
from streamq.patterns.operators.at_most import AtMost
from streamq.patterns.operators.cancel_when import CancelWhen
from streamq.patterns.operators.not_between import Not
from streamq.patterns.operators.sequence import Sequence
from streamq.patterns.operators.unless import Unless
from streamq.patterns.syntax import (
    Apply,
    AttributeEquals,
    CorrelationKey,
    Definition,
    Expression,
    Field,
    Literal,
    OutputField,
    Part,
    Program,
    Slice,
)
from streamq.patterns.tree import Type

Draw = Callable[[st.SearchStrategy[Any]], Any]

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
NAMES = st.sampled_from(["a", "x1", "Ä", "_", *keywords()]) | st.text(CHARACTERS, min_size=1, max_size=5)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
LITERALS = st.builds(Literal, NUMBERS | st.text(CHARACTERS, max_size=5) | st.booleans() | st.none())
FIELDS = st.builds(Field, st.none() | NAMES, NAMES)
FUNCTIONS = st.sampled_from(["f", "first", "negative", "Sequence", "größe"])
DURATIONS = st.integers(1, 2**40) | st.sampled_from(
    ["5 minutes", "12 h", "12h", "1.5 hours", "1 hour 30 min", "1 hour, 30 min", "1 h -1 ms"]
)
BOUNDS = st.none() | st.builds(Literal, NUMBERS | st.text(CHARACTERS, max_size=5))
SLICES = st.none() | st.builds(Slice, BOUNDS, BOUNDS)
KEYS = st.builds(CorrelationKey, st.lists(NAMES, min_size=1, max_size=3).map(tuple), st.booleans())


def applied(function: str, *arguments: Expression) -> Apply:
    """A function as the parser makes it: no AND in an AND, no OR in an OR."""
    if function in ("and", "or"):
        arguments = tuple(
            inner
            for a in arguments
            for inner in (a.arguments if isinstance(a, Apply) and a.function == function else (a,))
        )
    return Apply(function, arguments)


def functions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    binary = ["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "and", "or", "in", "like"]
    negated = inner.filter(lambda e: not (isinstance(e, Literal) and type(e.value) in (int, float)))
    return st.one_of(
        st.builds(applied, st.sampled_from(binary), inner, inner),
        st.builds(applied, st.sampled_from(["and", "or", "between", "in"]), inner, inner, inner),
        st.builds(applied, st.sampled_from(["not", "is null", "is not null"]), inner),
        st.builds(applied, st.just("negative"), negated),
        st.tuples(FUNCTIONS, st.lists(inner, max_size=3)).map(lambda call: Apply(call[0], tuple(call[1]))),
    )


EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(FIELDS | LITERALS, functions, max_leaves=8)
CONJUNCTS = (
    EXPRESSIONS.filter(lambda e: not (isinstance(e, Apply) and e.function == "and"))
    | KEYS
    | st.builds(AttributeEquals, NAMES, LITERALS)
)


def variables(draw: Draw) -> Iterator[str]:
    """Names, each once."""
    used: set[str] = set()
    for number in count():
        name = draw(NAMES)
        name = f"{name}{number}" if name in used else name
        used.add(name)
        yield name


def draw_part(draw: Draw, names: Iterator[str], depth: int, negated: bool = False) -> Part:
    pattern = draw_pattern(draw, names, depth)
    variable = next(names) if draw(st.booleans()) else None
    if negated:
        return Part(pattern, variable)
    return Part(pattern, variable, draw(st.sampled_from(Selection)), draw(st.sampled_from(Consumption)))


def draw_scope(draw: Draw, names: Iterator[str], depth: int) -> Operator:
    """A pattern that NOT can stand over."""
    parts = tuple(draw_part(draw, names, depth) for _ in range(draw(st.integers(2, 3))))
    within = draw(DURATIONS)
    match draw(st.integers(0, 2)):
        case 0:
            return Sequence(parts, within)
        case 1:
            return All(parts, within)
    return AtLeast(draw(st.integers(2, len(parts))), parts, within)


def draw_pattern(draw: Draw, names: Iterator[str], depth: int) -> Operator:
    kind = draw(st.integers(0, 6)) if depth else 0
    match kind:
        case 1:
            return draw_scope(draw, names, depth - 1)
        case 2 | 3:
            parts = tuple(draw_part(draw, names, depth - 1) for _ in range(draw(st.integers(1, 3))))
            return AnyOf(parts) if kind == 2 else AtMost(draw(st.integers(1, 9)), parts, draw(DURATIONS))
        case 4:
            part, negated = draw_part(draw, names, depth - 1), draw_part(draw, names, depth - 1, negated=True)
            nth = draw(st.none() | st.integers(1, part.pattern.extent({}).contributors))
            return Unless(part, negated, draw(DURATIONS), nth)
        case 5:
            negated = draw_part(draw, names, depth - 1, negated=True)
            return Not(negated, Part(draw_scope(draw, names, depth - 1)))
        case 6:
            return CancelWhen(draw_part(draw, names, depth - 1), draw_part(draw, names, depth - 1, negated=True))
    return Type(draw(NAMES))


@st.composite
def definitions(draw: Draw, name: str) -> Definition:
    whole = Part(draw_pattern(draw, variables(draw), depth=3), draw(st.none() | st.just("whole")))
    where = draw(st.lists(CONJUNCTS, max_size=3))
    output = [OutputField(e, e.name if isinstance(e, Field) else "f") for e in draw(st.lists(EXPRESSIONS, max_size=3))]
    named = {field.name: field for field in output}
    return Definition(name, whole, tuple(where), tuple(named.values()), draw(SLICES), draw(SLICES))


@st.composite
def programs(draw: Draw) -> Program:
    names = draw(st.lists(NAMES, min_size=1, max_size=2, unique=True))
    # a definition cannot use itself, nor one behind it
    return Program(tuple(draw(definitions(f"{name} defined")) for name in names))
