"""What tells the parts of a plan from others, held to it: parts of one digest are written alike.

Whoever shares work goes by digests, the oracle too, so a digest that is too coarse would be wrong on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from pyspark.sql.types import DataType

from streamq.plan.named_object import NamedObject
from streamq.plan.node import Node
from streamq.plan.tree import Tree

Part = Node | Tree
"""An operator or an expression."""


def one_digest_for_two(plan: Node) -> tuple[Part, Part] | None:
    """Two parts of a plan that are written otherwise and have one digest; None if there are no such."""
    numbers: dict[Any, int] = {}
    number_of: dict[int, int] = {}
    by_digest: dict[str, Part] = {}
    left: list[tuple[Part, bool]] = [(plan, False)]
    while left:
        part, is_ready = left.pop()
        if id(part) in number_of:
            continue
        if not is_ready:
            left.append((part, True))
            left.extend((below, False) for below in _parts(_values(part)))
            continue
        written = (type(part).__name__, _written(_values(part), number_of))
        number_of[id(part)] = numbers.setdefault(written, len(numbers))
        other = by_digest.setdefault(part.digest, part)
        if number_of[id(other)] != number_of[id(part)]:
            return other, part
    return None


def _values(value: Any) -> tuple[Any, ...]:
    """What a dataclass is written with; what messages alone show is left out."""
    return tuple(getattr(value, f.name) for f in fields(value) if f.name not in ("digest", "shown"))


def _parts(value: Any) -> Iterator[Part]:
    """The operators and expressions nearest below a value."""
    if isinstance(value, Node | Tree):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _parts(one)
    elif is_dataclass(value) and not isinstance(value, NamedObject):
        yield from _parts(_values(value))


def _written(value: Any, number_of: dict[int, int]) -> Any:
    """A value by what it is and not by what it is equal to: 1, 1.0 and True are three."""
    if isinstance(value, Node | Tree):
        return "part", number_of[id(value)]
    if isinstance(value, tuple | list):
        return tuple(_written(one, number_of) for one in value)
    if isinstance(value, NamedObject):
        return type(value).__qualname__, getattr(value, "name", ""), value.identity
    if isinstance(value, DataType):
        return value.json()
    if is_dataclass(value):
        return type(value).__name__, _written(_values(value), number_of)
    return type(value).__name__, repr(value)


__all__ = ["one_digest_for_two"]
