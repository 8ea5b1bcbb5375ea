"""Expressions: a small immutable tree that is built, compared, typed and explained without a SparkSession.

Functions are called by their Spark name, so all of ``pyspark.sql.functions`` exists without being listed. Every pass over a
tree is a :func:`fold`: bottom-up, iterative, each shared node visited once.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from pyspark.sql.types import DataType

from streamq.errors import PlanError, TypeMismatch, UnknownVerb, sentence
from streamq.plan.hints import for_method

if TYPE_CHECKING:
    from pyspark.sql import Column

T = TypeVar("T")

ARITHMETIC = ("+", "-", "*", "/", "%")
COMPARISON = ("==", "!=", "<", "<=", ">", ">=", "<=>")
LOGIC = ("and", "or", "not")

_UFUNCS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/", "remainder": "%", "equal": "==",
    "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}  # fmt: skip
"""numpy's names of operators: what a numpy number on the left calls."""

NONDETERMINISTIC = frozenset(
    {
        "rand",
        "randn",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "random",
        "randstr",
        "uniform",
    }
)


class Shown(str):
    """The text of an expression; a type of its own, so that it is not taken for a constant."""

    __slots__ = ()

    def __add__(self, other: str) -> Shown:
        return Shown(str.__add__(self, other))

    def __radd__(self, other: str) -> Shown:
        return Shown(other.__add__(self))


def _canonical(value: Any) -> Any:
    match value:
        case Expr():
            return {"expr": value.digest}
        case DataType():
            return {"type": value.json()}
        case tuple():
            return [_canonical(v) for v in value]
        case bool() | int() | str() | None:
            return value
        case float():
            return {"float": value.hex() if value == value else "nan"}
        case _:
            return {type(value).__name__: repr(value)}


