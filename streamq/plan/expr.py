"""Expressions: a small immutable tree that is built, compared, typed and explained without a SparkSession.

A call holds its function, a :class:`streamq.plan.function.Function`. A plan or an expression is a
tree with children and a digest. Every pass over a tree is a :func:`fold`: bottom-up, iterative, each shared node visited once.
CASE WHEN and the parts of an event's
lifetime and of a window's stand here, too, as does what turns NumPy's scalars into Python's values.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar, TypeVar

import numpy as np
from pyspark.sql.types import DataType, NullType

from streamq.errors import PlanError, TypeMismatch, check_keywords
from streamq.plan.function import Function, NamedObject, Text
from streamq.plan.refusals import ValueRefusals
from streamq.plan.schema import lazy, shown_name
from streamq.plan.spark_types import parse_type, widens_integer
from streamq.time import check_microseconds

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
    stack = [root]
    while stack:
        part = stack[-1]
        results: list[T] = []
        for place, child in enumerate(part.children):
            if child.digest in done:
                results.append(done[child.digest])
            elif child.children:
                stack += reversed(part.children[place:])
                break
            else:
                results.append(done.setdefault(child.digest, visit(child, [])))
        else:
            stack.pop()
            if part.digest not in done:
                done[part.digest] = visit(part, results)
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
class Tree:
    """A node of a tree; two trees are the same if their digests are equal."""

    digest: str = field(init=False, default="", compare=False)

    def __post_init__(self) -> None:
        """Compute the digest: a hash of the name of the class and of the fields, without ``shown``."""
        values = [
            type(self).__name__,
            *(_canonical(getattr(self, f.name)) for f in fields(self) if f.name not in ("digest", "shown")),
        ]
        self._set_digest(json.dumps(values))

    def _set_digest(self, text: str) -> None:
        object.__setattr__(self, "digest", hashlib.sha256(text.encode()).hexdigest()[:16])

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


def plain_value(value: Any) -> Any:
    """Return a NumPy scalar as a Python value, anything else unchanged; raise TypeMismatch for a scalar without one.

    NaT becomes None; a time that is finer than a microsecond raises TimeError.
    """
    if not isinstance(value, np.generic):
        return value
    if isinstance(value, np.datetime64 | np.timedelta64):
        check_microseconds(value, "expression")
        # for units finer than a microsecond NumPy would return a plain integer
        value = value.astype(f"{'datetime64' if isinstance(value, np.datetime64) else 'timedelta64'}[us]")
    plain = value.item()
    if isinstance(plain, np.generic):
        raise TypeMismatch("expression", "a number of no Spark type", f"found {value!r}", "Give a Python one.")
    return plain


def hint_for(value: Any, otherwise: str = "") -> str:
    """Return what to write instead of a value that is neither an expression nor a column's name; ``otherwise`` if unknown."""
    if isinstance(value, list | tuple | set | frozenset | dict | np.ndarray):
        return (
            "Columns are given one by one; membership is .isin(...); arrays are made by sq.functions.array(...), "
            "structs by sq.functions.struct(...)."
        )
    if callable(value):
        return (
            'Call it on the columns; a function of your own is made one of expressions by sq.udf("double")(function).'
        )
    return "t.ANY stands in scenarios only: begin with t.stream(...)." if type(value).__name__ == "_Any" else otherwise


_UFUNCS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/", "remainder": "%", "equal": "==",
    "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}  # fmt: skip
"""numpy's names of operators: what a numpy number on the left calls."""


