"""Patterns as trees: an operator over its parts, or the events of a type; and the fields of named sub-patterns.

An operator is a frozen dataclass. Its fields are its arguments; its ``signature`` gives their order in a text, so that the
parser, the writer and all walks treat every kind in the same way. ``s.v`` is the field ``v`` of the one event of a match of
``s`` that has it. Verbs make parts as a :class:`Contributor`: a stream or a pattern under a name, with selection and consumption.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, ClassVar, NoReturn, Self

from pyspark.sql import types as t

from streamq.choices import Consumption, Selection
from streamq.errors import CallResult, PlanError, UnknownVerb, nearest
from streamq.patterns.syntax import Condition, Definition, Part, Place, Refusal, Scope, SyntaxNode
from streamq.plan.node import Verbs, named_after
from streamq.time import length


class ArgumentKind(Enum):
    """The syntax of an argument."""

    PART = auto()
    """A pattern, with its variable, selection and consumption."""
    PARTS = auto()
    """One or more of those."""
    COUNT = auto()
    """A whole number."""
    SCOPE = auto()
    """A duration."""


@dataclass(frozen=True)
class Argument:
    """An argument of an operator: the field that holds it, and its syntax.

    is_negated: matches have no events of it.
    """

    field: str
    form: ArgumentKind
    is_optional: bool = False
    is_negated: bool = False


COUNT = Argument("count", ArgumentKind.COUNT)
PARTS = Argument("parts", ArgumentKind.PARTS)
SCOPE = Argument("within", ArgumentKind.SCOPE)
PATTERN = Argument("pattern", ArgumentKind.PART)
NEGATED = Argument("negated", ArgumentKind.PART, is_negated=True)


@dataclass(frozen=True)
class Extent:
    """The number of contributors of a pattern's match, and bounds of its times, in ticks.

    span: the greatest distance from its root to its start; lives: the most by which its lifetime exceeds its span; waits: the
    greatest time after its start at which it may be retracted.
    """

    contributors: int = 1
    span: int = 0
    lives: int = 0
    waits: int = 0


SINGLE = Extent()
"""The extent of a single event."""

Extents = Mapping[str, Extent]
"""Extents by the names of types; a type without one has single events."""


@dataclass(frozen=True)
class PatternTree(SyntaxNode, ABC):
    """A pattern: one kind of operator over its parts, or the events of a type.

    places: those of its counts and its scope in the text, by their fields.
    """

    keyword: ClassVar[str]
    signature: ClassVar[tuple[Argument, ...]]

    bounds_negation: ClassVar[bool] = False
    """True if its contributors lie within a scope of its own, so that NOT can look between the first and the last of them."""

    repeats: ClassVar[bool] = False
    """True if a match has several events of a part, so that above it the variables of that take aggregates."""

    places: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False, kw_only=True)

    # its parts

    @property
    def children(self) -> tuple[Part, ...]:
        """Its parts in the order of the text."""
        return tuple(self._parts(self.signature))

    @property
    def positive(self) -> tuple[Part, ...]:
        """The parts whose events a match has."""
        return tuple(self._parts(a for a in self.signature if not a.is_negated))

    @property
    def negatives(self) -> tuple[Part, ...]:
        """The parts of which no event must be there."""
        return tuple(self._parts(a for a in self.signature if a.is_negated))

    def _parts(self, arguments: Iterable[Argument]) -> Iterator[Part]:
        """Yield the parts that are the values of some arguments, in order."""
        for argument in arguments:
            if argument.form == ArgumentKind.PART:
                yield getattr(self, argument.field)
            elif argument.form == ArgumentKind.PARTS:
                yield from getattr(self, argument.field)

    def with_children(self, change: Callable[[Part], Part]) -> Self:
        """Return the same operator over the parts that ``change`` returns for its own."""
        parts: dict[str, Any] = {}
        for argument in self.signature:
            value = getattr(self, argument.field)
            if argument.form == ArgumentKind.PART:
                parts[argument.field] = change(value)
            elif argument.form == ArgumentKind.PARTS:
                parts[argument.field] = tuple(map(change, value))
        return replace(self, **parts)

    def consuming(self) -> Self:
        """Return the same operator whose single positive parts consume; parts of a list of parts stay as they are."""
        single = [a.field for a in self.signature if a.form == ArgumentKind.PART and not a.is_negated]
        parts = {name: replace(getattr(self, name), consumption=Consumption.CONSUME) for name in single}
        return replace(self, **parts)

    @property
    def lacks_events(self) -> bool:
        """True if a match may be without the events of some of its positive parts."""
        return self.needed < len(self.positive)

    @property
    def has_one_part(self) -> bool:
        """True if a match has the events of one of its positive parts, and of no other."""
        return self.needed == 1

    @property
    def duration(self) -> Scope | None:
        """Its scope as written; None where it has none."""
        return getattr(self, SCOPE.field) if SCOPE in self.signature else None

    @property
    def scope(self) -> int:
        """Its scope in ticks; a tick where it has none."""
        return 1 if self.duration is None else length(self.duration)

    def place_of(self, field: str) -> Place:
        """Return the place of a count or the scope in the text; that of the operator if it is not there."""
        return self.places.get(field, self.place)

    # its extent, checks and keys

    @property
    def needed(self) -> int:
        """The least number of matches of its parts of which one of its own is made."""
        return 1

    def extent(self, types: Extents) -> Extent:
        """Return the number of contributors of its matches, and the bounds of their times.

        Unless a kind has others, they lie within its scope, beside the longest span below.
        """
        below = [part.pattern.extent(types) for part in self.positive]
        return Extent(self.needed, self.scope + max(e.span for e in below), waits=max(e.waits for e in below))

    def check(self, types: Extents) -> None:
        """Raise Refusal for arguments that are wrong together; its parts have been checked before."""

    def advice(self, primitive: Collection[str]) -> Iterator[str]:
        """Yield warnings about legal arguments that are likely mistakes; ``primitive`` are the types of single events."""
        return iter(())

    def keeps_keys(self, equations: Sequence[frozenset[str]]) -> bool:
        """Return True if it matches the same events key by key as by the equations, of two variables each, that make the key."""
        return True


@dataclass(frozen=True)
class Type(PatternTree):
    """The events of a type: a stream, or an earlier definition."""

    name: str

    keyword = ""
    signature = ()

    def extent(self, types: Extents) -> Extent:
        return types.get(self.name, SINGLE)


# walks over patterns


def parts_of(whole: Part) -> Iterator[Part]:
    """Yield a part and all parts below it, also negated ones, in the order of the text; earlier definitions are not entered."""
    waiting = [whole]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += reversed(part.pattern.children)


def leaves(whole: Part) -> Iterator[tuple[str, Part, Type]]:
    """Yield the parts below one that are types, each with the name of its events: its variable, or else its type."""
    for part in parts_of(whole):
        if isinstance(part.pattern, Type):
            yield part.variable or part.pattern.name, part, part.pattern


def variables_below(whole: Part) -> list[str]:
    """Return the names of the events below a part, in the order of the text."""
    return [name for name, _, _ in leaves(whole)]


def with_types(whole: Part, names: Mapping[str, str]) -> Part:
    """Return a part in which types have other names; an event without a variable is then a variable of its type's old name."""
    pattern = whole.pattern
    if not isinstance(pattern, Type):
        return replace(whole, pattern=pattern.with_children(lambda part: with_types(part, names)))
    name = names.get(pattern.name, pattern.name)
    if name == pattern.name:
        return whole
    return replace(whole, pattern=replace(pattern, name=name), variable=whole.variable or pattern.name)


