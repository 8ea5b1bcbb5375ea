"""Panels of a picture: a title, the events as bars on the lanes of their keys, or, of too many, counted in bins; and CTIs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from streamq.html import element, markup_text, shortened_to_width, text_width
from streamq.pictures.bars import BAR_HEIGHT, LABEL_SIZE, LANE_HEIGHT, Bar, BarChart, TimeAxis
from streamq.pictures.panel_history import DELETED, STANDS, PanelHistory, shown_value
from streamq.pictures.svg_picture import colour_class
from streamq.runtime.arrow.rendering import python_rows
from streamq.runtime.arrow.values import Ints
from streamq.time import INFINITY

TITLE_HEIGHT = 24.0
CTI_HEIGHT = 14.0
KEY_GAP = 4.0
MARGIN = 28.0
"""The room at the right of the axis, for arrows and labels."""
MOST_CTIS = 40
"""The most CTIs of a panel that are drawn; of more the last ones."""


@dataclass(frozen=True)
class KeyColours:
    """The number of each key's colour, by the key's text; equal keys of several panels share one."""

    numbers: Mapping[str, int]

    def class_of(self, key: str) -> str:
        """Return the class of the elements of a key."""
        return colour_class(self.numbers[key])


@dataclass(frozen=True, kw_only=True)
class Panel(ABC):
    """A panel of events on an axis; ``keys`` are the keys as text. Kinds of panels differ in what is drawn of the events."""

    history: PanelHistory
    axis: TimeAxis
    keys: list[str]

    @property
    @abstractmethod
    def events_height(self) -> float:
        """The height of what is drawn of the events."""

    @abstractmethod
    def draw_events(self, colours: KeyColours) -> Iterator[str]:
        """Yield the elements of the events and of the CTIs, from back to front."""

    @abstractmethod
    def sentences(self, noun: str) -> Iterator[str]:
        """Yield what there is to say of how the events are drawn; ``noun`` is what they are called."""

    @abstractmethod
    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of a table of all that is drawn."""

    @property
    def top(self) -> float:
        """The distance of the first lane from the top of the panel."""
        return TITLE_HEIGHT + (CTI_HEIGHT if self.history.ctis else 0.0)

    @property
    def height(self) -> float:
        """The height of the panel."""
        return self.top + self.events_height

    def draw(self, colours: KeyColours) -> str:
        """Return the panel as markup, from its own top on."""
        title = shortened_to_width(self.history.title, 13, self.axis.right / 2)
        legend = element("tspan", markup_text(self.history.legend), dx=8, class_="faint legend")
        parts = [element("text", markup_text(title), legend if self.history.count else "", x=8, y=16, class_="title")]
        parts += self.draw_events(colours)
        if not self.history.count:
            nothing = "no windows" if self.history.is_windows else "no events"
            parts.append(element("text", markup_text(nothing), x=self.axis.left + 4, y=self.top + 14, class_="faint"))
        return "".join(parts)

    def draw_ctis(self) -> Iterator[str]:
        """Yield the lines of the last CTIs, each with its instant above where there is room."""
        room = 0.0
        for cti in self.history.ctis[-MOST_CTIS:]:
            if not self.axis.low <= cti <= self.axis.high:
                continue
            x, label = self.axis.place(cti), f"CTI {self.history.instant(cti)}"
            line = {"x1": x, "x2": x, "y1": self.top - 3, "y2": self.height}
            yield element("line", element("title", markup_text(label)), class_="cti", **line)
            wide = text_width(label, LABEL_SIZE) / 2
            middle = min(x, self.axis.right + MARGIN - 4 - wide)
            if middle - wide > room:
                yield element(
                    "text", markup_text(label), x=middle, y=self.top - 5, class_="promise", text_anchor="middle"
                )
                room = middle + wide + 6


def key_label(key: str, axis: TimeAxis, y: float) -> str:
    """Return a key's text at the left of its lanes; "" for no key."""
    shown = shortened_to_width(key, 12, axis.left - 20)
    tip = element("title", markup_text(key))
    return (
        element("text", markup_text(shown), tip, x=axis.left - 8, y=y, class_="key", text_anchor="end") if key else ""
    )


ARROW = 7.0
ALIVE, TAKEN_BACK = "", "taken back"


@dataclass(frozen=True, kw_only=True)
class BarPanel(Panel):
    """A panel with a bar for each event that lies on the axis."""

    chart: BarChart

    @property
    def events_height(self) -> float:
        return max(1, self.chart.count) * LANE_HEIGHT + KEY_GAP * len(self.chart.keys)

    def draw_events(self, colours: KeyColours) -> Iterator[str]:
        yield from self.draw_ctis()
        yield from _Lanes(self, colours).draw()

    def sentences(self, noun: str) -> Iterator[str]:
        """Yield nothing: bars speak for themselves."""
        yield from ()

    def rows(self) -> tuple[list[str], list[list[str]]]:
        return _event_rows(self.history)


