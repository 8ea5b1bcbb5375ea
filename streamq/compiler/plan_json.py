"""Plans as JSON: nodes and expressions in lists, inputs by number, so that what is shared is written once and depth is no matter.

``{"streamq": 1, "digest": ..., "expressions": [...], "nodes": [...]}``: an entry names its class and its fields, what it
refers to stands before it, and the last node is the plan. Names are looked up among the classes that plans consist of and
nowhere else; the dataclasses themselves say what these are and which values their fields take.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any

import dacite
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructType

import streamq.operators
import streamq.plan.case  # noqa: F401  its expression and the operators' nodes are then among the classes
from streamq.aggregates import built_in
from streamq.choices import Word
from streamq.compiler.constants_json import decoded, encoded
from streamq.errors import PlanError, StreamqError, nearest, sentence
from streamq.functions.catalogue import by_name, known_names
from streamq.plan.aggregate import AggregateFunction
from streamq.plan.expr import Expr, Opaque
from streamq.plan.function import Function
from streamq.plan.named import Named
from streamq.plan.node import NODES, Node, nodes, written_fields
from streamq.plan.passes import nodes as parts

VERSION = 1
"""Of the format; a reader takes its own only."""

_WRITE, _READ = "to_json", "from_json"

_IMPOSSIBLE = (LookupError, TypeError, ValueError, dacite.DaciteError)
"""What constructors raise for values that agree in type and not in meaning, such as a name that no input has."""
_NO_TYPE = (AttributeError, LookupError, TypeError, ValueError, PySparkException)
"""What Spark raises for a type's JSON that is none."""


# which classes there are


def expression_classes() -> dict[str, type[Expr]]:
    """Return the classes of expressions that can be written, by name: all but a pyspark Column."""
    return {cls.__name__: cls for cls in _subclasses(Expr) if cls is not Opaque}


def value_classes() -> dict[str, type[Any]]:
    """Return the other classes that a plan is made of, by name: those that the fields of nodes and expressions hold."""
    built_in()  # whose partial results are then among the classes
    classes: dict[str, type[Any]] = {}
    owners: list[Any] = [*NODES.values(), *expression_classes().values()]
    for owner in owners:  # which grows
        for cls in (cls for hint in _field_types(owner).values() for cls in _dataclasses(hint)):
            if cls.__name__ not in classes:
                classes[cls.__name__] = cls
                owners.append(cls)
    return classes


def _dataclasses(hint: Any) -> Iterator[type[Any]]:
    """Yield the dataclasses that a type allows, neither nodes, expressions nor named: it and streamq's public subclasses."""
    if arguments := typing.get_args(hint):
        for argument in arguments:
            yield from _dataclasses(argument)
    elif (
        isinstance(hint, type)
        and hint.__module__ != "builtins"
        and not issubclass(hint, Node | Expr | DataType | Named)
    ):
        for cls in (hint, *_subclasses(hint)):
            is_ours = cls.__module__.startswith("streamq.") and not cls.__name__.startswith("_")
            if is_ours and is_dataclass(cls) and not inspect.isabstract(cls):
                yield cls


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


