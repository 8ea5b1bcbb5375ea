"""Deltas: rows that change a history, each with a lifetime and a weight: +1 inserts it, -1 retracts it.

Columns beside the payload, in deltas and in the rows in which sources deliver events, have names with two underscores in front.
Two columns may be missing: without ``__re`` every row lives for a tick, and without ``__w`` every row is an insert.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arrow.columnar import codes, group, ints, with_column
from streamq.runtime.arrow.values import SAME, Ints, bytes_tell, combine_numbers, number_values
from streamq.time import INFINITY, MINUS_INFINITY

LE: Final = "__le"
"""Start of the lifetime, int64 ticks."""
RE: Final = "__re"
"""End of the lifetime, int64 ticks; INFINITY while open. Declared points lack the column: their end is LE + 1."""
WEIGHT: Final = "__w"
"""Weight, int64: +1 inserts, -1 retracts. A table without the column holds inserts only."""
WAKES: Final = "__wakes"
"""The instant at which the events for which a row stands are read one by one; INFINITY for a row that is an event."""
KEEP: Final = "__keep"
"""True if a row passed the filters of its path; the other rows still move their source's progress."""
BAD: Final = "__bad"
"""The reason why a source row is no event, NULL for events. Rows of points may lack the column: their start decides."""
KIND: Final = "__kind"
"""The kind of a row of a physical source: insert, retract, cti or end."""
DIGEST: Final = "__digest"
"""A number that identifies the members of a row's window, as modules see them."""
NEW_END: Final = "__new"
"""The end to which a retraction moves its event."""
OPENS: Final = "__opens"
"""True for the start row of an edge event, False for its end row; NULL for a row that is neither, and so is invalid."""

NOW: Final = "__now"
"""The time of the row's micro-batch, the instant at which it was begun with, in microseconds since 1970."""
_BESIDE: Final = "__beside_"

INSERT, RETRACT, CTI, END = "insert", "retract", "cti", "end"

NO_START = "null start"
TOO_EARLY = "a start at -2^63, before the first instant of the time axis"
TOO_LATE = "a start too late to last a tick of the time axis"
"""The reasons why a start alone makes a row invalid: -2^63 and 2^63 - 1 are not instants, the latter means no end."""

LAST_POINT: Final = INFINITY - 2
"""The last instant of a point: it ends a tick later, and a tick later still is INFINITY."""


def start_reasons(le: Any, last: int = INFINITY - 1) -> pa.Array:
    """Return the reason why each start is invalid, NULL if it is valid; ``last`` is the last valid start."""
    late = pc.if_else(pc.fill_null(pc.greater(le, last), False), TOO_LATE, pa.scalar(None, pa.string()))
    early = pc.if_else(pc.fill_null(pc.equal(le, MINUS_INFINITY), False), TOO_EARLY, late)
    return pc.if_else(pc.is_null(le), NO_START, early)


def beside_column(name: str) -> str:
    """Return the name that items have for a column beside their event; it is a plain word, whatever ``name`` is."""
    return f"{_BESIDE}{name.encode().hex()}"


def beside_names(items: pa.Table) -> dict[str, str]:
    """Return the columns of items beside their events, each with its name in the source's table."""
    columns = [column for column in items.column_names if column.startswith(_BESIDE)]
    return {column: bytes.fromhex(column.removeprefix(_BESIDE)).decode() for column in columns}


def without_beside(items: pa.Table) -> pa.Table:
    """Return items without the columns beside their events."""
    return items.drop_columns([*beside_names(items)])


def with_ends(deltas: pa.Table) -> pa.Table:
    """Return the deltas with their ends; without ``__re`` they are points."""
    return deltas if RE in deltas.column_names else with_column(deltas, RE, ints(deltas, LE) + 1)


def with_weights(deltas: pa.Table) -> pa.Table:
    """Return the deltas with their weights; without ``__w`` they are inserts."""
    return deltas if WEIGHT in deltas.column_names else weighted(deltas, 1)


