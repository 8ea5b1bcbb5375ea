"""The inner join kernel: the bins that a micro-batch reads, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.kernels.joins import side_basket
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.runtime.state.bins import ENDLESS
from streamq.time import INFINITY, MINUS_INFINITY
from tests.programs import compiled

COLUMNS = "start bigint, end bigint, k bigint"
Lifetime = tuple[int, int]


class Join:
    """A join on ``k`` of one bucket, over events with one key."""

    def __init__(self) -> None:
        a, b = (sq.intervals(t.table(COLUMNS, []), "start", "end", name=name, progress=sq.explicit()) for name in "ab")
        plan = number_sources(a.join(b, on="k").plan)[0]
        self.run, self.read = LocalRun(compiled(plan, OutputForm.CHANGELOG, buckets=1)), 0

    def send(self, left: Sequence[Lifetime] = (), right: Sequence[Lifetime] = ()) -> list[Lifetime]:
        """A micro-batch; returns the lifetimes of the pairs, and keeps the number of bins that it has read."""
        before = self.bins_read
        sides = {"a": left, "b": right}
        tables = {
            name: t.table(COLUMNS, [(le, None if re == INFINITY else re, 7) for le, re in rows])
            for name, rows in sides.items()
        }
        pairs = self.run.batch(tables).to_pylist()
        self.read = self.bins_read - before
        return sorted((r[LE], r[RE]) for r in pairs for _ in range(r[WEIGHT]))

    @property
    def bins_read(self) -> int:
        return sum(kernel.bins_read or 0 for kernel in self.run.readings.of_kernels.values())

    def held(self, port: int) -> list[str]:
        """The bins of a side."""
        (store,) = self.run.stores.values()
        (counts,) = (
            bins for name, bins in Baskets(DictStore(store)).counts.items() if name.endswith(side_basket(port))
        )
        return list(counts)


def test_a_micro_batch_reads_only_the_bins_that_its_events_overlap() -> None:
    """One very long interval does not make others be read."""
    join = Join()
    join.send(right=[(10 * i, 10 * i + 8) for i in range(320)])
    assert len(join.held(1)) >= 16
    assert join.send([(1_600, 1_605)]) == [(1_600, 1_605)]
    near = join.read
    assert 1 <= near <= 2
    assert join.send([(5_000, 5_005)]) == [] and join.read == 0
    join.send(right=[(0, 1_000_000), (3, INFINITY)])
    assert ENDLESS in join.held(1)
    assert join.send([(1_600, 1_605)]) == [(1_600, 1_605)] * 3 and join.read == near + 2


def test_bins_are_as_wide_as_the_stream_is_dense() -> None:
    join = Join()
    join.send([(0, 1)])
    join.send([(1_000 * i, 1_000 * i + 1) for i in range(160)])
    assert len(join.held(0)) <= 25, "a first event alone does not make a bin of every instant"


def test_a_bin_reaches_as_far_as_its_events() -> None:
    """Also far out on the axis: nanoseconds of today lie beyond 2^60, where a difference of doubles is off by hundreds."""
    join, far = Join(), 1_700_000_000_000_000_000
    rows = [(-1_000, -999), (-7, 300), (0, 1), (5, 1 << 40), (-(1 << 61), 1 << 61), (MINUS_INFINITY + 1, 4)]
    rows += [(far, far + 1), (far + 40, far + 41), (far, far + 100)]
    for row in rows:
        join.send([row])
    assert all((re - 1, re) in join.send(right=[(re - 1, re)]) for _, re in rows)