def negated_below(whole: Part) -> frozenset[str]:
    """Return the names of the events below a part that are negated."""
    negatives = (other for part in parts_of(whole) for other in part.pattern.negatives)
    return frozenset(name for other in negatives for name in variables_below(other))


def optional_below(whole: Part) -> frozenset[str]:
    """Return the names of the events below a part that a match may lack."""
    several = (p for part in parts_of(whole) if part.pattern.lacks_events for p in part.pattern.positive)
    return frozenset(name for part in several for name in variables_below(part))


def repeated_below(whole: Part) -> frozenset[str]:
    """Return the variables, of events and of patterns, below a part that may stand for several matches in one of the part."""
    several = (
        p for part in parts_of(whole) if part.pattern.repeats for one in part.pattern.positive for p in parts_of(one)
    )
    named = ((p.variable or (p.pattern.name if isinstance(p.pattern, Type) else None)) for p in several)
    return frozenset(name for name in named if name is not None)


def has_choice(parts: Iterable[Part]) -> bool:
    """Return True if a part selects or consumes."""
    return any(p.selection != Selection.EACH or p.consumption != Consumption.REUSE for p in parts)


def extent_of(definition: Definition, types: Extents) -> Extent:
    """Return the extent of a definition's matches when it is used as a type: as points, so ``lives`` is 0."""
    extent = definition.pattern.pattern.extent(types)
    # a slice of validity may move a start up to the end of the lifetime
    moves = extent.lives if definition.validity is not None and definition.validity.start is not None else 0
    return Extent(extent.contributors, extent.span + moves, waits=extent.waits)


