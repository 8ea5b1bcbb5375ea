"""Python functions that SQL calls in one evaluation; by them expressions are evaluated as streamq evaluates them.

That is the technique of the paper on the test framework, section 6.2, which uses SQL CLR functions, because the types of the two
engines differ and so would any translation. A function's parameters are the columns and lifetime parts that its expression reads,
in vectors of at most a few thousand rows. Expressions are evaluated over existing tables only, so that no other rows than the
operator's are evaluated.

User modules over windows are such functions, too: their code, called once over all members of each window, after
docs/modules.md. SQL gives the members as lists; lifetimes are cut, events built and results read here.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.choices import ClipInput, ErrorPolicy, Stamp
from streamq.errors import ModuleFailed, NeedsSpark, QueryFailed
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Alias, Col, Expr, Lifetime, Lit, show
from streamq.plan.lowering import in_utc, to_spark
from streamq.plan.passes import columns, expression_nodes, infer, is_opaque
from streamq.plan.schema import Schema, quote
from streamq.runtime.arrow.arrow_expr import check_in_process, evaluate
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.user_code.code_values import FAILURES, LASTS, START
from streamq.testing.oracle.values import from_duckdb, lifetime, listed, literal, sql_type, to_duckdb
from streamq.time import INFINITY, INTEGER, TIMESTAMP, show_ticks
from streamq.user_code.module import UserModule
from streamq.user_code.uda import WindowModule
from streamq.user_code.udo import UserOperator

Compute = Callable[[list[pa.Array]], Any]
"""A function from the columns of the operands to the column of results."""

_NUMBERS = itertools.count()
"""Numbers for unique names: functions belong to the database, which evaluations share."""


@dataclass(frozen=True)
class Operand:
    """A parameter of a function: its name, the SQL of the argument, and its type."""

    name: str
    sql: str
    kind: t.DataType


@dataclass
class PythonFunctions:
    """The functions of one evaluation.

    ``raised`` is the exception of the last function that failed; DuckDB itself keeps only its text. ``set_aside`` counts the
    failed calls of modules with ``on_error="quarantine"``, by module.
    """

    connection: duckdb.DuckDBPyConnection
    names: list[str] = field(default_factory=list)
    raised: BaseException | None = None
    set_aside: Counter[str] = field(default_factory=Counter)

    def call(self, compute: Compute, operands: Sequence[Operand], kind: t.DataType) -> str:
        """Register ``compute``, whose results have type ``kind``, as a function, and return the SQL of its call.

        ``compute`` gets whole columns, with their NULLs. The function is added to ``names``; an error in it is kept in ``raised``
        and raised in DuckDB.
        """

        def function(*vectors: pa.ChunkedArray) -> pa.Array:
            """Call ``compute`` over operands in Spark's types; return the results in DuckDB's; keep an error in ``raised``."""
            try:
                arguments = [_one(from_duckdb(v, o.kind)) for v, o in zip(vectors, operands, strict=True)]
                return _one(to_duckdb(compute(arguments), kind))
            except BaseException as error:
                self.raised = error
                raise

        # DuckDB reads the number of parameters from the signature
        parameters = [inspect.Parameter(f"p{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(operands))]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        name = f"streamq_{next(_NUMBERS)}"
        # the stubs know neither the strings for these options nor types given as SQL
        create: Any = self.connection.create_function
        create(
            name,
            function,
            [sql_type(o.kind) for o in operands],
            sql_type(kind),
            type="arrow",
            null_handling="special",
            exception_handling="default",
        )
        self.names.append(name)
        return f"{name}({listed(*(o.sql for o in operands))})"

    def forget(self) -> None:
        """Remove the functions from the database."""
        for name in self.names:
            self.connection.remove_function(name)


def _one(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def evaluated(expr: Expr, schema: Schema, functions: PythonFunctions) -> str:
    """Return the SQL of an expression: a column, constant or part of the lifetime, else a call of what evaluates it.

    An expression that cannot be evaluated in-process is evaluated by the active SparkSession; raises NeedsSpark if there is none.
    """
    below = expr
    while isinstance(below, Alias):
        below = below.arg
    match below:
        case Col(name=name):
            return f"c{schema.names.index(name)}"
        case Lit(value=value, type=None):
            return literal(value)
        case Lifetime(part=part):
            return lifetime(part, schema)
    operands = _operands(expr, schema)
    return functions.call(_computation(expr, schema, operands), operands, infer(expr, schema, "oracle"))


def _computation(expr: Expr, schema: Schema, operands: Sequence[Operand]) -> Compute:
    """Return the Python function that evaluates an expression over columns of its operands, in Spark if it must be.

    Raises NeedsSpark if it must be and no session is active.
    """
    try:
        check_in_process(expr, schema, "oracle")
    except NeedsSpark as error:
        spark = SparkSession.getActiveSession()
        if spark is None:
            hint = "Start a session first: sq.session()."
            raise NeedsSpark(
                "oracle", "an expression that only Spark evaluates", f"found {show(expr)}", hint
            ) from error
        return _in_spark(expr, operands, spark)

    def compute(arguments: list[pa.Array]) -> pa.Array:
        by_name = {o.name: v for o, v in zip(operands, arguments, strict=True)}
        return evaluate(expr, schema, by_name, lambda part: by_name[f"__{part}"], len(arguments[0]))

    return compute


def _operands(expr: Expr, schema: Schema) -> list[Operand]:
    """Return the columns and lifetime parts that an expression reads; the start, in ticks, if it reads none.

    An expression with a pyspark Column has all columns.
    """
    # a pyspark Column cannot be inspected and may read any column
    names = frozenset(schema.names) if is_opaque(expr) else columns(expr)
    operands = [Operand(f.name, f"c{i}", f.type) for i, f in enumerate(schema.fields) if f.name in names]
    for part in sorted({n.part for n in expression_nodes(expr) if isinstance(n, Lifetime)}):
        kind = t.LongType() if part == "duration" else schema.axis_type
        operands.append(Operand(f"__{part}", lifetime(part, schema), kind))
    # a function of constants alone needs one parameter to know the number of rows
    return operands or [Operand("__le", "le", t.LongType())]


class _ByName:
    """Maps operands to columns of a DataFrame, for :func:`streamq.plan.lowering.to_spark`."""

    def column(self, name: str) -> Column:
        return F.col(quote(name))

    def lifetime(self, part: str) -> Column:
        return self.column(f"__{part}")


def _in_spark(expr: Expr, operands: Sequence[Operand], spark: SparkSession) -> Compute:
    """Return the function that evaluates an expression in Spark; it raises QueryFailed if Spark does."""
    schema = t.StructType([t.StructField(o.name, o.kind) for o in operands])

    def compute(arguments: list[pa.Array]) -> pa.ChunkedArray:
        """Return the expression's values, computed in UTC by a DataFrame of the arguments."""
        with in_utc(spark):
            frame = spark.createDataFrame(pa.table(arguments, names=schema.names), schema)
            try:
                return frame.select(to_spark(expr, _ByName()).alias("x")).toArrow().column("x")
            except PySparkException as error:
                raise QueryFailed(str(error).strip().splitlines()[0]) from error

    return compute


