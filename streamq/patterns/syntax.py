"""The syntax tree of the CEDR language: the contents of a text without its layout, and the errors at its places.

Trees are values: two are equal if their contents are, whatever their places. ``place`` is that of the node in the text.
Variables, types and fields are names as written; they are resolved later (``definitions.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from streamq.choices import Consumption, Selection
from streamq.errors import Sentence, StreamqError

if TYPE_CHECKING:
    from streamq.patterns.pattern_tree import PatternTree


class Place(NamedTuple):
    """A place in a text; lines and columns count from 1, columns in characters."""

    line: int
    column: int


NOWHERE = Place(0, 0)
"""The place of a node that comes from no text."""


@dataclass(frozen=True, kw_only=True)
class SyntaxNode:
    """A node of the tree; its place is no part of its value."""

    place: Place = field(default=NOWHERE, compare=False, repr=False)


# --- expressions of WHERE and OUTPUT


@dataclass(frozen=True)
class EventField(SyntaxNode):
    """A field of an event, ``x.machine``; without a variable, ``machine``."""

    variable: str | None
    name: str


@dataclass(frozen=True, eq=False)
class Literal(SyntaxNode):
    """A constant: a string, an integer, a float, TRUE, FALSE or NULL. Constants of different types are not equal."""

    value: str | int | float | bool | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[type, object]:
        return type(self.value), self.value


@dataclass(frozen=True)
class Apply(SyntaxNode):
    """A function of some arguments.

    Operators are functions too: ``= <> < <= > >= + - * / %``, ``and`` and ``or`` of two or more arguments (none of them of
    the same function), ``not``, ``is null``, ``is not null``, ``in`` (the value first), ``between``, ``like``, ``negative``,
    ``case when`` of conditions and values in turn and perhaps a default, ``cast as`` of a value and the name of a type.
    Other functions have their names as written.
    """

    function: str
    arguments: tuple[Expression, ...]
    depth: int = field(init=False, compare=False, repr=False)
    """The depth of nested functions, this one counted."""

    def __post_init__(self) -> None:
        depth = 1 + max((a.depth for a in self.arguments if isinstance(a, Apply)), default=0)
        object.__setattr__(self, "depth", depth)


@dataclass(frozen=True)
class CorrelationKey(SyntaxNode):
    """All variables agree in each of these attributes; with ``equal=False``, no two of them do. It is a whole condition."""

    attributes: tuple[str, ...]
    equal: bool


@dataclass(frozen=True)
class AttributeEquals(SyntaxNode):
    """The attribute has this value in all variables: ``[attribute EQUAL 'value']``. It is a whole condition."""

    attribute: str
    value: Literal


Expression = EventField | Literal | Apply
Condition = Expression | CorrelationKey | AttributeEquals


def expressions_in(conditions: Iterable[Condition]) -> Iterator[Condition]:
    """Yield conditions and the expressions in them, in the order of the text."""
    waiting = [*conditions][::-1]
    while waiting:
        one = waiting.pop()
        yield one
        if isinstance(one, Apply):
            waiting += reversed(one.arguments)


# --- patterns

Scope = str | int
"""A scope: ``"12 hours"``, or an integer number of ticks, as :func:`streamq.time.ticks` takes it."""

_PLAIN_DURATION = re.compile(r"[0-9]+(\.[0-9]+)? [a-z]+( [0-9]+(\.[0-9]+)? [a-z]+)*")


def shown_duration(within: Scope) -> str:
    """Return the text of a scope."""
    return str(within) if isinstance(within, int) or _PLAIN_DURATION.fullmatch(within) else shown_text(within)


def shown_text(value: str) -> str:
    """Return the text of a string, in quotes."""
    return "'" + value.replace("'", "''") + "'"


@dataclass(frozen=True)
class Part(SyntaxNode):
    """A part of an operator: a pattern, the variable that names its matches, its selection and its consumption."""

    pattern: PatternTree
    variable: str | None = None
    selection: Selection = Selection.EACH
    consumption: Consumption = Consumption.REUSE


# --- definitions


@dataclass(frozen=True)
class OutputField(SyntaxNode):
    """A field of the result; in a text the name of a plain field may be left out."""

    expression: Expression
    name: str


@dataclass(frozen=True)
class Slice(SyntaxNode):
    """The instants ``[start, end)``, as numbers or as quoted timestamps; None is without a bound."""

    start: Literal | None
    end: Literal | None


@dataclass(frozen=True)
class Definition(SyntaxNode):
    """An event type that a pattern defines.

    ``pattern`` is a part so that the whole may have a variable. ``where`` are conditions that all hold: whatever AND connects,
    in braces and parentheses too. ``output`` is empty where there is no OUTPUT. ``occurrence`` is the slice behind @ and
    ``validity`` that behind #.
    """

    name: str
    pattern: Part
    where: tuple[Condition, ...] = ()
    output: tuple[OutputField, ...] = ()
    occurrence: Slice | None = None
    validity: Slice | None = None


@dataclass(frozen=True)
class Program(SyntaxNode):
    """The definitions of a text, in its order; a later one may use an earlier one as a type."""

    definitions: tuple[Definition, ...]


MAX_EVENTS: Final = 100
"""The greatest number of events of a pattern: each is a join, and has its columns in every match."""

MAX_VALUES: Final = 5_000
"""The greatest number of values that IN lists."""

MAX_DEPTH: Final = 64
"""The greatest depth of nested brackets, and of operators in an expression."""


class Refusal(Exception):
    """An error at a place, in the words of :func:`streamq.errors.sentence`; users see it as a CedrError or PlanError."""

    def __init__(self, place: Place, wrong: str, observed: str = "", hint: str = "") -> None:
        super().__init__(wrong)
        self.place, self.wrong, self.observed, self.hint = place, wrong, observed, hint


CAST: Final = "Write a CAST, as CAST(x.v AS bigint)."
CASE: Final = "Write a CASE, as CASE WHEN x.v > 1 THEN 'high' ELSE 'low' END."
_ONLY_IN_PYTHON: Final = re.compile(r"\bsq\.|\.\w+\(|\btimedelta\b|\bschema=|\bDataType\b")
_CASTS: Final = re.compile(r"\bcast\b", re.IGNORECASE)
_IN_TEXTS: Final = {" == ": " = ", " != ": " <> "}
_OF_PYTHON: Final = re.compile(r"'(?:[^']|'')*'| == | != ")
"""Matches quoted texts, which stay as they are, and the signs of Python that the language spells otherwise."""


def advice_for_name(name: str) -> str:
    """Return the hint for a function that only other languages have; empty for any other name."""
    return {"cast": CAST, "try_cast": CAST, "if": CASE, "iff": CASE, "iif": CASE}.get(name.lower(), "")


def refusal_for(place: Place, error: StreamqError, verb: str, instead: str = "") -> Refusal:
    """Turn an error of a ``verb`` into a refusal at a place; ``instead`` replaces a hint that only helps in Python.

    A hint at a cast becomes CAST, and functions have no prefix in a text.
    """
    text = error.args[0]
    assert isinstance(text, Sentence)
    hint = text.hint.replace("sq.functions.", "")
    if _CASTS.search(hint):
        hint = CAST
    elif _ONLY_IN_PYTHON.search(hint):
        hint = instead
    claim = text.claim.removeprefix(f"{verb}: ").removesuffix(".")
    return Refusal(place, _OF_PYTHON.sub(lambda match: _IN_TEXTS.get(match[0], match[0]), claim), "", hint)
