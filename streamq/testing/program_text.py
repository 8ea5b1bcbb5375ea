"""Write values, types, expressions and modules as the Python text that a user would write for them."""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any

from pyspark.sql import types as t

from streamq.aggregates import built_in
from streamq.errors import TypeMismatch
from streamq.functions.catalogue import function_of
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Alias, Call, Case, Cast, Col, Expr, Lifetime, Lit, WindowBound, fold
from streamq.plan.function import Infix, Method, Prefix, Subscript
from streamq.plan.spark_types import parse_type
from streamq.time import INTEGER, show_duration
from streamq.user_code.module import UserModule
from streamq.user_code.uda import WindowModule

WIDTH = 100
"""The greatest length of a call that is written on one line."""

LONGEST = 20_000
"""The greatest length of an expression's text; longer ones have shared parts, or are too deep for Python's parser."""


class UnwritableCode(Exception):
    """Raised for nodes and expressions that no public verb, function or operator builds."""


# layout


def call(head: str, arguments: Iterable[str]) -> str:
    """Return the call ``head(a, b)``, with each argument on its own line if it is too long."""
    lines = list(arguments)
    line = f"{head}({', '.join(lines)})"
    if not lines or (len(line) <= WIDTH and "\n" not in line):
        return line
    return f"{head}(\n{textwrap.indent(','.join(f'{chr(10)}{a}' for a in lines).lstrip(), '    ')},\n)"


def listed(items: Sequence[str], brackets: str = "[]") -> str:
    """Return the list ``[a, b]``, or one in other ``brackets``, with each item on its own line if it is too long."""
    line = f"{brackets[0]}{', '.join(items)}{brackets[1]}"
    if len(line) <= WIDTH - 20 and "\n" not in line:
        return line
    return (
        f"{brackets[0]}\n{textwrap.indent(','.join(f'{chr(10)}{i}' for i in items).lstrip(), '    ')},\n{brackets[1]}"
    )


def is_name(text: str) -> bool:
    """True if the text is legal in Python as a keyword argument or an attribute."""
    return text.isidentifier() and not keyword.iskeyword(text)


# values


def value(plain: Any) -> str:
    """Return a plain value as Python text; instants and durations use ``dt``, time zones ``zoneinfo``.

    A value of any other type is written as its ``repr``, even if that is not Python.
    """
    match plain:
        case bool() | None:
            return repr(plain)
        case float():
            text = repr(float(plain))
            return text if text[-1].isdigit() else f'float("{text}")'
        case int():
            return repr(int(plain))
        case str():
            return string(str(plain))
        case Decimal():
            return f"Decimal({string(str(plain))})"
        case tuple():
            return f"({', '.join(map(value, plain))}{',' if len(plain) == 1 else ''})"
        case list():
            return f"[{', '.join(map(value, plain))}]"
        case dict():
            return f"{{{', '.join(f'{value(k)}: {value(v)}' for k, v in plain.items())}}}"
    shown = re.sub(r"\bdatetime\.(?=(datetime|date|timedelta|timezone)\b)", "dt.", repr(plain))
    return shown.replace("dt.timezone.utc", "dt.UTC")


def string(text: str) -> str:
    """Return a string as Python text, in double quotes unless these need more escapes."""
    shown = repr(text)
    return f'"{shown[1:-1]}"' if shown[0] == "'" and '"' not in text else shown


def duration(ticks: int, axis: str) -> str:
    """Return a duration as Python text: ticks on the integer axis, else a string with a unit."""
    return str(ticks) if axis == INTEGER else string(show_duration(ticks, axis))


def type_name(kind: t.DataType) -> str:
    """Return a type as Python text: its SQL name as a string or, if that loses something, pyspark's classes."""
    name = kind.simpleString()
    try:
        parsed = parse_type(name)
    except TypeMismatch:
        parsed = None
    return string(name) if parsed == kind else repr(kind)


# expressions

IS_NULL = Method("is_null", 1)
_UNARY, _POSTFIX = 8, 9