@cache
def _field_types(cls: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that its constructor takes, with their types."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls) if f.init}


@cache
def _keys(cls: Any) -> dict[str, str]:
    """Return what the fields are called in JSON: by their names, but where a field says otherwise."""
    return {f.name: f.metadata.get("written", f.name) for f in fields(cls) if f.init}


# writing


def plan_to_json(plan: Node) -> dict[str, Any]:
    """Return the plan as a document of plain lists and dictionaries; equal plans give equal documents.

    Unnamed sources keep the names they have in the plan: see :func:`streamq.plan.node.numbered`. Raises PlanError for
    what cannot be written: a pyspark Column, and a value :func:`encoded` does not take.
    """
    writer = _Writer(plan)
    entries = [writer.entry(node, NODES) for node in writer.nodes]
    return {"streamq": VERSION, "digest": plan.digest, "expressions": writer.expressions, "nodes": entries}


class _Writer:
    """The entries of one plan: where each node and expression stands, and the expressions so far."""

    def __init__(self, plan: Node) -> None:
        self.nodes = nodes(plan)
        self.expressions: list[dict[str, Any]] = []
        self._node_places = {node.digest: i for i, node in enumerate(self.nodes)}
        self._expression_places: dict[str, int] = {}
        self._expression_classes = expression_classes()
        self._value_classes = value_classes()

    def entry(self, item: Any, classes: Mapping[str, Any]) -> dict[str, Any]:
        """Return a node, expression or value as its class's name and its fields."""
        if isinstance(item, Opaque):
            hint = "Write it with sq.col, sq.when and sq.functions."
            raise PlanError(sentence(_WRITE, "a pyspark Column cannot be written", f"found {item.text}", hint))
        name = type(item).__name__
        if classes.get(name) is not type(item):
            raise PlanError(sentence(_WRITE, "a part that cannot be written", f"found {name}: {item!r}"))
        keys = _keys(classes[name])
        values = {keys[n]: self._value(getattr(item, n)) for n in written_fields(item) if n in keys}
        return {"is": name, **values}

    def _value(self, value: Any) -> Any:
        match value:
            case Node():
                return {"node": self._node_places[value.digest]}
            case Expr():
                return {"expression": self._place(value)}
            case DataType():
                return {"type": value.jsonValue()}
            case tuple() | list():
                return [self._value(v) for v in value]
            case Function(name=name):
                if by_name(name) != value:
                    hint = "Only those of sq.functions are found again by their names."
                    raise PlanError(sentence(_WRITE, "a function of your own cannot be written", f"found {name}", hint))
                return name
            case AggregateFunction(name=name):
                if built_in().get(name) is not value:
                    raise PlanError(sentence(_WRITE, "an aggregate of your own cannot be written", f"found {name}"))
                return name
        return self.entry(value, self._value_classes) if is_dataclass(value) else encoded(value)

    def _place(self, expression: Expr) -> int:
        """Return where the expression stands; write it, and before it its parts, where it has none yet."""
        if expression.digest not in self._expression_places:
            for part in parts(expression):
                if part.digest not in self._expression_places:
                    self.expressions.append(self.entry(part, self._expression_classes))
                    self._expression_places[part.digest] = len(self.expressions) - 1
        return self._expression_places[expression.digest]


def to_text(document: Mapping[str, Any]) -> str:
    """Return a document as text, an entry a line, so that two can be compared line by line."""

    def shown(value: Any) -> str:
        if not isinstance(value, list) or not value:
            return json.dumps(value, allow_nan=False)
        return "[\n" + ",\n".join(f"  {json.dumps(v, allow_nan=False)}" for v in value) + "\n ]"

    return "{\n" + ",\n".join(f" {json.dumps(k)}: {shown(v)}" for k, v in document.items()) + "\n}\n"


# reading


def from_text(text: str) -> Any:
    """Return the document in a text; raises PlanError where it is no JSON."""
    if not isinstance(text, str):
        raise PlanError(sentence(_READ, "not a text", f"found {type(text).__name__}", "Give what to_json() returned."))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(sentence(_READ, "not JSON", str(error), "Give what to_json() returned.")) from error


def plan_from_json(document: Any) -> Node:
    """Return the plan that :func:`plan_to_json` wrote.

    Raises PlanError where the document is none, is of another version, names a class that does not exist, has a field
    that does not fit, or has been changed since (its digest tells); and what the nodes themselves raise.
    """
    match document:
        case {"streamq": int(version)} if version != VERSION:
            hint = "Write it anew with this version of streamq, or read it with the one that wrote it."
            raise PlanError(sentence(_READ, f"format {version}", f"this version reads {VERSION}", hint))
        case {"streamq": int(), "digest": str(digest), "expressions": list(expressions), "nodes": list(entries)}:
            reader = _Reader()
        case _:
            raise PlanError(sentence(_READ, "not a plan", _lack(document), "Give what to_json() returned."))
    if not entries:
        raise PlanError(sentence(_READ, "not a plan", "no nodes", "Give what to_json() returned."))
    try:
        for entry in expressions:
            reader.expressions.append(reader.item(entry, reader.expression_classes))
        for entry in entries:
            reader.nodes.append(reader.item(entry, NODES))
    except RecursionError as error:
        raise PlanError(sentence(_READ, "not a plan", "lists within lists within lists")) from error
    plan = reader.nodes[-1]
    if plan.digest != digest:
        wrong = sentence(_READ, "the text has been changed or damaged", f"digest {plan.digest} instead of {digest}")
        raise PlanError(wrong)
    return plan


def _lack(document: Any) -> str:
    """What a document lacks to be a plan."""
    if not isinstance(document, dict):
        names: dict[type, str] = {list: "a list", str: "a string", bool: "a truth value", type(None): "null"}
        return f"found {names.get(type(document), 'a number')} instead of an object"
    parts = {
        "streamq": (int, "number"),
        "digest": (str, "string"),
        "expressions": (list, "list"),
        "nodes": (list, "list"),
    }
    missing = [repr(part) for part in parts if part not in document]
    if missing:
        return f"found an object without {', '.join(missing)}"
    wrong = next(part for part, (kind, _) in parts.items() if not isinstance(document[part], kind))
    return f"{wrong!r} is no {parts[wrong][1]}"


class _Reader:
    """The nodes and expressions of a document that have been read so far, which later entries refer to."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.expressions: list[Expr] = []
        self.expression_classes = expression_classes()
        self._value_classes = value_classes()
        self._checks = dacite.Config(
            type_hooks={
                int: _integer,
                AggregateFunction: _aggregate,
                Function: _function,
                **{word: partial(_word, word) for word in Word.__subclasses__()},
            },
            strict=True,
        )

    def item(self, entry: Any, classes: Mapping[str, Any]) -> Any:
        """Return the node, expression or value that an entry describes."""
        if not isinstance(entry, dict) or not isinstance(entry.get("is"), str):
            raise PlanError(sentence(_READ, "not an entry of a plan", f"found {entry!r}"))
        name = entry["is"]
        if name not in classes:
            there = f"there are: {', '.join(classes)}"
            raise PlanError(sentence(_READ, f"no class {name!r}", there, nearest(name, list(classes))))
        keys = _keys(classes[name])
        names = {key: n for n, key in keys.items()}
        values = {names.get(key, key): self._value(v) for key, v in entry.items() if key != "is"}
        try:
            return dacite.from_dict(classes[name], values, self._checks)
        except dacite.WrongTypeError as error:
            field = keys[str(error.field_path)]
            wrong = f"{field} of {name} does not fit"
            raise PlanError(sentence(_READ, wrong, f"found {entry[field]!r}")) from error
        except (dacite.MissingValueError, dacite.UnexpectedDataError) as error:
            wrong = f"the fields of {name} are {', '.join(names) or 'none'}"
            there = ", ".join(key for key in entry if key != "is")
            raise PlanError(sentence(_READ, wrong, f"found {there or 'none'}")) from error
        except StreamqError:
            raise
        except _IMPOSSIBLE as error:
            raise PlanError(sentence(_READ, f"a {name} that cannot be", f"found {entry!r}")) from error

    def _value(self, value: Any) -> Any:
        match value:
            case list():
                return tuple(self._value(v) for v in value)
            case {"is": _}:
                return self.item(value, self._value_classes)
            case {"type": description, **rest} if not rest:
                return _type(description)
            case {"node": int(place), **rest} if not rest and 0 <= place < len(self.nodes):
                return self.nodes[place]
            case {"expression": int(place), **rest} if not rest and 0 <= place < len(self.expressions):
                return self.expressions[place]
            case {"node": _} | {"expression": _}:
                raise PlanError(sentence(_READ, "a reference to what does not stand before it", f"found {value!r}"))
        return decoded(value)


def _integer(value: Any) -> Any:
    """Refuse true and false, which Python counts among the integers."""
    if isinstance(value, bool):
        raise dacite.WrongTypeError(int, value)
    return value


def _word(words: type[Word], value: Any) -> Word:
    """Return the member of an enumeration that a string is written for."""
    try:
        return words(value)
    except ValueError as error:
        raise dacite.WrongTypeError(words, value) from error


def _aggregate(value: Any) -> AggregateFunction:
    """Return the built-in aggregate of a name."""
    if not isinstance(value, str):
        raise dacite.WrongTypeError(AggregateFunction, value)
    if value not in built_in():
        raise PlanError(sentence(_READ, f"no aggregate {value!r}", "", nearest(value, [*built_in()])))
    return built_in()[value]


def _function(value: Any) -> Function:
    """Return the function of a name."""
    if not isinstance(value, str):
        raise dacite.WrongTypeError(Function, value)
    if value not in known_names():
        raise PlanError(sentence(_READ, f"no function {value!r}", "", nearest(value, known_names())))
    return by_name(value)


def _type(description: Any) -> DataType:
    """Return a Spark type from its JSON; a user-defined one would be looked up by an import path and is refused."""
    stack = [description]
    while stack:
        match stack.pop():
            case {"type": "udt"}:
                raise PlanError(sentence(_READ, "a user-defined type cannot be read", f"found {description!r}"))
            case dict() as members:
                stack.extend(members.values())
            case list() as members:
                stack.extend(members)
    column = {"name": "x", "type": description, "nullable": True, "metadata": {}}
    try:
        return StructType.fromJson({"type": "struct", "fields": [column]}).fields[0].dataType
    except _NO_TYPE as error:
        raise PlanError(sentence(_READ, "not a type", f"found {description!r}")) from error


__all__ = [
    "VERSION",
    "expression_classes",
    "from_text",
    "plan_from_json",
    "plan_to_json",
    "to_text",
    "value_classes",
]
