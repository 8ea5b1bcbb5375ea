"""Columnar work on tables: what the kernels share."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from streamq.errors import StreamqError
from streamq.runtime.columnar import codes, concat, group, narrow_sums, negate, net_deltas
from streamq.runtime.event import LE, RE


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
