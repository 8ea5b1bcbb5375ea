"""Plans as JSON: lists of nodes and expressions with inputs by number, so that shared parts are written once, at any depth.

``{"streamq": 1, "digest": ..., "expressions": [...], "nodes": [...]}``: an entry has its class's name and its fields, it
refers only to entries before it, and the last node is the plan. Reading looks names up among the classes that plans consist
of and nowhere else; the dataclasses define these classes and the types of their fields. A module of the user's own is written
as an entry of :mod:`streamq.compiler.constants_json`.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

import dacite
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructType

from streamq.aggregates import built_in
from streamq.compiler.constants_json import decoded, encoded, module_from_json, module_to_json, plain_hooks
from streamq.errors import PlanError, StreamqError, nearest, sentence
from streamq.functions.catalogue import function_of, legal_names
from streamq.plan.aggregate import AggregateFunction
from streamq.plan.expr import Expr, Opaque
from streamq.plan.function import Function, NamedObject
from streamq.plan.node import NODES, Node, identity_values, nodes
from streamq.plan.passes import expression_nodes as parts
from streamq.runtime.kernel import LATE_POLICIES, LatePolicy
from streamq.runtime.user_code.calls import WindowCall
from streamq.user_code.module import UserModule


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


VERSION = 1
"""The version of the format; a reader accepts only its own."""

_WRITE, _READ = "to_json", "from_json"

_IMPOSSIBLE = (LookupError, TypeError, ValueError, dacite.DaciteError)
"""The errors that constructors raise for values of the right type without a meaning, such as a name that no input has."""
_NO_TYPE = (AttributeError, LookupError, TypeError, ValueError, PySparkException)
"""The errors that Spark raises for JSON that is no type."""


# writing


def plan_to_json(plan: Node) -> dict[str, Any]:
    """Return the plan as a document of plain lists and dictionaries; equal plans give equal documents.

    Unnamed sources keep the names they have in the plan: see :func:`streamq.plan.node.number_sources`. Raises PlanError for a
    part that cannot be written: a pyspark Column, a value that :func:`encoded` does not take, a function of the user's own that
    has no name or the same name as other code in the plan.
    """
    writer = _PlanWriter(plan)
    entries = [writer.entry(node, NODES) for node in writer.nodes]
    return {"streamq": VERSION, "digest": plan.digest, "expressions": writer.expressions, "nodes": entries}


class _PlanWriter:
    """A writer of one plan's entries; it holds the place of each node, and the expressions written so far with theirs."""

    def __init__(self, plan: Node) -> None:
        self.nodes = nodes(plan)
        self.expressions: list[dict[str, Any]] = []
        self._node_places = {node.digest: i for i, node in enumerate(self.nodes)}
        self._expression_places: dict[str, int] = {}
        self._expression_classes = expression_classes()
        self._value_classes = value_classes()
        self._modules: dict[str, Any] = {}

    def entry(self, item: Any, classes: Mapping[str, Any]) -> dict[str, Any]:
        """Return a node, expression or value as JSON: its class's name and its fields; raise PlanError if it cannot be."""
        if isinstance(item, Opaque):
            hint = "Write it with sq.col, sq.when and sq.functions."
            raise PlanError(_WRITE, "a pyspark Column cannot be written", f"found {item.text}", hint)
        name = type(item).__name__
        if classes.get(name) is not type(item):
            raise PlanError(_WRITE, "a part that cannot be written", f"found {name}: {item!r}")
        keys = json_keys(classes[name])
        values = {keys[n]: self._value(v) for n, v in identity_values(item).items() if n in keys}
        return {"is": name, **values}

    def _value(self, value: Any) -> Any:
        """Return the value of a field as JSON; raise PlanError if it cannot be written."""
        match value:
            case Node():
                return {"node": self._node_places[value.digest]}
            case Expr():
                return {"expression": self._place(value)}
            case DataType():
                return {"type": value.jsonValue()}
            case tuple() | list():
                return [self._value(v) for v in value]
            case UserModule():
                return self._module(value)
            case Function(name=name):
                if function_of(name) != value:
                    hint = "Make it by @sq.udf, or take one of sq.functions: these are found again by their names."
                    raise PlanError(_WRITE, "a function of your own cannot be written", f"found {name}", hint)
                return name
            case LatePolicy(name=name):
                return name
            case AggregateFunction(name=name):
                if built_in().get(name) is not value:
                    raise PlanError(_WRITE, "an aggregate of your own cannot be written", f"found {name}")
                return name
        return self.entry(value, self._value_classes) if is_dataclass(value) else encoded(value)

    def _module(self, module: UserModule) -> dict[str, Any]:
        """Return a module as JSON; raise PlanError if another module of the plan has its name."""
        written = module_to_json(module)
        if self._modules.setdefault(module.name, written["digest"]) != written["digest"]:
            wrong = f"two modules of the query are called {module.name!r}"
            raise PlanError(_WRITE, wrong, "", "Give one of them another name, by name=.")
        return written

    def _place(self, expression: Expr) -> int:
        """Return the expression's place in the list; write it, after its parts, unless it has been written."""
        if expression.digest not in self._expression_places:
            for part in parts(expression):
                if part.digest not in self._expression_places:
                    self.expressions.append(self.entry(part, self._expression_classes))
                    self._expression_places[part.digest] = len(self.expressions) - 1
        return self._expression_places[expression.digest]


