"""Rows of a trace as users read them: the changes of an operator, its history, and lists of rows of several operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.pictures.panel_history import shown_value
from streamq.plan.schema import Schema, shown_name
from streamq.run.batch.answers import as_html, as_text
from streamq.runtime.arrow.columnar import ints
from streamq.runtime.arrow.rendering import python_rows
from streamq.runtime.event import LE, RE, RETRACT
from streamq.runtime.hosts.result_rows import changelog_rows
from streamq.time import INFINITY, TIMESTAMP

MICRO_BATCH, CHANGE = "micro_batch", "change"

SHOWN = 50
"""The most rows that are printed."""


class TracedRows:
    """Rows of a trace, which print as a table, also in a notebook; ``to_arrow()`` and ``to_pylist()`` have them all."""

    def __init__(self, table: pa.Table):
        self._table = table

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._table

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries; an instant beyond Python's years is text."""
        return python_rows(self._table)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_pylist())

    def __repr__(self) -> str:
        return as_text(self._table, SHOWN)

    def _repr_html_(self) -> str:
        return as_html(self._table, SHOWN)


@dataclass(frozen=True)
class ShownRow:
    """A row of an operator as text: its lifetime in ticks, and its payload by the names that users know."""

    operator: str
    start: int
    end: int
    payload: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The payload as text: ``booth=1 toll=7.0``."""
        return " ".join(f"{name}={shown_value(value)}" for name, value in self.payload.items())


def user_columns(schema: Schema) -> dict[str, str]:
    """Return the names that users know of a schema's columns, by their own; two columns never share one."""
    names: dict[str, str] = {}
    for name in schema.names:
        label = shown_name(name)
        names[name] = name if label in names.values() or (label != name and label in schema.names) else label
    return names


def instants(ticks: Sequence[int] | np.ndarray[Any, Any], axis: str) -> pa.Array:
    """Return instants as users read them: timestamps or integers, NULL for an infinite one."""
    values = np.asarray(ticks, np.int64)
    array = pa.array(values, mask=values == INFINITY)
    return array.cast(pa.timestamp("us", tz="UTC")) if axis == TIMESTAMP else array


def history_rows(history: pa.Table, schema: Schema) -> pa.Table:
    """Return the rows of a history in the user's form: payload, ``start`` and ``end``."""
    names = user_columns(schema)
    columns = {label: history.column(name) for name, label in names.items()}
    for name, ticks in (("start", ints(history, LE)), ("end", ints(history, RE))):
        columns[distinct_name(name, columns)] = instants(ticks, schema.axis)
    return pa.table(columns)


def plain_names(schema: Schema) -> dict[str, str]:
    """Return the names of a schema's columns in ``changes_in_ticks``, where no column has a name of the changes' own."""
    return {name: f"c{number}" for number, name in enumerate(schema.names)}


def changes_in_ticks(deltas: Sequence[pa.Table], schema: Schema) -> pa.Table:
    """Return the changes of an operator, in order: micro-batch from 1, insert or retract, payload, and times in ticks.

    The columns of times are ``start``, ``end`` and ``new_end``, which is that of the row that the change leaves: for an insert
    its end, for a retraction of the whole row its start.
    """
    plain = plain_names(schema)
    parts = [changelog_rows(table.rename_columns([plain.get(n, n) for n in table.column_names])) for table in deltas]
    whole = pa.concat_tables(parts)
    numbers = np.repeat(np.arange(1, len(parts) + 1), [part.num_rows for part in parts])
    end, new_end = (whole.column(name).fill_null(INFINITY) for name in ("end", "new_end"))
    return pa.table(
        {
            MICRO_BATCH: pa.array(numbers, pa.int64()),
            CHANGE: whole.column("kind"),
            **{name: whole.column(name) for name in plain.values()},
            "start": whole.column("start"),
            "end": end,
            "new_end": pc.if_else(pc.equal(whole.column("kind"), RETRACT), new_end, end),
        }
    )


def arrived_rows(batches: Sequence[Mapping[str, pa.Table]], table: str) -> pa.Table:
    """Return the rows of a table that arrive in some micro-batches, which are numbered from 1."""
    parts = [batch[table] for batch in batches if table in batch]
    rows = pa.concat_tables(parts)
    numbers = np.repeat(np.arange(1, len(parts) + 1), [part.num_rows for part in parts])
    return rows.add_column(0, distinct_name(MICRO_BATCH, rows.column_names), pa.array(numbers, pa.int64()))


def change_rows(changes: pa.Table, schema: Schema) -> pa.Table:
    """Return changes in the user's form: the payload by the names that users know, instants of the axis, NULL for no end."""
    plain = plain_names(schema)
    payload = {label: changes.column(plain[name]) for name, label in user_columns(schema).items()}
    columns = {distinct_name(name, payload): changes.column(name) for name in (MICRO_BATCH, CHANGE)} | payload
    is_insert = pc.not_equal(changes.column(CHANGE), RETRACT)
    new_end = pc.if_else(is_insert, INFINITY, changes.column("new_end"))
    for name, ticks in (("start", changes.column("start")), ("end", changes.column("end")), ("new_end", new_end)):
        columns[distinct_name(name, payload)] = instants(ticks.to_numpy(), schema.axis)
    return pa.table(columns)


def distinct_name(name: str, others: Iterable[str]) -> str:
    """Return a name, with underscores behind it until it is none of the others."""
    while name in others:
        name += "_"
    return name


def listed_rows(rows: Sequence[ShownRow], axis: str, more: Mapping[str, Sequence[Any]] | None = None) -> pa.Table:
    """Return rows of several operators: after the columns ``more``, the operator, ``start``, ``end`` and the payload as text."""
    return pa.table(
        {
            **(more or {}),
            "operator": pa.array([row.operator for row in rows], pa.string()),
            "start": instants([row.start for row in rows], axis),
            "end": instants([row.end for row in rows], axis),
            "payload": pa.array([row.text for row in rows], pa.string()),
        }
    )


def shown_rows(operator: str, history: pa.Table, schema: Schema) -> list[ShownRow]:
    """Return the rows of a history, or of a part of one, as shown rows."""
    names = user_columns(schema)
    payload = python_rows(history.select(list(names)).rename_columns(list(names.values())))
    payload = payload or [{} for _ in range(history.num_rows)]
    lifetimes = zip(ints(history, LE).tolist(), ints(history, RE).tolist(), strict=True)
    return [ShownRow(operator, le, re, row) for (le, re), row in zip(lifetimes, payload, strict=True)]
