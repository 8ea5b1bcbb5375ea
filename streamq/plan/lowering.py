"""Translate expressions to Spark's Columns: over any columns, and over those of deltas.

Deltas have ``__le`` and ``__re`` in ticks, and the payload under its own names.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.types import DataType, StructType

from streamq.errors import PlanError
from streamq.plan.expr import Alias, Call, Case, Cast, Col, Expr, Lifetime, Lit, Opaque, fold
from streamq.plan.schema import POINT, Schema, quote
from streamq.time import INFINITY, TIMESTAMP


class ColumnSource(Protocol):
    """Looks up the Column of a name and of a part of the lifetime, for :func:`to_spark`."""

    def column(self, name: str) -> Column: ...

    def lifetime(self, part: str) -> Column: ...


def to_spark(root: Expr, columns: ColumnSource, is_there: Column | None = None) -> Column:
    """Return the Spark Column of an expression; raise PlanError for an aggregate, which is none of a row.

    Only the rows where ``is_there`` holds will be read (None: all).
    """

    def visit(node: Expr, parts: list[Any]) -> Any:
        """Return the Column of a node from those of its operands."""
        match node:
            case Col(name=name):
                return columns.column(name)
            case Lit():
                return _literal(node)
            case Lifetime(part=part):
                return columns.lifetime(part)
            case Call():
                return node.function.on_spark_among(is_there, *node.arguments(parts))
            case Cast(type=to):
                return parts[0].cast(to)
            case Alias(name=name):
                return parts[0].alias(name)
            case Case():
                case = F.when(parts[0], parts[1])
                for i in range(2, len(parts) - 1, 2):
                    case = case.when(parts[i], parts[i + 1])
                return case.otherwise(parts[-1])
            case Opaque(shown=column):
                return column
        raise PlanError("expression", "an aggregate outside a window's select", f"found {node!r}")

    return fold(root, visit)


def to_sql(root: Expr, column: Callable[[str], str]) -> str:
    """Return an expression as Spark SQL, which Spark reads in one call, where Columns take one for each sign.

    ``column`` returns the SQL of a column. Only operators of conditions and arithmetic, CASE, casts and functions that SQL calls
    by their name are accepted; raises TypeError for anything else.
    """

    def visit(node: Expr, parts: list[str]) -> str:
        match node:
            case Col(name=name):
                return column(name)
            case Lit(type=None, value=value):
                return _literal_sql(value)
            case Cast(type=to):
                return f"cast({parts[0]} as {to.simpleString()})"
            case Case():
                whens = (f"WHEN {a} THEN {b} " for a, b in zip(parts[:-1:2], parts[1::2], strict=True))
                return f"CASE {''.join(whens)}ELSE {parts[-1]} END"
            case Call(function=function):
                name = function.name
                if name == "not":
                    return f"(NOT {parts[0]})"
                if name == "isin":
                    return f"({parts[0]} IN ({', '.join(parts[1:])}))"
                if name == "extract":
                    return f"date_part({', '.join(parts)})"
                return (
                    f"{name}({', '.join(parts)})" if name.isidentifier() and name not in _SIGNS else _infix(name, parts)
                )
        raise TypeError(f"{node!r} has no form in SQL")

    return fold(root, visit)


_SIGNS = {"==", "!=", "<", "<=", ">", ">=", "<=>", "and", "or", "+", "-", "*"}
"""The operators that SQL writes as this library does."""


def _infix(name: str, parts: list[str]) -> str:
    if name not in _SIGNS:
        raise TypeError(f"operator {name} has no form in SQL")
    return f"({f' {name} '.join(parts)})"


def _literal_sql(value: Any) -> str:
    """Return a constant as SQL, of the type that Spark has for the Python value."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case int():
            kind = "int" if -(1 << 31) <= value < 1 << 31 else "bigint"
            return f"cast('{value}' as {kind})" if value < 0 or kind == "bigint" else str(value)
        case str():
            return text_literal(value)
        case float():
            return f"cast('{value}' as double)"
        case Decimal():
            return f"{value:f}BD"
        case bytes():
            return f"X'{value.hex()}'"
        case dt.datetime():
            return f"timestamp_micros({_micros(value)}L)"
        case dt.date():
            return f"date_from_unix_date({(value - dt.date(1970, 1, 1)).days})"
    raise TypeError(f"{value!r} has no form in SQL")


def _literal(node: Lit) -> Column:
    """Return the Spark Column of a constant.

    A datetime without a time zone is in UTC.
    """
    value = node.value
    # F.lit goes through java.sql.Date and Timestamp: it refuses years below 1000 and shifts old dates by the Julian calendar.
    if isinstance(value, dt.datetime):
        column = F.timestamp_micros(F.lit(_micros(value)))
    elif isinstance(value, dt.date):
        column = F.date_from_unix_date(F.lit((value - dt.date(1970, 1, 1)).days))
    else:
        column = F.lit(value)
    return column.cast(node.type) if node.type is not None else column


