"""Plans as JSON: nodes and expressions in lists, inputs by number, so that what is shared is written once and depth is no matter.

``{"streamq": 1, "digest": ..., "expressions": [...], "nodes": [...]}``: an entry names its class and its fields, what it
refers to stands before it, and the last node is the plan. Names are looked up among the known classes and nowhere else.
"""

from __future__ import annotations

import datetime as dt
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql.types import DataType, StructType

from streamq import functions
from streamq.errors import PlanError, StreamqError, nearest, sentence
from streamq.operators.alter_lifetime import Length, Start
from streamq.plan.case import Case
from streamq.plan.expr import ARITHMETIC, COMPARISON, LOGIC, Aggregate, Alias, Call, Cast, Col, Expr, Lit, Opaque
from streamq.plan.lifetime import Lifetime, WindowBound
from streamq.plan.node import NODES, Node, nodes, written_fields
from streamq.plan.passes import nodes as parts
from streamq.plan.schema import Field
from streamq.policies import SourcePolicy
from streamq.runtime.partial import PARTIALS
from streamq.windows import Count, Hopping, Landmark, Rows, Session, Snapshot

VERSION = 1
"""Of the format; a reader takes its own only."""

EXPRESSIONS: Mapping[str, type[Expr]] = {
    c.__name__: c for c in (Col, Lit, Call, Cast, Alias, Case, Lifetime, WindowBound, Aggregate)
}
"""The expressions that can be written: all but a pyspark Column."""

VALUES: Mapping[str, type[Any]] = {
    c.__name__: c
    for c in (Field, SourcePolicy, Hopping, Snapshot, Count, Rows, Session, Landmark, Start, Length, *PARTIALS)
}
"""The other classes a node's fields may hold."""

_MICROSECOND = dt.timedelta(microseconds=1)
_WRITE, _READ = "to_json", "from_json"


# values


