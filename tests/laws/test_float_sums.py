"""Results over doubles depend on the members of a window alone: on no order of arrival, no cut into micro-batches, no restart."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.runtime.deltas import RE, WEIGHT
from streamq.runtime.partials.built_in_partials import PartialSum
from streamq.runtime.state.baskets import BinSizes
from tests.programs import compiled, with_sizes

pytestmark = pytest.mark.slow

COLUMNS = "start bigint, end bigint, k string, v double, w double"
VALUES = [0.1, 0.2, 0.7, -0.3, 1e16, -1e16, 1.0, 3e-9, 1e300, -1e300, None]
RESULTS = {
    "total": sq.sum("v"),
    "mean": sq.avg("v"),
    "spread": sq.stddev("v"),
    "apart": sq.var_pop("w"),
    "both": sq.covar("v", "w"),
    "corr": sq.corr("v", "w"),
    "level": sq.time_weighted_avg("v"),
}
MERGEABLE = {name: RESULTS[name] for name in ("total", "mean", "spread", "apart")}
WINDOWS: dict[str, Callable[[sq.Stream], Any]] = {
    "hopping": lambda s: s.group_by("k").hopping_window(9, 3),
    "short hops": lambda s: s.group_by("k").hopping_window(24, 1),
    "snapshot": lambda s: s.group_by("k").snapshot_window(),
    "sliding": lambda s: s.group_by("k").sliding_window(9),
    "session": lambda s: s.group_by("k").session_window(3),
    "landmark": lambda s: s.group_by("k").landmark_window(7, start=0),
    "count": lambda s: s.group_by("k").count_window(3),
    "rows": lambda s: s.group_by("k").rows_window(4, 2),
}
SEEDS = (range(0, 100, 2), range(1, 100, 2)) if os.environ.get("STREAMQ_SOAK") else ((3,), (2,))
"""The examples of a test, one part or the other in turn."""
Event = tuple[int, int, str, float | None, float | None]
Row = tuple[Any, ...]


def drawn_events(random: np.random.Generator) -> list[Event]:
    """Events of two groups that start at different instants, in the order of these."""
    starts = np.sort(random.choice(30, 12, replace=False)).tolist()
    return [
        (start, start + int(random.integers(1, 40)), str(random.choice(["a", "b"])), *value_pair(random))
        for start in starts
    ]


def value_pair(random: np.random.Generator) -> tuple[float | None, float | None]:
    first, second = random.integers(0, len(VALUES), 2)
    return VALUES[first], VALUES[second]


def source() -> sq.Stream:
    empty = t.table(COLUMNS, [])
    return sq.intervals(empty, start="start", end="end", name="s", progress=sq.explicit())


def bits(table: pa.Table) -> list[tuple[Row, int]]:
    """The rows of deltas, doubles as their bits, and their weights."""
    doubles = [name for name in table.column_names if pa.types.is_floating(table.schema.field(name).type)]
    rows = []
    for row in table.to_pylist():
        hexes = {name: None if row[name] is None else row[name].hex() for name in doubles}
        others = {name: value for name, value in row.items() if name != WEIGHT}
        rows.append((tuple((others | hexes).items()), row[WEIGHT]))
    return rows


def deltas_of(query: sq.Stream, cuts: list[list[Event]], output: OutputForm, *, restarts: bool = False) -> list[Any]:
    """The deltas of a run over micro-batches of these events, each with the greatest CTI for which no later event is late."""
    plan = rewrite(number_sources(query.plan)[0]).plan
    sizes = BinSizes(whole_upto=0, awake_upto=2)
    live = LocalRun(with_sizes(compiled(plan, output, buckets=1), sizes))
    sent = []
    for number, rows in enumerate(cuts, start=1):
        c = min((start for later in cuts[number:] for start, *_ in later), default=30)
        sent.append(bits(live.batch({"s": t.table(COLUMNS, rows)}, [(None, c)])))
        live = live.restart() if restarts else live
    return [*sent, bits(live.finish(100))]


def history(deltas: list[Any]) -> list[Row]:
    """The rows that are left of all deltas, sorted."""
    counts: dict[Row, int] = {}
    for row, weight in (delta for batch in deltas for delta in batch):
        counts[row] = counts.get(row, 0) + weight
    return sorted((row for row, count in counts.items() for _ in range(count)), key=repr)


def assert_independent_of_arrival(query: sq.Stream, seeds: Iterable[int]) -> None:
    """Compare the histories of runs over the same events, in other orders and micro-batches, bit by bit."""
    for seed in seeds:
        random = np.random.default_rng(seed)
        events = drawn_events(random)
        expected = history(deltas_of(query, [events], OutputForm.FINAL))
        cuts = [events[:4], events[4:9], events[9:]]
        for rows in cuts:
            random.shuffle(rows)
        if seed % 4 == 3:
            # whatever comes first, so that nothing settles before the end
            random.shuffle(cuts)
        output = (OutputForm.FINAL, OutputForm.CHANGELOG)[seed % 2]
        assert history(deltas_of(query, cuts, output, restarts=bool(seed % 3))) == expected


@pytest.mark.parametrize("results", [RESULTS, MERGEABLE], ids=["of members", "partial"])
@pytest.mark.parametrize("windows", WINDOWS)
def test_results_do_not_depend_on_arrival(windows: str, results: dict[str, Any]) -> None:
    turn = list(WINDOWS).index(windows) + (results is MERGEABLE)
    assert_independent_of_arrival(WINDOWS[windows](source()).select(**results), SEEDS[turn % 2])


@pytest.mark.parametrize("windows", ["hopping", "session"])
def test_doubles_that_are_added_in_order_break_the_law(windows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartialSum, "exact", True)
    with pytest.raises(AssertionError):
        assert_independent_of_arrival(WINDOWS[windows](source()).select(total=sq.sum("v")), itertools.chain(*SEEDS))


def test_a_row_is_corrected_only_if_its_members_change() -> None:
    """Each event shortens the last row of all; the rows before it stay, though events that slept are added anew."""
    query = source().group_by("k").snapshot_window().select(**MERGEABLE)
    cuts = [[(n, 200 + 7 * (n % 11), "a", VALUES[n % 7], 0.1 * n)] for n in range(24)]
    taken_back = [row for batch in deltas_of(query, cuts, OutputForm.CHANGELOG) for row, weight in batch if weight < 0]
    assert not [row for row in taken_back if dict(row)[RE] < 200]
