"""The built-in functions by name, those of the rooms beside this file and others of ``pyspark.sql.functions``, with builders.

A room's functions are the values of its module: there is no list of them to keep. Builders have PySpark's signatures, and need
neither a SparkSession nor a JVM: the signatures say which arguments are columns. A string where PySpark takes a column or its
name becomes a column, so that plans know what is read; a format, a flag or a length stays as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from streamq.errors import PlanError
from streamq.functions import dates, logic, numbers, structures, text
from streamq.functions.built_in import BuiltIn
from streamq.plan.expr import Alias, Call, Col, Expr, Lifetime, Lit, as_expr, plain_value, show
from streamq.plan.function import BUILT_IN, Function
from streamq.plan.hints import for_aggregate, for_function
from streamq.plan.spark_types import AGGREGATES, ELSEWHERE, GENERATORS, WINDOWED, function_names

ROOMS = (dates, logic, numbers, structures, text)

BUILT_IN.update({f.name: f for room in ROOMS for f in vars(room).values() if isinstance(f, BuiltIn)})


def function_of(name: str) -> Function:
    """Return the function of a name, or the operator of a sign; a function that no room has is left to Spark, with its type."""
    return BUILT_IN[name] if name in BUILT_IN else _of_spark(name)


@cache
def _of_spark(name: str) -> Function:
    return BuiltIn(name)


@cache
def legal_names() -> frozenset[str]:
    """Return the names that a call may have: those of all functions, and the signs of operators."""
    return frozenset({*BUILT_IN, *function_names()})


Builder = Callable[..., Call]


class UnknownFunction(PlanError, AttributeError):
    """A name that is no function an expression can call; an AttributeError too, so that ``hasattr`` works."""


@cache
def builder(name: str) -> Builder:
    """Return a Python function that builds calls of the function ``name``, with PySpark's signature.

    Raises UnknownFunction if ``name`` is not a function of one row's values: an aggregate, for example. The function returned
    raises PlanError for arguments that do not fit the signature.
    """
    verb = f"functions.{name}"
    _check(name, verb)
    function, signature = function_of(name), inspect.signature(getattr(F, name))
    keeps_names = isinstance(function, BuiltIn) and function.names_fields

    def build(*args: Any, **kwargs: Any) -> Call:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise PlanError(verb, str(error), f"it is {name}({', '.join(signature.parameters)})") from None
        arguments = _positional(verb, signature, bound)
        return Call(function, tuple(map(_named, arguments) if keeps_names else arguments))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = inspect.getdoc(getattr(F, name))
    build.__signature__ = signature  # type: ignore[attr-defined]
    return build


def _check(name: str, verb: str) -> None:
    """Raise UnknownFunction if ``name`` is not a function of one event's values.

    The error suggests what to write instead. It begins with ``verb``, the text of the user's call, unless Spark has no such
    function.
    """
    if name in AGGREGATES:
        raise UnknownFunction(verb, "an aggregate is no function of one event", "", for_aggregate(f"{name}("))
    if name in WINDOWED:
        hint = for_function(name, function_names())
        raise UnknownFunction(verb, "a SQL window function is no function of one event", "", hint)
    if name in GENERATORS:
        hint = "s.explode(column) makes rows of a list; other rows the DataFrame has from which the source is made."
        raise UnknownFunction(verb, "it makes several rows of one", "", hint)
    if name in ELSEWHERE:
        raise UnknownFunction(verb, "not a function of an event's values", "", ELSEWHERE[name])
    if name not in function_names():
        hint = for_function(name, function_names())
        raise UnknownFunction("functions", f"no function {name!r}", "looked in pyspark.sql.functions", hint)


def _named(argument: Any) -> Any:
    """Return a column, or a part of the lifetime, under an alias of its own name; other arguments are returned unchanged.

    So the field that Spark names after the argument keeps its name if a rule replaces the argument.
    """
    match argument:
        case Col(name=name):
            return Alias(argument, name)
        case Lifetime():
            return Alias(argument, show(argument).removesuffix("()"))
    return argument


def _positional(verb: str, signature: inspect.Signature, bound: inspect.BoundArguments) -> list[Any]:
    """Return the arguments in the order of the signature, with defaults for those skipped before a keyword argument.

    Arguments after the last one that was passed are left out. A list passed for ``*columns`` counts as its elements.
    """
    arguments: list[Any] = []
    last = 0
    for name, parameter in signature.parameters.items():
        kind = str(parameter.annotation)
        if name not in bound.arguments:
            arguments.append(parameter.default if parameter.kind is not parameter.VAR_POSITIONAL else None)
            continue
        value = bound.arguments[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            if len(value) == 1 and isinstance(value[0], list | tuple) and "Sequence" in kind:
                value = value[0]
            arguments.extend(_argument(verb, name, kind, v) for v in value)
        else:
            arguments.append(_argument(verb, name, kind, value))
        last = len(arguments)
    return arguments[:last]


def _argument(verb: str, name: str, kind: str, value: Any) -> Any:
    """Return one argument as an expression, or as a plain value that a plan can hold as JSON.

    ``kind`` is the text of the parameter's annotation in PySpark, which says which of the two it takes. Raises PlanError for a
    Python function, a collection, and an expression where PySpark takes a plain value.
    """
    if isinstance(value, DataType):
        return value.json()
    value = plain_value(value)
    if callable(value) and not isinstance(value, Expr):
        shown = getattr(value, "__name__", type(value).__name__)
        hint = f"Pass a pyspark Column instead: pyspark.sql.{verb}(...)."
        raise PlanError(verb, "a Python function inside an expression", f"found {name}={shown}", hint)
    if isinstance(value, list | tuple | set | frozenset | dict):
        raise PlanError(verb, f"{name} is one value", f"found {value!r}", "Pass a pyspark Column instead.")
    if "ColumnOrName" in kind:
        if isinstance(value, str):
            return Col(value)
        plain = (value is None and "Optional" in kind) or (
            isinstance(value, int | float) and ("int" in kind or "float" in kind)
        )
        return value if plain and not isinstance(value, bool) else as_expr(value)
    if isinstance(value, str | int | float | bool) or value is None:
        # PySpark accepts only a Column here, as for the field of extract(): a string is meant as a constant
        return value if kind not in _COLUMN_ONLY else None if value is None else Lit(value)
    expr = as_expr(value)
    if "Column" in kind or "Any" in kind:
        return expr
    if isinstance(expr, Lit) and isinstance(expr.value, str | int | float | bool):
        return expr.value
    raise PlanError(verb, f"{name} is a plain value in PySpark", f"found {value!r}", "Give a Python constant.")


_COLUMN_ONLY = frozenset({
    "Column", "<class 'pyspark.sql.column.Column'>", "typing.Optional[pyspark.sql.column.Column]",
    "typing.Optional[ForwardRef('Column')]",
})  # fmt: skip