def encoded(value: Any) -> Any:
    """A plain value as JSON: None, booleans, integers and strings as they are, tuples and lists as lists, others tagged.

    ``{"float": "nan"}``, ``{"bytes": "00ff"}``, ``{"decimal": "1.50"}``, ``{"date": "2024-01-31"}``, ``{"timedelta": 5}``
    (microseconds), ``{"datetime": "2024-01-31T12:00:00", "zone": 0}`` (microseconds east of UTC, or a zone's name). Raises
    PlanError for any other value.
    """
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case str():
            return str(value)
        case float():
            return {"float": repr(float(value))}
        case bytes():
            return {"bytes": value.hex()}
        case tuple() | list():
            return [encoded(v) for v in value]
    # of their subclasses, such as pandas.Timestamp, something else would be read back
    if type(value) is Decimal:
        return {"decimal": str(value)}
    if type(value) is dt.date:
        return {"date": value.isoformat()}
    if type(value) is dt.timedelta:
        return {"timedelta": value // _MICROSECOND}
    if type(value) is dt.datetime:
        found: dict[str, Any] = {"datetime": value.replace(tzinfo=None, fold=0).isoformat()}
        found |= {"fold": 1} if value.fold else {}
        return found if value.tzinfo is None else {**found, "zone": _zone(value)}
    raise PlanError(
        sentence(_WRITE, "a value that cannot be written", f"found {value!r}", "Give a plain Python value instead.")
    )


def _zone(value: dt.datetime) -> Any:
    match value.tzinfo:
        case dt.timezone() as zone:
            offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
            return [offset // _MICROSECOND, *name] if name else offset // _MICROSECOND
        case ZoneInfo(key=str(key)):
            return key
    raise PlanError(
        sentence(_WRITE, "a time zone that cannot be written", f"found {value!r}", "Give a zoneinfo.ZoneInfo or UTC.")
    )


def decoded(value: Any) -> Any:
    """The plain value that :func:`encoded` wrote; lists come back as tuples. Raises PlanError for what it does not write."""
    try:
        return _decoded(value)
    except (ValueError, TypeError, ArithmeticError, KeyError, OSError) as error:
        raise PlanError(sentence(_READ, "not a value", f"found {value!r}")) from error


def _decoded(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case list():
            return tuple(_decoded(v) for v in value)
        case {"float": str(text), **rest} if not rest:
            return float(text)
        case {"bytes": str(text), **rest} if not rest:
            return bytes.fromhex(text)
        case {"decimal": str(text), **rest} if not rest:
            return Decimal(text)
        case {"date": str(text), **rest} if not rest:
            return dt.date.fromisoformat(text)
        case {"timedelta": int(micros), **rest} if not rest:
            return micros * _MICROSECOND
        case {"datetime": str(text), **rest} if rest.keys() <= {"fold", "zone"}:
            fold: Any = rest.get("fold", 0)
            found = dt.datetime.fromisoformat(text).replace(fold=fold)
            return found.replace(tzinfo=_read_zone(rest["zone"])) if "zone" in rest else found
    raise ValueError(value)


def _read_zone(zone: Any) -> dt.tzinfo:
    match zone:
        case int(micros):
            return dt.timezone(micros * _MICROSECOND)
        case [int(micros), str(name)]:
            return dt.timezone(micros * _MICROSECOND, name)
        case str(key):
            return ZoneInfo(key)
    raise ValueError(zone)


# writing


def plan_to_json(plan: Node) -> dict[str, Any]:
    """The plan as a document of plain lists and dictionaries; equal plans give equal documents.

    Unnamed sources keep the names they have in the plan: see :func:`streamq.plan.node.numbered`. Raises PlanError for
    what cannot be written: a pyspark Column, and a value :func:`encoded` does not take.
    """
    made = nodes(plan)
    numbers = {found.digest: i for i, found in enumerate(made)}
    places: dict[str, int] = {}
    expressions: list[dict[str, Any]] = []

    def refer(found: Node | Expr) -> dict[str, int]:
        if isinstance(found, Node):
            return {"node": numbers[found.digest]}
        if found.digest not in places:
            for part in parts(found):
                if part.digest not in places:
                    expressions.append(_entry(part, EXPRESSIONS, refer))
                    places[part.digest] = len(expressions) - 1
        return {"expression": places[found.digest]}

    return {
        "streamq": VERSION,
        "digest": plan.digest,
        "expressions": expressions,
        "nodes": [_entry(found, NODES, refer) for found in made],
    }


def _entry(found: Any, known: Mapping[str, Any], refer: Callable[[Any], Any]) -> dict[str, Any]:
    if isinstance(found, Opaque):
        hint = "Write it with sq.col, sq.when and sq.functions."
        raise PlanError(sentence(_WRITE, "a pyspark Column cannot be written", f"found {found.text}", hint))
    name = type(found).__name__
    if known.get(name) is not type(found):
        raise PlanError(sentence(_WRITE, "a part that cannot be written", f"found {name}: {found!r}"))
    taken, wanted = written_fields(found), _types(known[name])
    return {"is": name} | {n: _written(getattr(found, n), refer) for n in taken if n in wanted}


def _written(value: Any, refer: Callable[[Any], Any]) -> Any:
    match value:
        case Node() | Expr():
            return refer(value)
        case DataType():
            return {"type": value.jsonValue()}
        case tuple() | list():
            return [_written(v, refer) for v in value]
    return _entry(value, VALUES, refer) if is_dataclass(value) else encoded(value)


def to_text(document: Mapping[str, Any]) -> str:
    """A document as text, an entry a line, so that two can be compared line by line."""

    def shown(value: Any) -> str:
        if not isinstance(value, list) or not value:
            return json.dumps(value, allow_nan=False)
        return "[\n" + ",\n".join(f"  {json.dumps(v, allow_nan=False)}" for v in value) + "\n ]"

    return "{\n" + ",\n".join(f" {json.dumps(k)}: {shown(v)}" for k, v in document.items()) + "\n}\n"


# reading


def from_text(text: str) -> Any:
    """The document in a text; raises PlanError where it is no JSON."""
    if not isinstance(text, str):
        raise PlanError(sentence(_READ, "not a text", f"found {type(text).__name__}", "Give what to_json() returned."))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(sentence(_READ, "not JSON", str(error), "Give what to_json() returned.")) from error


def plan_from_json(document: Any) -> Node:
    """The plan that :func:`plan_to_json` wrote.

    Raises PlanError where the document is none, is of another version, names a class that does not exist, has a field
    that does not fit, or has been changed since (its digest tells); and what the nodes themselves raise.
    """
    match document:
        case {"streamq": int(version)} if version != VERSION:
            hint = "Write it anew with this version of streamq, or read it with the one that wrote it."
            raise PlanError(sentence(_READ, f"format {version}", f"this version reads {VERSION}", hint))
        case {"streamq": int(), "digest": str(digest), "expressions": list(given), "nodes": list(found)} if found:
            pass
        case _:
            shown = ", ".join(map(str, document)) if isinstance(document, dict) else type(document).__name__
            raise PlanError(sentence(_READ, "not a plan", f"found {shown}", "Give what to_json() returned."))
    expressions: list[Expr] = []
    made: list[Node] = []
    try:
        for entry in given:
            expressions.append(_made(entry, EXPRESSIONS, [], expressions))
        for entry in found:
            made.append(_made(entry, NODES, made, expressions))
    except RecursionError as error:
        raise PlanError(sentence(_READ, "not a plan", "lists within lists within lists")) from error
    if made[-1].digest != digest:
        wrong = sentence(_READ, "the text has been changed or damaged", f"digest {made[-1].digest} instead of {digest}")
        raise PlanError(wrong)
    return made[-1]


def _made(entry: Any, known: Mapping[str, Any], made: Sequence[Node], expressions: Sequence[Expr]) -> Any:
    if not isinstance(entry, dict) or not isinstance(entry.get("is"), str):
        raise PlanError(sentence(_READ, "not an entry of a plan", f"found {entry!r}"))
    name = entry["is"]
    if name not in known:
        raise PlanError(
            sentence(_READ, f"no class {name!r}", f"there are: {', '.join(known)}", nearest(name, list(known)))
        )
    kind = known[name]
    wanted = _types(kind)
    lacking = wanted.keys() - entry.keys()
    if entry.keys() - {"is"} - wanted.keys() or not all(_added(kind, n) for n in lacking):
        there = ", ".join(k for k in entry if k != "is") or "none"
        raise PlanError(sentence(_READ, f"the fields of {name} are {', '.join(wanted) or 'none'}", f"found {there}"))
    values = {n: _read(entry[n], made, expressions) for n in wanted if n in entry}
    for field, value in values.items():
        if not _fits(value, wanted[field]):
            raise PlanError(sentence(_READ, f"{field} of {name} does not fit", f"found {entry[field]!r}"))
    if kind is Call and values["name"] not in _callable():
        raise PlanError(sentence(_READ, f"no function {values['name']!r}", "", nearest(values["name"], _callable())))
    try:
        return kind(**values)
    except (StreamqError, RecursionError):
        raise
    except Exception as error:
        # a node takes the names in its fields for those of its inputs
        raise PlanError(sentence(_READ, f"a {name} that cannot be", f"found {entry!r}")) from error


@cache
def _callable() -> frozenset[str]:
    return frozenset({*ARITHMETIC, *COMPARISON, *LOGIC, "isin", "getitem", *dir(functions)})


def _read(value: Any, made: Sequence[Node], expressions: Sequence[Expr]) -> Any:
    match value:
        case list():
            return tuple(_read(v, made, expressions) for v in value)
        case {"is": _}:
            return _made(value, VALUES, made, expressions)
        case {"type": kind, **rest} if not rest:
            return _type(kind)
        case {"node": int(at), **rest} if not rest and 0 <= at < len(made):
            return made[at]
        case {"expression": int(at), **rest} if not rest and 0 <= at < len(expressions):
            return expressions[at]
        case {"node": _} | {"expression": _}:
            raise PlanError(sentence(_READ, "a reference to what does not stand before it", f"found {value!r}"))
    return decoded(value)


def _type(given: Any) -> DataType:
    """A Spark type from its JSON; a user-defined one would be looked up by an import path and is refused."""
    stack = [given]
    while stack:
        match stack.pop():
            case {"type": "udt"}:
                raise PlanError(sentence(_READ, "a user-defined type cannot be read", f"found {given!r}"))
            case dict() as found:
                stack.extend(found.values())
            case list() as found:
                stack.extend(found)
    column = {"name": "x", "type": given, "nullable": True, "metadata": {}}
    try:
        return StructType.fromJson({"type": "struct", "fields": [column]}).fields[0].dataType
    except Exception as error:
        raise PlanError(sentence(_READ, "not a type", f"found {given!r}")) from error


@cache
def _types(kind: Any) -> dict[str, Any]:
    """The fields of a class that its constructor takes, with their types."""
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind) if f.init}


def _added(kind: Any, name: str) -> bool:
    return any(f.name == name and "added" in f.metadata for f in fields(kind))


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    if hint is None or (isinstance(hint, type) and not typing.get_origin(hint)):
        return value is None if hint in (None, types.NoneType) else _is(value, hint)
    inner = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if not isinstance(value, tuple):
        return False
    if inner[1:] == (...,):
        return all(_fits(v, inner[0]) for v in value)
    return len(value) == len(inner) and all(_fits(v, one) for v, one in zip(value, inner, strict=True))


def _is(value: Any, kind: type[Any]) -> bool:
    if issubclass(kind, StrEnum):
        # a word is written as its string, and its class makes a member of that again
        return isinstance(value, str) and value in list(kind)
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


__all__ = ["VERSION", "decoded", "encoded", "from_text", "plan_from_json", "plan_to_json", "to_text"]
