"""Endpoints that bound the windows of lifetimes without an end: the greatest there is, or how far the input has come."""

from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.policies import Level
from streamq.run.batch.answers import local_history
from streamq.runtime.deltas import WEIGHT
from streamq.runtime.state.baskets import Baskets, DictStore, KernelBaskets, Work
from streamq.runtime.time.endpoints import Endpoint, Endpoints
from streamq.testing.history import as_history, assert_same_history, net
from streamq.testing.oracle import oracle
from streamq.time import MINUS_INFINITY
from tests.programs import compiled
from tests.rehearsed import rehearsal


def state() -> KernelBaskets:
    return Baskets(DictStore()).scoped("kernel")


def test_the_greatest_endpoint_counts_until_it_is_taken_back() -> None:
    kernel = state()
    Endpoints(kernel).add([Endpoint(9, False, 1), Endpoint(5, False, 1), Endpoint(3, True, 1)], 3)
    assert Endpoints(kernel).last(3) == 9
    Endpoints(kernel).add([Endpoint(9, False, -1)], 4)
    assert Endpoints(kernel).last(4) == 5


def test_what_the_input_has_passed_is_forgotten_and_counts_for_ever() -> None:
    kernel = state()
    Endpoints(kernel).add([Endpoint(9, False, 1)], 9)
    Endpoints(kernel).add([Endpoint(9, False, -1)], 9)
    assert (Endpoints(kernel).last(9), kernel.names()) == (9, [])


def test_of_endpoints_that_stay_only_the_greatest_is_kept() -> None:
    kernel = state()
    for last in (20, 90, 30):
        Endpoints(kernel).add([Endpoint(at, False, 1, is_fixed=True) for at in range(10, last)], 0)
    assert (Endpoints(kernel).last(0), kernel.names()) == (89, [])


@pytest.mark.parametrize("windows", ["chop", "landmarks"])
def test_the_end_of_the_input_may_be_heard_twice(windows: str) -> None:
    """With an endpoint that the input has not reached, and that may still be taken back."""
    items = [sq.insert(1, None, v=1), sq.insert(1, None, v=2), sq.retract(1, None, 9, v=2)]
    events = sq.events(items, name="s", progress=sq.explicit())
    query = events.chop(5) if windows == "chop" else events.landmark_window(5, start=0).select(n=sq.count())
    run = rehearsal(query, OutputForm.CHANGELOG)
    run.arrive()
    assert run.finish().num_rows > 0
    assert run.finish().num_rows == 0


def test_a_micro_batch_reads_no_endpoints_of_others() -> None:
    kernel = state()
    Endpoints(kernel).add([Endpoint(at, False, 1) for at in range(100, 30_000)], 0)
    kernel.baskets.work = work = Work()
    for reach in range(20):
        Endpoints(kernel).add([Endpoint(40_000 + reach, False, 1), Endpoint(20_000 + reach, False, -1)], reach)
    assert work.rows < 6_000, "a bin is read now and then, to rewrite it"
    assert Endpoints(kernel).last(0) == 40_019


def test_lifetimes_without_an_end_are_counted() -> None:
    endpoints = Endpoints(state())
    endpoints.add([Endpoint(1, True, 2)], 1)
    endpoints.add([Endpoint(1, True, -1)], 1)
    assert endpoints.endless
    endpoints.add([Endpoint(1, True, -1)], 1)
    assert not endpoints.endless


def test_before_anything_has_come_there_is_none() -> None:
    assert Endpoints(state()).last(MINUS_INFINITY) == MINUS_INFINITY + 1


S = sq.events(
    [
        sq.insert(1, None, v=1),
        sq.insert(3, 50, v=2),
        sq.insert(27, 28, v=9),
        sq.cti(3),
        sq.retract(3, 50, 4, v=2),
        sq.retract(27, 28, 27, v=9),
    ],
    name="s",
    progress=sq.explicit(),
)
"""Nothing that is left has an endpoint after 4, but an event that was taken back started at 27."""
LATE_START = sq.intervals(t.table("a bigint, b bigint, v bigint", [(1, None, 1), (22, 23, 9)]), "a", "b", name="i")

