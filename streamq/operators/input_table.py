"""Input tables of a query: DataFrames, connectors, and all that has rows as Arrow, with their names, columns and Spark types."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from streamq.connectors.connector import Connector
from streamq.errors import AmbiguousColumn, NeedsSpark, PlanError, SourceError, kind_of
from streamq.plan.schema import MICRO_BATCH, UNNAMED_INDEX, Field
from streamq.runtime.arrow.arrow_types import arrow_type

_numbers = itertools.count(1)


class ArrowStreamable(Protocol):
    """Anything that offers its rows by Arrow's interface in C, as tables of Polars and pandas and relations of DuckDB do."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Rows: TypeAlias = DataFrame | ArrowStreamable | pa.RecordBatch | Connector
"""What a source reads: a Spark DataFrame, anything that has rows as Arrow, or a connector."""


@dataclass(frozen=True)
class InputTable:
    """A table that a query reads, a DataFrame, an Arrow table or a connector, and its columns.

    ``beside``: the columns that its connector adds; ``parts`` and ``order``: those of the connector.
    """

    columns: tuple[Field, ...]
    rows: DataFrame | pa.Table | Connector
    beside: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    order: tuple[str, ...] = ()


def input_table(table: Any, verb: str) -> InputTable:
    """Return rows as an input of a query; those that are offered as Arrow are read now, and get the types that queries use.

    Drops the column with the micro-batch's number, which a run with a late sink adds to its rows. Raises SourceError for a
    value without rows or with columns that :func:`with_spark_types` refuses, and AmbiguousColumn for two columns of one name.
    """
    if isinstance(table, Connector):
        _check_once([field.name for field in table.fields], verb, table.title)
        return InputTable(table.fields, table, table.transport_columns, table.parts, table.order)
    in_memory = as_arrow(table, verb)
    if in_memory is not None:
        names = in_memory.column_names
        _check_once(names, verb, "table")
        rows = with_spark_types(in_memory.drop_columns(MICRO_BATCH) if MICRO_BATCH in names else in_memory, verb)
        return InputTable(table_fields(rows), rows)
    if not hasattr(table, "isStreaming"):
        hint = "Give a DataFrame of Spark, pandas or Polars, or an Arrow table; for events written down use sq.events."
        kind = kind_of(table)
        if isinstance(table, str):
            hint = f"Of files say sq.files({table!r})."
        elif kind == "polars LazyFrame":
            hint = "Compute it first: frame.collect()."
        elif kind == "Stream":
            hint = "It is a stream already: go on from it, as stream.where(...)."
        raise SourceError(verb, "not a DataFrame", f"found {kind}", hint)
    names = [f.name for f in table.schema.fields]
    _check_once(names, verb, "DataFrame")
    frame = table.drop(MICRO_BATCH) if MICRO_BATCH in names else table
    return InputTable(tuple(Field(f.name, f.dataType) for f in frame.schema.fields), frame)


def as_arrow(rows: Any, verb: str) -> pa.Table | None:
    """Return rows that are offered as Arrow, or are of pandas, as a table, read to their end; None for others, as Spark's.

    The index of a pandas frame is a column if it has a name, else it is left out. Raises SourceError, worded for ``verb``, for a
    single column, and for values that Arrow has no type for, such as those of a column of objects that mixes types.
    """
    if isinstance(rows, pa.Table):
        return rows
    if hasattr(rows, "isStreaming") or not (hasattr(rows, "__arrow_c_stream__") or isinstance(rows, pa.RecordBatch)):
        return None
    import pandas as pd

    try:
        if not isinstance(rows, pd.DataFrame):
            return pa.table(rows)
        _check_once([str(name) for name in rows.columns], verb, "pandas frame")
        table = pa.Table.from_pandas(rows, preserve_index=True).replace_schema_metadata()
        return table.drop_columns([name for name in table.column_names if UNNAMED_INDEX.fullmatch(name)])
    except pa.ArrowException as error:
        reason = "; ".join(map(str, error.args)) or type(error).__name__
        raise SourceError(verb, f"no table of the {kind_of(rows)}", reason.splitlines()[0]) from error


def static_table(table: Any, verb: str = "join_table") -> InputTable:
    """Return a table that does not grow; raise SourceError for one that does, and for what is no table."""
    static = input_table(table.static() if isinstance(table, Connector) else table, verb)
    if getattr(static.rows, "isStreaming", False):
        raise SourceError(verb, "a streaming DataFrame", "a table is static", "Join streams with join(...).")
    return static