Text = tuple[str, int]
"""A text and the precedence of its outermost operator."""


def expression(root: Expr, column: Callable[[Col], str] = lambda column: f"col({string(column.name)})") -> str:
    """Return an expression as Python text over ``col``, ``lit``, ``when``, ``f`` and ``sq``, and names of users' modules.

    ``column`` writes a column. Raises UnwritableCode for an expression that no operator, method or function builds, and for a
    text longer than LONGEST.
    """

    def visit(expr: Expr, parts: list[Text]) -> Text:
        """Return the text of an expression over those of its parts; raise UnwritableCode if it is too long."""
        text, rank = _text(expr, parts, column)
        if len(text) > LONGEST:
            raise UnwritableCode("an expression that is too long")
        return text, rank

    return fold(root, visit)[0]


def argument(expr: Expr) -> str:
    """Return an expression for an argument that may also be a plain value; constants are written as plain values."""
    if isinstance(expr, Lit) and expr.type is None and expr.value is not None:
        return value(expr.value)
    return expression(expr)


def _is_plain(expr: Any) -> bool:
    return isinstance(expr, Lit) and expr.type is None


def _text(expr: Expr, parts: list[Text], column: Callable[[Col], str]) -> Text:
    """Return the text of an expression over the texts of its parts; arguments and errors as of :func:`expression`."""
    match expr:
        case Col():
            return column(expr), _POSTFIX
        case Lit(value=constant, type=None):
            return f"lit({value(constant)})", _POSTFIX
        case WindowBound(part=part):
            return f"sq.window_{part}()", _POSTFIX
        case Lifetime(part=part):
            return f"sq.{part}()", _POSTFIX
        case Cast(type=to):
            return f"{_receiver(parts[0])}.cast({type_name(to)})", _POSTFIX
        case Alias(name=name):
            return f"{_receiver(parts[0])}.alias({string(name)})", _POSTFIX
        case Case(parts=constant) if len(constant) >= 3:
            return _case(constant, parts), _POSTFIX
        case Aggregate():
            return _aggregate(expr, parts), _POSTFIX
        case Call():
            return _call(expr, parts)
    raise UnwritableCode(type(expr).__name__)


def _receiver(part: Text) -> str:
    return part[0] if part[1] >= _POSTFIX else f"({part[0]})"


def _operand(expr: Any, part: Text) -> str:
    """Return an operand of a method; a constant is written as a plain value."""
    return value(expr.value) if isinstance(expr, Lit) and expr.type is None else part[0]


def _case(operands: Sequence[Expr], parts: list[Text]) -> str:
    """Return a CASE as a chain of ``when``, with ``otherwise`` unless that is NULL; ``operands`` are branches and the else."""
    shown = [_operand(e, p) for e, p in zip(operands, parts, strict=True)]
    branches = [f"when({parts[i][0]}, {shown[i + 1]})" for i in range(0, len(parts) - 1, 2)]
    last = operands[-1]
    end = "" if _is_plain(last) and isinstance(last, Lit) and last.value is None else f".otherwise({shown[-1]})"
    return ".".join(branches) + end


def _call(function_call: Call, parts: list[Text]) -> Text:
    """Return a function's call in its notation: an operator, a method, a subscript, or ``f.name(...)``.

    Raises UnwritableCode for a function that ``f`` does not have under its name.
    """
    args, function = function_call.args, function_call.function
    if isinstance(function, UserModule):
        return f"{module_name(function)}({', '.join([*(text for text, _ in parts), *_options(function)])})", _POSTFIX
    if function_of(function.name) != function:
        raise UnwritableCode(function.name)
    notation = function.notation if all(isinstance(a, Expr) for a in args) else None
    match notation:
        case Infix() if len(parts) == 2:
            return _infix(notation, args, parts)
        case Prefix(sign="~") if isinstance(args[0], Call) and args[0].function.notation == IS_NULL:
            return parts[0][0].removesuffix(".is_null()") + ".is_not_null()", _POSTFIX
        case Prefix(sign=sign):
            return sign + (parts[0][0] if parts[0][1] >= _UNARY else f"({parts[0][0]})"), _UNARY
        case Subscript() if len(parts) == 2:
            return f"{_receiver(parts[0])}[{_operand(args[1], parts[1])}]", _POSTFIX
        case Method(name=name, operands=count) if count in (None, len(parts)):
            shown = [_operand(a, p) for a, p in zip(args[1:], parts[1:], strict=True)]
            return f"{_receiver(parts[0])}.{name}({', '.join(shown)})", _POSTFIX
    if not is_name(function.name):
        raise UnwritableCode(function.name)
    shown = [
        p[0] if isinstance(a, Expr) else value(a) for a, p in zip(args, function_call.arguments(parts), strict=True)
    ]
    return f"f.{function.name}({', '.join(shown)})", _POSTFIX