def extents_of(definitions: Iterable[Definition], types: Extents) -> dict[str, Extent]:
    """Return the extents of types and of definitions by name; later definitions use earlier ones."""
    extents = dict(types)
    for definition in definitions:
        extents[definition.name] = extent_of(definition, extents)
    return extents


@dataclass(frozen=True)
class CompositeField:
    """The events below a sub-pattern that have a field of one name.

    owners: the type of the field in each of them, by variable, in the order of the text; is_single: True if no match has more
    than one of them.
    """

    owners: Mapping[str, t.DataType]
    is_single: bool = True

    @property
    def has_one_type(self) -> bool:
        """True if the field has the same type in all of them."""
        return len(set(self.owners.values())) == 1

    @property
    def is_legal(self) -> bool:
        """True if conditions and OUTPUT may name it as a field of the sub-pattern."""
        return self.is_single and self.has_one_type


CompositeFields = Mapping[str, CompositeField]
"""The fields of a sub-pattern, by name."""


def composites_of(whole: Part, types: Mapping[tuple[str, str], t.DataType]) -> dict[str, CompositeFields]:
    """Return the fields of the named sub-patterns of a part, by variable, without those of negated events.

    ``types`` are those of the fields of its events, by the event's variable and the field's name.
    """
    fields: dict[str, dict[str, CompositeField]] = {}
    for (variable, name), kind in types.items():
        fields.setdefault(variable, {})[name] = CompositeField({variable: kind})
    below: dict[int, CompositeFields] = {}
    composites = {}
    for part in reversed(list(parts_of(whole))):
        pattern = part.pattern
        if isinstance(pattern, Type):
            below[id(part)] = fields.get(part.variable or pattern.name, {})
            continue
        below[id(part)] = _merge_fields(pattern, [below[id(one)] for one in pattern.positive])
        if part.variable is not None:
            composites[part.variable] = below[id(part)]
    return composites


def _merge_fields(pattern: PatternTree, parts: Sequence[CompositeFields]) -> CompositeFields:
    """Return the fields of an operator's matches, of which ``parts`` are those of its positive parts."""
    by_name: dict[str, list[CompositeField]] = {}
    for fields in parts:
        for name, composite in fields.items():
            by_name.setdefault(name, []).append(composite)
    return {
        name: CompositeField(
            {owner: kind for field in several for owner, kind in field.owners.items()},
            not pattern.repeats
            and all(field.is_single for field in several)
            and (len(several) == 1 or pattern.has_one_part),
        )
        for name, several in by_name.items()
    }