QUERIES = {
    "hopping": S.hopping_window(10, 5).select(n=sq.count()),
    "hopping, evaluated": S.tumbling_window(10).select(m=sq.median("v")),
    "hopping, at the end": S.tumbling_window(10, stamp="point_at_end").select(n=sq.count()),
    "hopping by group": S.group_by("v").tumbling_window(10).select(n=sq.count()),
    "landmark": S.landmark_window(10, start=0).select(n=sq.count()),
    "landmarks": S.landmark_window(10, period=20, stamp="align").select(n=sq.count()),
    "chop": S.chop(7),
    "windowed_join": S.windowed_join(LATE_START, size=10, suffixes=("", "_b")),
    "behind a filter": LATE_START.where(sq.col("v") < 5).tumbling_window(10).select(n=sq.count()),
    "landmark behind a filter": LATE_START.where(sq.col("v") < 5).landmark_window(10, start=0).select(n=sq.count()),
    "moved": S.shift(-8).tumbling_window(10).select(n=sq.count()),
    "moved by an expression": S.alter_lifetime(sq.start() * 2).tumbling_window(10).select(n=sq.count()),
    "moved by the payload": S.alter_lifetime(sq.start() - sq.col("v"), within=9).chop(10),
    "cut short": S.extend(-2).tumbling_window(10).select(n=sq.count()),
    "beside another": S.union(LATE_START).tumbling_window(10).select(n=sq.count()),
    "cut by another": S.clip(LATE_START).tumbling_window(10).select(n=sq.count()),
    "a window over windows": S.session_window(3).select(n=sq.count()).tumbling_window(10).select(n=sq.sum("n")),
}


WAYS = [
    (OutputForm.CHANGELOG, 0, 3, 1),
    (OutputForm.CHANGELOG, 3, 1, 2),
    (OutputForm.CHANGELOG, 20, 3, 3),
    (OutputForm.CHANGELOG, None, 1, 9),
]
"""Output, ticks that input is blocked for, buckets, and rows in a micro-batch: one of them for each query, in turn."""


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_all_outputs_at_all_levels_end_at_the_same_window(name: str) -> None:
    query = QUERIES[name]
    plan, names = number_sources(query.plan)
    tables = {names[n]: table for n, table in query.tables.items()}
    expected = oracle(plan, tables)
    assert_same_history(as_history(query_rows(query)), expected)
    rewritten = rewrite(plan).plan
    turn = list(QUERIES).index(name)
    for output, block, buckets, rows in [(OutputForm.FINAL, 0, 1, 1), WAYS[turn % 4]]:
        run = LocalRun(compiled(rewritten, output, buckets=buckets, level=Level(block)))
        out = []
        for n in range(0, max(table.num_rows for table in tables.values()), rows):
            out.append(run.batch({k: table.slice(n, rows) for k, table in tables.items()}))
            run = run.restart()
        assert_same_history(net([*out, run.finish()]), expected)


def query_rows(query: sq.Stream) -> Any:
    return local_history(query.plan, query.tables).drop_columns([WEIGHT])


def test_a_cti_from_outside_counts() -> None:
    query = LATE_START.tumbling_window(10).select(n=sq.count())
    plan, _ = number_sources(query.plan)
    expected = oracle(plan, query.tables, ctis={"i": 50})
    for output in (OutputForm.FINAL, OutputForm.CHANGELOG):
        run = LocalRun(compiled(rewrite(plan).plan, output, buckets=1))
        out = [run.batch(query.tables), run.batch({}, [("i", 50)]), run.finish()]
        assert_same_history(net(out), expected)
    assert expected.num_rows == 5


def test_who_follows_another_has_come_as_far_as_its_ctis() -> None:
    ahead = sq.points(t.table("at bigint", [(60,)]), "at", name="p", progress=sq.generate(5))
    rows = t.table("a bigint, b bigint", [(1, None)])
    behind = sq.intervals(rows, "a", "b", name="i", progress=sq.follow(ahead))
    windows = behind.tumbling_window(10).select(n=sq.count())
    query = windows.union(ahead.select(n=sq.lit(0).cast("bigint")))
    plan, _ = number_sources(query.plan)
    expected = oracle(plan, query.tables)
    for output in (OutputForm.FINAL, OutputForm.CHANGELOG):
        run = LocalRun(compiled(rewrite(plan).plan, output, buckets=1))
        out = [run.batch({"i": rows}), run.batch({"p": query.tables["p"]}), run.finish()]
        assert_same_history(net(out), expected)
    # up to the CTI 55, and the point
    assert expected.num_rows == 6 + 1