def _infix(notation: Infix, args: Sequence[Any], parts: list[Text]) -> Text:
    """Return an operator between its two operands, with parentheses where precedence needs them.

    A constant on the right is written as a plain value; on the left only a number before an arithmetic sign.
    """
    sign, rank = notation.sign, notation.rank
    left, right = args
    # comparisons do not chain, so their operands get parentheses unless they bind more closely
    least = (5, 5) if rank == 1 else (rank, rank + 1)
    shown = [p[0] if p[1] >= n else f"({p[0]})" for p, n in zip(parts, least, strict=True)]
    if _is_plain(right) and right.value is not None:
        shown[1] = value(right.value)
    # a plain left side is legal for numbers only: Python swaps the sides of comparisons, and strings define % themselves
    elif _is_plain(left) and rank > 4 and type(left.value) in (int, float) and not _is_plain(right):
        shown[0] = value(left.value)
    return f"{shown[0]} {sign} {shown[1]}", rank


def _aggregate(aggregate: Aggregate, parts: list[Text]) -> str:
    """Return the call that builds an aggregate, ``sq.sum("v", where=...)``; raise UnwritableCode if it is not a built-in one."""
    function, args = aggregate.function, aggregate.args
    where = [] if aggregate.where is None else [f"where={parts[-1][0]}"]
    # a column that is no parameter of a function is given by its name
    shown = [
        re.sub(r"^col\((.*)\)$", r"\1", p[0]) if isinstance(a, Col) else p[0] for a, p in zip(args, parts, strict=False)
    ]
    if isinstance(function, WindowModule):
        names = aggregate.options[len(function.leading_options) :]
        for place, name in enumerate(() if function.columns else names):
            arg = args[place]
            if not (isinstance(arg, Col) and arg.name == name):
                shown[place] = f"{_receiver(parts[place])}.alias({string(str(name))})"
        return f"{module_name(function)}({', '.join([*shown, *where, *_options(function)])})"
    if built_in().get(aggregate.name) is not function:
        raise UnwritableCode(aggregate.name)
    name, options = function.builder(aggregate.options)
    return f"sq.{name}({', '.join([*shown, *map(value, options), *where])})"


def _options(module: UserModule) -> list[str]:
    return [f"{name}={value(option)}" for name, option in module.options.items()]


def free_name(name: str, used_names: AbstractSet[str]) -> str:
    """Return the name, with the least number from 2 on appended if it is used."""
    return next(n for n in (name, *(f"{name}{i}" for i in range(2, len(used_names) + 3))) if n not in used_names)


def column_lists(**lists: Sequence[str]) -> list[str]:
    """Return lists of columns as keyword arguments, without those that are empty."""
    return [f"{name}={one_or_more(columns)}" for name, columns in lists.items() if columns]


def one_or_more(names: Iterable[str]) -> str:
    """Return one name as a string, several names as a list of strings."""
    texts = [string(n) for n in names]
    return texts[0] if len(texts) == 1 else listed(texts)


# modules


def module_name(module: UserModule) -> str:
    """Return the name of a module in a program: its own, in letters that a name of Python may have."""
    name = re.sub(r"\W", "_", module.name)
    return name if is_name(name) else f"module_{name}"
