"""The events and matches of patterns, their order, selection and ids, in plain Python; the base class of operators' rooms."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from streamq.choices import Consumption, Selection
from streamq.patterns import syntax as s
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import Type
from streamq.patterns.syntax import Part
from streamq.testing.patterns.conditions import Bound, UnjudgedPattern
from streamq.testing.window_kinds import Argument, lengths_of_time

if TYPE_CHECKING:
    from streamq.testing.patterns.rules import Evaluation


Texts = tuple[str | None, ...]
"""Ids; None for one that these rules do not write."""


def event_id(name: str, start: int, ordinal: int, values: Iterable[Any]) -> str | None:
    """Return the id of an event: its type, start, number among equal ones, and values; None if a value has no text here."""
    written = [_value_text(value) for value in values]
    texts = [text for text in written if text is not None]
    if len(texts) < len(written):
        return None
    plain = name if name.isidentifier() else f"{len(name)}:{name}"
    return f"{plain} {start} {ordinal}{''.join(texts)}"


def match_id(operator: str, ids: Sequence[str | None], places: Sequence[int] | None = None) -> str | None:
    """Return the id of a match: its operator, and the ids of its contributors, with the ``places`` of their parts, if given."""
    texts = [text for text in ids if text is not None]
    if len(texts) < len(ids):
        return None
    placed = texts if places is None else [f"{n + 1}: {text}" for n, text in zip(places, texts, strict=True)]
    return f"{operator} ({', '.join(placed)})"


def id_fields(own: str | None, contributors: Texts = (None,)) -> dict[str, Any]:
    """Return the built-in fields ``id`` and ``contributors``, without those that these rules do not write."""
    fields: dict[str, Any] = {} if own is None else {"@id": own}
    return fields if None in contributors else {**fields, "@contributors": list(contributors)}


def _value_text(value: Any) -> str | None:
    """Return a value's text with its length before it, `` -`` for NULL; None for a type that these rules do not write."""
    match value:
        case None:
            return " -"
        case bool():
            text = "true" if value else "false"
        case int() | str():
            text = str(value)
        case float():
            text = _float_text(value)
        case bytes():
            text = value.hex().upper()
        case dt.date() if not isinstance(value, dt.datetime):
            text = value.isoformat()
        case _:
            return None
    return f" {len(text)}:{text}"


def _float_text(value: float) -> str:
    """Return a float in hexadecimal: its leading bit, the other bits that are not zero, and its exponent to the base 2."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0x0.0p0"
    fraction, exponent = math.frexp(abs(value))
    least = max(exponent - 1, -1022)
    bits = int(math.ldexp(fraction, exponent - least + 52))
    leading, rest = divmod(bits, 2**52)
    digits = f"{rest:013x}".rstrip("0") or "0"
    return f"{'-' if value < 0 else ''}0x{leading}.{digits}p{least}"


class UndeterminedAnswer(UnjudgedPattern):
    """The answer depends on the order of composite events of one instant, which the rules do not define."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Match:
    """An event, or a match of a pattern.

    ``id`` is equal for equal occurrences. ``rank`` orders events of one instant; None for matches of operators. ``vs`` and
    ``till`` are start and end, ``root`` is the least start of its events, ``contributors`` are their starts in order. ``bound``
    holds the fields of each variable. ``text`` is the id that users see, ``inputs`` are those of the contributors in the order
    of the parts; None stands for an id that these rules do not write.
    """

    id: tuple[Any, ...]
    rank: tuple[Any, ...] | None
    vs: int
    till: int
    root: int
    contributors: tuple[int, ...]
    bound: Bound
    text: str | None
    inputs: Texts

    def alone(self, operator: str, words: str, till: int) -> Match:
        """Return the match of an operator whose only contributor this one is, until an instant; its id begins with ``words``."""
        return replace(
            self,
            id=(operator, self.id),
            rank=None,
            till=till,
            contributors=(self.vs,),
            text=match_id(words, (self.text,)),
            inputs=(self.text,),
        )


Chain = tuple[tuple[int, Match], ...]
"""The events of a match in order of time, each with the number of its part."""


