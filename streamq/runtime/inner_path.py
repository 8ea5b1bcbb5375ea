"""Paths inside a stage: the steps from a kernel's output to a port of another kernel that runs in the same bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.columnar import with_column
from streamq.runtime.deltas import with_ends, with_weights
from streamq.runtime.event import LE, RE, WEIGHT

TECHNICAL = (LE, RE, WEIGHT)
"""The columns of deltas beside their payload."""


class TableStep(Protocol):
    """A step without state, as a worker applies it to a table of deltas with start, end and weight."""

    def applied_to(self, rows: pa.Table) -> pa.Table:
        """Return the deltas after the step."""


@dataclass(frozen=True)
class RenamedColumns:
    """A new payload of plain columns: ``columns`` are pairs of a new name and the column that it copies."""

    columns: tuple[tuple[str, str], ...]

    def applied_to(self, rows: pa.Table) -> pa.Table:
        """Return the deltas with the new payload."""
        technical = {name: rows.column(name) for name in TECHNICAL}
        return pa.table({**technical, **{name: rows.column(copied) for name, copied in self.columns}})


@dataclass(frozen=True)
class InnerPath:
    """A path inside a stage. ``payload``: the columns at which it begins; ``steps``: the path's, then that of the port's columns.

    ``columns`` are those that the port takes, and ``hashed`` those of them that choose a row's bucket.
    """

    payload: pa.Schema
    steps: tuple[TableStep, ...]
    columns: tuple[str, ...]
    hashed: tuple[str, ...]

    def tables(self, deltas: pa.Table) -> list[pa.Table]:
        """Return a kernel's deltas at the beginning of the path and after each step; the last ones are the port's."""
        rows = with_weights(with_ends(deltas))
        payload = {field.name: _as_type(rows.column(field.name), field.type) for field in self.payload}
        tables = [pa.table({**{name: rows.column(name) for name in TECHNICAL}, **payload})]
        for step in self.steps:
            tables.append(step.applied_to(tables[-1]))
        tables[-1] = normalize_keys(tables[-1].select(self.columns), self.hashed)
        return tables


def normalize_keys(rows: pa.Table, hashed: Sequence[str]) -> pa.Table:
    """Return the rows with floats in the columns ``hashed`` as keys: -0.0 becomes 0.0, and all NaNs are equal."""
    for name in hashed:
        if name in rows.column_names and pa.types.is_floating(rows.column(name).type):
            column = rows.column(name)
            zero, nan = pa.scalar(0.0, column.type), pa.scalar(float("nan"), column.type)
            plain = pc.if_else(pc.is_nan(column), nan, column)
            rows = with_column(rows, name, pc.if_else(pc.equal(column, zero), zero, plain))
    return rows


def _as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column in the one Arrow type for its Spark type."""
    return column if column.type == kind else column.cast(kind, safe=False)


class StageWatcher(Protocol):
    """A listener to the rows inside a stage, which no envelope holds."""

    def kernel_sends(self, number: int, deltas: pa.Table) -> None:
        """Receive the deltas that the kernel of that number has made."""

    def rows_move(self, channel: int, tables: Sequence[pa.Table]) -> None:
        """Receive the deltas on the inner path of the channel of that number: at its beginning and after each step."""


class NoWatcher:
    """The watcher that ignores all rows."""

    def kernel_sends(self, number: int, deltas: pa.Table) -> None:
        """Ignore the rows."""

    def rows_move(self, channel: int, tables: Sequence[pa.Table]) -> None:
        """Ignore the rows."""


UNWATCHED = NoWatcher()

__all__ = [
    "InnerPath",
    "NoWatcher",
    "RenamedColumns",
    "StageWatcher",
    "TECHNICAL",
    "TableStep",
    "UNWATCHED",
    "normalize_keys",
]
