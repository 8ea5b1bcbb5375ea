"""The oracle against histories computed by hand; `test_golden_cases.py` has those of published examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext

import pytest
from pyspark.sql import types as t

import streamq as sq
from streamq.aggregates import built_in
from streamq.aggregates.basic import COUNT
from streamq.errors import QueryFailed
from streamq.expressions import col, duration, end, start
from streamq.operators import Select, Union, Where, WindowAggregate, written_operators
from streamq.patterns.definitions import Detect
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node
from streamq.testing.oracle import ORACLE, SumOverflow, TooMuch, oracle
from streamq.time import INFINITY
from streamq.windows import Hopping
from tests.testing.by_oracle import DOUBLE, LONG, NAN, STRING, answer, intervals


def window(source: Node, grid: Hopping, keys: Sequence[str] = (), **aggregates: Aggregate) -> WindowAggregate:
    return WindowAggregate(source, tuple(keys), grid, tuple(aggregates.items()))


def count(*args: Expr) -> Aggregate:
    return Aggregate(COUNT, args)


def of(name: str, column: str = "v") -> Aggregate:
    return Aggregate(built_in()[name], (Col(column),))


def test_every_logical_operator_has_a_definition_named_as_it() -> None:
    assert set(ORACLE) == {*written_operators(), Detect}
    names = {node.__name__.lower(): f.__name__.replace("_", "") for node, f in ORACLE.items()}
    assert all(node == function for node, function in names.items())


# span operators


def test_where_keeps_what_is_true_not_what_is_unknown() -> None:
    rows = [(1, 5, 1.0), (1, 5, None), (2, None, 9.0), (3, 4, NAN)]
    assert answer(Where(intervals(v=DOUBLE), col("v") > 5.0), rows)[0] == (2, None, 9.0)
    assert len(answer(Where(intervals(v=DOUBLE), col("v") > 5.0), rows)) == 2, "NaN is greater than any number"
    assert answer(Where(intervals(v=DOUBLE), end().is_null()), rows) == [(2, None, 9.0)]
    assert answer(Where(intervals(v=DOUBLE), (start() >= 2) & (duration() < 2)), rows)[0][:2] == (3, 4)


def test_select_keeps_lifetimes() -> None:
    plan = Select(intervals(v=LONG), (("w", col("v") * 2), ("since", start()), ("lives", duration())))
    assert answer(plan, [(1, 5, 3), (2, None, 4)]) == [(1, 5, 6, 1, 4), (2, None, 8, 2, None)]


def test_union_is_a_bag() -> None:
    source = intervals(v=LONG)
    assert answer(Union((source, source, Where(source, col("v") > 1))), [(1, 2, 1), (1, 2, 2)]) == [
        (1, 2, 1), (1, 2, 1), (1, 2, 2), (1, 2, 2), (1, 2, 2),
    ]  # fmt: skip


# windows

OVERLAP = [(0, 5, "e1"), (4, 12, "e2"), (11, 13, "e3")]


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (Hopping(5, 5), {(0, 5): "e1 e2", (5, 10): "e2", (10, 15): "e2 e3"}),
        (Hopping(10, 5), {(-5, 5): "e1 e2", (0, 10): "e1 e2", (5, 15): "e2 e3", (10, 20): "e2 e3"}),
        (Hopping(2, 5), {(0, 2): "e1", (5, 7): "e2", (10, 12): "e2 e3"}),
        (Hopping(2, 5, -6), {(-1, 1): "e1", (4, 6): "e1 e2", (9, 11): "e2"}),
        (Hopping(3, 4, 1), {(1, 4): "e1", (5, 8): "e2", (9, 12): "e2 e3"}),
        (Hopping(5, 4), {(-4, 1): "e1", (0, 5): "e1 e2", (4, 9): "e1 e2", (8, 13): "e2 e3", (12, 17): "e3"}),
    ],
)  # fmt: skip
def test_members_overlap_the_window(grid: Hopping, expected: Mapping[tuple[int, int], str]) -> None:
    plan = window(intervals(e=STRING), grid, n=count(), least=of("min", "e"), most=of("max", "e"))
    wanted = [(*w, len(m.split()), m.split()[0], m.split()[-1]) for w, m in sorted(expected.items())]
    assert answer(plan, OVERLAP) == wanted


def test_an_event_in_a_gap_is_in_no_window() -> None:
    assert answer(window(intervals(), Hopping(2, 5), n=count()), [(2, 5), (-3, 0), (7, 8)]) == []


def test_infinite_lifetimes_are_reported_up_to_the_greatest_finite_endpoint() -> None:
    plan = window(intervals(k=STRING), Hopping(5, 5), ["k"], n=count())
    rows = [(2, None, "a"), (1, 12, "b")]
    tens = [(0, 5), (5, 10), (10, 15)]
    assert answer(plan, rows) == [(*w, k, 1) for w in tens for k in "ab"], "the bound is that of all groups"
    assert answer(plan, [(2, None, "a")]) == [(0, 5, "a", 1)]
    assert answer(plan, [(5, None, "a")]) == [], "the window [5, 10) does not start before 5"
    assert answer(plan, [(5, 6, "a")]) == [(5, 10, "a", 1)], "no lifetime is infinite: all windows"


def test_until_bounds_the_windows() -> None:
    plan = window(intervals(), Hopping(4, 2), n=count())
    assert answer(plan, [(3, None)], until=5) == [(0, 4, 1), (2, 6, 1), (4, 8, 1)]
    assert answer(plan, [(5, 7)], until=3) == [(2, 6, 1)], "an event after until in a window that starts before it"
    with pytest.raises(TooMuch, match="too many windows"):
        answer(plan, [(3, None)], until=INFINITY)


def test_windows_over_windows() -> None:
    inner = window(intervals(v=LONG), Hopping(2, 2), s=of("sum"))
    outer = window(inner, Hopping(4, 4), n=count(), s=of("sum", "s"))
    assert answer(inner, [(0, 3, 1), (1, 5, 10)]) == [(0, 2, 11), (2, 4, 11), (4, 6, 10)]
    assert answer(outer, [(0, 3, 1), (1, 5, 10)]) == [(0, 4, 2, 22), (4, 8, 1, 10)]


def test_groups_of_null_nan_and_both_zeros() -> None:
    plan = window(intervals(k=DOUBLE), Hopping(9, 9), ["k"], n=count())
    rows = answer(plan, [(0, 1, k) for k in (None, None, NAN, NAN, 0.0, -0.0)])
    assert sorted(str(row[2:]) for row in rows) == ["(0.0, 2)", "(None, 2)", "(nan, 2)"]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("sum", ["1.25", "-0.30", None], "0.95"),
        ("avg", ["1.00", "0.00", "0.00"], "0.333333"),
        ("avg", ["0.01", "0.01", "0.00"], "0.006667"),
        ("avg", ["-0.01", "-0.01", "0.00"], "-0.006667"),
        ("avg", ["100.00", "2.00"], "51.000000"),
        ("avg", [None], None),
    ],
)
def test_aggregates_of_decimals(name: str, values: list[str | None], expected: str | None) -> None:
    plan = window(intervals(v=t.DecimalType(5, 2)), Hopping(9, 9), x=of(name))
    value = answer(plan, [(0, 1, None if v is None else Decimal(v)) for v in values])[0][2]
    assert (value, str(value)) == (None if expected is None else Decimal(expected), str(expected))


def test_integers_average_to_doubles_and_overflow() -> None:
    plan = window(intervals(v=LONG), Hopping(9, 9), s=of("sum"), a=of("avg"), n=count(Col("v")))
    assert answer(plan, [(0, 1, 1), (0, 1, 2), (0, 1, None)]) == [(0, 9, 3, 1.5, 2)]
    with pytest.raises(QueryFailed, match="Spark's rules"):
        answer(plan, [(0, 1, 2**63 - 1), (0, 1, 1)])


@pytest.mark.parametrize("kind", [LONG, t.DecimalType(38, 2), t.DecimalType(38, 0)])
def test_a_sum_fails_if_the_total_does_not_fit(kind: t.DataType) -> None:
    plan = window(intervals(v=kind), Hopping(9, 9), s=of("sum"))
    with localcontext(prec=38):
        unit = Decimal(1).scaleb(-kind.scale) if isinstance(kind, t.DecimalType) else 1
        great = (10**38 - 1) * unit if isinstance(kind, t.DecimalType) else 2**63 - 1
        rows, total = [(0, 1, v) for v in (great, great, -unit, -great)], great - unit
    assert answer(plan, rows) == [(0, 9, total)]
    for overflowing in (rows[:2], [(0, 1, great), (0, 1, unit)]):
        with pytest.raises(QueryFailed, match="Spark's rules"):
            answer(plan, overflowing)
        assert answer(plan, overflowing, overflow=SumOverflow.NONE) == [(0, 9, None)]
    with pytest.raises(QueryFailed, match="Spark's rules"):
        answer(plan, rows, overflow=SumOverflow.ON_THE_WAY)


@pytest.mark.slow
def test_an_answer_that_does_not_fit_into_memory_is_no_answer() -> None:
    s = sq.events([(0, 9, {"v": n}) for n in range(40)])
    query = s.select("v")
    for n in range(5):
        query = query.join(s.select(**{f"v{n}": sq.col("v")}))
    with pytest.raises(TooMuch, match="too many rows; an operator's rows do not fit into 2GB"):
        oracle(query.plan, query.tables)
