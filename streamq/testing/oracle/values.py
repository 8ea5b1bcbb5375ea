"""Conversion of values to and from DuckDB (types, constants in SQL, columns), and the columns of histories there.

In DuckDB a timestamp is naive and in UTC, and a day-time interval is a number of microseconds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from streamq.errors import PlanError
from streamq.plan.schema import Schema
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.time import INFINITY, TIMESTAMP

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
        raise PlanError("oracle", f"type {kind.simpleString()} is not translated")
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
    raise PlanError("oracle", f"a literal of {type(value).__name__} is not translated", f"found {value!r}")


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


def zoned_ticks(column: pa.Array | pa.ChunkedArray, zone: str | None) -> pa.Array | pa.ChunkedArray:
    """Convert times to ticks; local times of a zone by the clocks there, before these change where a change makes it unclear."""
    if zone is None:
        return ticks(column)
    there, epoch = ZoneInfo(zone), dt.datetime(1970, 1, 1)
    offsets: list[int] = []
    for instant in ticks(column).fill_null(0).to_pylist():
        clock = (epoch + dt.timedelta(microseconds=instant)).replace(tzinfo=there, fold=0)
        offsets.append((clock.utcoffset() or dt.timedelta()) // dt.timedelta(microseconds=1))
    return pc.subtract(ticks(column), pa.array(offsets, pa.int64()))


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


# columns of histories


def listed(*parts: str) -> str:
    """Return the parts, separated by commas."""
    return ", ".join(parts)


def same(columns: Sequence[str]) -> str:
    """Return the condition that rows ``a`` and ``b`` are equal in these columns; NULL equals NULL."""
    return " AND ".join(f"a.{c} IS NOT DISTINCT FROM b.{c}" for c in columns) or "true"


def payload(schema: Schema) -> list[str]:
    """Return the names of the payload's columns in histories."""
    return [f"c{i}" for i in range(len(schema.fields))]


def keys(schema: Schema) -> list[str]:
    """Return the columns by which payload columns are matched, grouped and ordered: a key column if the type needs one."""
    return [f"k{i}" if has_own_key(f.type) else f"c{i}" for i, f in enumerate(schema.fields)]


def own_keys(schema: Schema) -> list[str]:
    """Return the SQL that computes the key columns of a payload."""
    return [f"{key(f'c{i}', f.type)} AS k{i}" for i, f in enumerate(schema.fields) if has_own_key(f.type)]


def has_own_key(kind: t.DataType) -> bool:
    """True if DuckDB compares or orders values of a type differently from Spark, so that they need a key column."""
    return floating(kind) or isinstance(kind, t.ArrayType | t.MapType | t.StructType)


def order_of(schema: Schema) -> list[str]:
    """Return the columns that order events by payload: ``o0, ...`` where values have a key of their own, else ``p0, ...``."""
    return [f"o{i}" if has_own_key(f.type) else f"p{i}" for i, f in enumerate(schema.fields)]


def key(column: str, kind: t.DataType, depth: int = 0) -> str:
    """Return the SQL of a column's key, which DuckDB compares and orders as Spark does the column.

    In Spark -0.0 equals 0.0, NaN equals NaN, a NULL within a value is the least, and a map is its entries in order. In DuckDB
    joins distinguish zeros within a value, and NULLs come last. ``depth``: the number of lambdas around the column.
    """
    e = f"e{depth}"

    def part(value: str, kind: t.DataType) -> str:
        return f"{{'there': {value} IS NOT NULL, 'value': {key(value, kind, depth + 1)}}}"

    match kind:
        case t.FloatType() | t.DoubleType():
            return f"CASE WHEN {column} = 0 THEN 0 WHEN isnan({column}) THEN CAST('nan' AS {sql_type(kind)}) ELSE {column} END"
        case t.ArrayType(elementType=element):
            return f"list_transform({column}, lambda {e}: {part(e, element)})"
        case t.MapType(keyType=name, valueType=value):
            entry = f"{{'key': {key(f'{e}.key', name, depth + 1)}, 'value': {part(f'{e}.value', value)}}}"
            return f"list_sort(list_transform(map_entries({column}), lambda {e}: {entry}))"
        case t.StructType(fields=fields):
            parts = (f"'p{i}': {part(f'({column}).{quoted(f.name)}', f.dataType)}" for i, f in enumerate(fields))
            return f"CASE WHEN {column} IS NOT NULL THEN {{{listed(*parts)}}} END"
    return column


def floating(kind: t.DataType | None) -> bool:
    """True if a type is float or double."""
    return isinstance(kind, t.FloatType | t.DoubleType)


def lifetime(part: str, schema: Schema) -> str:
    """Return DuckDB's SQL for the start, end or duration of a lifetime; end and duration are NULL if it has no end.

    Start and end are of the axis' type, the duration is a number of ticks, at most INFINITY.
    """
    shown = "make_timestamp({})" if schema.axis == TIMESTAMP else "{}"
    match part:
        case "start":
            return shown.format("le")
        case "end":
            return f"CASE WHEN re < {INFINITY} THEN {shown.format('re')} END"
    return f"CASE WHEN re < {INFINITY} THEN CAST(least({INFINITY}, re::HUGEINT - le) AS BIGINT) END"
