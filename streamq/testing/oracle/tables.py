"""A second definition of Arrow tables as queries read them: all values stay, whatever the unit of instants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from streamq.errors import PlanError, SourceError
from streamq.operators.input_table import static_table
from streamq.testing.scenario import Scenario

NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""The number of nanoseconds in the units of instants."""


def wrong_table(scenario: Scenario) -> str | None:
    """Return a value of a table in a scenario's verbs that queries read as another one, with both; None if there is none."""
    for table in _tables(scenario):
        try:
            rows: Any = static_table(table).rows
        except (PlanError, SourceError):
            # the verb that reads the table refuses it
            continue
        for name in rows.column_names:
            for meant, read in zip(_values(table.column(name)), _values(rows.column(name)), strict=True):
                if repr(meant) != repr(read):
                    return f"the value {meant!r} of the table's column {name} is read as {read!r}"
    return None


def _tables(scenario: Scenario) -> Iterator[pa.Table]:
    """Yield the Arrow tables in the arguments of a scenario's verbs."""
    left: list[Any] = [scenario]
    while left:
        part = left.pop()
        if isinstance(part, Scenario):
            left += [part.target, *part.args, *part.kwargs.values()]
        elif isinstance(part, pa.Table):
            yield part


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column; instants as nanoseconds."""
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()
    unit = NANOSECONDS[column.type.unit]
    return [None if at is None else at * unit for at in column.cast(pa.int64()).to_pylist()]


__all__ = ["wrong_table"]
