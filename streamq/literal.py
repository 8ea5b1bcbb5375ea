"""Literal streams: rows written down in a program, as an Arrow table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamq.errors import NeedsSpark, SourceError, sentence
from streamq.plan.schema import Field
from streamq.plan.spark_types import parse_type
from streamq.time import INFINITY, MINUS_INFINITY, plain_integer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Time = int | dt.datetime | None


@dataclass(frozen=True)
class Item:
    """One item of a literal physical stream."""

    kind: str
    start: Time
    end: Time = None
    new_end: Time = None
    payload: tuple[tuple[str, Any], ...] = ()


def insert(start: Time, end: Time = None, /, **payload: Any) -> Item:
    """An event on ``[start, end)``; None is still alive."""
    return Item("insert", start, end, None, tuple(payload.items()))


def retract(start: Time, end: Time, new_end: Time, /, **payload: Any) -> Item:
    """The event ``[start, end)`` with this payload now ends at ``new_end``; at ``start``: it is deleted."""
    return Item("retract", start, end, new_end, tuple(payload.items()))


def cti(time: Time, /) -> Item:
    """The promise that no later item changes anything before ``time`` (its sync time is not less)."""
    return Item("cti", time)


def literal_table(items: Any, schema: Any) -> tuple[pa.Table, bool]:
    """The items as a table and whether it is a physical stream (kind and new_end columns) or plain intervals."""
    import pyarrow as pa

    from streamq.runtime.arrow_expr import arrow_type

    if not isinstance(items, Iterable) or isinstance(items, str | bytes | Mapping):
        hint = "Write sq.events([(start, end, {...}), ...])."
        raise SourceError(sentence("events", "not a list of events", f"found {items!r}", hint))
    if schema is not None and not isinstance(schema, Mapping):
        raise SourceError(sentence("events", "schema gives types by name", f"found {schema!r}", "As {'v': 'double'}."))
    found = [
        replace(i, start=plain_integer(i.start), end=plain_integer(i.end), new_end=plain_integer(i.new_end))
        for i in map(_item, items)
    ]
    physical = any(i.kind != "insert" for i in found)
    names = list(dict.fromkeys(n for i in found for n, _ in i.payload))
    names += [n for n in schema or {} if n not in names]
    times = [t for i in found for t in (i.start, i.end, i.new_end) if t is not None]
    stamps = any(isinstance(t, dt.datetime) for t in times)
    for t in times:
        if isinstance(t, bool) or not isinstance(t, dt.datetime if stamps else int):
            raise SourceError(sentence("events", "starts and ends are all integers or all datetimes", f"found {t!r}"))
        if isinstance(t, int) and not MINUS_INFINITY <= t <= INFINITY:
            raise SourceError(sentence("events", "an instant beyond 64 bits", f"found {t!r}"))
    axis = pa.timestamp("us", tz="UTC") if stamps else pa.int64()

    def time_column(values: list[Time]) -> pa.Array:
        return pa.array(
            [v.replace(tzinfo=dt.UTC) if isinstance(v, dt.datetime) and v.tzinfo is None else v for v in values], axis
        )

    columns: dict[str, pa.Array] = {"kind": pa.array([i.kind for i in found], pa.string())} if physical else {}
    columns["start"] = time_column([i.start for i in found])
    columns["end"] = time_column([i.end for i in found])
    if physical:
        columns["new_end"] = time_column([i.new_end for i in found])
    for name in names:
        if name in columns or name in ("kind", "new_end"):
            raise SourceError(
                sentence(
                    "events", f"a payload column called {name!r}", "that is the item's own", "Give it another name."
                )
            )
        values = [dict(i.payload).get(name) for i in found]
        wanted = arrow_type(parse_type(schema[name])) if schema and name in schema else None
        try:
            made = pa.array(values, wanted)
        except OverflowError as error:
            hint = f"Give it a type: schema={{{name!r}: 'decimal(38,0)'}}, and decimal.Decimal values."
            raise SourceError(
                sentence("events", f"column {name!r} holds an integer beyond 64 bits", "", hint)
            ) from error
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise SourceError(sentence("events", f"column {name!r} mixes types", str(error).splitlines()[0])) from error
        if pa.types.is_null(made.type):
            raise SourceError(
                sentence(
                    "events",
                    f"column {name!r} has only NULLs",
                    "no type can be told",
                    f"Give it one: schema={{{name!r}: 'double'}}.",
                )
            )
        columns[name] = made
    return pa.table(columns), physical


def _item(given: Any) -> Item:
    if isinstance(given, Item):
        return given
    match given:
        case (start, end, Mapping() as payload) if isinstance(given, tuple):
            return Item("insert", start, end, None, tuple(payload.items()))
        case (start, end) if isinstance(given, tuple) and not isinstance(end, Mapping):
            return Item("insert", start, end)
    raise SourceError(
        sentence(
            "events",
            "not an event",
            f"found {given!r}",
            "Write (start, end, {...}), with end None while it is alive, sq.insert(...), sq.retract(...) or sq.cti(...).",
        )
    )


def table_fields(table: pa.Table) -> tuple[Field, ...]:
    """The columns of an Arrow table with their Spark types; timestamps without a zone are ``timestamp_ntz``."""
    from pyspark.sql.pandas.types import from_arrow_type

    return tuple(Field(f.name, from_arrow_type(f.type, prefer_timestamp_ntz=True)) for f in table.schema)


def declared(table: pa.Table, verb: str) -> pa.Table:
    """The table with its columns in the Arrow types of their Spark types: plain strings, microseconds, instants in UTC.

    What is finer than a microsecond is cut off, as Spark does it. A table that is like that already is given back. Raises
    SourceError for a column of a type that Spark does not have, or of none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    made = table
    for i, field in enumerate(table.schema):
        to = _declared_type(field, verb)
        if to != field.type:
            column = table.column(i)
            if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
                column = pc.floor_temporal(column, unit="microsecond")
            try:
                made = made.set_column(i, pa.field(field.name, to), column.cast(to))
            except pa.ArrowInvalid as error:
                wrong = f"column {field.name!r} does not fit {to}"
                raise SourceError(sentence(verb, wrong, str(error).splitlines()[0])) from error
    return made


def _declared_type(field: pa.Field, verb: str) -> pa.DataType:
    import pyarrow as pa
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type

    from streamq.runtime.arrow_types import arrow_type

    if pa.types.is_null(field.type):
        hint = "Cast it, as table.column(...).cast('string')."
        raise SourceError(sentence(verb, f"column {field.name!r} has no type", "all its values are NULL", hint))
    try:
        return arrow_type(from_arrow_type(field.type, prefer_timestamp_ntz=True))
    except PySparkTypeError as error:
        wrong = f"column {field.name!r} is of a type that Spark does not have"
        raise SourceError(sentence(verb, wrong, f"found {field.type}", "Cast it first.")) from error
    except NeedsSpark:
        # a type of Spark's alone stays as it is: in-process, what reads it says so
        return field.type


def to_spark(spark: SparkSession, table: pa.Table) -> DataFrame:
    """An Arrow table as a DataFrame of the types that its columns are declared with, whatever the session prefers."""
    from pyspark.sql.types import StructField, StructType

    return spark.createDataFrame(table, StructType([StructField(f.name, f.type) for f in table_fields(table)]))