@dataclass(frozen=True)
class EventType:
    """The fields of a type, and its events, whose fields are bound to the variable ""; ``has_matches``: they are matches."""

    fields: tuple[str, ...]
    events: Sequence[Match]
    has_matches: bool = False


def ordered_occurrences(
    events: list[tuple[int, Match]], parts: Sequence[s.Part], *, are_ordered: bool = False
) -> list[list[tuple[int, Match]]]:
    """Return an entry for each occurrence, in order of Vs: its event in each input that has it, with the input's number.

    Occurrences of one instant are entries of their own, in order of their ids if a part consumes or if ``are_ordered``; this
    raises UndeterminedAnswer if they are matches of operators. Otherwise their order does not matter.
    """
    occurrences: dict[Any, list[tuple[int, Match]]] = {}
    for i, e in events:
        occurrences.setdefault(e.id, []).append((i, e))
    ordered = sorted(occurrences.values(), key=lambda same: same[0][1].vs)
    result = []
    for _, group in itertools.groupby(ordered, key=lambda same: same[0][1].vs):
        at_once = list(group)
        if len(at_once) > 1 and (are_ordered or any(part.consumption == Consumption.CONSUME for part in parts)):
            at_once.sort(key=lambda same: rank(same[0][1]))
        result += at_once
    return result


def select_chains(whole: list[Chain], parts: Sequence[s.Part]) -> list[Chain]:
    """Return the whole matches that the parts select, from the part before the last back to the first.

    Of matches with equal later events, a part with FIRST or LAST keeps those with its first or last event. The selection of a
    chain's last part has no effect.
    """
    for position in range(-2, -max(map(len, whole), default=0) - 1, -1):
        groups: dict[Any, list[Chain]] = {}
        for chain in whole:
            behind = tuple((i, e.id) for i, e in chain[position + 1 :])
            groups.setdefault((behind, chain[position][0]), []).append(chain)
        whole = []
        for (_, i), chains in groups.items():
            mode = parts[i].selection
            if mode != Selection.EACH:
                one = extreme([c[position][1] for c in chains], min if mode == Selection.FIRST else max)
                chains = [c for c in chains if c[position][1].id == one.id]
            whole += chains
    return whole


def extreme(events: list[Match], least_or_greatest: Callable[..., Any]) -> Match:
    """Return the least or the greatest event by (Vs, id); ``least_or_greatest`` is ``min`` or ``max``.

    Raises UndeterminedAnswer if ids would decide between matches of operators.
    """
    vs = least_or_greatest(e.vs for e in events)
    tied = {e.id: e for e in events if e.vs == vs}
    return next(iter(tied.values())) if len(tied) == 1 else least_or_greatest(tied.values(), key=rank)


def rank(e: Match) -> tuple[Any, ...]:
    """Return the rank of an event among those of its instant; raise UndeterminedAnswer for a match of an operator."""
    if e.rank is None:
        raise UndeterminedAnswer
    return e.rank


def compose(chain: Chain, within: int, absent: Bound, operator: int, text: str | None, inputs: Texts) -> Match:
    """Return the match of a chain of events, valid from the last one until ``within`` after the first, for a tick at least.

    ``absent`` are the variables that the match lacks; ``operator`` tells its id from those of other operators. ``text`` and
    ``inputs`` are the ids that users see.
    """
    bound = {**absent, **{v: fields for _, e in chain for v, fields in e.bound.items()}}
    times = tuple(e.vs for _, e in chain)
    id = (operator, *((i, e.id) for i, e in chain))
    root = min(e.root for _, e in chain)
    return Match(
        id=id,
        rank=None,
        vs=times[-1],
        till=max(times[0] + within, times[-1] + 1),
        root=root,
        contributors=times,
        bound=bound,
        text=text,
        inputs=inputs,
    )


@cache
def rooms() -> Mapping[type[Any], OperatorRoom]:
    """Return the rooms by the kinds of their operators."""
    import_module("streamq.testing.patterns.rules")
    return ROOMS