def check_composite(variable: str, name: str, field: CompositeField, runs: Collection[str], place: Place) -> None:
    """Raise Refusal for a field of a sub-pattern that two events of a match may have, or that has several types.

    ``runs`` are the variables of which a match of the sub-pattern has several events; only the message depends on them.
    """
    legal = [f"max({owner}.{name})" if owner in runs else f"{owner}.{name}" for owner in field.owners]
    hint = f"Write {', '.join(legal[:-1])} or {legal[-1]}." if len(legal) > 1 else f"Write {legal[0]}."
    if not field.is_single:
        owners = (f"{owner}, which is repeated" if owner in runs else owner for owner in field.owners)
        wrong = f"the field {name!r} of {variable} belongs to more than one event"
        raise Refusal(place, wrong, f"found {', '.join(owners)}", hint)
    if not field.has_one_type:
        kinds = (f"{owner}.{name}: {kind.simpleString()}" for owner, kind in field.owners.items())
        raise Refusal(
            place, f"the field {name!r} of {variable} has more than one type", f"found {', '.join(kinds)}", hint
        )


Function = Callable[..., Any]
"""A condition as a function of variables, by their names: ``lambda x, y: x.machine == y.machine``."""


@dataclass(frozen=True)
class Contributor(CallResult):
    """A part of a pattern: what it is, the streams of its event types, and its conditions."""

    part: Part
    types: Mapping[str, Any]
    where: tuple[Condition, ...] = ()
    functions: tuple[Function, ...] = ()

    def first(self) -> Contributor:
        """Select the first of the events that fit: FIRST. Raises PlanError for a part that selects the last one.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> sq.sequence(a.alias("x").first(), b.alias("y"), within=10).show()
        x_v  y_v  root  start  end
          1    3     1      4   11
          1    4     1      6   11
        """
        return self._selecting(Selection.FIRST)

    def last(self) -> Contributor:
        """Select the last of the events that fit: LAST. Raises PlanError for a part that selects the first one.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> sq.sequence(a.alias("x").last(), b.alias("y"), within=10).show()
        x_v  y_v  root  start  end
          2    3     2      4   12
          2    4     2      6   12
        """
        return self._selecting(Selection.LAST)

    def consume(self) -> Contributor:
        """Use up the events: after the matches that one event completes, those in them take part in no later match: CONSUME.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> sq.sequence(a.alias("x").consume(), b.alias("y"), within=10).show()
        x_v  y_v  root  start  end
          1    3     1      4   11
          2    3     2      4   12
        """
        return self._replaced(consumption=Consumption.CONSUME)

    def __getattr__(self, name: str) -> NoReturn:
        """Raise UnknownVerb with a hint: verbs of patterns and of streams are none of a part."""
        hint = nearest(name, ("first", "last", "consume"))
        if name in ("unless", "without", "cancel_when", "where"):
            hint = f'A pattern has it, and a part alone is one by sq.any_of(stream.alias("x")).{name}(...).'
        elif not name.startswith("_"):
            hint = hint or "It is for patterns, as in sq.sequence(...); a stream's verbs go before alias."
        raise UnknownVerb("alias", f"a part of a pattern has no {name!r}", "", hint)

    def _selecting(self, selection: Selection) -> Contributor:
        if self.part.selection not in (Selection.EACH, selection):
            what = f"{self.part.selection.lower()}() and {selection.lower()}()"
            raise PlanError("alias", f"a part with {what}", "it selects one event", "Leave one of them out.")
        return self._replaced(selection=selection)

    def _replaced(self, **changes: Any) -> Contributor:
        return replace(self, part=replace(self.part, **changes))


named_after(Contributor, "alias(...)")


class AliasVerbs(Verbs):
    """``alias``."""

    def alias(self, name: str) -> Contributor:
        """Return the stream as a part of a pattern; conditions and columns call its events by ``name``.

        Several parts of one stream are one event type, so an event that one of them consumes is gone for the others, too.
        ``name`` is not empty, and no other part of the pattern has it; else PlanError is raised.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1})]), sq.events([(4, 5, {"v": 2})])
        >>> sq.sequence(a.alias("x"), b.alias("y"), within=10).select("x_v", "y_v").show()
        x_v  y_v  start  end
          1    2      4   11
        """
        if not isinstance(name, str) or not name:
            raise PlanError("alias", "a name is a string", f"found {name!r}")
        return Contributor(Part(Type(name), name), {name: self})
