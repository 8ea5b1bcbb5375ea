"""Check that parts of a plan with equal digests are equal.

Work is shared by digest, in the oracle too, so a digest that ignores a difference would make both sides wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pyspark.sql.types import DataType

from streamq.plan.expr import Tree
from streamq.plan.function import NamedObject
from streamq.plan.node import Node

Part = Node | Tree
"""An operator or an expression."""

PLAIN = bool | int | float | str | bytes | None
"""The kinds of plain values whose text is the same for equal values."""


def one_digest_for_two(plan: Node) -> tuple[Part, Part] | None:
    """Return two parts of a plan that differ in what they hold, and yet have one digest; None if there are none."""
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
    """Return the fields of a dataclass, without its digest and without what only messages show."""
    return tuple(getattr(value, f.name) for f in fields(value) if f.name not in ("digest", "shown"))


def _parts(value: Any) -> Iterator[Part]:
    """Yield the operators and expressions directly within a value."""
    if isinstance(value, Node | Tree):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _parts(one)
    elif is_dataclass(value) and not isinstance(value, NamedObject):
        yield from _parts(_values(value))


def _written(value: Any, number_of: dict[int, int]) -> Any:
    """Return a value in a form that differs for any two different values, such as 1, 1.0 and True.

    ``number_of`` holds, by their ids, the numbers that stand for the operators and expressions in it.
    """
    if isinstance(value, Node | Tree):
        return "part", number_of[id(value)]
    if isinstance(value, tuple | list):
        return tuple(_written(one, number_of) for one in value)
    if isinstance(value, NamedObject):
        options = getattr(value, "options", {})
        return type(value).__qualname__, getattr(value, "name", ""), value.identity, _written_options(options)
    if isinstance(value, DataType):
        return value.json()
    if is_dataclass(value):
        return type(value).__name__, _written(_values(value), number_of)
    return type(value).__name__, repr(value)


def _written_options(options: Mapping[str, Any]) -> Any:
    """Return the options of a module's calls in a form that differs for other plain values; of others it has the type alone."""
    return tuple(
        (name, type(value).__name__, repr(value) if isinstance(value, PLAIN) else "")
        for name, value in sorted(options.items())
    )


__all__ = ["one_digest_for_two"]
