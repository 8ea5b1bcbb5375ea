"""Counts of events in bins of time, for panels with too many events to draw them one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from streamq.pictures.panel_history import PanelHistory
from streamq.pictures.time_axis import TimeAxis
from streamq.runtime.values import Ints

BINS = 120
"""The most bins of an axis."""

MOST_KEYS = 12
"""The most keys with a row of their own; the events of all others are one row."""


@dataclass(frozen=True)
class DensityRow:
    """The events of a key in bins: ``alive`` counts, by bin, the events that live in it; ``count`` is that of all its events.

    ``key`` is the key's number, None for all keys without a row of their own, ``keys`` how many keys the row has.
    """

    key: int | None
    keys: int
    count: int
    alive: Ints


@dataclass(frozen=True)
class DensityChart:
    """The rows of a panel in bins, and the ``edges`` of the bins, one more than bins, in ticks."""

    edges: list[int]
    rows: list[DensityRow]

    @property
    def greatest(self) -> int:
        """The greatest count of a bin of a key with a row of its own, at least 1."""
        return max((int(row.alive.max()) for row in self.rows if row.key is not None), default=1) or 1


def keys_with_rows(histories: Iterable[PanelHistory]) -> set[str]:
    """Return the keys that have a row of their own in every panel with bins: those with the most events in all panels."""
    counts: Counter[str] = Counter()
    for history in histories:
        keys, groups = history.key_groups
        counts.update(dict(zip(keys, np.bincount(groups, minlength=len(keys)).tolist(), strict=True)))
    by_count = sorted(counts, key=lambda key: (-counts[key], key))
    return set(by_count if len(by_count) <= MOST_KEYS + 1 else by_count[:MOST_KEYS])


def density_chart(history: PanelHistory, axis: TimeAxis, with_rows: Set[str]) -> DensityChart:
    """Return the counts of a panel's events by key and bin, of the keys ``with_rows`` in rows of their own.

    Cost: a sort of the events of each.
    """
    keys, groups = history.key_groups
    bins = min(BINS, axis.high - axis.low)
    edges = [axis.low + (axis.high - axis.low) * i // bins for i in range(bins + 1)]
    counts = np.bincount(groups, minlength=len(keys))
    own = [number for number, key in enumerate(keys) if key in with_rows]
    rows = [DensityRow(key, 1, int(counts[key]), _alive(history, groups == key, edges)) for key in own]
    if len(own) < len(keys):
        others = ~np.isin(groups, own)
        rows.append(DensityRow(None, len(keys) - len(own), int(others.sum()), _alive(history, others, edges)))
    return DensityChart(edges, rows)


def _alive(history: PanelHistory, mask: np.ndarray, edges: Sequence[int]) -> Ints:
    """Return for each bin the number of events of a mask that overlap it."""
    starts, ends = np.sort(history.starts[mask]), np.sort(history.ends[mask])
    lows, highs = np.array(edges[:-1]), np.array(edges[1:])
    return np.searchsorted(starts, highs, "left") - np.searchsorted(ends, lows, "right")


__all__ = ["DensityChart", "DensityRow", "density_chart", "keys_with_rows"]
