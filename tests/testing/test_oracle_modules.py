"""The oracle calls modules plainly, once over all members of each window, and reads their results as documented."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.errors import QueryFailed
from streamq.expressions import col
from streamq.stream import Stream
from streamq.testing.oracle import oracle
from streamq.testing.profiles import FAILS
from streamq.time import INFINITY
from streamq.user_code.udf import UserFunction
from streamq.user_code.udo import StatefulOperator

ROWS = [
    (1, 4, {"k": "a", "v": 2}),
    (3, 8, {"k": "b", "v": 6}),
    (3, 5, {"k": "a", "v": None}),
    (6, None, {"k": "a", "v": 1}),
]
S = sq.events(ROWS)
SEEN: list[Any] = []
FIRST_FAILURE = t.Profile(batch=0, streams=0, shrinking=0)
"""In-process; the first case that fails is as good as the smallest."""


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


def judged(query: Stream) -> list[tuple[Any, ...]]:
    """Rows of the oracle's answer in order."""
    rows = [tuple(row.values()) for row in oracle(query.plan, query.tables).to_pylist()]
    return sorted(((a, None if b == INFINITY else b, *rest) for a, b, *rest in rows), key=repr)


@sq.uda("string", name="seen")
def seen(*values: pd.Series, mark: str = "") -> str:
    SEEN.append([v.tolist() for v in values])
    return mark + "/".join(str(v.dtype) for v in values)


@sq.uda("bigint", time_sensitive=True, name="read_lifetimes", columns=["x"])
def read_lifetimes(events: pd.DataFrame, window: Any) -> int:
    SEEN.append((window.start, window.end, *events.itertuples(index=False, name=None)))
    return len(events)


@sq.udo("x bigint, n int", time_sensitive=True, name="each")
def each(events: pd.DataFrame, window: Any) -> Iterator[Any]:
    for event in events.itertuples():
        yield event.start, event.end, event.v, len(events)


def test_a_function_is_called_once_a_window_with_series_in_member_order() -> None:
    windows = S.group_by("k").tumbling_window(20)
    kinds = [(0, 20, "a", "Int64/float64"), (0, 20, "b", "int64/float64")]
    assert judged(windows.select(x=seen("v", sq.col("v") + 0.5))) == kinds
    shown = [[[None if pd.isna(v) else v for v in values] for values in call] for call in SEEN]
    assert sorted(shown, key=repr) == [[[2, None, 1], [2.5, None, 1.5]], [[6], [6.5]]]


def test_what_a_filter_leaves_out_is_no_member_and_nothing_is_not_called_for() -> None:
    query = S.group_by("k").tumbling_window(20).select(x=seen("v", where=sq.col("v") > 1, mark="!"), n=sq.count())
    assert judged(query) == [(0, 20, "a", "!int64", 3), (0, 20, "b", "!int64", 1)]
    assert sorted(SEEN) == [[[2]], [[6]]]
    assert judged(S.tumbling_window(20).select(x=seen("v", where=sq.col("v") > 9))) == [(0, 20, None)]
    assert judged(S.tumbling_window(20).select(each("v", where=sq.col("v") > 9))) == []
    assert len(SEEN) == 2


def test_what_a_module_raises_fails_the_query() -> None:
    @sq.uda("bigint", name="fails")
    def fails(v: pd.Series) -> int:
        raise ZeroDivisionError("of nothing")

    with pytest.raises(QueryFailed, match=r"fails: it failed; ZeroDivisionError: of nothing; window \[0, 10\)"):
        judged(sq.events([(1, 4, {"v": 2})]).tumbling_window(10).select(x=fails("v")))


