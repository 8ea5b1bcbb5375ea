"""The kernel of left, semi and anti joins: the events that it keeps, and the parts of a left event that it changes."""

from __future__ import annotations

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from tests.programs import compiled
from tests.runtime.kernels.test_left_rows import COLUMNS, evaluated, source


def test_a_moved_end_of_a_long_left_event_changes_only_what_lies_there() -> None:
    a = sq.physical(t.table("kind string, start bigint, end bigint, new_end bigint, k bigint", []), name="a")
    joined = a.left_anti_join(source("b").select("k"), on="k")
    live = LocalRun(compiled(number_sources(joined.plan)[0], OutputForm.CHANGELOG, buckets=1))
    kinds = "kind string, start bigint, end bigint, new_end bigint, k bigint"
    live.batch(
        {"a": t.table(kinds, [("insert", 0, 100, None, 1)]), "b": t.table(COLUMNS, [(10, 20, 1, 0)])}, [(None, 30)]
    )
    deltas = live.batch({"a": t.table(kinds, [("retract", 0, 100, 50, 1)])}, [(None, 60)])
    rows = sorted((r["__le"], r["__re"], r["__w"]) for r in deltas.to_pylist())
    assert rows == [(20, 50, 1), (20, 100, -1)]


def test_a_settled_right_event_stays_while_a_left_one_that_it_overlaps_may_change() -> None:
    live = LocalRun(compiled(number_sources(source("a").left_anti_join(source("b"), on="k").plan)[0], buckets=1))
    evaluated(live, [(0, 100, 1, 0)], [(10, 20, 1, 0)], 0)
    evaluated(live, [(30, 31, 1, 0)], [], 30)
    deltas = live.batch({"a": t.table(COLUMNS, []), "b": t.table(COLUMNS, [(40, 50, 1, 0)])}, [(None, 110)])
    rows = sorted((r["__le"], r["__re"]) for r in deltas.to_pylist() if r["v"] == 0)
    assert rows == [(20, 40), (30, 31), (50, 100)], "the part before 10 has gone"
