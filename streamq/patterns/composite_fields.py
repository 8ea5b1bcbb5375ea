"""The fields of named sub-patterns: ``s.v`` is the field ``v`` of the one event of a match of ``s`` that has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from streamq.patterns.pattern_tree import PatternTree, Type, parts_of
from streamq.patterns.syntax import Part


@dataclass(frozen=True)
class CompositeField:
    """The events below a sub-pattern that have a field of one name.

    owners: their variables, in the order of the text; is_single: True if no match has more than one of them.
    """

    owners: tuple[str, ...]
    is_single: bool = True


CompositeFields = Mapping[str, CompositeField]
"""The fields of a sub-pattern, by name."""


def composites_of(whole: Part, fields: Mapping[str, Collection[str]]) -> dict[str, CompositeFields]:
    """Return the fields of the named sub-patterns of a part, by variable; ``fields`` are those of its events."""
    below: dict[int, CompositeFields] = {}
    composites = {}
    for part in reversed(list(parts_of(whole))):
        pattern = part.pattern
        if isinstance(pattern, Type):
            owner = part.variable or pattern.name
            below[id(part)] = {name: CompositeField((owner,)) for name in fields[owner]}
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
            tuple(owner for field in several for owner in field.owners),
            not pattern.repeats
            and all(field.is_single for field in several)
            and (len(several) == 1 or pattern.has_one_part),
        )
        for name, several in by_name.items()
    }


__all__ = ["CompositeField", "CompositeFields", "composites_of"]
