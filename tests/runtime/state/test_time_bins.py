"""Bins by time: rows come out when their instant has come, whatever bins they lie in; few bins are read, and few are left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest

from streamq.runtime.deltas import LE, RE, WEIGHT, net_deltas
from streamq.runtime.state.baskets import Baskets, DictStore, KernelBaskets, TimeBinSizes
from streamq.runtime.state.time_bins import TimeBins, unsettled_rows
from streamq.time import INFINITY, MINUS_INFINITY

Row = tuple[int, int, int]


def scope() -> KernelBaskets:
    return Baskets(DictStore()).scoped("kernel")


def deltas(rows: Iterable[Row]) -> pa.Table:
    le, re, weight = np.array(list(rows), np.int64).reshape(-1, 3).T
    return pa.table({LE: le, RE: re, WEIGHT: weight})


def counted(table: pa.Table | None) -> Counter[tuple[int, int]]:
    if table is None:
        return Counter()
    return Counter({(row[LE], row[RE]): row[WEIGHT] for row in net_deltas(table).to_pylist()})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_unsettled_rows_are_those_of_a_plain_list(seed: int) -> None:
    """After each micro-batch of inserts and retractions, some endless: what settles, the least start, and what is due next."""
    rng = np.random.default_rng(seed)
    state, rows = scope(), Counter[tuple[int, int]]()
    for c in [*range(0, 4_000, 100), INFINITY]:
        starts = rng.integers(max(0, min(c, 4_000) - 50), min(c, 4_000) + 300, 500)
        ends = np.where(rng.random(500) < 0.2, INFINITY, starts + rng.integers(1, 10 ** rng.integers(1, 4, 500)))
        retracted = [key for key in rows if rng.random() < 0.2]
        fresh = [(int(le), int(re), 1) for le, re in zip(starts, ends, strict=True)] + [(*k, -1) for k in retracted]
        rows.update(counted(deltas(fresh)))
        rows = Counter({key: n for key, n in rows.items() if n})
        settled = {key: n for key, n in rows.items() if key[1] < c or c == INFINITY}
        waiting = unsettled_rows(state, "rows")
        assert counted(waiting.advance([deltas(fresh)], c)) == settled
        rows = Counter({key: n for key, n in rows.items() if key not in settled})
        assert waiting.least_value == min((le for le, _ in rows), default=INFINITY)
        finite = [re for _, re in rows if re < INFINITY]
        assert waiting.due == (min(finite) + 1 if finite else INFINITY if rows else None)
        assert state.size()[0] == sum(rows.values()), "rows count that are left"
    assert state.names() == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_rows_before_all_bins_come_out_first(seed: int) -> None:
    """Bins of a few rows, so that rows come before the first of them, which is small at one time and large at another."""
    state = Baskets(DictStore(), TimeBinSizes(most=6, few=2)).scoped("kernel")
    rng, rows, before = np.random.default_rng(seed), Counter[tuple[int, int]](), 0
    for _ in range(25):
        fresh = [(int(at), int(at) + 1, 1) for at in rng.integers(before - 3, before + 60, rng.integers(0, 6))]
        fresh += [(*key, -1) for key in rows if rng.random() < 0.3]
        rows.update(counted(deltas(fresh)))
        before += int(rng.integers(0, 4))
        bins = TimeBins(state, "rows")
        bins.append(deltas(fresh))
        assert counted(bins.take(before)) == {key: n for key, n in rows.items() if n and key[0] < before}
        rows = Counter({key: n for key, n in rows.items() if n and key[0] >= before})
        assert bins.greatest == max((at for at, _ in rows), default=MINUS_INFINITY)
        assert bins.least == min((at for at, _ in rows), default=INFINITY)


def test_rows_of_one_lifetime_are_taken_back_without_being_read() -> None:
    state = scope()
    TimeBins(state, "rows").append(deltas([(5, 9, 1)] * 10_000))
    for _ in range(20):
        bins = TimeBins(state, "rows")
        bins.append(deltas([(5, 9, -1)]))
        assert bins.least == bins.least_value == 5
    assert state.baskets.work.rows == 0


def test_the_earliest_rows_are_taken_out_one_by_one_without_reading_the_others() -> None:
    state = scope()
    TimeBins(state, "rows").append(deltas((t, t + 1, 1) for t in range(20_000)))
    for t in range(1, 100):
        taken = TimeBins(state, "rows").take(t)
        assert counted(taken) == {(t - 1, t): 1}
    assert state.baskets.work.rows < 100 * TimeBinSizes().most // 4


def test_bins_stay_few_where_time_goes_backwards() -> None:
    state = scope()
    for t in range(300, 0, -1):
        TimeBins(state, "rows").append(deltas([(t, t + 1, 1)]))
    assert len(TimeBins(state, "rows").bins) < 20