def source_name(name: str | None) -> str:
    """Return the user's name for a source, or a number that no source has yet; raise PlanError for an invalid name."""
    if name is not None and (not isinstance(name, str) or not name or name.startswith("#")):
        raise PlanError("name", "not a name for a source", f"found {name!r}")
    return name or f"#{next(_numbers)}"


def _check_once(names: Sequence[str], verb: str, where: str) -> None:
    """Raise AmbiguousColumn if two names are equal but for case, which Spark ignores; ``where`` names the table in the error."""
    lower = [n.lower() for n in names]
    repeated = sorted({n for n in lower if lower.count(n) > 1})
    if repeated:
        there = f"there are: {', '.join(names)}"
        raise AmbiguousColumn(verb, f"column {repeated[0]!r} twice in the {where}", there, "Rename one.")


def table_fields(table: pa.Table) -> tuple[Field, ...]:
    """Return the columns of an Arrow table with their Spark types; timestamps without a zone are ``timestamp_ntz``."""
    return tuple(Field(f.name, from_arrow_type(f.type, prefer_timestamp_ntz=True)) for f in table.schema)


def with_spark_types(table: pa.Table, verb: str) -> pa.Table:
    """Cast columns to the Arrow types of their Spark types: plain strings, microseconds, instants in UTC, signed integers.

    A table that has these types already is returned unchanged. Raises SourceError for a column without a type, of a type that
    Spark does not have, or with values that do not fit the new type, such as times that are finer than a microsecond.
    """
    for i, field in enumerate(table.schema):
        to = _spark_type(field, verb)
        if to != field.type:
            try:
                column = table.column(i)
                if pa.types.is_dictionary(field.type):
                    # a dictionary of string views, as of a category of Polars, is not cast as a whole
                    column = pa.chunked_array([c.dictionary.cast(to).take(c.indices) for c in column.chunks], to)
                table = table.set_column(i, pa.field(field.name, to), column.cast(to))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                wrong = f"column {field.name!r} does not fit {to}"
                hint = (
                    "Round it to microseconds first, in pandas by .dt.floor('us')." if "[ns" in str(field.type) else ""
                )
                raise SourceError(verb, wrong, str(error).splitlines()[0], hint) from error
    return table


def _spark_type(field: pa.Field, verb: str) -> pa.DataType:
    """Return the Arrow type of the Spark type that a column has; a type that only Spark supports is returned unchanged.

    Raises SourceError for a column without a type, or of a type that Spark does not have.
    """
    if pa.types.is_null(field.type):
        hint = "Cast it, as table.column(...).cast('string')."
        raise SourceError(verb, f"column {field.name!r} has no type", "all its values are NULL", hint)
    try:
        return arrow_type(from_arrow_type(signed_type(field.type), prefer_timestamp_ntz=True))
    except (PySparkTypeError, ValueError) as error:
        # of a decimal with more than 38 digits, Arrow says so by a ValueError
        wrong = f"column {field.name!r} is of a type that Spark does not have"
        raise SourceError(verb, wrong, f"found {field.type}", "Cast it first.") from error
    except NeedsSpark:
        # a type that only Spark supports stays: in-process, an expression that reads the column raises
        return field.type


_SIGNED: Mapping[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
"""The types of Arrow that Spark lacks, and those that hold their values, as Spark reads them from Parquet."""


def signed_type(kind: pa.DataType) -> pa.DataType:
    """Return a type that Spark has for an Arrow type, which may be, or contain, unsigned integers, views or dictionaries."""
    if pa.types.is_dictionary(kind):
        return signed_type(kind.value_type)
    if pa.types.is_map(kind):
        return pa.map_(signed_type(kind.key_type), signed_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(signed_type(field.type)) for field in kind])
    if hasattr(kind, "value_field"):
        return pa.list_(kind.value_field.with_type(signed_type(kind.value_type)))
    return _SIGNED.get(kind, kind)


def as_dataframe(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return an Arrow table as a DataFrame whose columns have the table's types, whatever the session prefers."""
    return spark.createDataFrame(table, StructType([StructField(f.name, f.type) for f in table_fields(table)]))
