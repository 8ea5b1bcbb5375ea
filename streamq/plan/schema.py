"""The type of a stream: payload columns, time axis, declared shape; and the types that Spark groups, joins and orders by.

Columns that streamq adds to plans have names of their own, which messages and explain show to users in other words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NoReturn, TypeVar, overload

from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.errors import AmbiguousColumn, PlanError, TypeMismatch, unknown_column
from streamq.html import has_half_a_pair, with_escapes
from streamq.plan.spark_types import wider
from streamq.time import TIMESTAMP

_OF_PATTERNS = re.compile(r"(?P<variable>[^@]+)\.@(?:\.(?P<own>[^~]+))?(?P<other>~?)", re.DOTALL)
_OF_CONTENT = re.compile(r"_([0-9a-f]{3})[0-9a-f]{5}(?![0-9a-f])")
_OF_GROUPS = re.compile(r"__g\d+_(?P<kind>[vn])_(?P<key>.*)", re.DOTALL)


def group_depth(depth: int) -> str:
    """Return the prefix of the columns that carry the keys of a group; ``depth`` numbers groups within groups."""
    return f"__g{depth}_"


def group_value(depth: int, key: str) -> str:
    """Return the name of the column that carries the values of a group's key."""
    return f"{group_depth(depth)}v_{key}"


def group_flag(depth: int, key: str) -> str:
    """Return the name of the column that is true where a group's key is NULL."""
    return f"{group_depth(depth)}n_{key}"


def carried_key(name: str) -> str | None:
    """Return the group's key that a column made by ``group_value`` or ``group_flag`` belongs to; None for another column."""
    carried = _OF_GROUPS.fullmatch(name)
    return None if carried is None else carried["key"]


def shown_name(name: str) -> str:
    """Return a column as explain shows it: a group's key as ``group.key``, a pattern's as in its text, others without ``__``.

    ``__n`` is ``count``, a further ``__`` becomes ``_``, of the digest in a partial result's name three digits are left, and the
    key ``@.k`` of a pattern is ``k``.

    >>> shown_name("zone"), shown_name("__g0_v_zone"), shown_name("__g0_n_zone"), shown_name("__rows"), shown_name("x.@")
    ('zone', 'group.zone', 'group.zone is null', 'rows', 'x.Vs')
    """
    if carried := _OF_GROUPS.fullmatch(name):
        return f"group.{carried['key']}{' is null' * (carried['kind'] == 'n')}"
    if of_pattern := _OF_PATTERNS.fullmatch(name):
        return f"{of_pattern['variable']}.{of_pattern['own'] or 'Vs'}{of_pattern['other']}"
    if name == "__n":
        return "count"
    if name.startswith("__"):
        return _OF_CONTENT.sub(r"_\1", name[2:]).replace("__", "_")
    return name.lstrip("@.") if name.startswith("@") else name


def unnamed_argument(number: int) -> str:
    """Return the name for the ``number``-th argument, from 0, of a parameter without a name."""
    return f"__{number}"


def show_argument(name: str, value: str) -> str:
    """Return an argument as messages show it: ``name = value``, or the value alone where its parameter has no name."""
    return value if name.startswith("__") else f"{name} = {value}"


def show_equality(left: str, right: str) -> str:
    """Return a pair of key columns as explain shows it: one name if they are equal, else ``left = right``."""
    return shown_name(left) if left == right else f"{shown_name(left)} = {shown_name(right)}"


def show_keys(keys: Iterable[str]) -> str:
    """Return `` by zone, kind``, the keys of groups as explain shows them, or nothing where there are none."""
    shown = ", ".join(map(shown_name, keys))
    return f" by {shown}" if shown else ""


