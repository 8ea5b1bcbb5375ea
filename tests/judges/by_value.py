"""Functions of users, called a value at a time as docs/modules.md says, without the product's way of calling them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from streamq.choices import ArgumentForm
from streamq.errors import ModuleFailed, NeedsSpark
from streamq.plan.expr import Call, Expr
from streamq.plan.passes import infer
from streamq.plan.schema import Schema
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.testing.oracle.python_functions import Operand, PythonFunctions, evaluated, plain_value, series_of
from streamq.user_code.udf import UserFunction


def called_by_value(expr: Expr, schema: Schema, functions: PythonFunctions) -> str | None:
    """Return the SQL of a call of a user's function; None for another expression, or if only Spark can tell a type."""
    if not isinstance(expr, Call) or not isinstance(expr.function, UserFunction) or not expr.children:
        return None
    try:
        kinds = [infer(operand, schema, "oracle") for operand in expr.children]
    except NeedsSpark:
        return None
    parts = [evaluated(operand, schema, functions) for operand in expr.children]
    operands = [Operand(f"v{i}", *pair) for i, pair in enumerate(zip(parts, kinds, strict=True))]
    return functions.call(partial(_called, expr.function), operands, expr.function.returns)


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
    **dict.fromkeys((t.ByteType, t.ShortType, t.IntegerType, t.LongType), (int,)),
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


__all__ = ["called_by_value"]
