"""Random programs in the form that the parser makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from hypothesis import strategies as st

from streamq.choices import Consumption, Selection
from streamq.patterns.advice import keywords
from streamq.patterns.operators.at_least import All, AnyOf, AtLeast, AtMost
from streamq.patterns.operators.at_least import Sequence as FollowedBy
from streamq.patterns.operators.negation import CancelWhen, Not, Unless, UnlessBefore
from streamq.patterns.operators.repeat import Repeat
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import PatternTree, Type
from streamq.patterns.syntax import (
    Apply,
    AttributeEquals,
    CorrelationKey,
    Definition,
    EventField,
    Expression,
    Literal,
    OutputField,
    Part,
    Program,
    Slice,
)

Draw = Callable[[st.SearchStrategy[Any]], Any]

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
NAMES = st.sampled_from(["a", "x1", "Ä", "_", *keywords()]) | st.text(CHARACTERS, min_size=1, max_size=5)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
LITERALS = st.builds(Literal, NUMBERS | st.text(CHARACTERS, max_size=5) | st.booleans() | st.none())
FIELDS = st.builds(EventField, st.none() | NAMES, NAMES)
FUNCTIONS = st.sampled_from(["f", "first", "negative", "Sequence", "größe"])
TYPES = st.builds(Literal, st.sampled_from(["bigint", "string", "decimal(10, 2)", "array<bigint>", "double"]))
DURATIONS = st.integers(1, 2**40) | st.sampled_from(
    ["5 minutes", "12 h", "12h", "1.5 hours", "1 hour 30 min", "1 hour, 30 min", "1 h -1 ms"]
)
BOUNDS = st.none() | st.builds(Literal, NUMBERS | st.text(CHARACTERS, max_size=5))
SLICES = st.none() | st.builds(Slice, BOUNDS, BOUNDS)
KEYS = st.builds(CorrelationKey, st.lists(NAMES, min_size=1, max_size=3).map(tuple), st.booleans())


def build_call(function: str, *arguments: Expression) -> Apply:
    """Return a function as the parser makes it: no AND in an AND, no OR in an OR."""
    if function in ("and", "or"):
        arguments = tuple(
            inner
            for a in arguments
            for inner in (a.arguments if isinstance(a, Apply) and a.function == function else (a,))
        )
    return Apply(function, arguments)


def functions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return draws of functions and operators over drawn operands."""
    binary = ["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "and", "or", "in", "like"]
    negated = inner.filter(lambda e: not (isinstance(e, Literal) and type(e.value) in (int, float)))
    return st.one_of(
        st.builds(build_call, st.sampled_from(binary), inner, inner),
        st.builds(build_call, st.sampled_from(["and", "or", "between", "in"]), inner, inner, inner),
        st.builds(build_call, st.sampled_from(["not", "is null", "is not null"]), inner),
        st.builds(build_call, st.just("negative"), negated),
        st.builds(build_call, st.just("case when"), inner, inner, inner),
        st.builds(build_call, st.just("case when"), inner, inner, inner, inner),
        st.builds(build_call, st.just("cast as"), inner, TYPES),
        st.tuples(FUNCTIONS, st.lists(inner, max_size=3)).map(lambda call: Apply(call[0], tuple(call[1]))),
    )


EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(FIELDS | LITERALS, functions, max_leaves=8)
CONJUNCTS = (
    EXPRESSIONS.filter(lambda e: not (isinstance(e, Apply) and e.function == "and"))
    | KEYS
    | st.builds(AttributeEquals, NAMES, LITERALS)
)


def variables(draw: Draw) -> Iterator[str]:
    """Yield drawn names without end, each once; they differ in more than case, as a program's variables must."""
    used: set[str] = set()
    for number in count():
        name = draw(NAMES)
        name = f"{name}{number}" if name.lower() in used else name
        used.add(name.lower())
        yield name


@dataclass(frozen=True)
class ProgramDrawing:
    """Draws patterns at most ``depth`` operators deep, each variable once.

    ``may_repeat``: True if there may be a REPEAT; ``types``: draws of the names of event types; ``scopes``: draws of scopes.
    """

    draw: Draw
    names: Iterator[str]
    depth: int
    may_repeat: bool = True
    types: st.SearchStrategy[str] = NAMES
    scopes: st.SearchStrategy[int | str] = DURATIONS

    def part(self, *, negated: bool = False, may_repeat: bool = True) -> Part:
        """Draw a part, with a variable or none; a negated one neither selects nor consumes."""
        pattern = replace(self, may_repeat=self.may_repeat and may_repeat).pattern()
        variable = next(self.names) if self.draw(st.booleans()) else None
        if negated:
            return Part(pattern, variable)
        return Part(pattern, variable, self.draw(st.sampled_from(Selection)), self.draw(st.sampled_from(Consumption)))

    def parts(self, least: int, most: int) -> tuple[Part, ...]:
        return tuple(self.part() for _ in range(self.number(least, most)))

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def pattern(self) -> PatternTree:
        """Draw a pattern: events of a type, or an operator."""
        if not self.depth or not self.draw(st.integers(0, 6)):
            return Type(self.draw(self.types))
        return self._operator(list(OPERATORS))

    def _operator(self, kinds: Sequence[type[PatternOperator]]) -> PatternOperator:
        kind = self.draw(st.sampled_from([one for one in kinds if self.may_repeat or one is not Repeat]))
        return replace(self, depth=max(0, self.depth - 1))._of_kind(kind)

    def _of_kind(self, kind: type[PatternOperator]) -> PatternOperator:
        """Draw an operator of a kind."""
        if kind is AnyOf:
            return AnyOf(self.parts(1, 3))
        if kind in (All, FollowedBy):
            return kind(self.parts(2, 3), self.draw(self.scopes))
        if kind is AtLeast:
            parts = self.parts(2, 3)
            return AtLeast(self.number(2, len(parts)), parts, self.draw(self.scopes))
        if kind is AtMost:
            parts = self.parts(1, 3)
            return AtMost(self.number(1, 9), parts, self.draw(self.scopes))
        if kind is Repeat:
            count = self.number(1, 3)
            most = self.number(count - 1, 5)
            return Repeat(self.part(may_repeat=False), count, self.draw(self.scopes), most if most >= count else None)
        if kind is Not:
            return Not(self.part(negated=True), Part(self._operator([AtLeast, All, FollowedBy])))
        pattern, negated = self.part(), self.part(negated=True)
        if kind is CancelWhen:
            return CancelWhen(pattern, negated)
        if kind is UnlessBefore:
            return UnlessBefore(pattern, negated, self.draw(self.scopes))
        nth = self.number(0, contributors(pattern))
        return Unless(pattern, negated, self.draw(self.scopes), nth or None)


OPERATORS = (All, AnyOf, AtLeast, AtMost, CancelWhen, Not, Repeat, FollowedBy, Unless, UnlessBefore)


def contributors(part: Part) -> int:
    """Return the number of contributors of a part's match."""
    match part.pattern:
        case AtLeast(count=count) | Repeat(count=count):
            return count
        case All(parts=parts) | FollowedBy(parts=parts):
            return len(parts)
        case Not(pattern=pattern) | CancelWhen(pattern=pattern):
            return contributors(pattern)
    return 1


@st.composite
def definitions(draw: Draw, name: str) -> Definition:
    """Draw a definition: a pattern, and conditions, OUTPUT and slices, each of which may be left out.

    It can be written and parsed, but the types, variables and fields in it need not exist.
    """
    whole = Part(ProgramDrawing(draw, variables(draw), 3).pattern(), draw(st.none() | st.just("whole")))
    where = draw(st.lists(CONJUNCTS, max_size=3))
    output = [
        OutputField(e, e.name if isinstance(e, EventField) else "f") for e in draw(st.lists(EXPRESSIONS, max_size=3))
    ]
    named = {field.name: field for field in output}
    return Definition(name, whole, tuple(where), tuple(named.values()), draw(SLICES), draw(SLICES))


@st.composite
def programs(draw: Draw) -> Program:
    """Draw a program of one definition or two."""
    names = draw(st.lists(NAMES, min_size=1, max_size=2, unique=True))
    # a definition cannot use itself, nor one behind it
    return Program(tuple(draw(definitions(f"{name} defined")) for name in names))
