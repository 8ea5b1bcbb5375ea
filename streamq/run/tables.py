"""The tables behind a query's sources: literal and Arrow tables, and DataFrames made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamq.operators.input_table import as_dataframe
from streamq.run.active import session_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def is_literal(tables: Mapping[str, Any]) -> bool:
    """Return True if all tables are literal or Arrow, so that the query runs in-process."""
    import pyarrow as pa

    return all(isinstance(table, pa.Table) for table in tables.values())


def is_dataframe(table: Any) -> bool:
    """Return True if a table is a DataFrame, classic or of Spark Connect."""
    return hasattr(table, "isStreaming")


def as_frames(tables: Mapping[str, Any], verb: str) -> dict[str, DataFrame]:
    """Return the tables as DataFrames; literal ones become local relations of the others' session, or of the active one."""
    return {
        name: table if is_dataframe(table) else as_dataframe(session_of(tables.values(), verb), table)
        for name, table in tables.items()
    }
