"""Read deltas back from a changelog, and sum the deltas of all micro-batches into a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import OutputForm
from streamq.runtime.event import INSERT, LE, RE, RETRACT, WEIGHT
from streamq.testing.history import history, interval, ticks_of
from streamq.testing.python_values import comparable, keys, plain_values
from streamq.time import INFINITY, INTEGER


class WrongOutput(AssertionError):
    """Raised for outputs that do not sum to a history: they retract a row that was never inserted, or a final row."""


def sum_deltas(out: Sequence[pa.Table], output: str, axis: str = INTEGER) -> pa.Table:
    """Sum the deltas of all micro-batches into a history; raise WrongOutput if they do not form one.

    ``output`` is their form: in final rows every weight must be 1.
    ``axis`` is the time axis in which the error shows instants.
    """
    if output == OutputForm.CHANGELOG:
        return net(out, axis)
    table = pa.concat_tables(out)
    if pc.any(pc.not_equal(table.column(WEIGHT), 1)).as_py():
        raise WrongOutput("a final row is retracted")
    return as_history(table.drop_columns([WEIGHT]))


def check_ends(rows: pa.Table) -> None:
    """Raise WrongOutput if a row has infinity as ``end`` or ``new_end``; users get NULL for the end of an endless lifetime.

    Columns of these names are looked at only if they hold integers or instants.
    """
    for name in ("end", "new_end"):
        # a payload may have a column of this name
        column = rows[name] if name in rows.column_names else pa.chunked_array([], pa.int64())
        if (pa.types.is_temporal(column.type) or pa.types.is_integer(column.type)) and pc.any(
            pc.equal(ticks_of(column), INFINITY)
        ).as_py():
            raise WrongOutput(f"the {name} of a row that never ends is not NULL")


def from_changelog(rows: pa.Table) -> pa.Table:
    """Convert changelog rows to deltas, with lifetimes in ticks; CTIs are left out.

    A retraction becomes a delta of weight -1 and, unless it deletes its event, one of weight 1. Inserts and new lifetimes come
    first, then what is taken back.
    """
    kind, events = rows.column("kind"), rows.drop_columns(["kind", "new_end"])
    is_retraction = pc.equal(kind, RETRACT)
    moved = events.set_column(events.column_names.index("end"), "end", rows.column("new_end")).filter(is_retraction)
    inserted = [
        events.filter(pc.equal(kind, INSERT)),
        moved.filter(pc.not_equal(moved["end"], moved["start"]).fill_null(True)),
    ]
    return pa.concat_tables([_weighed(pa.concat_tables(inserted), 1), _weighed(events.filter(is_retraction), -1)])


def _weighed(rows: pa.Table, weight: int) -> pa.Table:
    """Return events as deltas of one weight, with lifetimes in ticks."""
    ticked = history(rows)
    names = [{"start": LE, "end": RE}.get(name, name) for name in ticked.column_names]
    return ticked.rename_columns(names).append_column(WEIGHT, pa.array([weight] * ticked.num_rows, pa.int64()))


def net(tables: Sequence[pa.Table], axis: str = INTEGER) -> pa.Table:
    """Sum deltas, a table a micro-batch, into a history; raise WrongOutput if a weight is negative after any micro-batch.

    ``axis`` is the time axis in which the error shows instants.
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
        # deltas of one micro-batch have no order, so check at its end
        for one in touched:
            if weights[one] < 0:
                row = dict(zip(names, one, strict=True))
                lifetime = interval(row.pop(LE), row.pop(RE), axis)
                raise WrongOutput(f"a row is retracted that was not there: {lifetime} {row}")
        touched = set()
    copies = [rows[key] for key, n in weights.items() for _ in range(n)]
    return as_history(table.select(names).take(pa.array(copies, pa.int64())))


def as_history(table: pa.Table) -> pa.Table:
    """Rename the lifetime columns of deltas to those of a history."""
    return table.rename_columns([{LE: "start", RE: "end"}.get(n, n) for n in table.column_names])


class ProgressViolation(AssertionError):
    """Raised if a result, an operator or its input changes something before its CTI, or a CTI goes back."""


def changes_before(c: int, tables: Sequence[pa.Table], axis: str) -> str:
    """Return, as text, the changes of a micro-batch before ``c`` once its deltas are folded into retractions; empty if none.

    Rows that start before ``c`` must form pairs, whose ends are both at or after ``c``. The text lists weights, lifetimes and
    rows.
    """
    weights: Counter[Any] = Counter()
    for table in tables:
        names = [n for n in table.column_names if n not in (LE, RE, WEIGHT)]
        early = table.filter(pc.less(table[LE], c))
        for values in zip(*(plain_values(column) for column in early.columns), strict=True):
            row = dict(zip(early.column_names, values, strict=True))
            event = (tuple(comparable(row[n]) for n in names), row[LE])
            weights[event, row.get(RE, row[LE] + 1)] += row.get(WEIGHT, 1)
    total: Counter[Any] = Counter()
    for (event, _), weight in weights.items():
        total[event] += weight
    changes = [(*event, until, w) for (event, until), w in weights.items() if w and (until < c or total[event])]
    return ", ".join(f"{w:+d} {interval(le, until, axis)} {row}" for row, le, until, w in changes)
