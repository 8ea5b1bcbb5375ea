"""The window kernel: strategies agree, late partials, speculative corrections, state that does not grow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.errors import LateEvent
from streamq.operators.input_table import table_fields
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.expr import Lit
from streamq.progress_policies import GeneratedCtis
from streamq.sources.edges import Edges
from streamq.sources.insert_only import Intervals
from streamq.stream import Stream
from tests.programs import compiled

STAYS = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("k", pa.string()), ("v", pa.float64())])


def stays(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table([pa.array([r[i] for r in rows], f.type) for i, f in enumerate(STAYS)], schema=STAYS)


def run(query: Any, output: str, delay: int = 0, late: str = "drop", late_output: bool = False) -> LocalRun:
    node = Intervals("s", table_fields(stays([])), "a", "b", SourcePolicy(progress=GeneratedCtis(delay), late=late))
    plan = rewrite(query(Stream(node, {})).plan).plan
    return LocalRun(compiled(plan, output, late_output=late_output, buckets=2))


def deltas(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(r[n] for n in ("__w", "__le", *columns)) for r in table.to_pylist())


def counts(s: sq.Stream) -> sq.Stream:
    return s.tumbling_window(10).select(n=sq.count())


@pytest.mark.parametrize("late_output", [False, True])
def test_late_by_policy_with_the_cti_rounded_down_to_a_windows_end(late_output: bool) -> None:
    """c = 27 counts as 20: an event at 21 is on time, one at 19 is late, whether or not partials are combined ahead."""
    first, second = stays([(27, 28, "a", 1.0)]), stays([(21, 22, "a", 1.0), (19, 40, "a", 1.0), (3, 5, "a", 1.0)])
    drop = run(counts, OutputForm.FINAL, late_output=late_output)
    drop.batch({"s": first}), drop.batch({"s": second})
    assert deltas(drop.finish(), "n") == [(1, 20, 2)]
    assert sum(t.get("s|dropped", 0) for t in drop.totals.values()) == 2
    adjust = run(counts, OutputForm.FINAL, late="adjust", late_output=late_output)
    adjust.batch({"s": first}), adjust.batch({"s": second})
    assert deltas(adjust.finish(), "n") == [(1, 20, 3), (1, 30, 1)]
    found = {k: sum(t.get(k, 0) for t in adjust.totals.values()) for k in ("s|dropped", "s|adjusted")}
    assert found == {"s|dropped": 1, "s|adjusted": 1}
    fail = run(counts, OutputForm.FINAL, late="fail", late_output=late_output)
    fail.batch({"s": first})
    with pytest.raises(LateEvent, match=r"source s: \d late item\(s\) behind the CTI; the CTI is 20"):
        fail.batch({"s": second})
    if late_output:
        rows = sorted((r["reason"], r["start"], r["late_by"]) for t in adjust.late for r in t.to_pylist())
        assert rows == [("adjusted", 19, 1), ("dropped", 3, 17)]


def test_a_window_that_reads_ends_is_final_once_its_members_are_settled() -> None:
    """A member and its retraction lie in different chunks of state: together they are no member that is still open."""
    schema = pa.schema([("t", pa.int64()), ("edge", pa.string()), ("id", pa.int64())])
    node = Edges(
        "e",
        table_fields(schema.empty_table()),
        "t",
        "edge",
        ("id",),
        Lit("start"),
        Lit("end"),
        "start",
        SourcePolicy(progress=GeneratedCtis(0)),
    )
    query = Stream(node, {}).tumbling_window(10).select(n=sq.count(), mean=sq.avg(sq.duration()))
    live = LocalRun(compiled(rewrite(query.plan).plan, OutputForm.FINAL, buckets=1))
    out = []
    for batch in (
        [(1, "start", 1), (12, "start", 2)],
        [(14, "end", 1)],
        [(30, "start", 3)],
        [(33, "end", 2)],
        [(50, "start", 4)],
    ):
        table = pa.table([[r[i] for r in batch] for i in range(3)], schema=schema)
        out.append([(r["__le"], r["n"], r["mean"]) for r in live.batch({"e": table}).to_pylist()])
    assert out == [[], [], [(0, 1, 13.0)], [], [(10, 2, 17.0), (20, 1, 21.0)]]
    assert sorted((r["__le"], r["n"]) for r in live.finish().to_pylist()) == [(30, 2), (40, 1)]
