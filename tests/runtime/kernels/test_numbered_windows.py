"""Windows of all rows whose members are filtered and grouped: their answers are those of plain rules, however rows come."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.runtime.kernels.windows_of_sizes import NumberedWindowsKernel
from streamq.runtime.state.baskets import BinSizes
from tests.programs import with_sizes
from tests.runtime.kernels.test_rows_windows import (
    MOVING,
    RESULTS,
    SEEDS,
    SMALL,
    SOURCE,
    played,
    started,
    trickle,
)


@pytest.mark.parametrize("seed", SEEDS)
def test_members_of_any_history_are_grouped_in_windows_of_all_rows(seed: int) -> None:
    """Some runs have small bins and many steps, hence blocks of them; some send rows at once from some restart on."""
    random = np.random.default_rng(seed)
    n, step, apart = int(random.integers(1, 41)), int(random.integers(1, 6)), int(random.integers(1, 4))
    results = ("sm", "smt", "smdp")[seed % 3]
    windows = SOURCE.rows_window(n, step, order_by="v", stamp="align" if seed % 5 == 4 else None)
    members = windows.where(sq.col("v") % 3 != 1).group_by("k")
    query = members.select(**{name: RESULTS[name][0] for name in results})
    output, early = (OutputForm.FINAL, [False]) if seed % 2 else (OutputForm.CHANGELOG, [False, True])
    programs = [
        with_sizes(started(query, output, early=at_once).program, SMALL if random.integers(2) else BinSizes())
        for at_once in early
    ]
    events, rows = played(random, programs, apart, 2, 9)
    named = ("__le", "__re", "k", *results)
    answer = Counter({tuple(row[name] for name in named): row["__w"] for row in rows})
    wanted: Counter[tuple[float, ...]] = Counter()
    ordered = sorted(events, key=lambda e: (e[0], e[2], e[1]))
    for first in range(0, len(ordered) - n + 1, step):
        every = ordered[first : first + n]
        for k in {k for _, k, v in every if v % 3 != 1}:
            values = [v for _, key, v in every if key == k and v % 3 != 1]
            end = every[-1][0] + 1
            lifetime = (every[0][0], end) if seed % 5 == 4 else (end, end + 1)
            wanted[*lifetime, k, *(RESULTS[name][1](values) for name in results)] += 1
    assert answer == wanted


def is_numbered(query: sq.Stream) -> bool:
    hosted = [hosted for stage in started(query).program.stages for hosted in stage.hosted]
    return any(isinstance(one.kernel, NumberedWindowsKernel) for one in hosted)


def test_state_goes_with_steps_and_groups_and_not_with_events() -> None:
    """The kernel over steps of which two groups of seven pass the filter; it drops bins by eight steps or so."""
    most = []
    for step in (10, 100):
        windows = SOURCE.rows_window(32 * step, step).where(sq.col("v") < 2).group_by("v")
        run = started(windows.select(s=sq.sum("v"), n=sq.count()), OutputForm.FINAL)
        most.append(max(rows for rows, _ in trickle(run, 50, 2 * step)[25:]))
    assert max(most) <= 2 * (32 + 16)


def test_what_rows_cannot_be_numbered_once_for_is_computed_from_members() -> None:
    """Rows that may be taken back, groups with windows of their own, results of another order or on their windows."""
    sums = {"s": sq.sum("v")}
    windows = SOURCE.rows_window(10, 2).group_by("k")
    assert is_numbered(windows.select(**sums))
    others = [
        MOVING.select("k", "v").rows_window(10, 2).group_by("k").select(**sums),
        SOURCE.group_by("v").rows_window(10, 2).group_by("k").select(**sums),
        windows.select(x=sq.first("v")),
        SOURCE.rows_window(10, 2, stamp="align").group_by("k").select(**sums),
    ]
    assert not any(is_numbered(query) for query in others)
