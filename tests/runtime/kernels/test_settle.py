"""Settle: a row is final once its end is before c; until then it may still change."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from streamq.runtime.basket import Baskets, DictStore
from streamq.runtime.kernel import Arrival, Clock
from streamq.runtime.kernels.settle import SettleKernel
from streamq.testing.deltas import as_history
from streamq.testing.difference import assert_same_history
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


def test_the_cti_stays_at_the_least_start_of_a_row_that_waits() -> None:
    baskets = Baskets(DictStore())
    kernel, state = SettleKernel(), baskets.scoped("settle")

    def advance(before: int, c: int, *rows: tuple[int, int, int]) -> tuple[list[Any], int]:
        columns = {name: [r[i] for r in rows] for i, name in enumerate(("__le", "__re", "__w"))}
        arrivals = [Arrival(0, pa.table({"v": [0] * len(rows), **columns}))] if rows else []
        made = kernel.advance(state, arrivals, Clock(before, c, before, c))
        return [(r["__le"], r["__re"], r["__w"]) for r in (made.table.to_pylist() if made.table else [])], made.c

    assert advance(MINUS_INFINITY, 5, (1, INFINITY, 1), (2, 4, 1), (3, 5, 1)) == ([(2, 4, 1)], 1)
    assert advance(5, 8, (1, INFINITY, -1), (1, 7, 1)) == ([(3, 5, 1), (1, 7, 1)], 8)
    assert advance(8, 9, (20, 22, 1)) == ([], 9), "what starts after c does not hold it back"
    assert advance(9, INFINITY) == ([(20, 22, 1)], INFINITY)


@pytest.mark.parametrize("output", [OutputForm.FINAL, OutputForm.CHANGELOG])
def test_what_a_filter_lets_in_later_does_not_come_into_a_final_window(output: str) -> None:
    """Rows wait below a filter that reads ends which may move, also where what lies above it has none that do."""
    moved = sq.retract(1, 10, 12, v=1)
    items = [sq.insert(1, 10, v=1), sq.insert(2, 4, v=2), sq.cti(8), moved, sq.cti(30)]
    s = sq.events(items, name="s", progress=sq.explicit()).where((sq.end() == 12) | (sq.end() == 4))
    seen = s.join_table(pa.table({"v": [1, 2]}), on="v", name="seen")
    counted = [each.tumbling_window(5).select(n=sq.count()) for each in (s, s.to_points(), seen)]
    # read twice, once behind a step that makes several rows of one
    for query in (*counted[:2], counted[2].union(s.select(n=sq.lit(0).cast("bigint")))):
        live = LocalRun(compiled(number_sources(query.plan)[0], output, buckets=1), static=query.tables)
        parts = [live.batch({"s": query.tables["s"].slice(i, 1)}) for i in range(len(items))]
        found = as_history(pa.concat_tables([*parts, live.finish()]).drop_columns(["__w"]))
        assert_same_history(found, oracle(query.plan, query.tables))
