"""The fields of named sub-patterns: ``s.v`` is the field ``v`` of the one event of a match of ``s`` that has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import types as t

from streamq.patterns.pattern_tree import PatternTree, Type, parts_of
from streamq.patterns.source_text import Refusal
from streamq.patterns.syntax import Part, Place


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
        for name, field in fields.items():
            by_name.setdefault(name, []).append(field)
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


__all__ = ["CompositeField", "CompositeFields", "check_composite", "composites_of"]