@dataclass(frozen=True, eq=False, repr=False)
class Expr:
    """A node of an expression; compare trees with ``a.digest == b.digest``, for ``==`` builds a comparison."""

    digest: str = field(init=False, default="", compare=False)

    def __post_init__(self) -> None:
        values = [
            type(self).__name__,
            *(_canonical(getattr(self, f.name)) for f in fields(self) if f.name not in ("digest", "shown")),
        ]
        object.__setattr__(self, "digest", hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16])

    @property
    def children(self) -> tuple[Expr, ...]:
        """The direct operands."""
        return ()

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """The same node over other operands."""
        return self

    def __repr__(self) -> str:
        return show(self)

    def __hash__(self) -> int:
        return hash(self.digest)

    # what Python would do with a value, and an expression is none yet
    def _refused(self, wrong: str, hint: str) -> TypeMismatch:
        return TypeMismatch(sentence("expression", wrong, f"found {self!r}", hint))

    @property
    def _in_code(self) -> str:
        """How a hint names it."""
        return f'"{self.name}"' if isinstance(self, Col) else "..."

    if not TYPE_CHECKING:  # a type checker is to see that there is no such method

        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(name)
            hint = for_method(name, self._in_code, [n for n in dir(type(self)) if not n.startswith("_")])
            raise UnknownVerb(sentence("expression", f"no method {name!r}", f"found {self!r}", hint))

    def __bool__(self) -> bool:
        hint = (
            "Use & | ~ instead of and, or, not; == inside parentheses. Besides: sq.when(...) for if, .isin(...) for in, "
            "sq.functions.greatest and least for max and min."
        )
        raise self._refused("a truth value of a column expression", hint)

    def __iter__(self) -> Iterator[Any]:
        raise self._refused(
            "not iterable",
            "Python's own sum, min and max take lists, and so does a pyspark Column on the left of this: aggregates are "
            "sq.sum, sq.min, sq.max, and a Column goes on the right.",
        )

    def __contains__(self, part: object) -> bool:
        raise self._refused(
            "a Python `in` on an expression", "Write .contains(...) or sq.functions.array_contains(...)."
        )

    def __len__(self) -> int:
        raise self._refused(
            "the length of an expression",
            f"Write sq.functions.length({self._in_code}), or sq.functions.size({self._in_code}) of an array or map.",
        )

    def __float__(self) -> float:
        raise self._refused(
            "no number yet", "Write .cast('double'); for Python's math there is sq.functions, as sq.functions.sqrt."
        )

    def __int__(self) -> int:
        raise self._refused("no number yet", "Write .cast('bigint').")

    def __index__(self) -> int:
        raise self._refused("no number yet", "It has a value an event: a Python list or range has no use for it.")

    def __complex__(self) -> complex:
        raise self._refused("no number yet", "Write .cast('double').")

    def __round__(self, digits: int = 0) -> Expr:
        raise self._refused(
            "Python rounds halves to even, Spark away from zero",
            f"Write sq.functions.round({self._in_code}, {digits!r}) or sq.functions.bround.",
        )

    def __trunc__(self) -> Expr:
        raise self._refused("no number yet", "Write .cast('bigint').")

    def __floor__(self) -> Expr:
        raise self._refused("no number yet", f"Write sq.functions.floor({self._in_code}).")

    def __ceil__(self) -> Expr:
        raise self._refused("no number yet", f"Write sq.functions.ceil({self._in_code}).")

    def __floordiv__(self, other: Any) -> Expr:
        raise self._refused("no operator //", "Write sq.functions.floor(x / y).")

    def __divmod__(self, other: Any) -> Expr:
        raise self._refused("no divmod", "Write sq.functions.floor(x / y) and x % y.")

    def __matmul__(self, other: Any) -> Expr:
        raise self._refused("no operator @", "Products of numbers are x * y.")

    def __xor__(self, other: Any) -> Expr:
        raise self._refused("no operator ^", "Of booleans write x != y, of numbers sq.functions.pow(x, y).")

    def __lshift__(self, other: Any) -> Expr:
        raise self._refused("no operator <<", "Write sq.functions.shiftleft(x, n).")

    def __rshift__(self, other: Any) -> Expr:
        raise self._refused("no operator >>", "Write sq.functions.shiftright(x, n).")

    __rfloordiv__, __rdivmod__, __rmatmul__, __rxor__ = __floordiv__, __divmod__, __matmul__, __xor__
    __rlshift__, __rrshift__ = __lshift__, __rshift__

    def __str__(self) -> str:
        return Shown(show(self))

    def __format__(self, spec: str) -> str:
        raise self._refused(
            "text of an expression, which has no value yet",
            "Write sq.functions.concat(...) or sq.functions.format_string(...); {x!r} shows the expression.",
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Expr:
        operator = _UFUNCS.get(ufunc.__name__)
        if operator is None or method != "__call__" or options:
            raise self._refused(
                f"numpy's {ufunc.__name__} takes no expression", for_method(ufunc.__name__, self._in_code, [])
            )
        return Call(operator, tuple(as_expr(o) for o in operands))

    # operators
    def __add__(self, other: Any) -> Expr:
        return Call("+", (self, as_expr(other)))

    def __radd__(self, other: Any) -> Expr:
        return Call("+", (as_expr(other), self))

    def __sub__(self, other: Any) -> Expr:
        return Call("-", (self, as_expr(other)))

    def __rsub__(self, other: Any) -> Expr:
        return Call("-", (as_expr(other), self))

    def __mul__(self, other: Any) -> Expr:
        return Call("*", (self, as_expr(other)))

    def __rmul__(self, other: Any) -> Expr:
        return Call("*", (as_expr(other), self))

    def __truediv__(self, other: Any) -> Expr:
        return Call("/", (self, as_expr(other)))

    def __rtruediv__(self, other: Any) -> Expr:
        return Call("/", (as_expr(other), self))

    def __mod__(self, other: Any) -> Expr:
        return Call("%", (self, as_expr(other)))

    def __rmod__(self, other: Any) -> Expr:
        return Call("%", (as_expr(other), self))

    def __pow__(self, other: Any) -> Expr:
        return Call("pow", (self, as_expr(other)))

    def __rpow__(self, other: Any) -> Expr:
        return Call("pow", (as_expr(other), self))

    def __neg__(self) -> Expr:
        return Call("negative", (self,))

    def __pos__(self) -> Expr:
        return Call("positive", (self,))

    def __abs__(self) -> Expr:
        return Call("abs", (self,))

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return Call("==", (self, as_expr(other)))

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return Call("!=", (self, as_expr(other)))

    def __lt__(self, other: Any) -> Expr:
        return Call("<", (self, as_expr(other)))

    def __le__(self, other: Any) -> Expr:
        return Call("<=", (self, as_expr(other)))

    def __gt__(self, other: Any) -> Expr:
        return Call(">", (self, as_expr(other)))

    def __ge__(self, other: Any) -> Expr:
        return Call(">=", (self, as_expr(other)))

    def __and__(self, other: Any) -> Expr:
        return Call("and", (self, as_expr(other)))

    def __rand__(self, other: Any) -> Expr:
        return Call("and", (as_expr(other), self))

    def __or__(self, other: Any) -> Expr:
        return Call("or", (self, as_expr(other)))

    def __ror__(self, other: Any) -> Expr:
        return Call("or", (as_expr(other), self))

    def __invert__(self) -> Expr:
        return Call("not", (self,))

    def __getitem__(self, key: Any) -> Expr:
        if isinstance(key, slice):
            hint = f"Write sq.functions.substring({self._in_code}, from, length), from 1 on; of an array sq.functions.slice."
            raise self._refused("a part of an expression", hint)
        return Call("getitem", (self, as_expr(key)))

    # methods, named as PySpark's
    def eq_null_safe(self, other: Any) -> Expr:
        """Equality under which NULL equals NULL."""
        return Call("<=>", (self, as_expr(other)))

    def is_null(self) -> Expr:
        """True where the value is NULL."""
        return Call("isnull", (self,))

    def is_not_null(self) -> Expr:
        """True where the value is not NULL."""
        return Call("not", (Call("isnull", (self,)),))

    def isin(self, *values: Any) -> Expr:
        """True where the value equals one of ``values`` (or of the one list given)."""
        found = values[0] if len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset) else values
        ordered = sorted(found, key=repr) if isinstance(found, set | frozenset) else found
        return Call("isin", (self, *(as_expr(v) for v in ordered)))

    def between(self, low: Any, high: Any) -> Expr:
        """``low <= self and self <= high``."""
        return (self >= low) & (self <= high)

    def startswith(self, prefix: Any) -> Expr:
        """True where the string begins with ``prefix``."""
        return Call("startswith", (self, as_expr(prefix)))

    def endswith(self, suffix: Any) -> Expr:
        """True where the string ends with ``suffix``."""
        return Call("endswith", (self, as_expr(suffix)))

    def contains(self, part: Any) -> Expr:
        """True where the string contains ``part``."""
        return Call("contains", (self, as_expr(part)))

    def like(self, pattern: str) -> Expr:
        """SQL LIKE."""
        return Call("like", (self, as_expr(pattern)))

    def rlike(self, pattern: str) -> Expr:
        """Regular expression match, Java syntax."""
        return Call("rlike", (self, as_expr(pattern)))

    def cast(self, to: str | DataType) -> Expr:
        """The value in another type, by Spark's ANSI rules; ``to`` is a DataType or its SQL name."""
        from streamq.plan.schema import parse_type

        return Cast(self, parse_type(to))

    def alias(self, name: str) -> Expr:
        """The same value under a name, for verbs that take positional expressions."""
        if not isinstance(name, str):
            raise PlanError(sentence("alias", "a name is a string", f"found {name!r}"))
        return Alias(self, name)

    isNull, isNotNull, eqNullSafe, astype = is_null, is_not_null, eq_null_safe, cast