def to_text(document: Mapping[str, Any]) -> str:
    """Return a document as text with an entry on each line, so that documents can be compared line by line."""

    def shown(value: Any) -> str:
        if not isinstance(value, list) or not value:
            return json.dumps(value, allow_nan=False)
        return "[\n" + ",\n".join(f"  {json.dumps(v, allow_nan=False)}" for v in value) + "\n ]"

    return "{\n" + ",\n".join(f" {json.dumps(k)}: {shown(v)}" for k, v in document.items()) + "\n}\n"


# reading


def from_text(text: str) -> Any:
    """Return the document in a text; raise PlanError if it is no text, or no JSON."""
    if not isinstance(text, str):
        raise PlanError(_READ, "not a text", f"found {type(text).__name__}", "Give what to_json() returned.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(_READ, "not JSON", str(error), "Give what to_json() returned.") from error


def plan_from_json(document: Any) -> Node:
    """Return the plan that :func:`plan_to_json` wrote.

    Raises PlanError if the document is no plan, has another version, names a class that does not exist, has a field of a wrong
    type, or has been changed since it was written, which its digest shows. Also raises the errors of invalid nodes.
    """
    match document:
        case {"streamq": int(version)} if version != VERSION:
            hint = "Write it anew with this version of streamq, or read it with the one that wrote it."
            raise PlanError(_READ, f"format {version}", f"this version reads {VERSION}", hint)
        case {"streamq": int(), "digest": str(digest), "expressions": list(expressions), "nodes": list(entries)}:
            reader = _PlanReader()
        case _:
            raise PlanError(_READ, "not a plan", _lack(document), "Give what to_json() returned.")
    if not entries:
        raise PlanError(_READ, "not a plan", "no nodes", "Give what to_json() returned.")
    try:
        for entry in expressions:
            reader.expressions.append(reader.item(entry, reader.expression_classes))
        for entry in entries:
            reader.nodes.append(reader.item(entry, NODES))
    except RecursionError as error:
        raise PlanError(_READ, "not a plan", "lists within lists within lists") from error
    plan = reader.nodes[-1]
    if plan.digest != digest:
        wrong = sentence(_READ, "the text has been changed or damaged", f"digest {plan.digest} instead of {digest}")
        raise PlanError(wrong)
    return plan


def _lack(document: Any) -> str:
    """Return, for an error, the reason why a document is no plan."""
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


class _PlanReader:
    """A reader of one document; it holds the nodes and expressions read so far, to which later entries refer."""

    def __init__(self) -> None:
        import_module("streamq.sources")  # defines the nodes of sources
        self.nodes: list[Node] = []
        self.expressions: list[Expr] = []
        self.expression_classes = expression_classes()
        self._value_classes = value_classes()
        self._checks = dacite.Config(
            type_hooks={
                **plain_hooks(),
                AggregateFunction: partial(_by_name, AggregateFunction, "aggregate", built_in, lambda n: built_in()[n]),
                Function: partial(_by_name, Function, "function", legal_names, function_of),
                LatePolicy: _late_policy,
            },
            strict=True,
        )

    def item(self, entry: Any, classes: Mapping[str, Any]) -> Any:
        """Return the node, expression or value of an entry; raise PlanError if the entry is invalid.

        ``classes``: the classes that it may be of, by name. The errors with which a class refuses its fields are raised, too.
        """
        if not isinstance(entry, dict) or not isinstance(entry.get("is"), str):
            raise PlanError(_READ, "not an entry of a plan", f"found {entry!r}")
        name = entry["is"]
        if name not in classes:
            there = f"there are: {', '.join(classes)}"
            raise PlanError(_READ, f"no class {name!r}", there, nearest(name, list(classes)))
        keys = json_keys(classes[name])
        names = {key: n for n, key in keys.items()}
        values = {names.get(key, key): self._value(v) for key, v in entry.items() if key != "is"}
        try:
            for field, inner in inline_classes(classes[name]).items():
                if field not in values:
                    parts = {n: values.pop(n) for n in json_keys(inner) if n in values}
                    values[field] = dacite.from_dict(inner, parts, self._checks)
            return dacite.from_dict(classes[name], values, self._checks)
        except dacite.WrongTypeError as error:
            field = keys[str(error.field_path)]
            wrong = f"{field} of {name} does not fit"
            raise PlanError(_READ, wrong, f"found {entry[field]!r}") from error
        except (dacite.MissingValueError, dacite.UnexpectedDataError) as error:
            wrong = f"the fields of {name} are {', '.join(names) or 'none'}"
            there = ", ".join(key for key in entry if key != "is")
            raise PlanError(_READ, wrong, f"found {there or 'none'}") from error
        except StreamqError:
            raise
        except _IMPOSSIBLE as error:
            raise PlanError(_READ, f"a {name} that cannot be", f"found {entry!r}") from error

    def _value(self, value: Any) -> Any:
        """Return the value of a field from its JSON; raise PlanError for a reference to an entry that is not before it."""
        match value:
            case list():
                return tuple(self._value(v) for v in value)
            case {"is": _}:
                return self.item(value, self._value_classes)
            case {"module": _}:
                return module_from_json(value)
            case {"type": description, **rest} if not rest:
                return _type(description)
            case {"node": int(place), **rest} if not rest and 0 <= place < len(self.nodes):
                return self.nodes[place]
            case {"expression": int(place), **rest} if not rest and 0 <= place < len(self.expressions):
                return self.expressions[place]
            case {"node": _} | {"expression": _}:
                raise PlanError(_READ, "a reference to what does not stand before it", f"found {value!r}")
        return decoded(value)


def _by_name(kind: type, what: str, names: Callable[[], Iterable[str]], find: Callable[[str], Any], value: Any) -> Any:
    """Return the aggregate or function of a name; one, which a module may be, is returned as it is.

    Raises PlanError for a name that none has, WrongTypeError for any other value.
    """
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        raise dacite.WrongTypeError(kind, value)
    if value not in names():
        raise PlanError(_READ, f"no {what} {value!r}", "", nearest(value, [*names()]))
    return find(value)


def _late_policy(value: Any) -> LatePolicy:
    """Return the late policy of a name; raise WrongTypeError if there is none."""
    if value not in LATE_POLICIES:
        raise dacite.WrongTypeError(LatePolicy, value)
    return LATE_POLICIES[value]


def _type(description: Any) -> DataType:
    """Return a Spark type from its JSON; raise PlanError for what is none, and for a user-defined type.

    Spark would import a user-defined type by its path.
    """
    stack = [description]
    while stack:
        match stack.pop():
            case {"type": "udt"}:
                raise PlanError(_READ, "a user-defined type cannot be read", f"found {description!r}")
            case dict() as members:
                stack.extend(members.values())
            case list() as members:
                stack.extend(members)
    column = {"name": "x", "type": description, "nullable": True, "metadata": {}}
    try:
        return StructType.fromJson({"type": "struct", "fields": [column]}).fields[0].dataType
    except _NO_TYPE as error:
        raise PlanError(_READ, "not a type", f"found {description!r}") from error
