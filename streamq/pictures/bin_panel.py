"""Panels with too many events to draw them one by one: columns count the events alive in each bin of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from streamq.html import element, markup_text
from streamq.pictures.bars import TimeAxis
from streamq.pictures.panel import KEY_GAP, KeyColours, Panel, key_label
from streamq.pictures.panel_history import PanelHistory
from streamq.runtime.arrow.values import Ints

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


BIN_HEIGHT = 26.0


@dataclass(frozen=True, kw_only=True)
class BinPanel(Panel):
    """A panel with a row of bins for each key."""

    chart: DensityChart

    @property
    def events_height(self) -> float:
        return max(1, len(self.chart.rows)) * (BIN_HEIGHT + KEY_GAP)

    def draw_events(self, colours: KeyColours) -> Iterator[str]:
        yield from self._draw_bins(colours)
        yield from self.draw_ctis()

    def sentences(self, noun: str) -> Iterator[str]:
        yield f"Too many to draw one by one: columns count the {noun}s in each bin of time."

    def rows(self) -> tuple[list[str], list[list[str]]]:
        return ["key", "from", "to", "alive"], list(self._bin_rows())

    def _bin_rows(self) -> Iterator[list[str]]:
        """Yield a row for each bin that has events."""
        for row in self.chart.rows:
            for (low, high), alive in zip(pairwise(self.chart.edges), row.alive.tolist(), strict=True):
                if alive:
                    bounds = [self.history.instant(low), self.history.instant(high)]
                    yield [self._row_title(row) or "all", *bounds, f"{alive:,}"]

    def _row_title(self, row: DensityRow) -> str:
        """Return the key of a row of bins as text; "" if there are no keys."""
        return f"{row.keys:,} other keys" if row.key is None else self.keys[row.key]

    def _draw_bins(self, colours: KeyColours) -> Iterator[str]:
        """Yield the bins as columns, whose heights are numbers of events, with the keys at their left."""
        for number, row in enumerate(self.chart.rows):
            base = self.top + (number + 1) * (BIN_HEIGHT + KEY_GAP) - KEY_GAP
            key, greatest = self._row_title(row), int(row.alive.max())
            scale = self.chart.greatest if row.key is not None else max(1, greatest)
            yield key_label(key, self.axis, base - BIN_HEIGHT / 2 + 4)
            surface = "window" if self.history.is_windows or row.key is None else colours.class_of(key)
            yield element("line", x1=self.axis.left, x2=self.axis.right, y1=base, y2=base, class_="line")
            for (low, high), alive in zip(pairwise(self.chart.edges), row.alive.tolist(), strict=True):
                if alive:
                    x, tall = self.axis.place(low), max(1.0, BIN_HEIGHT * alive / scale)
                    span = f"[{self.history.instant(low)}, {self.history.instant(high)})"
                    what = "windows" if self.history.is_windows else "events alive"
                    tip = element("title", markup_text(f"{key or 'all'}: {alive:,} {what} in {span}"))
                    size = {"x": x, "width": self.axis.place(high) - x, "y": base - tall, "height": tall}
                    yield element("rect", tip, class_=f"bin {surface}", **size)
            most = element("title", markup_text(f"{key or 'all'}: at most {greatest:,}"))
            shown = _short_number(greatest)
            yield element("text", markup_text(shown), most, x=self.axis.right + 3, y=base, class_="faint")


def _short_number(number: int) -> str:
    """Return a number in at most four characters: ``12k`` for 12,345."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)