@dataclass(frozen=True, eq=False, repr=False)
class Col(Expr):
    """A payload column; ``origin`` is the digest of the stream it was taken from, if it was taken from one."""

    name: str
    origin: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Lit(Expr):
    """A constant; ``type`` is Spark's type of the Python value unless given."""

    value: Any
    type: DataType | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expr):
    """An operator or a Spark function by name; ``args`` are expressions or plain Python values (a format, a flag)."""

    name: str
    args: tuple[Any, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return tuple(a for a in self.args if isinstance(a, Expr))

    def with_children(self, children: Sequence[Expr]) -> Expr:
        rest = iter(children)
        return Call(self.name, tuple(next(rest) if isinstance(a, Expr) else a for a in self.args))


@dataclass(frozen=True, eq=False, repr=False)
class Cast(Expr):
    """A cast by Spark's ANSI rules."""

    arg: Expr
    type: DataType

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Cast(children[0], self.type)


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


@dataclass(frozen=True, eq=False, repr=False)
class Case(Expr):
    """CASE WHEN: ``parts`` are condition, value, condition, value, ..., and the default last (NULL if none was given)."""

    parts: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.parts

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Case(tuple(children))

    def when(self, condition: Any, value: Any) -> Case:
        """One more branch, tried after those before it."""
        return Case((*self.parts[:-1], as_expr(condition), as_expr(value), self.parts[-1]))

    def otherwise(self, value: Any) -> Case:
        """The value where no condition holds."""
        return Case((*self.parts[:-1], as_expr(value)))


@dataclass(frozen=True, eq=False, repr=False)
class Lifetime(Expr):
    """``start``, ``end`` or ``duration`` of the event, read-only."""

    part: str


@dataclass(frozen=True, eq=False, repr=False)
class WindowBound(Lifetime):
    """``start`` or ``end`` of the window, as a user writes it: the lifetime of a window's result, once a verb has taken it."""


@dataclass(frozen=True, eq=False, repr=False)
class Opaque(Expr):
    """A pyspark Column taken as it is: Spark alone evaluates it, and nothing is pushed through it."""

    shown: Any
    text: str


@dataclass(frozen=True, eq=False, repr=False)
class Aggregate(Expr):
    """An aggregate over a window's members (those for which ``where`` is true); only legal in a window's ``select``.

    options: plain parameters, such as the fraction of a percentile.
    """

    name: str
    args: tuple[Expr, ...]
    where: Expr | None = None
    options: tuple[float | int | str, ...] = ()

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args if self.where is None else (*self.args, self.where)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        n = len(self.args)
        return Aggregate(self.name, tuple(children[:n]), None if self.where is None else children[n], self.options)


# building


def as_expr(value: Any) -> Expr:
    """An expression as it is, a pyspark Column as an opaque leaf, anything else as a literal."""
    if isinstance(value, Expr):
        return value
    if type(value).__name__ == "Column" and type(value).__module__.startswith("pyspark."):
        return Opaque(value, str(value))
    if isinstance(value, Shown):
        hint = "Write .cast('string'), and sq.functions.concat(...) to put texts together."
        raise TypeMismatch(sentence("expression", "the text of an expression, not its value", f"found {value!r}", hint))
    if isinstance(value, dt.datetime) and value != value:
        return Lit(None)  # pandas' NaT
    if value is None or isinstance(
        value, bool | int | float | str | bytes | Decimal | dt.date | dt.datetime | dt.timedelta
    ):
        return Lit(value)
    if isinstance(value, np.generic):
        return Lit(plain_value(value))
    wrong = "not a value a column can be compared or combined with"
    raise TypeMismatch(sentence("expression", wrong, f"found {value!r}", hint_for(value)))


def plain_value(value: Any) -> Any:
    """A scalar of numpy as Python's own value; anything else as it is."""
    if not isinstance(value, np.generic):
        return value
    if isinstance(value, np.datetime64 | np.timedelta64):
        # finer than a microsecond numpy gives a plain integer
        value = value.astype(f"{'datetime64' if isinstance(value, np.datetime64) else 'timedelta64'}[us]")
    plain = value.item()
    if isinstance(plain, np.generic):
        raise TypeMismatch(
            sentence("expression", "a number of no Spark type", f"found {value!r}", "Give a Python one.")
        )
    return plain


def hint_for(value: Any, otherwise: str = "") -> str:
    """What to write instead of something that is no expression, and no name of a column."""
    if isinstance(value, list | tuple | set | frozenset | dict | np.ndarray):
        return (
            "Membership is .isin(...); arrays are made by sq.functions.array(...), structs by sq.functions.struct(...)."
        )
    if callable(value):
        return "Call it on the columns; a function of your own becomes a module by @sq.udf."
    return "t.ANY stands in scenarios only: begin with t.stream(...)." if type(value).__name__ == "_Any" else otherwise


def col(name: str) -> Col:
    """A payload column by name, resolved by the verb that uses it."""
    if not isinstance(name, str):
        raise PlanError(sentence("col", "a column name is a string", f"found {name!r}"))
    return Col(name)


def lit(value: Any) -> Expr:
    """A constant."""
    return as_expr(value)


def when(condition: Any, value: Any) -> Case:
    """``when(c, v).otherwise(w)``: v where c holds, else w, else NULL."""
    return Case((as_expr(condition), as_expr(value), Lit(None)))


def start() -> Expr:
    """The start (LE) of the event: a timestamp, or ticks on an integer axis."""
    return Lifetime("start")


def end() -> Expr:
    """The end (RE) of the event, NULL while it is still alive."""
    return Lifetime("end")


def duration() -> Expr:
    """RE - LE in ticks (microseconds on a timestamp axis), NULL while the event is still alive."""
    return Lifetime("duration")


def window_start() -> Expr:
    """The start of the window, in a window's ``select`` or over its result; elsewhere a PlanError."""
    return WindowBound("start")


def window_end() -> Expr:
    """The end of the window, in a window's ``select`` or over its result; elsewhere a PlanError."""
    return WindowBound("end")


# passes


def fold(root: Expr, visit: Callable[[Expr, list[T]], T]) -> T:
    """Bottom-up and left to right, without recursion, each shared node once: ``visit(node, results of its children)``."""
    done: dict[str, T] = {}
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node.digest in done:
            continue
        if ready:
            done[node.digest] = visit(node, [done[c.digest] for c in node.children])
        else:
            stack.append((node, True))
            stack.extend((c, False) for c in reversed(node.children))
    return done[root.digest]


def nodes(root: Expr) -> list[Expr]:
    """Every distinct node, children first."""
    found: list[Expr] = []
    fold(root, lambda node, _: found.append(node))
    return found


def columns(root: Expr) -> frozenset[str]:
    """The names of the payload columns read."""
    return frozenset(n.name for n in nodes(root) if isinstance(n, Col))


def rewrite(root: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Bottom-up: ``change`` sees each node over its rewritten operands; None keeps it."""

    def visit(node: Expr, parts: list[Expr]) -> Expr:
        old = node.children
        again = node if all(a is b for a, b in zip(old, parts, strict=True)) else node.with_children(parts)
        changed = change(again)
        return again if changed is None else changed

    return fold(root, visit)


def substitute(root: Expr, by: Mapping[str, Expr]) -> Expr:
    """Payload columns replaced by what they stand for."""
    return rewrite(root, lambda n: by.get(n.name) if isinstance(n, Col) else None)


def conjuncts(root: Expr) -> list[Expr]:
    """The parts of a top-level AND, in order."""
    out: list[Expr] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Call) and node.name == "and":
            stack.extend(reversed(node.children))
        else:
            out.append(node)
    return out


def conjunction(parts: Iterable[Expr]) -> Expr:
    """``p and q and ...``; of nothing, true."""
    result: Expr | None = None
    for part in parts:
        result = part if result is None else Call("and", (result, part))
    return Lit(True) if result is None else result


def reads_lifetime(root: Expr, *parts: str) -> bool:
    """Whether the tree reads one of these parts of the lifetime (any, if none is named)."""
    wanted = parts or ("start", "end", "duration")
    return any(isinstance(n, Lifetime) and n.part in wanted for n in nodes(root))


def reads_end(root: Expr) -> bool:
    """Whether the tree reads RE, which a retraction may still move."""
    return reads_lifetime(root, "end", "duration") or is_opaque(root)


def is_opaque(root: Expr) -> bool:
    """Whether a pyspark Column hides what the tree reads."""
    return any(isinstance(n, Opaque) for n in nodes(root))


def is_deterministic(root: Expr) -> bool:
    """Whether equal input gives equal output, as far as names tell."""
    return not any(isinstance(n, Opaque) or (isinstance(n, Call) and n.name in NONDETERMINISTIC) for n in nodes(root))


def aggregates(root: Expr) -> list[Aggregate]:
    """The aggregates in a tree, children first."""
    return [n for n in nodes(root) if isinstance(n, Aggregate)]


_INFIX = {
    "+": 6,
    "-": 6,
    "*": 7,
    "/": 7,
    "%": 7,
    "==": 4,
    "!=": 4,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "<=>": 4,
    "and": 2,
    "or": 1,
}


def show(root: Expr) -> str:
    """One line as a person would write it; deterministic, for explain and messages."""

    def bracket(part: tuple[str, int], least: int) -> str:
        return part[0] if part[1] >= least else f"({part[0]})"

    def visit(node: Expr, parts: list[tuple[str, int]]) -> tuple[str, int]:
        match node:
            case Col(name=name):
                return name, 9
            case Lit(value=value):
                return ("NULL" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)), 9
            case Call(name=name) if name in _INFIX:
                rank = _INFIX[name]
                return f"{bracket(parts[0], rank)} {name} {bracket(parts[1], rank + 1)}", rank
            case Call(name="not"):
                return f"not {bracket(parts[0], 5)}", 3
            case Call(name="negative"):
                return f"-{bracket(parts[0], 8)}", 8
            case Call(name="isnull"):
                return f"{bracket(parts[0], 5)} is null", 4
            case Call(name="isin"):
                return f"{bracket(parts[0], 5)} in ({', '.join(p[0] for p in parts[1:])})", 4
            case Call(name="getitem"):
                return f"{bracket(parts[0], 9)}[{parts[1][0]}]", 9
            case Call(name=name, args=args):
                shown = iter(parts)
                return f"{name}({', '.join(next(shown)[0] if isinstance(a, Expr) else repr(a) for a in args)})", 9
            case Cast(type=to):
                return f"cast({parts[0][0]} as {to.simpleString()})", 9
            case Alias(arg=Col(name=own), name=name) if own == name:
                return name, 9
            case Alias(name=name):
                return f"{parts[0][0]} as {name}", 0
            case Case():
                branches = [f"when {parts[i][0]} then {parts[i + 1][0]}" for i in range(0, len(parts) - 1, 2)]
                return f"case {' '.join(branches)} else {parts[-1][0]} end", 9
            case WindowBound(part=part):
                return f"window_{part}()", 9
            case Lifetime(part=part):
                return f"{part}()", 9
            case Opaque(text=text):
                return f"spark[{text}]", 9
            case Aggregate(name=name, args=args, where=where, options=options):
                shown_args = ", ".join([*(p[0] for p in parts[: len(args)]), *map(repr, options)])
                shown_args = shown_args or ("*" if name == "count" else "")
                return f"{name}({shown_args}{f' where {parts[-1][0]}' if where is not None else ''})", 9
        raise AssertionError(type(node))

    return fold(root, visit)[0]


def show_to_user(root: Expr) -> str:
    """As :func:`show`; columns of streamq's own, such as the aggregates that a result is made of, by what they hold."""

    def described(found: Expr) -> Expr | None:
        if not isinstance(found, Col) or not found.name.startswith("__"):
            return None
        own = _OWN.fullmatch(found.name)
        kind, part = own.groups() if own else ("value", None)
        return Col({None: kind or "count", "n": "count", "mean": "avg"}.get(part, "var") + "(...)")

    return show(rewrite(root, described))


_OWN = re.compile(r"__(?:n|([a-z_]+?)\d+(?:__([a-z0-9]+))?)")
"""Names of aggregates inside: ``__n``, ``__sum0``, ``__sum0__n``."""


# to Spark


class Columns(Protocol):
    """What :func:`to_spark` needs to know: the Column of a name and of a part of the lifetime."""

    def column(self, name: str) -> Column: ...

    def lifetime(self, part: str) -> Column: ...


def to_spark(root: Expr, columns: Columns) -> Column:
    """The Spark Column of an expression."""
    from pyspark.sql import functions as F

    binary: dict[str, Callable[[Any, Any], Any]] = {
        "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
        "%": lambda a, b: a % b,
        "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "<=>": lambda a, b: a.eqNullSafe(b),
        "and": lambda a, b: a & b, "or": lambda a, b: a | b,
        "getitem": lambda a, b: a[b],
    }  # fmt: skip

    def literal(node: Lit) -> Column:
        value = node.value
        made: Column
        # F.lit goes through java.sql.Date and Timestamp: it refuses years below 1000 and shifts old dates by the Julian calendar.
        if isinstance(value, dt.datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
            made = F.timestamp_micros(
                F.lit((aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1))
            )
        elif isinstance(value, dt.date):
            made = F.date_from_unix_date(F.lit((value - dt.date(1970, 1, 1)).days))
        else:
            made = F.lit(value)
        return made.cast(node.type) if node.type is not None else made

    def visit(node: Expr, parts: list[Any]) -> Any:
        match node:
            case Col(name=name):
                return columns.column(name)
            case Lit():
                return literal(node)
            case Lifetime(part=part):
                return columns.lifetime(part)
            case Call(name="getitem", args=(_, Lit(value=key))):
                return parts[0][key]
            case Call(name=name) if name in binary:
                return binary[name](*parts)
            case Call(name="not"):
                return ~parts[0]
            case Call(name="isin"):
                return parts[0].isin(*parts[1:])
            case Call(name=name, args=args):
                shown = iter(parts)
                return getattr(F, name)(*(next(shown) if isinstance(a, Expr) else a for a in args))
            case Cast(type=to):
                return parts[0].cast(to)
            case Alias(name=name):
                return parts[0].alias(name)
            case Case():
                made = F.when(parts[0], parts[1])
                for i in range(2, len(parts) - 1, 2):
                    made = made.when(parts[i], parts[i + 1])
                return made.otherwise(parts[-1])
            case Opaque(shown=column):
                return column
        raise PlanError(sentence("expression", "an aggregate outside a window's select", f"found {node!r}"))

    return fold(root, visit)
