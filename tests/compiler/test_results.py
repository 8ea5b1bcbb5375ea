"""Several results of one program: each is the oracle's history, and what their queries share is one kernel with one state."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.compute as pc
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.explain import explain
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Egress, Results
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.plan.node import number_sources
from streamq.policies import MIDDLE, Level
from streamq.runtime.deltas import WEIGHT
from streamq.runtime.kernel import UncombinedKernel
from streamq.testing.history import assert_same_history, net
from streamq.testing.oracle import oracle
from streamq.time import INFINITY
from tests.algebra import AGGREGATES, QUERIES, SIZES, intervals
from tests.programs import compiled

STRONG = Level(None)
FINAL, CHANGELOG, TOLD = Egress(), Egress(OutputForm.CHANGELOG), Egress(OutputForm.CHANGELOG, ctis=True)


def program_of(queries: Sequence[sq.Stream], egresses: Sequence[Egress], level: Level = MIDDLE) -> StagedPlan:
    root, _ = number_sources(Results.from_plans([query.plan for query in queries]))
    return compile_stages(root, Options(egresses=tuple(egresses), buckets=2, level=level))


def kernels(program: StagedPlan) -> list[str]:
    return [hosted.name.partition(":")[0] for stage in program.stages for hosted in stage.hosted]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(64 if os.environ.get("STREAMQ_SOAK") else 8))
def test_each_result_is_the_oracles_history(seed: int) -> None:
    """Any queries beside each other, two of which may share windows, one over the rows of another, whatever the outputs."""
    rng = random.Random(seed)
    tables = {"l": intervals(2 * seed, 24), "r": intervals(2 * seed + 1, 24), "sizes": SIZES}
    left, right = (sq.intervals(tables[n], start="from", end="to", name=n, progress=sq.generate(4)) for n in "lr")
    queries = [QUERIES[name](left, right, SIZES) for name in rng.sample(sorted(QUERIES), 2)]
    hops, mergeable = left.group_by("k").hopping_window(7, 3), ("n", "positive", "least", "mean", "spread", "known")
    queries += [hops.select(**{n: AGGREGATES[n] for n in rng.sample(mergeable, 2)}) for _ in range(2)]
    queries += [rng.choice(queries).where(sq.start() > 7), rng.choice(queries)]
    egresses = [rng.choice([FINAL, CHANGELOG, TOLD]) for _ in queries]
    level = rng.choice([Level(0), Level(6), STRONG])
    run = LocalRun(program_of(queries, egresses, level), static=tables)
    deltas = []
    for at in range(0, 24, 5):
        run.batch({n: tables[n].slice(at, 5) for n in "lr"})
        deltas.append(run.deltas)
        run = run.restart()
    run.finish()
    deltas.append(run.deltas)
    if TOLD in egresses:
        last = len(run.program.stages) - 1
        assert {bucket for stage, bucket in run.stores if stage == last} == {0}, "one bucket tells CTIs"
    for query, egress, parts in zip(queries, egresses, zip(*deltas, strict=True), strict=True):
        assert_same_history(net(parts), oracle(query.plan, tables))
        if egress is FINAL:
            assert not any(pc.any(pc.less(part.column(WEIGHT), 0)).as_py() for part in parts), "rows that are final"
    assert {n: cti for n, cti in run.ctis.items() if cti == INFINITY}.keys() == {
        n for n, egress in enumerate(egresses) if egress is TOLD
    }


S = sq.events([(1, 5, {"k": "a"}), (3, 8, {"k": "a"}), (4, 6, {"k": "b"})], name="s")


def test_what_queries_share_is_computed_once() -> None:
    def sessions() -> sq.Stream:
        return S.group_by("k").session_window(3).select(n=sq.count())

    queries = [sessions(), sessions().where(sq.col("n") > 1), sessions().snapshot_window().select(n=sq.count())]
    program = program_of(queries, [CHANGELOG] * 3)
    assert kernels(program).count("session") == 1
    assert len(program.sources) == 1
    alone = [program_of([query], [CHANGELOG]) for query in queries]
    assert sum(len(kernels(program)) for program in alone) > len(kernels(program))


def test_a_result_that_is_final_makes_no_other_wait() -> None:
    """A kernel holds its rows until they are final only where all its readers want such."""
    counts = S.group_by("k").snapshot_window().select(n=sq.count())
    assert "settle" not in "".join(kernels(program_of([counts, counts], [FINAL, FINAL])))
    mixed = program_of([counts, counts], [FINAL, CHANGELOG])
    assert sorted(kernels(mixed)) == ["ingress", "snapshot", "snapshot_final"]
    run = LocalRun(mixed)
    run.batch({"s": S.tables["s"]}, [(None, 2)])
    final, changelog = run.deltas
    assert (final.num_rows, changelog.num_rows > 0) == (0, True)


@sq.udf("bigint", on_error="quarantine")
def careful(n: int) -> int:
    return n


def test_an_operator_that_sets_events_aside_is_there_once() -> None:
    """Two copies would each set them aside: the final rows wait behind it instead."""
    checked = S.with_columns(n=careful(sq.duration()))
    sums = checked.group_by("k").snapshot_window().select(n=sq.sum("n"))
    assert kernels(program_of([checked, checked], [FINAL, CHANGELOG])).count("attempt") == 1
    mixed = kernels(program_of([sums, sums], [FINAL, CHANGELOG]))
    assert [mixed.count(kind) for kind in ("attempt", "snapshot", "snapshot_final")] == [1, 1, 1]


def test_explain_shows_each_output_and_what_is_shared() -> None:
    counts = S.group_by("k").tumbling_window(10).select(n=sq.count())
    several = counts.where(sq.col("n") > 1)
    text = explain(program_of([counts, several, several], [FINAL, TOLD, CHANGELOG]))
    lines = [line.strip() for line in text.splitlines()]
    assert "results" in lines
    assert "output 1: final" in lines
    assert "output 2: changelog with CTIs, written by one task" in lines
    assert sum(line.startswith("hopping size=10, hop=10 by k") for line in lines) == 2
    assert lines.count("a second one: its final rows wait for no other result") == 1


# A stream that is used twice is computed once: one kernel, one state, however often its result is read.


@dataclass(frozen=True)
class Counted(UncombinedKernel):
    """A kernel and how many micro-batches it was run for."""

    inner: Any
    runs: list[int] = field(default_factory=list)

    def announce(self, port: int, table: Any) -> Any:
        return self.inner.announce(port, table)

    def advance(self, state: Any, arrivals: Any, clock: Any) -> Any:
        self.runs.append(sum(a.table.num_rows for a in arrivals))
        return self.inner.advance(state, arrivals, clock)


def counts() -> sq.Stream:
    return S.group_by("k").session_window(3).select(n=sq.count())


def test_it_is_one_kernel_whether_named_or_written_twice() -> None:
    named = counts()
    for one, two in ((named, named), (counts(), counts())):
        query = one.shift(1).union(two.join(two, on="k", suffixes=("", "_r")).select("k", "n"), one.to_points())
        program = compiled(number_sources(query.plan)[0], "final", buckets=1)
        kernels = [h for stage in program.stages for h in stage.hosted]
        sessions = [h for h in kernels if h.name.startswith("session")]
        assert len(sessions) == 1
        counted = Counted(sessions[0].kernel)
        program.stages = [
            replace(
                stage,
                hosted=tuple(replace(h, kernel=counted) if h.name == sessions[0].name else h for h in stage.hosted),
            )
            for stage in program.stages
        ]
        found = LocalRun(program).batch(query.tables, [(None, 2**63 - 1)])
        assert counted.runs == [3], "three events, taken in once"
        assert found.num_rows == oracle(query.plan, query.tables).num_rows == 6
