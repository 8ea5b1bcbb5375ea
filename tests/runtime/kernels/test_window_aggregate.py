"""The window kernel: strategies agree, late partials, speculative corrections, state that does not grow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
import streamq.runtime.partials.range_partials as partials
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.errors import LateEvent
from streamq.operators.input_table import table_fields
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.expr import Lit
from streamq.progress.generate import GeneratedCtis
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


def test_a_late_event_within_the_delay_corrects_what_was_reported() -> None:
    live = run(counts, OutputForm.CHANGELOG, delay=100)
    assert deltas(live.batch({"s": stays([(1, 4, "a", 1.0), (25, 30, "a", 1.0)])}), "n") == [(1, 0, 1)]
    assert deltas(live.batch({"s": stays([(2, 12, "a", 1.0)])}), "n") == [(-1, 0, 1), (1, 0, 2), (1, 10, 1)]
    assert deltas(live.finish(), "n") == [(1, 20, 1)]


def test_final_output_waits_for_the_cti() -> None:
    live = run(counts, OutputForm.FINAL, delay=10)
    assert live.batch({"s": stays([(1, 4, "a", 1.0), (19, 21, "a", 1.0)])}).num_rows == 0
    assert deltas(live.batch({"s": stays([(20, 22, "a", 1.0)])}), "n") == [(1, 0, 1)]
    assert deltas(live.finish(), "n") == [(1, 10, 1), (1, 20, 2)]


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


@pytest.mark.slow
@given(
    rows=st.lists(
        st.tuples(st.integers(-40, 40), st.integers(1, 200), st.sampled_from([None, -1.5, 0.0, 2.25])),
        min_size=1,
        max_size=12,
    ),
    size=st.integers(1, 60),
    hop=st.integers(1, 9),
)
def test_dyadic_nodes_and_copies_agree(rows: list[tuple[int, int, float | None]], size: int, hop: int) -> None:
    """Long ranges are cut into nodes of 2^level windows; the answer is that of copying every partial into its windows."""
    table = stays([(a, a + d, "k", v) for a, d, v in rows])

    def query(s: sq.Stream) -> sq.Stream:
        return s.hopping_window(size, hop).select(n=sq.count(), s=sq.sum("v"), low=sq.min("v"), sd=sq.stddev("v"))

    answers = []
    kept = partials.EXPLODE_ROWS
    for limit in (kept, -1):
        partials.EXPLODE_ROWS = limit
        try:
            live = run(query, OutputForm.FINAL, delay=1000)
            live.batch({"s": table})
            answers.append(live.finish().sort_by("__le").to_pylist())
        finally:
            partials.EXPLODE_ROWS = kept
    assert len(answers[0]) == len(answers[1])
    for a, b in zip(*answers, strict=True):
        assert {k: pytest.approx(v, nan_ok=True) for k, v in a.items()} == b


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
