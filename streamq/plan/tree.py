"""The tree of an expression: its parts, its digest and its text, without a meaning."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from pyspark.sql.types import DataType

from streamq.plan.folding import fold
from streamq.plan.function import Text
from streamq.plan.named_object import NamedObject

T = TypeVar("T")

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