def shown_group(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a group's keys by the names that users know; ``group`` has them by the names of columns.

    A key whose flag is true is None.
    """
    values: dict[str, Any] = {}
    for name, value in group.items():
        carried = _OF_GROUPS.fullmatch(name)
        if carried is None:
            values[name] = value
        elif carried["kind"] == "v":
            values[carried["key"]] = value
        elif value:
            values[carried["key"]] = None
    return values


POINT, INTERVAL, EDGE, SIGNAL = "point", "interval", "edge", "signal"

RESERVED = ("start", "end")
"""Names that a payload column may not have, because they are the lifetime's in results."""

UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
"""The name that a pandas index without a name has as a column of an Arrow table."""

MICRO_BATCH = "streamq_batch"
"""The column that Spark reads from the folder names of a run with a late sink, one folder a micro-batch; it is no payload."""

BESIDE_ROWS = frozenset({"_partition", "_file", "_offset", "_malformed", "_wrong"})
"""The columns that connectors have beside those of the rows; errors do not list them among the user's."""


T = TypeVar("T")


class lazy(Generic[T]):
    """A property that is computed on first access and then kept as an attribute of the object.

    It is for classes that are pickled by value: the cached property of functools has a lock in Python 3.11.
    """

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


def users_columns(names: Iterable[str]) -> list[str]:
    """Return names of columns without those of streamq itself, which begin with two underscores, and of its connectors."""
    return [name for name in names if not name.startswith("__") and name not in BESIDE_ROWS]


@dataclass(frozen=True)
class Field:
    """A payload column."""

    name: str
    type: DataType


@dataclass(frozen=True)
class Schema:
    """Payload columns in order, the axis of the lifetimes (``timestamp`` or ``integer``) and the declared shape.

    consumed: columns of the sources that became lifetimes, and what to write for them now; only messages use it.
    """

    fields: tuple[Field, ...]
    axis: str
    shape: str = INTERVAL
    consumed: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @lazy
    def names(self) -> tuple[str, ...]:
        """The payload columns' names, in order."""
        return tuple(f.name for f in self.fields)

    @lazy
    def _types(self) -> dict[str, DataType]:
        return {f.name: f.type for f in self.fields}

    @lazy
    def digest(self) -> str:
        """A text that schemas have in common if their columns, with their types, and their axes are equal."""
        return f"{self.axis} {self.shape} {[(f.name, f.type.json()) for f in self.fields]}"

    def type_of(self, name: str) -> DataType:
        """Return the type of a column that exists."""
        return self._types[name]

    def require(self, name: str, verb: str, side: str = "") -> DataType:
        """Return the type of a column; raise UnknownColumn if there is no such column, of a join's ``side``."""
        # users pass what no set can hold, too
        if not isinstance(name, str) or name not in self._types:
            self.unknown(name, verb, side)
        return self._types[name]

    def unknown(self, name: str, verb: str, side: str = "") -> NoReturn:
        """Raise UnknownColumn for a name that no payload column has."""
        unknown_column(verb, name, users_columns(self.names), consumed=self.consumed, side=side)

    def with_fields(self, fields: Iterable[Field]) -> Schema:
        """Return the schema with other columns and the same lifetimes."""
        return replace(self, fields=tuple(fields))

    def with_shape(self, shape: str) -> Schema:
        """Return the schema with the same columns and another shape."""
        return replace(self, shape=shape)

    def with_consumed(self, *others: Schema) -> Schema:
        """Return the schema with the consumed columns of other schemas added."""
        return replace(self, consumed={n: now for schema in (*others, self) for n, now in schema.consumed.items()})

    @property
    def axis_type(self) -> DataType:
        """The type of ``sq.start()`` and ``sq.end()``."""
        return t.TimestampType() if self.axis == TIMESTAMP else t.LongType()

    def table(self) -> str:
        """Return the columns with their types as an HTML table."""
        # imported here, so that a schema does not take it along to the workers
        from streamq import html

        rows = [(f.name, f.type.simpleString()) for f in self.fields]
        return html.tabulated(("column", "type"), rows, f"{self.shape} on {self.axis}", named=True)

    def _repr_html_(self) -> str:
        from streamq import html

        return html.fragment(self.table())

    def describe(self) -> str:
        """Return the schema as text, such as ``zone string, fare double; interval on timestamp``."""
        columns = ", ".join(f"{f.name} {f.type.simpleString()}" for f in self.fields)
        return f"{columns or 'no columns'}; {self.shape} on {self.axis}"

    def __repr__(self) -> str:
        return with_escapes(self.describe())


def check_names(names: Iterable[Any], verb: str) -> None:
    """Raise AmbiguousColumn for two payload columns of one name, whatever their case, and PlanError for an illegal name.

    Illegal are the lifetime's names, names that begin with two underscores, that of the folders of a late sink, names that
    cannot be encoded, and what is no string.
    """
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str):
            raise PlanError(verb, "a column name is a string", f"found {name!r}")
        if has_half_a_pair(name):
            raise PlanError(verb, "a column name with half a surrogate pair", f"found {name!r}")
        if name.lower() in RESERVED:
            raise PlanError(
                verb,
                f"a payload column called {name!r}",
                "that is the lifetime's name in results",
                f"Rename it, or read the lifetime as sq.{name.lower()}().",
            )
        if name.lower() == MICRO_BATCH:
            wrong = f"a payload column called {name!r}"
            hint = "Rename it: folders of micro-batches are called that where a late sink is written."
            raise PlanError(verb, wrong, "", hint)
        if UNNAMED_INDEX.fullmatch(name):
            # it is not left out: an index may hold the time, and nothing goes unsaid
            hint = "The frame itself, instead of an Arrow table, goes without it; df.rename_axis('name') makes it a column."
            raise PlanError(verb, "the index of a pandas frame, without a name", f"found {name!r}", hint)
        if name.startswith("__"):
            raise PlanError(
                verb, "a column name that begins with two underscores", f"found {name!r}", "Those are streamq's own."
            )
        if name.lower() in seen:
            raise AmbiguousColumn(
                verb,
                f"column {name!r} twice",
                f"found {seen[name.lower()]!r} and {name!r}",
                "Spark does not tell names apart by case.",
            )
        seen[name.lower()] = name