def live_rows(rows: pa.Table) -> int:
    """Return the number of rows, by weight if they have weights."""
    return int(ints(rows, WEIGHT).sum()) if WEIGHT in rows.column_names else rows.num_rows


def weighted(rows: pa.Table, weight: int) -> pa.Table:
    """Return the rows as deltas of one weight; weights that they have are replaced."""
    return with_column(rows, WEIGHT, np.full(rows.num_rows, weight, np.int64))


def cancelling_deltas(deltas: pa.Table) -> pa.Table:
    """Return the deltas that cancel these."""
    return with_column(deltas, WEIGHT, pc.negate(deltas.column(WEIGHT)))


def net_retractions(deltas: pa.Table) -> pa.Table:
    """Return deltas summed up if one of them is a retraction; else as they are, because nothing cancels out."""
    return net_deltas(deltas) if (ints(deltas, WEIGHT) < 0).any() else deltas


def unit_weights(deltas: pa.Table) -> pa.Table:
    """Return the same deltas, each of weight +1 or -1: a delta of weight n becomes n rows; inserts without ``__w`` stay so."""
    weight = ints(with_weights(deltas), WEIGHT)
    if (np.abs(weight) == 1).all():
        return deltas
    copies = np.repeat(np.arange(len(weight)), np.abs(weight))
    return with_column(deltas.take(pa.array(copies)), WEIGHT, np.sign(weight)[copies])


def history_of(deltas: pa.Table) -> pa.Table:
    """Return deltas added up to a history, without weights: each event occurs in it as often as its weights add up to.

    A negative sum counts as 0.
    """
    weight = ints(deltas, WEIGHT)
    if (weight == 1).all():
        return deltas.drop_columns([WEIGHT])
    summed = net_deltas(deltas)
    weight = ints(summed, WEIGHT)
    rows = summed.drop_columns([WEIGHT])
    if (weight == 1).all():
        return rows
    return rows.take(pa.array(np.repeat(np.arange(len(weight)), np.maximum(weight, 0))))


def net_deltas(table: pa.Table) -> pa.Table:
    """Return deltas summed up, without those that cancel out.

    A retraction cancels an insert that is equal to it, if possible one that is equal in every bit. Remaining rows keep their own
    values: -0.0 and 0.0 are equal, but not the same.
    """
    names = [n for n in table.column_names if n != WEIGHT]
    odd = [n for n in names if not bytes_tell(table.column(n))]
    if not odd:
        merged = group(table, names, {WEIGHT: (WEIGHT, "sum")})
        return merged.filter(pc.not_equal(merged.column(WEIGHT), 0)).select(table.column_names)
    equal, first = codes(table, names)
    finest = [number_values(table.column(n), SAME) for n in odd]
    same, _ = combine_numbers([(equal, len(first)), *finest])
    rows = pa.table({"equal": equal, "same": same, "at": np.arange(len(same)), WEIGHT: table.column(WEIGHT)})
    rows = group(rows, ["equal", "same"], {"at": ("at", "min"), WEIGHT: (WEIGHT, "sum")})
    weight = _remaining_weights(ints(rows, "equal"), ints(rows, WEIGHT))
    is_left = weight != 0
    return with_column(table.take(rows.column("at").filter(pa.array(is_left))), WEIGHT, weight[is_left])


def _remaining_weights(number: Ints, weight: Ints) -> Ints:
    """Return the weight of each row that remains when, within each number, negative weights cancel positive ones.

    The first rows of a number are cancelled first.
    """
    left = np.zeros(len(weight), np.int64)
    if not len(weight):
        return left
    order = np.argsort(number, kind="stable")
    heads = np.flatnonzero(np.diff(number[order], prepend=-1))
    sizes = np.diff(np.append(heads, len(order)))
    for sign in (1, -1):
        mine, others = np.maximum(sign * weight[order], 0), np.maximum(-sign * weight[order], 0)
        cancelled = np.repeat(np.add.reduceat(others, heads), sizes)
        before = np.cumsum(mine) - mine
        before = before - np.repeat(before[heads], sizes)
        left[order] += sign * np.clip(before + mine - cancelled, 0, mine)
    return left
