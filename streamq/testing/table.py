"""Literal tables for tests: columns as Spark DDL, rows as tuples."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from streamq.errors import SourceError, check_keywords
from streamq.plan.schema import Field
from streamq.plan.spark_types import parse_fields
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.time import plain_integer

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TICK = dt.timedelta(microseconds=1)

_ACCEPTED: dict[type[t.DataType], tuple[type[Any], ...]] = {
    t.BooleanType: (bool,), t.ByteType: (int,), t.ShortType: (int,), t.IntegerType: (int,), t.LongType: (int,),
    t.FloatType: (float, int), t.DoubleType: (float, int), t.DecimalType: (Decimal, int), t.StringType: (str,),
    t.BinaryType: (bytes,), t.DateType: (dt.date,), t.TimestampType: (dt.datetime, int),
    t.TimestampNTZType: (dt.datetime, int), t.DayTimeIntervalType: (dt.timedelta,),
    t.ArrayType: (list, tuple), t.StructType: (dict,), t.MapType: (dict, list),
}  # fmt: skip
"""The Python types that a column of a type accepts."""

_AS_THEY_ARE = {
    kind: {*accepted, type(None)}
    for kind, accepted in _ACCEPTED.items()
    if accepted in ((bool,), (int,), (float, int), (str,), (bytes,))
}
"""The Python types of which Arrow accepts every value as it is, by the type of the column."""


@check_keywords
def table(columns: str, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Return an Arrow table of ``columns``, such as ``"t bigint, k string, v int"``, with ``rows`` as tuples; None is NULL.

    Types have Spark's names, such as ``decimal(5,2)``, ``array<int>``, ``map<string,int>`` and ``struct<a:int>``. A name that is
    not a word is quoted in backticks. Instants are datetimes (UTC if they have no zone) or ticks: microseconds since 1970. Arrays
    are lists or tuples; maps and structs are dictionaries; a field that a struct lacks is NULL. A map may also be a list of
    pairs, as some keys cannot be those of a dictionary. Raises TypeMismatch for a type that does not exist, and SourceError for a
    row of the wrong length, or a value that its column does not accept.

    >>> import streamq as sq
    >>> from streamq.testing.table import table
    >>> trips = table("at bigint, zone string, fare double", [(1, "a", 3), (4, None, 8.5)])
    >>> sq.points(trips, time="at").show()
    zone  fare  start  end
       a   3.0      1    2
    NULL   8.5      4    5
    """
    fields = fields_of(columns)
    tuples = [tuple(row) if isinstance(row, list | tuple) else row for row in rows]
    for i, row in enumerate(tuples):
        if not isinstance(row, tuple):
            hint = f"Write a tuple: ({row!r},)."
            raise SourceError("table", f"row {i} is not a tuple", f"found {row!r}", hint)
        if len(row) != len(fields):
            there = ", ".join(f.name for f in fields)
            raise SourceError("table", f"row {i} has {len(row)} values", f"the columns are: {there}")
    arrays = [_column(f, [row[at] for row in tuples]) for at, f in enumerate(fields)]
    return pa.table(arrays, names=[f.name for f in fields])


def fields_of(columns: str) -> tuple[Field, ...]:
    """Parse names and types such as ``"t bigint, k string"``; raise TypeMismatch for anything else.

    Raises SourceError for a name that comes twice.
    """
    fields = tuple(Field(f.name, f.dataType) for f in parse_fields(columns, "table"))
    names = [f.name for f in fields]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise SourceError("table", f"column {twice[0]!r} twice", f"found {columns!r}")
    return fields


def _column(field: Field, values: Sequence[Any]) -> pa.Array:
    """Return values as a column; raise SourceError for a value that it does not accept."""
    refused = (TypeError, ValueError, OverflowError, pa.ArrowException)
    kind = _written(field.type)
    is_plain = set(map(type, values)) <= _AS_THEY_ARE.get(type(field.type), set())
    try:
        column = pa.array(values if is_plain else [_arrow_value(value, field.type) for value in values], kind)
    except refused:
        for row, value in enumerate(values):
            try:
                pa.scalar(_arrow_value(value, field.type), kind)
            except refused as error:
                wrong = f"column {field.name!r} is {field.type.simpleString()}"
                raise SourceError("table", wrong, f"row {row} has {value!r}") from error
        raise
    return column.cast(arrow_type(field.type))


def _written(kind: t.DataType) -> pa.DataType:
    """Return the Arrow type of the values that ``_arrow_value`` returns; instants are ticks."""
    return pa.int64() if isinstance(kind, t.TimestampType | t.TimestampNTZType) else arrow_type(kind)


def _arrow_value(value: Any, kind: t.DataType) -> Any:
    """Return a value in the form that Arrow accepts; raise TypeError for other types, which Arrow might convert silently.

    A field that a struct lacks is NULL; TypeError for one that its type does not have.
    """
    value = plain_integer(value)
    if value is None:
        return None
    accepted = _ACCEPTED.get(type(kind), ())
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
        raise TypeError(value)
    match kind:
        case t.TimestampType() | t.TimestampNTZType() if isinstance(value, dt.datetime):
            return ((value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH) // _TICK
        case t.DateType() if isinstance(value, dt.datetime):
            raise TypeError(value)
        case t.ArrayType(elementType=inner):
            return [_arrow_value(v, inner) for v in value]
        case t.StructType(fields=fields):
            if value.keys() - {f.name for f in fields}:
                raise TypeError(value)
            return {f.name: _arrow_value(value.get(f.name), f.dataType) for f in fields}
        case t.MapType(keyType=key, valueType=inner):
            pairs = value.items() if isinstance(value, dict) else value
            return [(_arrow_value(k, key), _arrow_value(v, inner)) for k, v in pairs]
    return value
