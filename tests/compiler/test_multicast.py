"""A stream that is used twice is computed once: one kernel, one state, however often its result is read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import streamq as sq
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from streamq.runtime.kernel import UncombinedKernel
from streamq.testing.oracle import oracle
from tests.programs import compiled

S = sq.events([(1, 5, {"k": "a"}), (3, 8, {"k": "a"}), (4, 6, {"k": "b"})], name="s")


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