def key_types(left: Schema, right: Schema, on: Iterable[tuple[str, str]]) -> list[DataType]:
    """Return the common type of each pair of key columns, of ``left`` and ``right``; the types of a pair must have one."""
    common = [wider(left.type_of(a), right.type_of(b)) for a, b in on]
    assert None not in common
    return [kind for kind in common if kind is not None]


def quote(name: str) -> str:
    """Return a column name in backticks, so that Spark takes it literally."""
    return "`" + name.replace("`", "``") + "`"


def check_key(kind: t.DataType, name: str, verb: str = "group_by", use: str = "group") -> None:
    """Raise TypeMismatch for a type that rows cannot be grouped, ordered or matched by.

    These are maps, variants, and types that no value has shown, also inside arrays and structs. ``use``, in the message, is what
    the verb does by the column ``name``.
    """
    if not has_equality(kind):
        hint = f"{use.capitalize()} by columns without maps: sq.functions.map_entries makes an array of one."
        if _untyped(kind):
            hint = "Say its type where the stream is made: sq.events(..., schema=), a column of a typed Arrow table."
        elif not isinstance(kind, t.MapType):
            hint = "Choose another column, or parts of it."
        raise TypeMismatch(verb, f"cannot {use} by column {name!r}", f"found {kind.simpleString()}", hint)


def _untyped(kind: t.DataType) -> bool:
    """True if the type, or a type nested in it, is unknown because no value showed it."""
    match kind:
        case t.ArrayType(elementType=of):
            return _untyped(of)
        case t.StructType(fields=fields):
            return any(_untyped(f.dataType) for f in fields)
    return isinstance(kind, t.NullType)


def has_equality(kind: t.DataType) -> bool:
    """True if Spark groups, joins and orders by values of the type: not maps, variants and untyped NULLs, also inside others."""
    match kind:
        case t.ArrayType(elementType=of):
            return has_equality(of)
        case t.StructType(fields=fields):
            return all(has_equality(f.dataType) for f in fields)
    return not isinstance(kind, t.MapType | t.VariantType | t.NullType)
