"""The kernel of expressions that may set events aside: rows go on as they come, what fails goes to the late output."""

from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.errors import ModuleFailed
from streamq.plan.node import number_sources
from streamq.runtime.deltas import LE, WEIGHT
from streamq.time import INFINITY
from tests.programs import compiled

inverse = sq.udf("double", name="inverse", on_error="quarantine")(lambda v: 1 / v)


def physical(*items: Any) -> sq.Stream:
    return sq.events([sq.cti(-1_000_000), *items], name="s", schema={"v": "bigint"})


def run(stream: sq.Stream, *, late_output: bool = True) -> LocalRun:
    plan = rewrite(number_sources(stream.plan)[0]).plan
    return LocalRun(compiled(plan, OutputForm.CHANGELOG, buckets=2, late_output=late_output))


def fed(live: LocalRun, *items: Any) -> list[tuple[Any, ...]]:
    deltas = live.batch(physical(*items).tables)
    return sorted((row[LE], row["x"], row[WEIGHT]) for row in deltas.to_pylist())


def set_aside(live: LocalRun) -> list[tuple[Any, ...]]:
    return [(row["source"], row["start"], row["end"]) for table in live.late for row in table.to_pylist()]


PHYSICAL = physical(sq.insert(1, 2, v=1)).select(x=inverse("v"))


def test_what_fails_is_set_aside_once_it_is_settled() -> None:
    live = run(PHYSICAL)
    assert fed(live, sq.insert(2, 9, v=0), sq.insert(3, 5, v=0), sq.insert(4, None, v=0)) == []
    assert set_aside(live) == [], "each may still be taken back"
    fed(live, sq.retract(2, 9, 6, v=0), sq.retract(3, 5, 3, v=0), sq.cti(8))
    assert set_aside(live) == [("inverse", 2, 6)]
    live = live.restart()
    live.batch({}, [(None, INFINITY)])
    assert set_aside(live) == [("inverse", 2, 6), ("inverse", 4, None)]
    assert sum(totals.get("inverse|quarantined", 0) for totals in live.totals.values()) == 2


def test_where_nothing_takes_it_the_query_fails() -> None:
    live = run(PHYSICAL, late_output=False)
    with pytest.raises(ModuleFailed, match="inverse: it failed; .*; of v = 0. Give the run a late_sink"):
        fed(live, sq.insert(1, 2, v=0))


def test_events_of_a_source_that_takes_nothing_back_are_set_aside_as_they_come() -> None:
    s = sq.events([(1, 2, {"v": 0})], name="s", schema={"v": "bigint"}, progress=sq.generate(5))
    live = run(s.select(x=inverse("v")))
    (name,) = (r.source.table for r in live.program.sources if r.source)
    live.batch({name: next(iter(s.tables.values()))})
    assert set_aside(live) == [("inverse", 1, 2)]