NULLABLE = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
}
"""The types of pandas for integers and booleans with NULLs."""


def series_of(column: pa.Array) -> pd.Series:
    """Return a column as a Series of its own memory; integers and booleans with NULLs have the NULLABLE types."""
    kinds = NULLABLE.get if column.null_count else None
    return column.to_pandas(date_as_object=False, types_mapper=kinds).copy()


def plain_value(result: Any) -> Any:
    """Return a value as Python's; NaN, NA and NaT become None."""
    if result is pd.NA or result is pd.NaT:
        return None
    plain = result.item() if isinstance(result, np.generic) else result
    return None if isinstance(plain, float) and math.isnan(plain) else plain


LONG = t.LongType()

OWN_LIFETIMES = (Stamp.UNCHANGED, Stamp.CLIP, Stamp.TIME_BOUND)
"""The stamps that leave lifetimes to the operator."""


@dataclass(frozen=True)
class ModuleValue:
    """A module over the members of windows.

    ``kinds`` are its arguments' types, ``result`` is the type of its value, ``clip`` says how lifetimes are cut, and ``instants``
    is the type of starts and ends.
    """

    aggregate: Aggregate
    kinds: tuple[t.DataType, ...]
    result: t.DataType
    clip: ClipInput
    instants: t.DataType

    def sql(self, values: Sequence[str], *, passes: str, order: str, functions: PythonFunctions) -> str:
        """Return the SQL of the module's value over a group of members, with the columns ``values`` as arguments.

        ``passes``: the module's filter as a FILTER clause, or "", applied here; ``order``: the order of members. Those with NULLs
        as arguments are passed, too.
        """

        def gathered(column: str) -> str:
            return f"list({column} ORDER BY {order}) {passes}"

        lists = [
            Operand(f"v{i}", gathered(v), t.ArrayType(k))
            for i, (v, k) in enumerate(zip(values, self.kinds, strict=True))
        ]
        lists += [Operand(name, gathered(name), t.ArrayType(LONG)) for name in ("le", "re")]
        window = [Operand(name, f"any_value({name})", LONG) for name in ("w_le", "w_re")]
        return functions.call(partial(self._over_windows, functions.set_aside), [*lists, *window], self.result)

    @property
    def _module(self) -> WindowModule:
        assert isinstance(self.aggregate.function, WindowModule)
        return self.aggregate.function

    def _over_windows(self, set_aside: Counter[str], operands: list[pa.Array]) -> pa.Array:
        """Return the module's values for windows; raise ModuleFailed if a call or the type of a value fails.

        Under quarantine a failed call is counted in ``set_aside``; its window has no value, or no rows. ``operands`` are lists of
        arguments, starts and ends, a list for each window, and the windows' starts and ends.
        """
        to = arrow_type(self.result)
        *lists, w_le, w_re = operands
        windows = zip(w_le.to_pylist(), w_re.to_pylist(), strict=True)
        values = []
        for i, window in enumerate(windows):
            *columns, le, re = (column[i].values for column in lists)
            try:
                value = self._over_members(columns, le, re, window)
                if sets_aside(self._module):
                    # a value of another type is a failure of its own window
                    pa.array([value], to)
                values.append(value)
            except FAILURES as error:
                if sets_aside(self._module):
                    set_aside[self._module.name] += 1
                    values.append([] if isinstance(self._module, UserOperator) else None)
                    continue
                axis = INTEGER if self.instants == LONG else TIMESTAMP
                start, end = (show_ticks(ticks, axis) for ticks in window)
                what = f"{type(error).__name__}: {error}; window [{start}, {end})"
                raise ModuleFailed(self._module.name, "it failed", what) from error
        try:
            return pa.array(values, to)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            what = f"its result is not of type {self.result.simpleString()}: {error}"
            raise ModuleFailed(self._module.name, "it failed", what) from error

    def _over_members(self, columns: list[Any], le: Any, re: Any, window: tuple[int, int]) -> Any:
        """Return the value of one window.

        ``le`` is None if the filter has dropped all members; an operator then has no rows, and another module the value None.
        """
        is_operator = isinstance(self._module, UserOperator)
        if le is None:
            return [] if is_operator else None
        if self._module.time_sensitive:
            events = self._frame(columns, le.to_pylist(), re.to_pylist(), window)
            result = _called(self._module, [events], [Interval(*map(self._instant, window))])
        elif hasattr(self._module.code, "zero"):
            result = _reduced(self._module, columns)
        else:
            result = _called(self._module, [*map(series_of, columns)], ())
        return self._rows(result, window) if is_operator else plain_value(result)

    # time-sensitive

    def _frame(self, columns: list[Any], le: list[int], re: list[int], window: tuple[int, int]) -> pd.DataFrame:
        """Return events as a frame of their arguments, by name, and ``start`` and ``end``, cut by ``clip``; no end is NULL.

        Names that the module's author gave to its arguments count before those in the query.
        """
        names = self._module.columns or self.aggregate.options[len(self.aggregate.options) - len(columns) :]
        if self.clip in (ClipInput.FULL, ClipInput.LEFT):
            le = [max(at, window[0]) for at in le]
        if self.clip in (ClipInput.FULL, ClipInput.RIGHT):
            re = [min(at, window[1]) for at in re]
        frame = {str(name): series_of(column) for name, column in zip(names, columns, strict=True)}
        for name, ticks in (("start", le), ("end", re)):
            ends = pa.array([None if at == INFINITY else at for at in ticks], pa.int64())
            frame[name] = series_of(ends.cast(arrow_type(self.instants)))
        return pd.DataFrame(frame)

    def _instant(self, ticks: int) -> Any:
        if ticks == INFINITY:
            return None
        return ticks if self.instants == LONG else pd.Timestamp(ticks, unit="us", tz="UTC")

    # rows of operators

    @property
    def _stamp(self) -> str:
        return str(self.aggregate.options[0])

    def _rows(self, result: Any, window: tuple[int, int]) -> list[dict[str, Any]]:
        """Return the rows of an operator's result, with their lifetimes if the stamp leaves these to the operator."""
        assert isinstance(self._module, UserOperator)
        names = [field.name for field in self._module.fields]
        rows = []
        for row in _each(result):
            start, end, values = _parts(row, names, window)
            placed = {name: plain_value(value) for name, value in zip(names, values, strict=True)}
            if self._stamp in OWN_LIFETIMES:
                placed |= self._lifetime(start, end, window)
            rows.append(placed)
        return rows

    def _lifetime(self, start: int, end: int, window: tuple[int, int]) -> dict[str, Any]:
        """Return start and duration, in ticks (None: no end), of a row under the stamp, which cuts it to the window if CLIP.

        Raises ValueError for a lifetime that is then empty or starts before the window; one that outlasts the window is legal.
        """
        if self._stamp == Stamp.CLIP:
            start, end = max(start, window[0]), min(end, window[1])
        if start < window[0] or end <= start:
            raise ValueError(f"a row with the lifetime [{start}, {end})")
        return {START: start, LASTS: None if end == INFINITY else end - start}


