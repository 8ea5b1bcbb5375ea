"""The late output: rows that were not taken as they came, of any source, with the reason and how late they were."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.choices import Invalid, Late
from streamq.runtime.columnar import ints, with_column
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Judge, Totals, refuse_invalid, refuse_late
from streamq.runtime.rendering import python_rows
from streamq.time import INFINITY, MINUS_INFINITY

LATE_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("reason", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("late_by", pa.int64()),
        ("payload", pa.string()),
    ]
)
"""start and end in ticks (NULL end: still alive), late_by in ticks behind the CTI (NULL for rows that are not late)."""


def late_rows(source: str, reason: str, table: pa.Table, c: int | None) -> pa.Table:
    """Rows of a source as rows of the late output; everything but the lifetime goes into ``payload`` as JSON."""
    n = table.num_rows
    start = table.column(LE).cast(pa.int64()) if LE in table.column_names else pa.nulls(n, pa.int64())
    end: Any = pa.nulls(n, pa.int64())
    if RE in table.column_names:
        values = table.column(RE).to_numpy(zero_copy_only=False)
        end = pa.array(values, pa.int64(), mask=(values == INFINITY) | np.isnan(values.astype(float)))
    by: Any = pa.nulls(n, pa.int64())
    if c is not None and c not in (INFINITY, MINUS_INFINITY) and start.null_count == 0:
        by = pa.array(c - ints(table, LE))
    names = [name for name in table.column_names if not name.startswith("__")]
    payload = (
        [json.dumps(row, default=_plain, sort_keys=True) for row in python_rows(table.select(names))]
        if names
        else ["{}"] * n
    )
    return pa.table(
        [pa.array([source] * n), pa.array([reason] * n), start, end, by, pa.array(payload)], schema=LATE_SCHEMA
    )


def is_late(sync: np.ndarray[Any, Any], c: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which items lie behind c."""
    return sync < c if c != MINUS_INFINITY else np.zeros(len(sync), bool)


def adjusts(
    judge: Judge, table: pa.Table, sync: np.ndarray[Any, Any], late: np.ndarray[Any, Any], promised: int
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Of the late items, rows of ``table``, those that act from c on.

    Raises LateEvent for what breaks the source's own word under ``fail``.
    """
    broken = late & is_late(sync, promised)
    if broken.any():
        refuse_late(judge, int(broken.sum()), promised, python_rows(table.slice(int(broken.argmax()), 1))[0])
    return late if judge.late == Late.ADJUST else late & ~broken


def judged(table: pa.Table, judge: Judge, c: int, promised: int, totals: Totals) -> pa.Table:
    """Inserts of a source: those on time, and what its policy leaves of those behind c, ``[c, RE)`` if adjusted."""
    late = is_late(ints(table, LE), c)
    if not late.any():
        return table
    left = adjusts(judge, table, ints(table, LE), late, promised) & (ints(table, RE) > c)
    gone = late & ~left
    for mask, reason in ((gone, "dropped"), (left, "adjusted")):
        totals.add(judge.source, reason, int(mask.sum()))
        if mask.any():
            totals.rows.append(late_rows(judge.source, reason, table.filter(pa.array(mask)), c))
    moved = with_column(table, LE, np.where(left, c, ints(table, LE)))
    return moved.filter(pa.array(~gone))


def taken(arrival: Arrival, totals: Totals) -> pa.Table:
    """An arrival's deltas with their ends and weights; where lateness is judged, those that are taken."""
    table = arrival.table
    if RE not in table.column_names:
        table = with_column(table, RE, ints(table, LE) + 1)
    if arrival.judge is not None:
        table = judged(table, arrival.judge, arrival.c, arrival.promised, totals)
    if WEIGHT not in table.column_names:
        table = with_column(table, WEIGHT, np.ones(table.num_rows, np.int64))
    return table


def left_out(rows: pa.Table, judge: Judge, reason: str, totals: Totals) -> None:
    """Count rows that are no events; raises InvalidEvent where the source's policy is ``fail``."""
    if not rows.num_rows:
        return
    if judge.invalid == Invalid.FAIL:
        refuse_invalid(judge.source, reason, python_rows(rows.slice(0, 1))[0], judge.axis)
    totals.add(judge.source, "invalid", rows.num_rows)
    totals.rows.append(late_rows(judge.source, reason, rows, None))


def once_more(rows: pa.Table, judge: Judge, totals: Totals) -> None:
    """Count rows that repeat others: at-least-once sources deliver such, and no policy is asked."""
    if not rows.num_rows:
        return
    totals.add(judge.source, "duplicates", rows.num_rows)
    totals.rows.append(late_rows(judge.source, "duplicate", rows, None))


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