def _micros(value: dt.datetime) -> int:
    """Return a datetime as microseconds since the epoch."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    return (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


_ZONE = "spark.sql.session.timeZone"


class DeltaColumns:
    """Looks up columns for :func:`streamq.plan.lowering.to_spark`; a declared point needs no ``__re``."""

    def __init__(self, schema: Schema | None):
        self.schema = schema

    def column(self, name: str) -> Column:
        return F.col(quote(name))

    def lifetime(self, part: str) -> Column:
        """Return the start, end or duration as a user sees it; the end and the duration of an event still alive are NULL.

        A duration that bigint cannot hold is INFINITY.
        """
        assert self.schema is not None
        le, re = F.col("__le"), end_column(self.schema.shape != POINT)
        if part == "start":
            return instant(le, self.schema.axis)
        if part == "end":
            return instant(F.when(re != INFINITY, re), self.schema.axis)
        # the duration of an event longer than bigint can hold would overflow: durations saturate
        return F.when(re != INFINITY, F.coalesce(F.try_subtract(re, le), F.lit(INFINITY)))


@contextmanager
def in_utc(spark: SparkSession) -> Iterator[None]:
    """Set the session's time zone to UTC while plans are built, so that hours, casts to text and days are those of UTC.

    Spark binds expressions to the session's time zone when a DataFrame is made; the setting is restored afterwards.
    """
    zone = spark.conf.get(_ZONE)
    if zone == "UTC":
        yield
        return
    spark.conf.set(_ZONE, "UTC")
    try:
        yield
    finally:
        spark.conf.set(_ZONE, zone or "UTC")


def instant(ticks: Column, axis: str) -> Column:
    """Return ticks as a user sees them: a timestamp or an integer, by the axis."""
    return F.timestamp_micros(ticks) if axis == TIMESTAMP else ticks


def instant_sql(ticks: str, axis: str) -> str:
    """Return the SQL of :func:`instant`, for ticks as SQL."""
    return f"timestamp_micros({ticks})" if axis == TIMESTAMP else ticks


def lifetime(schema: Schema) -> tuple[Column, Column]:
    """Return the columns ``__le`` and ``__re`` of a stream's deltas; of declared points, which have no ``__re``, ``__le + 1``."""
    return F.col("__le"), end_column(schema.shape != POINT).alias("__re")


def end_column(is_there: bool) -> Column:
    """The end of a lifetime, a tick after its start where there is no column ``__re``."""
    return F.col("__re") if is_there else F.col("__le") + 1


def spark_expression(expr: Expr, schema: Schema | None = None) -> Column:
    """Return the Spark Column of an expression over the deltas of a stream."""
    return to_spark(expr, DeltaColumns(schema))


def map_in_arrow(
    frame: DataFrame, rows: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """Return ``frame.mapInArrow(rows, schema)`` for columns of any names; ``rows`` reads them by these.

    PySpark reads a column's name as a path, in which dots and backticks have a meaning, so columns go to it by their numbers.
    """
    # PySpark pickles the function in the call, which may be the first of this process
    ship_runtime()
    names = list(frame.columns)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return rows(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(run, schema)


def text_literal(text: str) -> str:
    """Return a text as a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def as_key(column: Column, kind: DataType) -> Column:
    """Normalise a key before it is hashed: -0.0 becomes 0.0 and every NaN the same NaN, inside arrays and structs too.

    A column without floats is returned unchanged.
    """
    match kind:
        case t.FloatType() | t.DoubleType():
            zero, nan = (F.lit(value).cast(kind) for value in (0.0, float("nan")))
            return F.when(column == 0, zero).when(F.isnan(column), nan).otherwise(column)
        case t.ArrayType(elementType=of) if has_float(of):
            return F.transform(column, lambda e: as_key(e, of))
        case t.StructType(fields=fields) if has_float(kind):
            parts = (as_key(column[f.name], f.dataType).alias(f.name) for f in fields)
            return F.when(column.isNotNull(), F.struct(*parts))
    return column


def has_float(kind: DataType) -> bool:
    """True if a type is a float or contains one, in arrays and structs."""
    match kind:
        case t.ArrayType(elementType=of):
            return has_float(of)
        case t.StructType(fields=fields):
            return any(has_float(f.dataType) for f in fields)
    return isinstance(kind, t.FloatType | t.DoubleType)


def orderable(column: Column, kind: DataType) -> Column:
    """Return a value that Spark can compare and order in place of a column: maps become their sorted entries.

    A column without maps is returned unchanged.
    """
    match kind:
        case t.MapType(keyType=key, valueType=value):
            entry = F.transform(
                F.map_entries(column),
                lambda e: F.struct(orderable(e["key"], key).alias("k"), orderable(e["value"], value).alias("v")),
            )
            return F.sort_array(entry)
        case t.ArrayType(elementType=of) if _has_map(of):
            return F.transform(column, lambda e: orderable(e, of))
        case t.StructType(fields=fields) if _has_map(kind):
            parts = (orderable(column[f.name], f.dataType).alias(f.name) for f in fields)
            return F.when(column.isNotNull(), F.struct(*parts))
    return column


def payload_order(schema: Schema, names: Iterable[str]) -> list[Column]:
    """Return payload columns by which Spark can order rows: maps go by their sorted entries."""
    return [orderable(F.col(quote(name)), schema.type_of(name)) for name in names]


def _has_map(kind: DataType) -> bool:
    """True if a type is a map or contains one."""
    match kind:
        case t.MapType():
            return True
        case t.ArrayType(elementType=of):
            return _has_map(of)
        case t.StructType(fields=fields):
            return any(_has_map(f.dataType) for f in fields)
    return False


def ship_runtime() -> None:
    """Make Spark send streamq's own code to executors by value: they need not have it installed."""
    package = __name__.partition(".")[0]
    if package not in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.register_pickle_by_value(sys.modules[package])
