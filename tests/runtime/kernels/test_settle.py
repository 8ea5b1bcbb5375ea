"""Settle: a row is final once its end is before c; until then it may still change, and the CTI stays before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from streamq.runtime.kernel import Arrival, Clock
from streamq.runtime.kernels.settle import SettleKernel
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.testing.history import assert_same_history, net
from streamq.testing.oracle import oracle
from streamq.time import INFINITY, MINUS_INFINITY
from tests.programs import compiled


def test_rows_wait_until_they_are_settled() -> None:
    s = sq.events([sq.insert(1, None, v=3), sq.insert(2, 5, v=4), sq.retract(1, None, 8, v=3)], name="p")
    live = LocalRun(compiled(number_sources(s.plan)[0], OutputForm.FINAL, buckets=2))
    assert live.batch(s.tables).num_rows == 0
    assert live.batch({}, [(None, 5)]).num_rows == 0, "an end at c may still be extended"
    assert live.batch({}, [(None, 6)]).column("v").to_pylist() == [4]
    assert live.batch({}, [(None, 7)]).num_rows == 0
    assert live.finish().column("v").to_pylist() == [3]


Advance = Callable[..., tuple[list[Any], int]]


def settling(*, at_once: bool) -> Advance:
    """A kernel that takes the CTI before, the CTI and rows (LE, RE, weight), and gives the rows that go and its CTI."""
    state, kernel = Baskets(DictStore()).scoped("settle"), SettleKernel(at_once=at_once)

    def advance(before: int, c: int, *rows: tuple[int, int, int]) -> tuple[list[Any], int]:
        columns = {name: [r[i] for r in rows] for i, name in enumerate(("__le", "__re", "__w"))}
        arrivals = [Arrival(0, pa.table({"v": [0] * len(rows), **columns}))] if rows else []
        sent = kernel.advance(state, arrivals, Clock(before, c, before, c))
        assert sent.m == (c if at_once and c < INFINITY else MINUS_INFINITY), "the watermark does not wait"
        return [(r["__le"], r["__re"], r["__w"]) for r in (sent.table.to_pylist() if sent.table else [])], sent.c

    return advance


def test_rows_that_go_at_once_hold_the_cti_back_alike() -> None:
    advance = settling(at_once=True)
    assert advance(MINUS_INFINITY, 5, (1, INFINITY, 1), (2, 4, 1)) == ([(1, INFINITY, 1), (2, 4, 1)], 1)
    assert advance(5, 8, (1, INFINITY, -1), (1, 7, 1), (3, 9, 1), (3, 9, -1)) == ([(1, INFINITY, -1), (1, 7, 1)], 8)
    assert advance(8, 9, (8, 12, 1)) == ([(8, 12, 1)], 8)
    assert advance(9, INFINITY) == ([], INFINITY)


def test_the_cti_stays_at_the_least_start_of_a_row_that_waits() -> None:
    advance = settling(at_once=False)
    assert advance(MINUS_INFINITY, 5, (1, INFINITY, 1), (2, 4, 1), (3, 5, 1)) == ([(2, 4, 1)], 1)
    assert advance(5, 8, (1, INFINITY, -1), (1, 7, 1)) == ([(3, 5, 1), (1, 7, 1)], 8)
    assert advance(8, 9, (20, 22, 1)) == ([], 9), "what starts after c does not hold it back"
    assert advance(9, INFINITY) == ([(20, 22, 1)], INFINITY)


@pytest.mark.parametrize("output", [OutputForm.FINAL, OutputForm.CHANGELOG])
def test_what_a_filter_lets_in_later_does_not_come_into_a_final_window(output: str) -> None:
    """Time waits below a filter that reads ends which may move, also where what lies above it has none that do."""
    moved = sq.retract(1, 10, 12, v=1)
    items = [sq.insert(1, 10, v=1), sq.insert(2, 4, v=2), sq.cti(8), moved, sq.cti(30)]
    s = sq.events(items, name="s", progress=sq.explicit()).where((sq.end() == 12) | (sq.end() == 4))
    seen = s.join_table(pa.table({"v": [1, 2]}), on="v", name="seen")
    counted = [each.tumbling_window(5).select(n=sq.count()) for each in (s, s.to_points(), seen)]
    # read twice, once behind a step that makes several rows of one
    for query in (*counted[:2], counted[2].union(s.select(n=sq.lit(0).cast("bigint")))):
        live = LocalRun(compiled(number_sources(query.plan)[0], output, buckets=1), static=query.tables)
        parts = [live.batch({"s": query.tables["s"].slice(i, 1)}) for i in range(len(items))]
        assert_same_history(net([*parts, live.finish()]), oracle(query.plan, query.tables))


READS_ENDS: dict[str, Callable[[sq.Stream], sq.Stream]] = {
    "rows of one lifetime": lambda s: s.per_window().select(n=sq.count(), m=sq.min("v")),
    "the best of one lifetime": lambda s: s.group_by("v").per_window().top_k(1, by="v"),
    "a group": lambda s: s.select(d=sq.duration()).group_by("d").tumbling_window(4).select(n=sq.count()),
    "a filter": lambda s: s.where(sq.duration() > 2).tumbling_window(4).select(n=sq.count()),
    "a filter that is moved": lambda s: s.where(sq.duration() > 2).shift(3),
    "a lifetime": lambda s: s.set_duration(sq.duration() * 2),
    "an order": lambda s: s.with_columns(d=sq.end()).rows_window(2, order_by="d").select(n=sq.sum("v")),
    "a key": lambda s: s.select(v=sq.duration()).join(s.select("v"), on="v"),
    "repetitions": lambda s: s.distinct_ids(within=4, id="v"),
    "a module": lambda s: s.hopping_window(6, 3, clip_input="none").select(x=sq.time_weighted_avg("v")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", READS_ENDS)
def test_what_reads_ends_that_may_still_move_is_reported_with_the_ends_so_far(name: str) -> None:
    """After every other item an early changelog is the answer so far; another one does not wait for the end either."""
    items = [sq.insert(1, 4, v=3), sq.insert(1, 6, v=5), sq.retract(1, 6, 4, v=5), sq.insert(3, 8, v=3)]
    items += [sq.retract(3, 8, None, v=3), sq.insert(9, 12, v=4), sq.retract(3, None, 5, v=3), sq.insert(20, 21, v=4)]
    query = READS_ENDS[name](sq.events(items, name="s", progress=sq.generate(1000)))
    plan, _ = number_sources(query.plan)
    assert "pass on what can no longer change" not in query.explanation("physical", output="changelog")
    for early in (True, False):
        live, parts = LocalRun(compiled(plan, OutputForm.CHANGELOG, buckets=2, early=early)), []
        for number in range(len(items)):
            parts.append(live.batch({"s": query.tables["s"].slice(number, 1)}))
            if early and number % 2:
                assert_same_history(net(parts), oracle(plan, {"s": query.tables["s"].slice(0, number + 1)}))
        assert any(part.num_rows for part in parts)
        assert_same_history(net([*parts, live.finish()]), oracle(plan, query.tables))
