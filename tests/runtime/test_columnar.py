"""Columnar work on tables: what the kernels share."""

from __future__ import annotations

import itertools
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from streamq.errors import StreamqError
from streamq.runtime.arrow.columnar import codes, concat, group, narrow_sums, negate
from streamq.runtime.deltas import LE, RE, net_deltas
from streamq.runtime.evaluators.assigner import event_order


def test_net_of_deltas_with_columns_that_have_no_order() -> None:
    lists = pa.array([[1.0, None], [1.0, None], [float("nan")], [float("nan")], []], pa.list_(pa.float64()))
    table = pa.table({"x": lists, LE: [1, 1, 1, 1, 1], RE: [2, 2, 2, 2, 2], "__w": [1, 1, 1, -1, -1]})
    deltas = net_deltas(pa.concat_tables([table, table.slice(0, 1)]))
    assert sorted((r["x"], r["__w"]) for r in deltas.to_pylist()) == [([], -1), ([1.0, None], 3)]


@pytest.mark.parametrize("digits", [3, 36, 37, 38], ids=lambda digits: f"decimal({digits}, 2)")
def test_decimals_add_up_exactly_or_are_an_error(digits: int) -> None:
    """Ten rows: up to 36 digits Arrow's own 38 hold any sum, beyond it takes wider ones. The type stays."""
    kind = pa.decimal128(digits, 2)
    most, least = (Decimal(f"{sign}{'9' * (digits - 2)}.99") for sign in ("", "-"))
    values = [most, least, least, most, Decimal("-0.01"), most, None, Decimal("0.02"), least, most]
    table = pa.table({"k": ["a"] * 10, "v": pa.array(values, kind)})
    summed = {"sum": ("v", "sum")}
    found = group(table.slice(0, 9), ["k"], summed)
    assert found.schema.field("sum").type == kind
    assert found.to_pylist() == [{"k": "a", "sum": Decimal("0.01")}]
    for too_much in (table, pa.table({"k": [1] * 200, "v": pa.array([most] * 200, kind)})):
        sums = group(too_much, ["k"], summed).column("sum")
        assert pa.types.is_decimal(sums.type) and sums.type != kind, "it is there, in a wider type"
        with pytest.raises(StreamqError, match=rf"sum: overflow of decimal128\({digits}, 2\)"):
            narrow_sums(sums, kind)


def test_sums_of_integers_are_exact_whatever_the_order() -> None:
    """What overflows on the way is no error: what else comes may bring it back."""
    least, most = -(2**63), 2**63 - 1
    summed = {"v": ("v", "sum")}

    def part(*values: int) -> pa.Table:
        return group(pa.table({"k": ["a"] * len(values), "v": pa.array(values, pa.int64())}), ["k"], summed)

    assert part(most, least).schema.field("v").type == pa.int64()
    whole = group(concat([part(most, most), part(least), part(least, 7)]), ["k"], summed)
    assert narrow_sums(whole.column("v"), pa.int64()).to_pylist() == [5]
    with pytest.raises(StreamqError, match="sum: overflow of int64"):
        narrow_sums(part(least, -1).column("v"), pa.int64())
    assert negate(pa.chunked_array([[1, least, None]])).to_pylist() == [-1, 2**63, None]


def test_runs_of_equal_integers_are_numbered_as_single_rows_are() -> None:
    table = pa.table({"a": [1, 1, 1, 2, 2, 2, 1, 1, 1, 1], "b": [0, 0, 0, 0, 0, 0, 0, 0, 5, 5]})
    number, first = codes(table, ["a", "b"])
    assert number.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 2, 2]
    assert first.tolist() == [0, 3, 8]
    number, first = codes(table.slice(0, 0), ["a", "b"])
    assert (len(number), len(first)) == (0, 0)


# Deltas that lack ends or weights are points and inserts.

# Events in the order of group, start, columns and end: that of Python's sort over the same rows.

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