def _parts(part: Part, *, negated: bool = True) -> Iterator[Part]:
    """Yield the parts of a part's operator, without the negated one unless ``negated``; a type has none."""
    fields = () if isinstance(part.pattern, Type) else room_of(part.pattern).fields
    for name in fields:
        if negated or name != "negated":
            value = getattr(part.pattern, name)
            yield from value if isinstance(value, tuple) else (value,)


def parts_below(whole: Part) -> Iterator[Part]:
    """Yield a part and all parts below it, in the order of a text."""
    yield whole
    for part in _parts(whole):
        yield from parts_below(part)


def event_types(whole: Part) -> Iterator[tuple[str, Type]]:
    """Yield the variables of the events below a part with their types, in the order of a text."""
    for part in parts_below(whole):
        if isinstance(part.pattern, Type):
            yield part.variable or part.pattern.name, part.pattern


def seen_parts(whole: Part) -> Iterator[Part]:
    """Yield a part and the parts below it of which a match of it has events."""
    yield whole
    for part in _parts(whole, negated=False):
        yield from seen_parts(part)


def seen_events(whole: Part) -> Iterator[tuple[str, Type]]:
    """Yield the variables of the events that a match of a part may have with their types, in the order of a text."""
    for part in seen_parts(whole):
        if isinstance(part.pattern, Type):
            yield part.variable or part.pattern.name, part.pattern


def repeated_variables(whole: Part) -> dict[str, int]:
    """Map each variable that a match has several times, of an event or a pattern, to the number (from 0) of its REPEAT."""
    trees = (part for part in parts_below(whole) if not isinstance(part.pattern, Type))
    repeating = (part for part in trees if rooms()[type(part.pattern)].repeats)
    return {
        name: number
        for number, part in enumerate(repeating)
        for p in itertools.chain(*map(parts_below, _parts(part, negated=False)))
        if (name := p.variable or (p.pattern.name if isinstance(p.pattern, Type) else None)) is not None
    }


def sub_patterns(whole: Part) -> frozenset[str]:
    """Return the variables of named sub-patterns in a part, itself counted."""
    parts = (part for part in parts_below(whole) if not isinstance(part.pattern, Type))
    return frozenset(part.variable for part in parts if part.variable is not None)


def variables(whole: Part) -> list[str]:
    """Return the variables that a match of a part has: those of events and of sub-patterns, under a REPEAT as ``f@``."""
    own = (p.variable or (p.pattern.name if isinstance(p.pattern, Type) else None) for p in seen_parts(whole))
    many = repeated_variables(whole)
    return [f"{name}@" if name in many else name for name in own if name is not None]


Rule = Callable[[Any, "Evaluation"], list[Match]]
"""Returns the matches of an operator, one by one."""


@dataclass(frozen=True)
class OperatorRoom:
    """One kind of operator: the function of streams or the verb of patterns that makes it, its parts and its rule.

    ``fields``: those of its parts, in the order of a text; that of which no event must be there is called "negated".
    ``repeats``: a match has several events of its positive parts, which then take aggregates. ``arguments``: draws of the
    verb's arguments, by the verb and their names.
    """

    kind: type[PatternOperator]
    verb: str
    fields: tuple[str, ...]
    matches: Rule
    repeats: bool
    arguments: Mapping[tuple[str, str], Argument]


def by_rule(
    kind: type[PatternOperator], verb: str, *fields: str, repeats: bool = False, **arguments: Argument
) -> Callable[[Rule], Rule]:
    """Make a function the rule of a kind of operator, whose room it so registers; ``arguments`` are draws by name."""

    def register(rule: Rule) -> Rule:
        draws = {(verb, name): draw for name, draw in arguments.items()}
        ROOMS[kind] = OperatorRoom(kind, verb, fields, rule, repeats, draws)
        return rule

    return register


ROOMS: dict[type[Any], OperatorRoom] = {}


def room_of(tree: Any) -> OperatorRoom:
    """Return the room of an operator."""
    return rooms()[type(tree)]


SCOPES = lengths_of_time(1, 9)
"""Draws scopes of verbs."""


def counts(least: int, most: int) -> Argument:
    """Return the draw of a count of a verb, on any axis."""
    return lambda axis: st.integers(least, most)