@dataclass(frozen=True)
class _Lanes:
    """Draws the bars of a panel: their keys, links from events taken back to what replaced them, and labels where they fit."""

    panel: BarPanel
    colours: KeyColours

    def draw(self) -> Iterator[str]:
        """Yield the labels of the keys, the bars by event, the links, then the bars' labels."""
        for lanes in self.panel.chart.keys:
            middle = self._top(lanes.first, lanes.key) + lanes.count * LANE_HEIGHT / 2
            yield key_label(self.panel.keys[lanes.key], self.panel.axis, middle + 2)
        yield from (self._bar(bar) for bar in self.panel.chart.bars)
        places = {bar.event: bar for bar in self.panel.chart.bars}
        for bar in self.panel.chart.bars:
            successor = int(self.panel.history.successors[bar.event])
            if successor in places:
                yield self._link(bar, places[successor])
        yield from self._labels()

    def _top(self, lane: int, key: int) -> float:
        """Return the upper edge of a lane's bars."""
        before = sum(1 for lanes in self.panel.chart.keys if lanes.key < key)
        return self.panel.top + lane * LANE_HEIGHT + before * KEY_GAP

    def _bar(self, bar: Bar) -> str:
        """Return an event's bar, with an arrow where it goes on beyond the axis; hollow if it was taken back."""
        history, y = self.panel.history, self._top(bar.lane, bar.key)
        middle = y + BAR_HEIGHT / 2
        colour = "window" if history.is_windows else self.colours.class_of(self.panel.keys[bar.key])
        state = "gone " if history.successors[bar.event] != STANDS else "point " if bar.is_point else ""
        shape = {"x": bar.left, "y": y, "width": bar.right - bar.left, "height": BAR_HEIGHT}
        parts = [element("rect", class_=f"bar {state}{colour}", rx=0 if bar.is_point else 2, **shape)]
        if bar.is_open or bar.ends_behind:
            parts.append(_arrow(bar.right, middle, ARROW, f"arrow {colour}"))
        if bar.begins_before:
            parts.append(_arrow(bar.left, middle, -ARROW, f"arrow {colour}"))
        return element("g", element("title", markup_text(self._tooltip(bar))), *parts)

    def _tooltip(self, bar: Bar) -> str:
        """Return an event's key, payload and lifetime as text, and what became of it."""
        history = self.panel.history
        words = [self.panel.keys[bar.key], bar.label, history.lifetime_text(bar.event)]
        successor = int(history.successors[bar.event])
        if successor == DELETED:
            words.append("taken back")
        elif successor != STANDS:
            words.append(f"replaced by {history.labels([successor])[0]} {history.lifetime_text(successor)}")
        return " ".join(word for word in words if word)

    def _link(self, old: Bar, new: Bar) -> str:
        """Return the arrow from an event that was taken back to the event that replaced it."""
        upper, lower = self._top(old.lane, old.key), self._top(new.lane, new.key)
        is_down = lower > upper
        x, y = (old.left + old.right) / 2, upper + (BAR_HEIGHT if is_down else 0)
        to_x = max(new.left + 3, min(new.right - 3, x)) if new.right - new.left > 6 else (new.left + new.right) / 2
        to_y = lower + (0 if is_down else BAR_HEIGHT)
        head = f"M{to_x - 3:.2f} {to_y - (4 if is_down else -4):.2f}h6l-3 {4 if is_down else -4}z"
        line = element("path", d=f"M{x:.2f} {y:.2f}L{to_x:.2f} {to_y:.2f}", class_="link")
        return line + element("path", d=head, class_="head")

    def _labels(self) -> Iterator[str]:
        """Yield the labels of the bars: inside where they fit, else at their right up to the next bar of the lane."""
        lanes: dict[int, list[Bar]] = {}
        for bar in self.panel.chart.bars:
            lanes.setdefault(bar.lane, []).append(bar)
        for bars in lanes.values():
            in_order = sorted(bars, key=lambda bar: bar.left)
            limits = [*(bar.left for bar in in_order[1:]), self.panel.axis.right + 8]
            for bar, limit in zip(in_order, limits, strict=True):
                yield self._label(bar, limit)

    def _label(self, bar: Bar, limit: float) -> str:
        """Return a bar's label, which ends before ``limit``; "" if it does not fit."""
        inside, behind = bar.right - bar.left - 8, limit - bar.right - 7
        fits_inside = text_width(bar.label, LABEL_SIZE) <= inside
        is_inside = fits_inside or inside >= max(40, behind)
        margin = ARROW if bar.is_open or bar.ends_behind else 0
        x = bar.left + 4 if is_inside else bar.right + 4 + margin
        shown = shortened_to_width(bar.label, LABEL_SIZE, inside if is_inside else behind - margin)
        y = self._top(bar.lane, bar.key) + BAR_HEIGHT / 2 + 4
        is_gone = self.panel.history.successors[bar.event] != STANDS
        classes = {"class_": "faint struck"} if is_gone else {}
        return element("text", markup_text(shown), x=x, y=y, **classes) if shown else ""


def _arrow(x: float, y: float, length: float, classes: str) -> str:
    """Return the head of an arrow from ``x``, to the left if ``length`` is negative."""
    return element("path", d=f"M{x:.2f} {y - 6:.2f}l{length:.2f} 6l{-length:.2f} 6z", class_=classes)


def _event_rows(history: PanelHistory) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table of events, in order of appearance."""
    rows = [
        [*(shown_value(value) for value in payload.values()), history.instant(start), _end(history, end)]
        for payload, start, end in zip(
            python_rows(history.payload) if history.payload.column_names else [{}] * history.count,
            history.starts.tolist(),
            history.ends.tolist(),
            strict=True,
        )
    ]
    header = [*history.payload.column_names, "start", "end"]
    if not history.is_gone.any():
        return header, rows
    return [*header, TAKEN_BACK], [[*row, _fate(history, event)] for event, row in enumerate(rows)]


def _end(history: PanelHistory, end: int) -> str:
    return "NULL" if end == INFINITY else history.instant(end)


def _fate(history: PanelHistory, event: int) -> str:
    """Return what became of an event: nothing, deleted, or the row that replaced it, counted from 1."""
    match int(history.successors[event]):
        case successor if successor == STANDS:
            return ALIVE
        case successor if successor == DELETED:
            return "yes"
        case successor:
            return f"replaced by row {successor + 1}"


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
