"""Functions of Python that SQL calls a value at a time: definitions of Spark's functions, and the functions of users.

A user's function is called as docs/modules.md says, without the product's way of calling it.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from streamq.choices import ArgumentForm
from streamq.errors import ModuleFailed, QueryFailed
from streamq.plan.expr import Call, Cast
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.testing.oracle.modules import plain_value, series_of
from streamq.testing.oracle.python_functions import Operand, PythonFunctions
from streamq.user_code.udf import UserFunction
from tests.judges.scalars import (
    DEFINED_KINDS,
    INSTANTS,
    INTEGRAL,
    Refused,
    definition_of_call,
    definition_of_cast,
)


@dataclass(frozen=True)
class ByValue:
    """Makes functions of the calls and casts of one evaluation that SQL has no form for."""

    functions: PythonFunctions

    def sql(
        self, node: Call | Cast, parts: Sequence[str], kinds: Sequence[t.DataType | None], result: t.DataType | None
    ) -> str | None:
        """Return the SQL of a call or cast whose operands have the SQL ``parts`` and these types; None without a definition."""
        of_operands = [kind for kind in kinds if kind is not None]
        if result is None or len(of_operands) < len(kinds) or not parts:
            return None
        operands = [Operand(f"v{i}", part, kind) for i, (part, kind) in enumerate(zip(parts, of_operands, strict=True))]
        if isinstance(node, Call) and isinstance(node.function, UserFunction):
            return self.functions.call(partial(_called, node.function), operands, result)
        plain = [t.StringType() if isinstance(kind, t.NullType) else kind for kind in of_operands]
        if not all(type(kind) in DEFINED_KINDS for kind in (*plain, result)):
            return None
        define = _definition(node, plain, result)
        if define is None:
            return None
        return self.functions.call(partial(_defined, define, plain, result), operands, result)


# definitions


def _definition(node: Call | Cast, kinds: list[t.DataType], result: t.DataType) -> Callable[..., Any] | None:
    """Return the definition of a call or cast as a function of its operands' values; None if there is none."""
    if isinstance(node, Cast):
        return definition_of_cast(kinds[0], result)
    # some arguments are plain values
    arguments = [kind if isinstance(kind, t.DataType) else t.NullType() for kind in node.arguments(kinds)]
    define = definition_of_call(node.function.identity, arguments, result)
    return None if define is None else lambda *operands: define(*node.arguments(operands))


def _defined(
    define: Callable[..., Any], kinds: Sequence[t.DataType], result: t.DataType, columns: list[pa.Array]
) -> pa.Array:
    """Return the values of a definition, NULL where an operand is; raise QueryFailed where it refuses its operands."""
    values = zip(*(_plain(column, kind) for column, kind in zip(columns, kinds, strict=True)), strict=True)
    try:
        results = [None if None in row else define(*row) for row in map(list, values)]
    except Refused as error:
        raise QueryFailed(str(error)) from error
    return _column(results, result)


def _plain(column: pa.Array, kind: t.DataType) -> list[Any]:
    """Return a column's values: instants in ticks, dates in days."""
    if isinstance(kind, INSTANTS):
        column = column.cast(pa.int64())
    elif isinstance(kind, t.DateType):
        column = column.cast(pa.int32())
    return list(column.to_pylist())


def _column(values: Sequence[Any], kind: t.DataType) -> pa.Array:
    """Return values, with instants in ticks and dates in days, as a column of a type."""
    inside = pa.int64() if isinstance(kind, INSTANTS) else pa.int32() if isinstance(kind, t.DateType) else None
    column = pa.array(values, arrow_type(kind) if inside is None else inside)
    return column.cast(arrow_type(kind))


# functions of users


def _called(function: UserFunction, columns: list[pa.Array]) -> pa.Array:
    """Return the results of a user's function, called once for each event; raise ModuleFailed where it fails."""
    to = arrow_type(function.returns)
    results = []
    for event in range(len(columns[0])):
        arguments = [column.slice(event, 1) for column in columns]
        try:
            result = plain_value(_result(function, arguments))
            if not _is_of(result, function.returns):
                raise TypeError(f"{result!r} is no {function.returns.simpleString()}")
            results.append(pa.array([result], to)[0].as_py())
        except (Exception, SystemExit) as error:
            values = ", ".join(repr(argument.to_pylist()[0]) for argument in arguments)
            what = f"{type(error).__name__}: {error}; of {values}"
            raise ModuleFailed(function.name, "it failed", what) from error
    return pa.array(results, to)


def _result(function: UserFunction, arguments: Sequence[pa.Array]) -> Any:
    """Return what the code returns for one event; code that takes columns is called with columns of one value."""
    code = partial(function.code, **function.options)
    if function.takes == ArgumentForm.VALUES:
        return code(*(argument.to_pylist()[0] for argument in arguments))
    as_series = function.takes == ArgumentForm.SERIES
    (result,) = code(*(map(series_of, arguments) if as_series else arguments))
    return result.as_py() if isinstance(result, pa.Scalar) else result


WANTED: dict[type[t.DataType], tuple[type, ...]] = {
    **dict.fromkeys(INTEGRAL, (int,)),
    t.BooleanType: (bool,),
    t.FloatType: (int, float),
    t.DoubleType: (int, float),
    t.DecimalType: (int, Decimal),
    t.StringType: (str,),
    t.BinaryType: (bytes,),
    t.DateType: (dt.date,),
    t.TimestampType: (dt.datetime,),
    t.TimestampNTZType: (dt.datetime,),
}
"""The classes of Python's values of a type."""


def _is_of(value: Any, kind: t.DataType) -> bool:
    """True if a function that returns this type may return a value; values of other types than those in WANTED are let pass."""
    wanted = WANTED.get(type(kind))
    if value is None or wanted is None:
        return True
    is_other = isinstance(value, bool) != isinstance(kind, t.BooleanType)
    is_other |= isinstance(value, dt.datetime) and isinstance(kind, t.DateType)
    is_lost = isinstance(kind, t.FloatType | t.DoubleType) and isinstance(value, int) and math.isinf(float(value))
    return isinstance(value, wanted) and not is_other and not is_lost


__all__ = ["ByValue"]