@dataclass(frozen=True)
class Interval:
    """A window as user code reads it."""

    start: Any
    end: Any

    @property
    def duration(self) -> Any:
        """The window's length; None if it has no end."""
        return None if self.end is None else self.end - self.start


# calls


def sets_aside(module: UserModule) -> bool:
    """True if the query goes on without what a module fails for."""
    return module.on_error == ErrorPolicy.QUARANTINE


def _called(module: WindowModule, arguments: Sequence[Any], window: Sequence[Interval]) -> Any:
    """Call code over all members at once, and return its result.

    ``arguments`` are a Series each or, if it reads lifetimes, the events, and ``window`` is then the window, else empty. A class
    with states is made with the options; a function gets these in the call.
    """
    code = module.code
    if inspect.isclass(code) and (hasattr(code, "initial") or hasattr(code, "zero")):
        code = code(**module.options)
    if hasattr(code, "initial"):
        return code.result(code.add(code.initial(), *arguments), *window)
    return code(*arguments, *window, **module.options)


def _reduced(module: WindowModule, columns: list[pa.Array]) -> Any:
    """Return the result of code in the shape of Spark's Aggregator, which is called for each row."""
    code: Any = module.code
    if inspect.isclass(code):
        code = code(**module.options)
    buffer = code.zero() if callable(code.zero) else code.zero
    for row in zip(*(column.to_pylist() for column in columns), strict=True):
        buffer = code.reduce(buffer, row if len(row) > 1 else row[0])
    return code.finish(buffer)


