"""Streams run to their end in Spark tests, and DataFrames as rows to compare."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

import streamq as sq
from streamq.run.running import Run
from streamq.testing.history import from_changelog, net
from streamq.time import INFINITY


def ended(query: sq.Stream, **how: Any) -> Run:
    """The query run to the end of its input, in one start: an instalment with ``finish=True`` starts it twice."""
    with query.run(**how) as run:
        run.finish()
    return run


def rows(df: DataFrame, *leave_out: str) -> list[tuple[Any, ...]]:
    """The rows as a sorted list; floats to nine significant digits."""
    names = [n for n in sorted(df.columns) if n not in leave_out]
    return bag(df.select(*names).toArrow())


def bag(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of an Arrow table as a sorted list, columns in alphabetical order."""

    def plain(value: Any) -> Any:
        return float(f"{value:.9g}") if isinstance(value, float) else value

    names = sorted(table.column_names)
    return sorted((tuple(plain(row[n]) for n in names) for row in table.select(names).to_pylist()), key=repr)


def folded(df: DataFrame) -> list[tuple[Any, ...]]:
    """A changelog's rows folded into its history, an end of infinity as NULL."""
    table = net([from_changelog(df.toArrow())])
    end = pc.if_else(pc.equal(table["end"], INFINITY), None, table["end"])
    return bag(table.set_column(table.column_names.index("end"), "end", end))
