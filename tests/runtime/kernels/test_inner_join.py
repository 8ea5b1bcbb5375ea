"""The inner join kernel: what it gives, which bins it reads, what it forgets."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.plan.node import number_sources
from streamq.runtime.kernel import Arrival, Clock
from streamq.runtime.kernels.inner_join import InnerJoinKernel
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.runtime.state.bins import ENDLESS
from streamq.time import INFINITY, MINUS_INFINITY
from tests.programs import compiled

LEFT, RIGHT = 0, 1
Event = tuple[int, int, int, int]
"""Start, end, key, weight."""


class Reads(DictStore):
    """A store that knows which bins of a side were read."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def get(self, key: str) -> bytes | None:
        self.seen.append(key)
        return super().get(key)

    def bins(self, port: int) -> set[str]:
        """The bins read since the last call."""
        found = {key.split("/")[1] for key in self.seen if f".side{port}/" in key}
        self.seen.clear()
        return found


class Join:
    """A join on ``k`` of one bucket."""

    def __init__(self) -> None:
        events = [sq.events([(1, 2, {"k": 1})], name=name) for name in ("a", "b")]
        plan = number_sources(events[0].join(events[1], on="k").plan)[0]
        stages = compiled(plan, OutputForm.CHANGELOG).stages
        self.kernel = next(h.kernel for s in stages for h in s.hosted if isinstance(h.kernel, InnerJoinKernel))
        self.store, self.c = Reads(), MINUS_INFINITY

    def advance(self, left: list[Event] = (), right: list[Event] = (), c: int | None = None) -> list[Event]:  # type: ignore[assignment]
        """A micro-batch; gives the pairs as deltas."""
        before, self.c = self.c, self.c if c is None else c
        arrivals = [Arrival(port, self.table(port, rows)) for port, rows in ((LEFT, left), (RIGHT, right)) if rows]
        baskets = Baskets(self.store)
        made = self.kernel.advance(baskets.scoped("join"), arrivals, Clock(before, self.c, before, self.c))
        baskets.flush()
        assert made.c == self.c
        rows = made.table.to_pylist() if made.table is not None else []
        return sorted((r["__le"], r["__re"], r["k"], r["__w"]) for r in rows)

    def table(self, port: int, rows: list[Event]) -> pa.Table:
        keys = {name: [k for _, _, k, _ in rows] for name in self.kernel.inputs[port].names}
        lives = {name: [r[i] for r in rows] for i, name in ((0, "__le"), (1, "__re"), (3, "__w"))}
        return pa.table({**keys, **lives})

    def held(self, port: int) -> list[str]:
        """The bins of a side."""
        return list(Baskets(self.store).scoped("join").basket(f"side{port}"))


def test_a_micro_batch_reads_only_the_bins_that_its_events_overlap() -> None:
    join = Join()
    join.advance(right=[(10 * i, 10 * i + 8, 7, 1) for i in range(320)])
    assert len(join.held(RIGHT)) >= 16
    join.store.bins(RIGHT)
    assert join.advance([(1_600, 1_605, 7, 1)]) == [(1_600, 1_605, 7, 1)]
    read = join.store.bins(RIGHT)
    assert 1 <= len(read) <= 2
    assert join.advance([(5_000, 5_005, 7, 1)]) == []
    assert join.store.bins(RIGHT) == set()


def test_one_very_long_interval_does_not_make_others_be_read() -> None:
    join = Join()
    join.advance(right=[(10 * i, 10 * i + 8, 7, 1) for i in range(320)])
    join.advance([(1_600, 1_605, 8, 1)])
    near = join.store.bins(RIGHT)
    join.advance(right=[(0, 1_000_000, 7, 1), (3, INFINITY, 7, 1)])
    long = set(join.held(RIGHT)[-2:])
    assert ENDLESS in long
    join.store.bins(RIGHT)
    assert join.advance([(1_600, 1_605, 7, 1)]) == [(1_600, 1_605, 7, 3)]
    assert join.store.bins(RIGHT) == near | long


@pytest.mark.slow
def test_state_is_forgotten_as_the_cti_moves() -> None:
    join = Join()
    most = 0
    for i in range(200):
        rows = [(50 * i + n, 50 * i + n + 20, n, 1) for n in range(5)]
        assert len(join.advance(rows, rows, 50 * i)) == 5
        most = max(most, len(join.store.held))
    assert most < 30
    join.advance([(20_000, INFINITY, 1, 1)], c=15_000)
    assert join.held(LEFT)[-1] == ENDLESS
    join.advance(c=INFINITY)
    assert set(join.store.held) == {"manifest"}


def test_bins_are_as_wide_as_the_stream_is_dense() -> None:
    join = Join()
    join.advance([(0, 1, 7, 1)])
    join.advance([(1_000 * i, 1_000 * i + 1, 7, 1) for i in range(160)])
    assert len(join.held(LEFT)) <= 25, "a first event alone does not make a bin of every instant"


def test_a_bin_reaches_as_far_as_its_events() -> None:
    join = Join()
    rows: list[Any] = [(-1_000, -999), (-7, 300), (0, 1), (5, 1 << 40), (-(1 << 61), 1 << 61), (MINUS_INFINITY + 1, 4)]
    for le, re in rows:
        join.advance([(le, re, 7, 1)])
    assert all(join.advance(right=[(re - 1, re, 7, 1)]) for _, re in rows)


def test_lengths_are_exact_far_out_on_the_axis() -> None:
    """Nanoseconds of today lie beyond 2^60, where a difference of doubles is off by hundreds."""
    far, join = 1_700_000_000_000_000_000, Join()
    join.advance([(far, far + 1, 1, 1), (far + 40, far + 41, 1, 1)])
    join.advance([(far, far + 100, 7, 1)])
    assert join.advance(right=[(far + 95, far + 99, 7, 1)]) == [(far + 95, far + 99, 7, 1)]
