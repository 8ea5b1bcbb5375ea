"""Events in the order of group, start, columns and end: that of Python's sort over the same rows."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa

from streamq.runtime.evaluators.numbering import event_order
from streamq.runtime.event import LE, RE

Row = tuple[int, int, int | None, str, int]
"""A group, a start, two values and an end."""


def sort_key(row: Row) -> tuple[object, ...]:
    group, start, v, w, end = row
    return group, start, v is not None, v or 0, w, end


def test_order_and_numbers_are_those_of_a_sort() -> None:
    rng = random.Random(7)
    for size, is_sorted in itertools.product((0, 1, 2, 9, 60), (False, True)):
        rows: list[Row] = [
            (
                rng.randrange(2),
                at := rng.randrange(4),
                rng.choice([None, -1, 2]),
                rng.choice("ab"),
                at + rng.randrange(3),
            )
            for _ in range(size)
        ]
        if is_sorted:
            rows.sort(key=lambda row: row[:2])
        groups, starts, vs, ws, ends = ([row[i] for row in rows] for i in range(5))
        table = pa.table(
            {
                LE: pa.array(starts, pa.int64()),
                RE: pa.array(ends, pa.int64()),
                "v": pa.array(vs, pa.int64()),
                "w": pa.array(ws, pa.string()),
            }
        )
        order, number = event_order(table, np.array(groups, np.int64), ["v", "w"])
        expected = sorted(rows, key=sort_key)
        assert sorted(order.tolist()) == list(range(size))
        assert [rows[i] for i in order] == expected
        different = sorted({sort_key(row)[:-1] for row in rows})
        assert number.tolist() == [different.index(sort_key(row)[:-1]) for row in expected]
