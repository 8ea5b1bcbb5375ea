"""The tables behind a query's sources: literal and Arrow tables, and DataFrames made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamq.operators.input_table import as_dataframe
from streamq.run.findings import session_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


FILE_FORMATS = {"parquet", "csv", "json", "orc", "text"}
LIMITS = {"maxfilespertrigger", "maxbytespertrigger"}
"""The options of a file source that cut its input into several micro-batches."""


def is_literal(tables: Mapping[str, Any]) -> bool:
    """Return True if all tables are literal or Arrow, so that the query runs in-process."""
    import pyarrow as pa

    return all(isinstance(table, pa.Table) for table in tables.values())


def is_dataframe(table: Any) -> bool:
    """Return True if a table is a DataFrame, classic or of Spark Connect."""
    return hasattr(table, "isStreaming")


def is_unlimited(stream: DataFrame) -> bool:
    """Return True if a streaming DataFrame reads only folders of files, and all files that are there in one micro-batch.

    False if that cannot be told: for other sources, and for DataFrames of Spark Connect.
    """
    if not hasattr(stream, "_jdf"):
        return False
    leaves = stream._jdf.queryExecution().analyzed().collectLeaves()
    return all(_is_unlimited(leaf) for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming())


def _is_unlimited(leaf: Any) -> bool:
    """Return True if a leaf of Spark's plan that streams reads a folder of files without a limit."""
    if leaf.getClass().getSimpleName() != "StreamingRelation":
        return False
    source = leaf.dataSource()
    options = source.options().iterator()
    names = set()
    while options.hasNext():
        names.add(options.next()._1().lower())
    return source.className().lower() in FILE_FORMATS and not names & LIMITS


def as_frames(tables: Mapping[str, Any], verb: str) -> dict[str, DataFrame]:
    """Return the tables as DataFrames; literal ones become local relations of the others' session, or of the active one."""
    return {
        name: table if is_dataframe(table) else as_dataframe(session_of(tables.values(), verb), table)
        for name, table in tables.items()
    }
