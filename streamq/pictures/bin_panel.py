"""Panels with too many events to draw them one by one: columns count the events alive in each bin of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from streamq.markup import element, markup_text
from streamq.pictures.density import DensityChart, DensityRow
from streamq.pictures.panel import KEY_GAP, KeyColours, Panel, key_label

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


__all__ = ["BinPanel"]
