"""Ranges of windows: merged, not copied, and the same result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

import streamq as sq
from streamq.runtime import partials

AGGREGATES = {
    "total": sq.sum("i"),
    "most": sq.max("v"),
    "mean": sq.avg("v"),
    "spread": sq.stddev("v"),
    "median": sq.median("v"),
    "distinct": sq.count_distinct("i"),
    "first": sq.first("i"),
    "last": sq.last("i"),
    "both": sq.corr("v", "i"),
}
ALIVE = 3_000


def test_alive_events_are_not_copied_into_every_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 events that all live at once lie in nine million windows: what is merged stays within n log n."""
    rng = np.random.default_rng(1)
    start = rng.permutation(1_000_000)[:ALIVE]
    end = start + 1_000_000
    v, i = rng.normal(50, 9, ALIVE), rng.integers(0, 40, ALIVE)
    merged, rows = partials.merged, []

    def watched(table: pa.Table, by: Sequence[str], slots: Sequence[partials.SlotSpec]) -> pa.Table:
        rows.append(table.num_rows)
        return merged(table, by, slots)

    monkeypatch.setattr(partials, "merged", watched)
    events = [(a, b, {"v": x, "i": n}) for a, b, x, n in zip(*(c.tolist() for c in (start, end, v, i)), strict=True)]
    found = sq.events(events).snapshot_window().select(n=sq.count(), **AGGREGATES).to_pandas()
    assert len(found) == 2 * ALIVE - 1
    assert 0 < sum(rows) < 10 * 2 * ALIVE * np.log2(2 * ALIVE)
    for _, row in found[ALIVE // 2 :: ALIVE // 4].iterrows():
        alive = np.flatnonzero((start < row.end) & (end > row.start))
        inside = alive[np.argsort(start[alive])]
        assert (row.n, row.total, row.distinct) == (len(inside), i[inside].sum(), len(np.unique(i[inside])))
        assert (row["first"], row["last"]) == (i[inside[0]], i[inside[-1]])
        found_floats = (row.most, row["mean"], row.spread, row["median"], row.both)
        expected = (v[inside].max(), v[inside].mean(), v[inside].std(ddof=1), np.median(v[inside]))
        assert found_floats == pytest.approx((*expected, np.corrcoef(v[inside], i[inside])[0, 1]))
