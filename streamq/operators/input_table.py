"""Input tables of a query: batch or streaming DataFrames and Arrow tables, with their names, columns and Spark types."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from streamq.connectors.connector import Connector
from streamq.errors import AmbiguousColumn, NeedsSpark, PlanError, SourceError, kind_of
from streamq.plan.schema import MICRO_BATCH, Field
from streamq.runtime.arrow.arrow_types import arrow_type

_numbers = itertools.count(1)


@dataclass(frozen=True)
class InputTable:
    """A table that a query reads, a DataFrame, an Arrow table or a connector, and its columns.

    ``beside``: the columns that its connector adds; ``parts``: those of the connector.
    """

    columns: tuple[Field, ...]
    rows: DataFrame | pa.Table | Connector
    beside: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


def input_table(table: Any, verb: str) -> InputTable:
    """Return a DataFrame, an Arrow table or a connector as an input of a query; Arrow columns get the types that queries use.

    Drops the column with the micro-batch's number, which a run with a late sink adds to its rows. Raises SourceError for a
    value that is neither or has columns that :func:`with_spark_types` refuses, and AmbiguousColumn for two columns of one name.
    """
    if isinstance(table, Connector):
        _check_once([field.name for field in table.fields], verb, table.title)
        return InputTable(table.fields, table, table.transport_columns, table.parts)
    if isinstance(table, pa.Table):
        names = table.column_names
        _check_once(names, verb, "table")
        rows = with_spark_types(table.drop_columns(MICRO_BATCH) if MICRO_BATCH in names else table, verb)
        return InputTable(table_fields(rows), rows)
    if not all(hasattr(table, a) for a in ("schema", "select", "isStreaming")):
        kind = kind_of(table)
        if kind == "pandas DataFrame":
            hint = "Give pyarrow.Table.from_pandas(df, preserve_index=False), to run in-process, or spark.createDataFrame(df)."
        elif isinstance(table, str):
            hint = f"Of files say sq.files({table!r})."
        elif kind == "Stream":
            hint = "It is a stream already: go on from it, as stream.where(...)."
        else:
            hint = "Give a Spark DataFrame or a pyarrow Table; for events written down use sq.events."
        raise SourceError(verb, "not a DataFrame", f"found {kind}", hint)
    names = [f.name for f in table.schema.fields]
    _check_once(names, verb, "DataFrame")
    frame = table.drop(MICRO_BATCH) if MICRO_BATCH in names else table
    return InputTable(tuple(Field(f.name, f.dataType) for f in frame.schema.fields), frame)


def static_table(table: Any, verb: str = "join_table") -> InputTable:
    """Return a table that does not grow; raise SourceError for anything but a batch DataFrame or an Arrow table."""
    static = input_table(table, verb)
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
    """Cast columns to the Arrow types of their Spark types: plain strings, microseconds, instants in UTC.

    A table that has these types already is returned unchanged. Raises SourceError for a column without a type, of a type that
    Spark does not have, or with values that do not fit the new type, such as times that are finer than a microsecond.
    """
    for i, field in enumerate(table.schema):
        to = _spark_type(field, verb)
        if to != field.type:
            try:
                table = table.set_column(i, pa.field(field.name, to), table.column(i).cast(to))
            except pa.ArrowInvalid as error:
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
        return arrow_type(from_arrow_type(field.type, prefer_timestamp_ntz=True))
    except (PySparkTypeError, ValueError) as error:
        # of a decimal with more than 38 digits, Arrow says so by a ValueError
        wrong = f"column {field.name!r} is of a type that Spark does not have"
        raise SourceError(verb, wrong, f"found {field.type}", "Cast it first.") from error
    except NeedsSpark:
        # a type that only Spark supports stays: in-process, an expression that reads the column raises
        return field.type


def as_dataframe(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return an Arrow table as a DataFrame whose columns have the table's types, whatever the session prefers."""
    return spark.createDataFrame(table, StructType([StructField(f.name, f.type) for f in table_fields(table)]))
