"""Conversion of values to and from DuckDB: types, constants in SQL, and columns.

In DuckDB a timestamp is naive and in UTC, and a day-time interval is a number of microseconds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from streamq.errors import PlanError, sentence
from streamq.runtime.arrow_types import arrow_type

_TYPES: Mapping[type[t.DataType], str] = {
    t.BooleanType: "BOOLEAN",
    t.ByteType: "TINYINT",
    t.ShortType: "SMALLINT",
    t.IntegerType: "INTEGER",
    t.LongType: "BIGINT",
    t.FloatType: "FLOAT",
    t.DoubleType: "DOUBLE",
    t.StringType: "VARCHAR",
    t.BinaryType: "BLOB",
    t.DateType: "DATE",
    t.TimestampType: "TIMESTAMP",
    t.TimestampNTZType: "TIMESTAMP",
    t.DayTimeIntervalType: "BIGINT",
    t.NullType: "INTEGER",
}


def sql_type(kind: t.DataType) -> str:
    """Return DuckDB's name for a Spark type; raise PlanError if there is none."""
    match kind:
        case t.DecimalType():
            return f"DECIMAL({kind.precision}, {kind.scale})"
        case t.ArrayType():
            return f"{sql_type(kind.elementType)}[]"
        case t.MapType():
            return f"MAP({sql_type(kind.keyType)}, {sql_type(kind.valueType)})"
        case t.StructType():
            return f"STRUCT({', '.join(f'{quoted(f.name)} {sql_type(f.dataType)}' for f in kind.fields)})"
    if type(kind) not in _TYPES:
        raise PlanError(sentence("oracle", f"type {kind.simpleString()} is not translated"))
    return _TYPES[type(kind)]


def quoted(name: str) -> str:
    """Return a name, quoted for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """Return a Python value in SQL, with the type that Spark gives it; raise PlanError for other values.

    A datetime is converted to UTC, a timedelta to a BIGINT of microseconds. An integer beyond 64 bits fails in the query only.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return f"CAST({value} AS {'INTEGER' if -(2**31) <= value < 2**31 else 'BIGINT'})"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"from_hex('{value.hex()}')"
        case Decimal():
            digits = format(value, "f").lstrip("-")
            whole, _, fraction = digits.partition(".")
            precision = max(len(whole.lstrip("0")) + len(fraction), 1)
            return f"CAST('{format(value, 'f')}' AS DECIMAL({precision}, {len(fraction)}))"
        case dt.datetime():
            utc = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
            return f"CAST('{utc.isoformat(' ')}' AS TIMESTAMP)"
        case dt.date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case dt.timedelta():
            return f"CAST({value // dt.timedelta(microseconds=1)} AS BIGINT)"
    raise PlanError(sentence("oracle", f"a literal of {type(value).__name__} is not translated", f"found {value!r}"))


def _inside(kind: t.DataType) -> pa.DataType:
    """Return the Arrow type of a column as DuckDB holds it."""
    match kind:
        case t.TimestampType():
            return pa.timestamp("us")
        case t.DayTimeIntervalType():
            return pa.int64()
        case t.NullType():
            return pa.int32()
        case t.ArrayType():
            return pa.list_(_inside(kind.elementType))
        case t.MapType():
            return pa.map_(_inside(kind.keyType), _inside(kind.valueType))
        case t.StructType():
            return pa.struct([pa.field(f.name, _inside(f.dataType)) for f in kind.fields])
    return arrow_type(kind)


def ticks(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Convert timestamps, dates or integers to ticks; NULL stays NULL, and fractions of a microsecond are cut off."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    if pa.types.is_date(kind):
        return pc.multiply(column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), 86_400_000_000)
    return column.cast(pa.int64())


def to_duckdb(column: pa.Array | pa.ChunkedArray, kind: t.DataType) -> pa.Array | pa.ChunkedArray:
    """Convert a column to the form that DuckDB holds."""
    if isinstance(kind, t.TimestampType):
        column = ticks(column)
    return column.cast(_inside(kind))


def from_duckdb(column: pa.Array | pa.ChunkedArray, kind: t.DataType) -> pa.Array | pa.ChunkedArray:
    """Convert a column from DuckDB to the Arrow type of its Spark type."""
    if isinstance(kind, t.NullType):
        return pa.nulls(len(column))
    return column.cast(arrow_type(kind))


__all__ = ["from_duckdb", "literal", "quoted", "sql_type", "ticks", "to_duckdb"]