def test_a_window_of_instants_whose_module_fails_is_told_by_instants_and_no_rule_of_sparks() -> None:
    fails = sq.uda("bigint", name="fails")(lambda v: 1 // 0)
    noon = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    with pytest.raises(QueryFailed, match=r"oracle: a module fails; .*\[2024-05-01T12:00.*, 2024-05-01T13:00.*\)"):
        judged(
            sq.events([(noon, noon + dt.timedelta(minutes=9), {"v": 2})]).tumbling_window("1 hour").select(x=fails("v"))
        )


def test_what_does_not_fit_its_type_fails_the_query() -> None:
    s = sq.events([(1, 4, {"v": 2})])
    step = sq.udso("x bigint", initial=0, name="fails")(lambda state, v: (state, [2**63]))
    queries = [
        s.to_points().scan(step("v")),
        s.tumbling_window(10).select(x=sq.uda("bigint", name="fails")(lambda v: 2**63)("v")),
        s.tumbling_window(10).select(sq.udo("x bigint", name="fails")(lambda v: [2**63])("v")),
    ]
    for query in queries:
        with pytest.raises(QueryFailed, match="fails.* failed"):
            judged(query)


@pytest.mark.slow
def test_a_sum_beyond_64_bits_is_a_case_that_fails() -> None:
    total = sq.udso("x bigint", initial=0, name="total")(lambda state, v: (state + (v or 0), [state + (v or 0)]))
    points = sq.points(pa.table({"at": [1], "v": [1]}), "at")
    report = t.verify(points.scan(total(sq.col("v") * 0 + 2**62)), profile="fast", examples=8, may_fail=True)
    assert 0 < report.cases < report.set_aside[FAILS]


@pytest.mark.slow
def test_verify_judges_queries_with_modules() -> None:
    windows = S.group_by("k").hopping_window(4, 2)
    for query in (windows.select(n=sq.count(), x=read_lifetimes("v")), windows.select(each("v"))):
        report = t.verify(query, profile="fast", examples=3)
        assert report.cases == 3


# quarantine

inverse = sq.udf("double", name="inverse_of", on_error="quarantine")(lambda v: 1 / v)
least = sq.uda("bigint", name="least_known", on_error="quarantine")(lambda values: min(map(int, values)))
values_of = sq.udo("v bigint", name="values_known", on_error="quarantine")(lambda values: [(int(v),) for v in values])


@sq.udso("total bigint", name="total_known", initial=[0], on_error="quarantine")
def total(state: list[int], value: int | None) -> tuple[list[int], list[int]]:
    state.append(1)
    return [state[0] + value], [state[0] + value]  # type: ignore[operator]


def test_what_a_call_fails_for_is_set_aside_and_counted() -> None:
    rows = [(1, 2, {"v": 2}), (3, 4, {"v": 0}), (5, 6, {"v": None}), (9, 10, {"v": 4})]
    s = sq.events(rows)
    windows = s.tumbling_window(4)
    for query, expected, failed in (
        (s.select(x=inverse("v")), [(1, 2, 0.5), (9, 10, 0.25)], {"inverse_of": 2}),
        (s.where(inverse("v") > 0.3).select("v"), [(1, 2, 2)], {"inverse_of": 2}),
        (s.select(x=sq.when(col("v") > 0, inverse("v"))), [(1, 2, 0.5), (3, 4, None), (5, 6, None), (9, 10, 0.25)], {}),
        (windows.select(x=least("v")), [(0, 4, 0), (4, 8, None), (8, 12, 4)], {"least_known": 1}),
        (windows.select(values_of("v")), [(0, 4, 0), (0, 4, 2), (8, 12, 4)], {"values_known": 1}),
        (s.to_points().scan(total("v")), [(1, 2, 2), (3, 4, 2), (9, 10, 6)], {"total_known": 1}),
    ):
        failed_calls = Counter[str]()
        table = oracle(query.plan, query.tables, set_aside=failed_calls)
        assert sorted((tuple(row.values()) for row in table.to_pylist()), key=repr) == sorted(expected, key=repr)
        assert failed_calls == failed


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_events_whose_calls_fail_are_not_due(seed: int) -> None:
    """Where the level of consistency holds back input, and releases it."""
    query = t.stream(columns="v bigint", axis="integer").select(x=inverse("v"))
    profile = t.Profile(examples=15, batch=0, streams=0, shrinking=1, seed=seed)
    assert t.verify(query, t.Intent(nulls="mostly"), profile=profile).cases == 15


@pytest.mark.slow
def test_verify_holds_quarantine_to_its_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    s = t.stream(columns="v bigint", axis="integer", shape="points")
    query = s.scan(total("v"))  # type: ignore[arg-type]
    assert t.verify(query, profile=FIRST_FAILURE, examples=8).cases == 8
    # what an operator says of its failures has no effect
    monkeypatch.setattr(StatefulOperator, "guards", property(lambda self: {"name": self.name}))
    with pytest.raises(t.VerificationFailed, match="ModuleFailed: total_known"):
        t.verify(query, profile=FIRST_FAILURE, examples=8)


# identity


@sq.udf("string", name="size_of")
def size(value: float | None, limit: float = 10) -> str | None:
    return None if value is None else "large" if value > limit else "small"


@pytest.mark.slow
def test_verify_notices_a_digest_that_ignores_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def query() -> Any:
        s: Any = t.stream(columns="v double", axis="integer")
        return s.select(low=size("v", limit=1), high=size("v", limit=3))

    assert t.verify(query(), profile=FIRST_FAILURE, examples=3).cases == 3
    monkeypatch.setattr(UserFunction, "identity", property(lambda self: self.name))
    with pytest.raises(t.VerificationFailed, match="have one digest"):
        t.verify(query(), profile=FIRST_FAILURE, examples=3)
