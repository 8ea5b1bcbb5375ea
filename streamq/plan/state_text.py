"""Texts of what plans hold, for the names of states and of their columns: without the code of modules."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from pyspark.sql.types import DataType

from streamq.plan.function import NamedObject
from streamq.plan.node import Node, identity_values
from streamq.plan.tree import PLAIN_JSON, Tree, fold


def state_text(value: Any) -> Any:
    """Return a value that a plan holds as JSON, for names of states: without the code of modules, and the inputs of nodes."""
    if type(value) in PLAIN_JSON:
        return value
    match value:
        case tuple() | list():
            return [state_text(one) for one in value]
        case Node():
            fields = {n: v for n, v in identity_values(value).items() if not _holds_nodes(v)}
            return [type(value).__name__, {n: state_text(v) for n, v in fields.items()}]
        case Tree():
            return fold(value, _tree_text)
        case NamedObject():
            return value.state_identity
        case DataType():
            return value.json()
        case None | bool() | int() | str():
            return value
    if dataclasses.is_dataclass(value):
        return [type(value).__name__, {n: state_text(v) for n, v in identity_values(value).items()}]
    return [type(value).__name__, repr(value)]


def short_hash(value: Any) -> str:
    """Return a hash of JSON in 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _tree_text(tree: Tree, operands: list[str]) -> str:
    """Return a hash of a part of an expression, from those of its operands."""
    fields = [f.name for f in dataclasses.fields(tree) if f.name not in ("digest", "shown", "origin")]
    return short_hash([type(tree).__name__, [_without_operands(getattr(tree, name)) for name in fields], operands])


def _holds_nodes(value: Any) -> bool:
    """True for a node, and for a tuple of which one is a node."""
    return isinstance(value, Node) or (isinstance(value, tuple) and any(isinstance(v, Node) for v in value))


def _without_operands(value: Any) -> Any:
    """Return a field of an expression as JSON, with a word in the place of each operand."""
    if isinstance(value, tuple):
        return [_without_operands(one) for one in value]
    return "operand" if isinstance(value, Tree) else state_text(value)