# results


def _each(result: Any) -> Iterable[Any]:
    """Return the rows of an operator's result: those of a frame as dictionaries, none for None."""
    if result is None:
        return []
    return result.to_dict("records") if isinstance(result, pd.DataFrame) else result


def _parts(row: Any, names: Sequence[str], window: tuple[int, int]) -> tuple[int, int, list[Any]]:
    """Return the start, end (in ticks) and values of a row; the window's start and end if it has none of its own.

    A row is a mapping or named tuple, with ``start`` and ``end`` or without; a tuple or list with both first or without; or a
    value alone. Other names in a mapping are ignored.
    """
    if isinstance(row, tuple) and (fields := getattr(row, "_fields", getattr(row, "__fields__", None))):
        row = dict(zip(fields, row, strict=True))
    if isinstance(row, Mapping):
        lifetime = [row["start"], row["end"]] if "start" in row else []
        values = [row[name] for name in names]
    else:
        parts = list(row) if isinstance(row, tuple | list) else [row]
        lifetime, values = parts[: len(parts) - len(names)], parts[-len(names) :]
    start, end = map(_ticks, lifetime) if lifetime else window
    return start, end, values


def _ticks(instant: Any) -> int:
    """Return an instant in ticks; infinity for None, NaN and NaT; a number is a number of ticks, whose fraction is cut off."""
    if instant is None or pd.isna(instant):
        return INFINITY
    if isinstance(instant, int | float | np.number):
        return int(instant)
    moment = pd.Timestamp(instant)
    return int(moment.asm8.astype("datetime64[us]").astype(np.int64))
