"""The best members of windows are found without a copy of each event in each of its windows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamq.choices import Stamp
from streamq.runtime.arrow.columnar import expand_ranges
from streamq.runtime.arrow.values import Ints
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluators.assigner import Ranges
from streamq.runtime.evaluators.window_evaluator import Ranking, TopKEvaluator
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows import Snapshot
from tests.each import each


def evaluator(k: int, ties: str, desc: bool = True) -> TopKEvaluator:
    ranking = Ranking(k=k, by="v", desc=desc, ties=ties, payload=("k", "v"), rank="rank")
    return TopKEvaluator(Snapshot().assigner(("k", "v")), ("k",), "full", Stamp.ALIGN, False, ranking=ranking)


def copied(ranges: Ranges) -> tuple[Ints, Ints, Ints]:
    """The members of windows: event, owner and window of each."""
    which, index = expand_ranges(ranges.low, ranges.high)
    return ranges.event[which], ranges.owner[which], index


def best(of: TopKEvaluator, table: pa.Table, ranges: Ranges) -> list[tuple[int, int, int, int]]:
    """The best members of each window, in order, with their ranks."""
    members = copied(ranges)
    ranked = of.ranking.ranked(table, *members)
    event, owner, index = (column[ranked.order[ranked.is_best]] for column in members)
    return sorted(
        zip(owner.tolist(), index.tolist(), event.tolist(), ranked.rank[ranked.is_best].tolist(), strict=True)
    )


@each(range(60))
def test_the_best_of_ranges_are_those_of_copies(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, windows = int(random.integers(1, 60)), int(random.integers(1, 700))
    of = evaluator(int(random.integers(1, 4)), str(random.choice(["keep", "break"])), bool(random.integers(2)))
    values = pa.array(random.integers(0, 9, n), mask=random.integers(0, 5, n) == 0)
    table = pa.table({"k": random.integers(0, 3, n), "v": values, LE: np.arange(n), RE: np.arange(n) + 1})
    low = random.integers(-windows, windows, n)
    ranges = Ranges(
        np.arange(n), random.integers(0, 2, n), low, low + random.integers(0, windows, n), lambda a, b: (a, b)
    )
    few = of._few(ranges, of.ranking.places(table))
    assert best(of, table, few) == best(of, table, ranges)


def test_events_that_stay_are_not_copied_into_all_later_windows() -> None:
    n = 4_096
    random = np.random.default_rng(1)
    table = pa.table(
        {"k": np.zeros(n, np.int64), "v": random.integers(0, n, n), LE: np.arange(n), RE: np.full(n, INFINITY)}
    )
    of = evaluator(1, "break")
    ranges = of._ranges(table.append_column("__group", pa.array(np.zeros(n, np.int64))), MINUS_INFINITY, INFINITY)
    assert len(copied(ranges)[0]) > n * n / 3
    assert len(copied(of._few(ranges, of.ranking.places(table)))[0]) < 20 * n