@dataclass(frozen=True, eq=False, repr=False)
class Expr(ValueRefusals, Tree):
    """A node of an expression; compare trees with ``a.digest == b.digest``, for ``==`` builds a comparison."""

    called: ClassVar[str] = "an expression"
    """The noun that messages use where an expression was passed in place of something else."""

    @property
    def children(self) -> tuple[Expr, ...]:
        """The direct operands."""
        return ()

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return the same node over other operands."""
        return self

    def is_exact(self, operands: Sequence[DataType], kind: DataType) -> bool:
        """Return True if Arrow computes this node, of type ``kind``, as Spark does, to the last bit and with the same failures.

        ``operands`` are the types of the children. False also where nobody has promised it.
        """
        return False

    @property
    def copied_column(self) -> str | None:
        """The name of the column that it copies; None if it computes something."""
        return None

    __hash__ = Tree.__hash__

    def __str__(self) -> str:
        return ExpressionText(show(self))

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Expr:
        """Return the expression of an operator with a NumPy number on its left; raise TypeMismatch for NumPy's functions."""
        operator = _UFUNCS.get(ufunc.__name__)
        if operator is None or method != "__call__" or options:
            raise self._refused(f"numpy's {ufunc.__name__} takes no expression", self._instead_of(ufunc.__name__, []))
        return _call(operator, *operands)

    # operators
    def __add__(self, other: Any) -> Expr:
        return _call("+", self, other)

    def __radd__(self, other: Any) -> Expr:
        return _call("+", other, self)

    def __sub__(self, other: Any) -> Expr:
        return _call("-", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return _call("-", other, self)

    def __mul__(self, other: Any) -> Expr:
        return _call("*", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return _call("*", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return _call("/", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return _call("/", other, self)

    def __mod__(self, other: Any) -> Expr:
        return _call("%", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return _call("%", other, self)

    def __pow__(self, other: Any) -> Expr:
        return _call("pow", self, other)

    def __rpow__(self, other: Any) -> Expr:
        return _call("pow", other, self)

    def __neg__(self) -> Expr:
        return _call("negative", self)

    def __pos__(self) -> Expr:
        return _call("positive", self)

    def __abs__(self) -> Expr:
        return _call("abs", self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return self._compared("!=", other)

    def __lt__(self, other: Any) -> Expr:
        return self._compared("<", other)

    def __le__(self, other: Any) -> Expr:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> Expr:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> Expr:
        return self._compared(">=", other)

    def _compared(self, sign: str, other: Any) -> Expr:
        """Return a comparison with a value; raise TypeMismatch for None and NaT, to which no comparison is true."""
        comparison = _call(sign, self, other)
        if not isinstance(other, Expr) and isinstance(value := comparison.args[1], Lit) and value.value is None:
            hint = f"Write .{'is_not_null' if sign == '!=' else 'is_null'}()."
            raise self._refused(f"{sign} None is true of no value, as of NULL in SQL", hint)
        return comparison

    def __and__(self, other: Any) -> Expr:
        return _call("and", self, other)

    def __rand__(self, other: Any) -> Expr:
        return _call("and", other, self)

    def __or__(self, other: Any) -> Expr:
        return _call("or", self, other)

    def __ror__(self, other: Any) -> Expr:
        return _call("or", other, self)

    def __invert__(self) -> Expr:
        return _call("not", self)

    def __getitem__(self, key: Any) -> Expr:
        """Return the element, field or value at a key; raise TypeMismatch for a slice."""
        if isinstance(key, slice):
            hint = f"Write sq.functions.substring({self._in_code}, from, length), from 1 on; of an array sq.functions.slice."
            raise self._refused("a part of an expression", hint)
        return _call("getitem", self, key)

    # methods, named as PySpark's
    @check_keywords
    def eq_null_safe(self, other: Any) -> Expr:
        """Equality under which NULL equals NULL."""
        return _call("<=>", self, other)

    @check_keywords
    def is_null(self) -> Expr:
        """True where the value is NULL."""
        return _call("isnull", self)

    @check_keywords
    def is_not_null(self) -> Expr:
        """True where the value is not NULL."""
        return _call("not", _call("isnull", self))

    @check_keywords
    def isin(self, *values: Any) -> Expr:
        """True where the value equals one of ``values`` (or of a single list, tuple or set)."""
        members = values[0] if len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset) else values
        ordered = sorted(members, key=repr) if isinstance(members, set | frozenset) else members
        return _call("isin", self, *ordered)

    @check_keywords
    def between(self, low: Any, high: Any) -> Expr:
        """``low <= self and self <= high``."""
        return (self >= low) & (self <= high)

    @check_keywords
    def startswith(self, prefix: Any) -> Expr:
        """True where the string begins with ``prefix``."""
        return _call("startswith", self, prefix)

    @check_keywords
    def endswith(self, suffix: Any) -> Expr:
        """True where the string ends with ``suffix``."""
        return _call("endswith", self, suffix)

    @check_keywords
    def contains(self, part: Any) -> Expr:
        """True where the string contains ``part``."""
        return _call("contains", self, part)

    @check_keywords
    def like(self, pattern: str) -> Expr:
        """SQL LIKE."""
        return _call("like", self, pattern)

    @check_keywords
    def rlike(self, pattern: str) -> Expr:
        """Regular expression match, Java syntax."""
        return _call("rlike", self, pattern)

    @check_keywords
    def cast(self, to: str | DataType) -> Expr:
        """The value in another type, by Spark's ANSI rules; ``to`` is a DataType or its SQL name."""
        return Cast(self, parse_type(to))

    @check_keywords
    def alias(self, name: str) -> Expr:
        """The same value under a name, for verbs that take positional expressions."""
        if not isinstance(name, str):
            raise PlanError("alias", "a name is a string", f"found {name!r}")
        return Alias(self, name)

    isNull, isNotNull, eqNullSafe, astype = is_null, is_not_null, eq_null_safe, cast


@dataclass(frozen=True, eq=False, repr=False)
class Col(Expr):
    """A payload column; ``origin`` is the digest of the stream it was taken from, if it was taken from one."""

    name: str
    origin: str | None = None

    def __post_init__(self) -> None:
        """Compute the digest as for any node; a plan has more columns than all else, so their JSON is written at once."""
        if self.origin is None and isinstance(self.name, str):
            self._set_digest(f'["Col", {encode_basestring_ascii(self.name)}, null]')
        else:
            super().__post_init__()

    @property
    def copied_column(self) -> str:
        return self.name

    @property
    def _in_code(self) -> str:
        return f'"{self.name}"'

    def is_exact(self, operands: Sequence[DataType], kind: DataType) -> bool:
        return True

    def shown_over(self, parts: Sequence[Text]) -> Text:
        return Text(shown_name(self.name))


@dataclass(frozen=True, eq=False, repr=False)
class Lit(Expr):
    """A constant; ``type`` None means Spark's type of the Python value."""

    value: Any
    type: DataType | None = None

    def is_exact(self, operands: Sequence[DataType], kind: DataType) -> bool:
        # an instant depends on a time zone
        return self.type is None and (self.value is None or isinstance(self.value, bool | int | float | str))

    def shown_over(self, parts: Sequence[Text]) -> Text:
        if self.value is None:
            return Text("NULL")
        return Text(str(self.value).lower() if isinstance(self.value, bool) else repr(self.value))


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expr):
    """A function of ``args``: expressions, or plain Python values (a format, a flag)."""

    function: Function = field(metadata={"written": "name"})
    args: tuple[Any, ...]

    @lazy
    def children(self) -> tuple[Expr, ...]:
        return tuple(a for a in self.args if isinstance(a, Expr))

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Call(self.function, self.arguments(children))

    def arguments(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Return all arguments in order, with ``operands`` in place of the expressions; plain values stay."""
        rest = iter(operands)
        return tuple(next(rest) if isinstance(a, Expr) else a for a in self.args)

    def is_exact(self, operands: Sequence[DataType], kind: DataType) -> bool:
        return len(operands) == len(self.args) and self.function.is_exact(operands, kind)

    def shown_over(self, parts: Sequence[Text]) -> Text:
        return self.function.shown_over([a if isinstance(a, Text) else Text(repr(a)) for a in self.arguments(parts)])


@dataclass(frozen=True, eq=False, repr=False)
class Cast(Expr):
    """A cast by Spark's ANSI rules."""

    arg: Expr
    type: DataType

    def is_exact(self, operands: Sequence[DataType], kind: DataType) -> bool:
        return widens_integer(operands[0], kind)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Cast(children[0], self.type)

    def shown_over(self, parts: Sequence[Text]) -> Text:
        return Text(f"cast({parts[0].text} as {self.type.simpleString()})")


@dataclass(frozen=True, eq=False, repr=False)
class Alias(Expr):
    """A name for a value; gone once a verb has taken it, kept where a function names fields after its arguments."""

    arg: Expr
    name: str

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Alias(children[0], self.name)

    def is_exact(self, operands: Sequence[DataType], kind: DataType) -> bool:
        return True

    def shown_over(self, parts: Sequence[Text]) -> Text:
        if isinstance(self.arg, Col) and self.arg.name == self.name:
            return Text(self.name)
        return Text(f"{parts[0].text} as {self.name}", 0)


@dataclass(frozen=True, eq=False, repr=False)
class Opaque(Expr):
    """A pyspark Column taken as it is: Spark alone evaluates it, and nothing is pushed through it."""

    shown: Any
    text: str

    def shown_over(self, parts: Sequence[Text]) -> Text:
        return Text(f"spark[{self.text}]")


def _call(name: str, *operands: Any) -> Call:
    """Return a call of a built-in function; operands that are not expressions become literals."""
    from streamq.plan.function import BUILT_IN  # stays here: on executors no expression is built

    return Call(BUILT_IN[name], tuple(as_expr(o) for o in operands))


def is_sparks_column(value: object) -> bool:
    """True if a value is a pyspark Column."""
    return type(value).__name__ == "Column" and type(value).__module__.startswith("pyspark.")


def as_expr(value: Any) -> Expr:
    """Return a value as an expression: an expression unchanged, a pyspark Column as Opaque, anything else as a literal.

    pandas' NaT is NULL, and a NumPy scalar the Python value. Raises TypeMismatch for a value that is no constant of a Spark type,
    and for the text of an expression; TimeError for a time that is finer than a microsecond.
    """
    if isinstance(value, Expr):
        return value
    if is_sparks_column(value):
        return Opaque(value, str(value))
    if isinstance(value, ExpressionText):
        hint = "Write .cast('string'), and sq.functions.concat(...) to put texts together."
        raise TypeMismatch("expression", "the text of an expression, not its value", f"found {value!r}", hint)
    if isinstance(value, dt.datetime) and value != value:
        return Lit(None)  # pandas' NaT
    if isinstance(value, dt.datetime | dt.timedelta):
        check_microseconds(value, "expression")
    if value is None or isinstance(
        value, bool | int | float | str | bytes | Decimal | dt.date | dt.datetime | dt.timedelta
    ):
        return Lit(value)
    if isinstance(value, np.generic):
        return Lit(plain_value(value))
    wrong = "not a value a column can be compared or combined with"
    raise TypeMismatch("expression", wrong, f"found {value!r}", hint_for(value))


@dataclass(frozen=True, eq=False, repr=False)
class Case(Expr):
    """CASE WHEN: ``parts`` are condition, value, condition, value, ..., and last the default (NULL without ``otherwise``)."""

    parts: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.parts

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Case(tuple(children))

    def is_exact(self, operands: Sequence[DataType], kind: DataType) -> bool:
        values = [*operands[1:-1:2], operands[-1]]
        return all(value == kind or isinstance(value, NullType) for value in values)

    def when(self, condition: Any, value: Any) -> Case:
        """Return the same CASE with one more branch, which is tried after the others."""
        return Case((*self.parts[:-1], as_expr(condition), as_expr(value), self.parts[-1]))

    def otherwise(self, value: Any) -> Case:
        """Return the same CASE with this value where no condition holds."""
        return Case((*self.parts[:-1], as_expr(value)))

    def shown_over(self, parts: Sequence[Text]) -> Text:
        branches = [f"when {parts[i].text} then {parts[i + 1].text}" for i in range(0, len(parts) - 1, 2)]
        return Text(f"case {' '.join(branches)} else {parts[-1].text} end")


@dataclass(frozen=True, eq=False, repr=False)
class Lifetime(Expr):
    """``start``, ``end`` or ``duration`` of the event, read-only."""

    part: str

    def is_exact(self, operands: Sequence[DataType], kind: DataType) -> bool:
        return True

    def shown_over(self, parts: Sequence[Text]) -> Text:
        return Text(f"{self.part}()")


@dataclass(frozen=True, eq=False, repr=False)
class WindowBound(Lifetime):
    """``start`` or ``end`` of the window, as a user writes it; a verb replaces it by the lifetime of the window's result."""

    def shown_over(self, parts: Sequence[Text]) -> Text:
        return Text(f"window_{self.part}()")
