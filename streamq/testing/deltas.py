"""Deltas: how they are read back from a changelog, and how those of all micro-batches add up to a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import OutputForm
from streamq.runtime.egress import changelog_rows
from streamq.runtime.event import INSERT, LE, RE, RETRACT, WEIGHT
from streamq.testing.history import history
from streamq.testing.python_values import keys
from streamq.testing.timeline import interval
from streamq.time import INTEGER


class WrongOutput(AssertionError):
    """An output that is no history at all: a row taken back that was never there, or a final row taken back."""


def summed(out: Sequence[pa.Table], output: str, axis: str = INTEGER) -> pa.Table:
    """The history that outputs of micro-batches add up to; raises WrongOutput where they add up to none.

    ``axis``: how the error shows instants.
    """
    if output == OutputForm.CHANGELOG:
        return net([_read_back(deltas) for deltas in out], axis)
    table = pa.concat_tables(out)
    if pc.any(pc.not_equal(table.column(WEIGHT), 1)).as_py():
        raise WrongOutput("a final row is taken back")
    return as_history(table.drop_columns([WEIGHT]))


def _read_back(deltas: pa.Table) -> pa.Table:
    """Deltas as the rows of their changelog tell them."""
    payload = [name for name in deltas.column_names if name not in (LE, RE, WEIGHT)]
    # a changelog has names of its own
    numbers = {name: f"p{number}" for number, name in enumerate(payload)}
    rows = changelog_rows(deltas.rename_columns([numbers.get(name, name) for name in deltas.column_names]))
    names = {number: name for name, number in numbers.items()}
    deltas_again = from_changelog(rows)
    return deltas_again.rename_columns([names.get(name, name) for name in deltas_again.column_names])


def from_changelog(rows: pa.Table) -> pa.Table:
    """The deltas that the rows of a changelog tell of, CTIs aside."""
    kind, events = rows.column("kind"), rows.drop_columns(["kind", "new_end"])
    is_retraction = pc.equal(kind, RETRACT)
    moved = events.set_column(events.column_names.index("end"), "end", rows.column("new_end")).filter(is_retraction)
    inserted = [
        events.filter(pc.equal(kind, INSERT)),
        moved.filter(pc.not_equal(moved["end"], moved["start"]).fill_null(True)),
    ]
    return pa.concat_tables([_weighed(pa.concat_tables(inserted), 1), _weighed(events.filter(is_retraction), -1)])


def _weighed(rows: pa.Table, weight: int) -> pa.Table:
    ticked = history(rows)
    names = [{"start": LE, "end": RE}.get(name, name) for name in ticked.column_names]
    return ticked.rename_columns(names).append_column(WEIGHT, pa.array([weight] * ticked.num_rows, pa.int64()))


def net(tables: Sequence[pa.Table], axis: str = INTEGER) -> pa.Table:
    """Deltas summed into a history; WrongOutput where after some micro-batch a weight is below zero.

    ``axis``: how the error shows instants.
    """
    table = pa.concat_tables(tables)
    names = [n for n in table.column_names if n != WEIGHT]
    weights: Counter[Any] = Counter()
    rows: dict[Any, int] = {}
    last = {sum(t.num_rows for t in tables[: i + 1]) - 1 for i in range(len(tables))}
    touched: set[Any] = set()
    for i, (key, weight) in enumerate(zip(keys(table.select(names)), table[WEIGHT].to_pylist(), strict=True)):
        weights[key] += weight
        rows.setdefault(key, i)
        touched.add(key)
        if i not in last:
            continue
        # within a micro-batch order means nothing
        for one in touched:
            if weights[one] < 0:
                row = dict(zip(names, one, strict=True))
                lifetime = interval(row.pop(LE), row.pop(RE), axis)
                raise WrongOutput(f"a row is taken back that was not there: {lifetime} {row}")
        touched = set()
    copies = [rows[key] for key, n in weights.items() for _ in range(n)]
    return as_history(table.select(names).take(pa.array(copies, pa.int64())))


def as_history(table: pa.Table) -> pa.Table:
    """Deltas' columns under the names of a history."""
    return table.rename_columns([{LE: "start", RE: "end"}.get(n, n) for n in table.column_names])


__all__ = ["WrongOutput", "as_history", "from_changelog", "net", "summed"]
