"""The classes that a plan's JSON can name: nodes, expressions and the values in their fields, each with its fields."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from pyspark.sql.types import DataType

import streamq.operators
import streamq.operators.pattern_scan
import streamq.plan.expr  # noqa: F401  its expression and the operators' nodes are then among the classes
from streamq.aggregates import built_in
from streamq.plan.expr import Expr, Opaque
from streamq.plan.function import NamedObject
from streamq.plan.node import NODES, Node
from streamq.runtime.user_code.calls import WindowCall


def expression_classes() -> dict[str, type[Expr]]:
    """Return the classes of expressions that can be written, by name: all but a pyspark Column."""
    return {cls.__name__: cls for cls in _subclasses(Expr) if cls is not Opaque}


def value_classes() -> dict[str, type[Any]]:
    """Return, by name, the classes of the values that fields of nodes and expressions hold, and of fields of these values.

    Classes whose fields are written among those of their owner are left out.
    """
    built_in()  # defines the classes of partial results
    classes: dict[str, type[Any]] = {}
    owners: list[Any] = [*NODES.values(), *expression_classes().values()]
    for owner in owners:  # the loop appends to it
        inlined = inline_classes(owner).values()
        for cls in (cls for hint in _field_types(owner).values() for cls in _dataclasses(hint)):
            if cls.__name__ not in classes and cls not in inlined:
                classes[cls.__name__] = cls
                owners.append(cls)
    return classes


def _dataclasses(hint: Any) -> Iterator[type[Any]]:
    """Yield the dataclasses of streamq that a type annotation allows: the classes in it and their public subclasses.

    Nodes, expressions, Spark types and named objects are left out, because JSON has other forms for them. Also left out are
    abstract and private classes, and those that hold the user's code.
    """
    if arguments := typing.get_args(hint):
        for argument in arguments:
            yield from _dataclasses(argument)
    elif (
        isinstance(hint, type)
        and hint.__module__ != "builtins"
        and not issubclass(hint, Node | Expr | DataType | NamedObject)
    ):
        for cls in (hint, *_subclasses(hint)):
            is_ours = cls.__module__.startswith("streamq.") and not cls.__name__.startswith("_")
            is_ours = is_ours and not issubclass(cls, NamedObject)
            if is_ours and is_dataclass(cls) and not inspect.isabstract(cls) and not _holds_code(cls):
                yield cls


def _holds_code(owner: Any) -> bool:
    """Return True if a class holds the user's code; only rewritten plans contain such a class, and those are not written."""
    return any(hint is WindowCall for hint in _field_types(owner).values())


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    """Yield the subclasses of a class, and theirs, at any depth."""
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


@cache
def _field_types(cls: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields that its constructor takes, by name."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls) if f.init}


@cache
def json_keys(cls: Any) -> dict[str, str]:
    """Return the JSON key of each field: its name, or the name in the field's metadata; with the keys of inline classes."""
    own = {f.name: f.metadata.get("written", f.name) for f in fields(cls) if f.init}
    return own | {key: name for inner in inline_classes(cls).values() for key, name in json_keys(inner).items()}


@cache
def inline_classes(cls: Any) -> dict[str, Any]:
    """Return, by field, the classes whose own fields are written in place of that field."""
    return {f.name: type(f.default) for f in fields(cls) if "inline" in f.metadata}


__all__ = ["expression_classes", "inline_classes", "json_keys", "value_classes"]
