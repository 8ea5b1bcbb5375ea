"""The tree of an expression: its parts, its digest and its text, without a meaning; and how trees are visited, bottom-up.

A plan or an expression has a digest and children, and each shared node is visited once. :class:`lazy` is a cached property for
classes that are pickled by value: the one of functools has a lock in Python 3.11.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar, overload

from pyspark.sql.types import DataType

from streamq.plan.function import NamedObject, Text

T = TypeVar("T")
B = TypeVar("B", bound=Any)


def fold(root: B, visit: Callable[[B, list[T]], T]) -> T:
    """Call ``visit(part, results of its children)`` bottom-up and left to right, and return the result of ``root``.

    Parts with one digest are visited once. There is no recursion, so a tree may be of any depth.
    """
    if not root.children:
        # most expressions are a column or a constant
        return visit(root, [])
    done: dict[str, T] = {}
    stack: list[tuple[B, bool]] = [(root, False)]
    while stack:
        part, is_ready = stack.pop()
        if part.digest in done:
            continue
        if is_ready:
            done[part.digest] = visit(part, [done[child.digest] for child in part.children])
        else:
            stack.append((part, True))
            stack.extend((child, False) for child in reversed(part.children))
    return done[root.digest]


PLAIN_JSON = frozenset((str, int, bool, type(None)))
"""The types whose values stand for themselves in the JSON that digests are computed from."""


class ExpressionText(str):
    """The text of an expression; a type of its own, so that verbs do not take it for a constant."""

    __slots__ = ()

    def __add__(self, other: str) -> ExpressionText:
        return ExpressionText(str.__add__(self, other))

    def __radd__(self, other: str) -> ExpressionText:
        return ExpressionText(other.__add__(self))


@dataclass(frozen=True, eq=False, repr=False)
class Tree(ABC):
    """A node of a tree; two trees are the same if their digests are equal."""

    digest: str = field(init=False, default="", compare=False)

    def __post_init__(self) -> None:
        """Compute the digest: a hash of the name of the class and of the fields, without ``shown``."""
        values = [
            type(self).__name__,
            *(_canonical(getattr(self, f.name)) for f in fields(self) if f.name not in ("digest", "shown")),
        ]
        object.__setattr__(self, "digest", hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16])

    @property
    def children(self) -> tuple[Any, ...]:
        """The direct operands."""
        return ()

    @abstractmethod
    def shown_over(self, parts: Sequence[Text]) -> Text:
        """Return the text of the node from the texts of its operands."""

    def __repr__(self) -> str:
        return show(self)

    def __hash__(self) -> int:
        return hash(self.digest)


def _canonical(value: Any) -> Any:
    """Return a field's value as JSON, from which the digest is computed; a value of an unknown type becomes its repr."""
    if type(value) in PLAIN_JSON:
        return value
    match value:
        case tuple():
            return [_canonical(v) for v in value]
        case Tree():
            return {"expr": value.digest}
        case NamedObject():
            return value.identity
        case DataType():
            return {"type": value.json()}
        case bool() | int() | str() | None:
            return value
        case float():
            return {"float": value.hex() if value == value else "nan"}
        case _:
            return {type(value).__name__: repr(value)}


def show(root: Tree) -> str:
    """Return an expression as one line, as a person would write it, for explain and messages."""

    def visit(node: Tree, parts: list[Text]) -> Text:
        return node.shown_over(parts)

    return fold(root, visit).text


class lazy(Generic[T]):
    """A property that is computed on first access and then kept as an attribute of the object."""

    def __init__(self, function: Callable[[Any], T]):
        self.function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...

    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...

    def __get__(self, instance: Any, owner: type) -> lazy[T] | T:
        """Return the value, which the first access computes and stores in the instance; without an instance, this property."""
        if instance is None:
            return self
        value = self.function(instance)
        # a frozen dataclass refuses assignments; an instance attribute takes precedence over this descriptor
        instance.__dict__[self.function.__name__] = value
        return value
