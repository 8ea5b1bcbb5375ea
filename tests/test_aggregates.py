"""The aggregates: values as Spark has them, filters, an order that does not depend on arrival, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

import streamq as sq
from streamq.errors import PlanError, StreamqError, TypeMismatch, UnknownColumn
from streamq.testing.table import table
from tests.judged import answer


def over(values: Sequence[Any], aggregate: Any, kind: str | None = None) -> Any:
    """An aggregate over column v of one window's members, which start one after another."""
    s = sq.events([(i, i + 1, {"v": v}) for i, v in enumerate(values)], schema={"v": kind} if kind else None)
    ((_, _, found),) = answer(s.tumbling_window(100).select(x=aggregate))
    return found


def test_count_distinct_of_combinations() -> None:
    """A member with a NULL in one of the columns does not count, and a retraction takes its combination back."""
    pairs = [(1, "a"), (1, "b"), (1, "a"), (2, "a"), (1, None), (None, "a"), (None, None)]
    s = sq.events([(at, at + 3, {"v": v, "k": k, "w": 0.0}) for at, (v, k) in enumerate(pairs)], schema={"v": "bigint"})
    ((_, _, *counts),) = answer(
        s.tumbling_window(10).select(
            pairs=sq.count_distinct("v", "k"),
            few=sq.count_distinct("v", "k", where=sq.col("v") == 1),
            triples=sq.count_distinct("v", "k", sq.col("w") * -1),
            same=sq.count_distinct("k", "k"),
        )
    )
    assert counts == [3, 2, 3, 2]
    taken_back = [sq.insert(1, 9, v=1, k="a"), sq.insert(2, 9, v=1, k="b"), sq.retract(2, 9, 2, v=1, k="b")]
    assert answer(sq.events(taken_back).tumbling_window(5).select(n=sq.count_distinct("v", "k"))) == [
        (0, 5, 1),
        (5, 10, 1),
    ]


def test_a_percentile_lies_between_the_two_nearest_values() -> None:
    assert over([1, 2, 3, 5, None], sq.percentile("v", 0.9)) == pytest.approx(4.4)
    assert over([float("nan"), 1.0], sq.percentile("v", 0.0)) == 1.0


def test_a_sum_of_decimals_beyond_38_digits_is_an_error_and_no_other_number() -> None:
    for values, total in ((("9e37", "-8e37"), "1e37"), (("9e37", "9e37"), None), (("6e37", "6e37"), None)):
        rows = [(1, 2, {"v": Decimal(v)}) for v in values]
        query = sq.events(rows, schema={"v": "decimal(38,0)"}).tumbling_window(5).select(s=sq.sum("v"))
        if total is None:
            with pytest.raises(StreamqError, match=r"overflow of decimal128\(38, 0\)"):
                query.to_arrow()
        else:
            assert answer(query) == [(0, 5, Decimal(total))]


def test_a_payload_with_lists_and_structs_has_an_order_too() -> None:
    rows = [(1, 2, {"xs": xs, "v": v}) for v, xs in enumerate(([2], [1, 5], None, [1], []))]
    found = [sq.events(list(p)).tumbling_window(9).select(x=sq.collect("v")) for p in (rows, rows[::-1])]
    assert [answer(f)[0][2] for f in found] == [[2, 4, 3, 1, 0]] * 2
    structs = sq.events([(1, 2, {"s": {"a": a}, "v": a}) for a in (3, 1, 2)])
    assert structs.tumbling_window(9).select(x=sq.collect("v")).to_arrow()["x"].to_pylist() == [[1, 2, 3]]


def test_decimals_and_integers_at_their_limits() -> None:
    assert over([Decimal("0.10"), Decimal("0.20")], sq.sum("v")) == Decimal("0.30")
    assert over([Decimal("1.00"), Decimal("2.00")], sq.median("v")) == 1.5
    assert over([2**63 - 1, -1], sq.sum("v")) == 2**63 - 2
    with pytest.raises(StreamqError, match="overflow"):
        sq.events([(1, 2, {"v": 2**63 - 1}), (1, 2, {"v": 1})]).snapshot_window().select(x=sq.sum("v")).to_arrow()


def test_errors() -> None:
    s = sq.events([(1, 2, {"k": "a", "v": 1, "xs": [1]})]).tumbling_window(5)
    for fraction in (1.5, -0.1, True, "0.5"):
        with pytest.raises(PlanError, match="percentile: the fraction lies between 0 and 1; found"):
            sq.percentile("v", fraction)  # type: ignore[arg-type]
    with pytest.raises(
        TypeMismatch, match="percentile: needs numbers; found string in percentile\\(k, 0.5\\). Cast it"
    ):
        s.select(x=sq.median("k"))
    with pytest.raises(TypeMismatch, match="corr: needs numbers; found corr\\(v, k\\)"):
        s.select(x=sq.corr("v", "k"))
    with pytest.raises(TypeMismatch, match="time_weighted_avg: needs numbers; found string"):
        s.select(x=sq.time_weighted_avg("k"))
    with pytest.raises(TypeMismatch, match="count: the filter is not boolean; found bigint in count\\(\\* where v\\)"):
        s.select(x=sq.count(where=sq.col("v")))
    with pytest.raises(
        PlanError, match=r"^sum: where is a condition over columns; found function <lambda>. Write it over"
    ):
        sq.sum("v", where=lambda e: e.v > 1)
    with pytest.raises(PlanError, match=r"count: where is a condition over columns; found 'v > 1'. .* where=sq.col"):
        sq.count(where="v > 1")
    with pytest.raises(
        PlanError, match=r"sum: a Python function instead of a column; found function <lambda>. Write the"
    ):
        sq.sum(lambda e: e.v)
    with pytest.raises(PlanError, match=r"^count: '\*' is no column. All members are counted by sq.count\(\).$"):
        sq.count("*")
    with pytest.raises(UnknownColumn, match="select: no column 'w'; there are: k, v, xs"):
        s.select(x=sq.first("w"))
    maps = sq.points(table("at bigint, xs map<string,bigint>", [(1, {"a": 1})]), time="at").tumbling_window(5)
    with pytest.raises(TypeMismatch, match="count_distinct: cannot group by column 'xs'; found map<string,bigint>"):
        maps.select(x=sq.count_distinct("xs"))
    with pytest.raises(TypeMismatch, match="count_distinct: cannot group by column 'xs'; found map<string,bigint>"):
        maps.select(x=sq.count_distinct(sq.lit(1), "xs"))
    with pytest.raises(
        PlanError, match="sum: an aggregate of an aggregate; found count\\(\\*\\) inside. Put a window over"
    ):
        s.select(x=sq.sum(sq.count()))
