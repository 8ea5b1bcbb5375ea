"""Panels of a picture in Vega-Lite: events as bars on the lanes of their keys, or, of too many, counted in bins; and CTIs."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from streamq import html
from streamq.errors import counted
from streamq.html import shortened_to_width, text_width
from streamq.pictures.panel_history import DELETED, STANDS, WIDTH, PanelHistory, TimeAxis, shown_value
from streamq.pictures.picture import LIGHT
from streamq.runtime.arrow.values import Ints, python_rows
from streamq.time import INFINITY

Colours = Mapping[str, int]
"""The numbers of the keys' colours by the keys' texts; equal keys of several panels share one."""


# bars


MOST_BARS = 800
"""The most events of a panel that are drawn one by one; more are counted in bins of time."""

MOST_LANES = 40
"""The most lanes of a panel whose events are drawn one by one."""

FEW_LANES = 4
"""The number of lanes of a key up to which each label gets room of its own."""

LEAST_WIDTH = 3.0
"""The width of a point, and the least of a bar, in pixels."""

LANE_HEIGHT = 20.0
BAR_HEIGHT = 16.0
LABEL_SIZE = 11.0
KEY_GAP = 4.0
ARROW = 7.0


@dataclass(frozen=True)
class Bar:
    """An event's bar: its number and key, its ends in pixels, its label, its lane, and the top of that in pixels."""

    event: int
    key: int
    left: float
    right: float
    label: str
    lane: int = 0
    top: float = 0.0


def lanes_for(bars: Sequence[tuple[float, float]]) -> list[int]:
    """Return the lane of each bar ``(left, right)``, from 0 on; a bar takes the first lane that is free at its left.

    Bars that start together are taken in their order, so equal input has equal lanes. Cost: O(n log n).

    >>> lanes_for([(0, 4), (2, 6), (4, 8)])
    [0, 1, 0]
    """
    lanes = [0] * len(bars)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    for number in sorted(range(len(bars)), key=lambda n: (bars[n][0], n)):
        left, right = bars[number]
        while busy and busy[0][0] <= left:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lanes[number] = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (right, lanes[number]))
    return lanes


def bars_of(history: PanelHistory, axis: TimeAxis, groups: Sequence[int]) -> list[Bar] | None:
    """Return the bars of a panel's events, those of a key under one another; None if there are too many to be drawn one by one.

    ``groups``: the number of each event's key. Events outside the axis have no bar. Bars of a lane never overlap; if that takes
    few lanes, their labels do not either, those of windows excepted.
    """
    events = np.flatnonzero((history.ends > axis.low) & (history.starts <= axis.high)).tolist()
    if len(events) > MOST_BARS:
        return None
    labels = history.labels(events)
    bars = [_unplaced_bar(history, axis, event, groups, label) for event, label in zip(events, labels, strict=True)]
    placed: list[Bar] = []
    first = 0
    for number, key in enumerate(sorted({bar.key for bar in bars})):
        own = [bar for bar in bars if bar.key == key]
        places = lanes_for([(bar.left, bar.right) for bar in own]) if history.is_windows else _lanes_of_key(own)
        for bar, lane in zip(own, (first + place for place in places), strict=True):
            placed.append(replace(bar, lane=lane, top=lane * LANE_HEIGHT + number * KEY_GAP))
        first += max(places) + 1
    return sorted(placed, key=lambda bar: bar.event) if first <= MOST_LANES else None


def _unplaced_bar(history: PanelHistory, axis: TimeAxis, event: int, groups: Sequence[int], label: str) -> Bar:
    """Return the bar of an event, without its lane."""
    left = min(axis.pixels(int(history.starts[event])), WIDTH - LEAST_WIDTH)
    right = left if history.has_points else axis.pixels(int(history.ends[event]))
    return Bar(event, int(groups[event]), left, max(right, left + LEAST_WIDTH), label)


def _lanes_of_key(bars: Sequence[Bar]) -> list[int]:
    """Return the lane of each bar, from 0 on: with room for the labels if FEW_LANES are enough for that."""
    roomy = lanes_for([(bar.left, max(bar.right, bar.left + text_width(bar.label, LABEL_SIZE) + 14)) for bar in bars])
    return roomy if max(roomy) < FEW_LANES else lanes_for([(bar.left, bar.right) for bar in bars])


# bins


BINS = 120
"""The most bins of an axis."""

MOST_KEYS = 12
"""The most keys with a row of their own; the events of all others are one row."""

BIN_HEIGHT = 26.0


@dataclass(frozen=True)
class DensityRow:
    """The events of a key in bins: ``alive`` counts, by bin, the events that live in it; ``is_key``: False for all other keys."""

    title: str
    alive: Ints
    is_key: bool = True


def keys_with_rows(histories: Iterable[PanelHistory]) -> set[str]:
    """Return the keys that have a row of their own in every panel with bins: those with the most events in all panels."""
    counts: Counter[str] = Counter()
    for history in histories:
        keys, groups = history.key_groups
        counts.update(dict(zip(keys, np.bincount(groups, minlength=len(keys)).tolist(), strict=True)))
    by_count = sorted(counts, key=lambda key: (-counts[key], key))
    return set(by_count if len(by_count) <= MOST_KEYS + 1 else by_count[:MOST_KEYS])


def bin_edges(axis: TimeAxis) -> list[int]:
    """Return the edges of the bins of an axis, one more than bins, in ticks."""
    bins = min(BINS, axis.high - axis.low)
    return [axis.low + (axis.high - axis.low) * i // bins for i in range(bins + 1)]


def density_rows(history: PanelHistory, axis: TimeAxis, with_rows: Set[str]) -> list[DensityRow]:
    """Return the counts of a panel's events by key and bin, of the keys ``with_rows`` in rows of their own.

    Cost: a sort of the events of each.
    """
    keys, groups = history.key_groups
    own = [number for number, key in enumerate(keys) if key in with_rows]
    rows = [DensityRow(keys[number], _alive(history, groups == number, bin_edges(axis))) for number in own]
    if len(own) < len(keys):
        others = _alive(history, ~np.isin(groups, own), bin_edges(axis))
        rows.append(DensityRow(f"{len(keys) - len(own):,} other keys", others, is_key=False))
    return rows


def _alive(history: PanelHistory, mask: np.ndarray, edges: Sequence[int]) -> Ints:
    """Return for each bin the number of events of a mask that overlap it."""
    starts, ends = np.sort(history.starts[mask]), np.sort(history.ends[mask])
    lows, highs = np.array(edges[:-1]), np.array(edges[1:])
    return np.searchsorted(starts, highs, "left") - np.searchsorted(ends, lows, "right")


# panels


MOST_CTIS = 40
"""The most CTIs of a panel that are drawn; of more the last ones."""


class Panel:
    """The events of a history on an axis, as bars, or as bins if there are too many for that.

    ``with_rows``: the keys that have rows of their own in bins. ``has_labels``: the labels of the axis stand below the panel.
    """

    def __init__(self, history: PanelHistory, axis: TimeAxis, with_rows: Set[str], *, has_labels: bool):
        self.history, self.axis = history, axis
        self.keys, groups = history.key_groups
        self._x = axis.encoding(has_labels=has_labels)
        self._bars = bars_of(history, axis, groups.tolist())
        self._bins = density_rows(history, axis, with_rows) if self._bars is None else []

    @property
    def height(self) -> float:
        """The height of the panel, in pixels."""
        if self._bars is None:
            return len(self._bins) * (BIN_HEIGHT + KEY_GAP)
        return max((bar.top for bar in self._bars), default=0.0) + LANE_HEIGHT + KEY_GAP

    @property
    def table(self) -> str:
        """The table of the panel, as HTML: a row for each event, or for each bin that has events."""
        header, rows = _event_rows(self.history) if self._bars is not None else self._bin_table()
        return html.tabulated(header, rows, self.history.title, most=len(rows))

    def sentences(self) -> Iterator[str]:
        """Yield sentences on numbers of events and keys, their span, what was taken back, and how it is drawn."""
        history = self.history
        noun = "window" if history.is_windows else "event"
        if not history.count:
            yield f"{history.title}: no {noun}s."
            return
        keys = f" of {counted(len(self.keys), 'key')} ({', '.join(history.keys)})" if history.keys else ""
        yield f"{history.title}: {counted(history.count, noun)}{keys}, {history.span_text}."
        gone = int(history.is_gone.sum())
        if gone:
            replaced = gone - int((history.successors == DELETED).sum())
            yield f"{gone:,} taken back, {replaced:,} of them replaced."
        if history.ctis:
            shown = f", the last {MOST_CTIS} are drawn" if len(history.ctis) > MOST_CTIS else ""
            yield f"{counted(len(history.ctis), 'CTI')}, the last is {history.instant(history.ctis[-1])}{shown}."
        beyond = int(((history.ends <= self.axis.low) | (history.starts > self.axis.high)).sum())
        if beyond:
            yield f"{counted(beyond, noun)} outside the axis."
        if self._bars is None:
            yield f"Too many to draw one by one: columns count the {noun}s in each bin of time."
        if history.note:
            yield history.note

    def spec(self, colours: Colours, bands: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """Return the panel in Vega-Lite; ``bands``: windows that are drawn behind the events."""
        history = self.history
        layers = [*self._bands(bands), *self._ctis()]
        layers += self._bar_layers(self._bars, colours) if self._bars is not None else self._bin_layers(colours)
        if not history.count:
            nothing = "no windows" if history.is_windows else "no events"
            layers.append(self._texts([self._text(4, 14, nothing, LIGHT.faint)]))
        title = {
            "text": shortened_to_width(history.title, 13, WIDTH / 2),
            "subtitle": shortened_to_width(history.legend, 12, WIDTH) if history.count else "",
            "anchor": "start",
            "frame": "group",
            "offset": 18 if history.ctis else 4,
        }
        return {"width": WIDTH, "height": self.height, "title": title, "layer": layers}

    # layers

    def _layer(
        self, mark: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], *ends: str, **columns: str
    ) -> dict[str, Any]:
        """Return a layer of marks, one for each row, with the names of the columns of what is nominal, such as a colour.

        Rows have their places in ``x`` as instants of the axis, in ``y`` as pixels from the top, and in the columns ``ends``.
        """
        pixels = {"domain": [0, self.height], "range": [0, self.height]}
        places = {
            "x": {"field": "x", **self._x},
            "y": {"field": "y", "type": "quantitative", "scale": pixels, "axis": None},
        }
        until = {end: {"field": end} for end in ends}
        looks: dict[str, dict[str, Any]] = {n: {"field": c, "type": "nominal"} for n, c in columns.items()}
        for name in looks.keys() & {"fill", "stroke", "color"}:
            # the colours of the rows, not those of a scheme
            looks[name]["scale"] = None
        return {"data": {"values": list(rows)}, "mark": mark, "encoding": {**places, **until, **looks}}

    def _rects(self, rows: Sequence[Mapping[str, Any]], **mark: Any) -> dict[str, Any]:
        """Return a layer of rectangles from ``x`` and ``y`` to ``x2`` and ``y2``; ``shown`` says what each is."""
        look = {"fill": "fill", "stroke": "stroke", "tooltip": "shown", "description": "shown"}
        return self._layer({"type": "rect", **mark}, rows, "x2", "y2", **look)

    def _text(self, pixel: float, y: float, text: str, colour: str) -> dict[str, Any]:
        """Return the row of a text that starts so many pixels from the left border, with its base line at ``y``."""
        return {"x": self.axis.instant_of(pixel), "y": y, "text": text, "colour": colour}

    def _texts(self, rows: Sequence[Mapping[str, Any]], **mark: Any) -> dict[str, Any]:
        look = {"type": "text", "align": "left", "baseline": "alphabetic", "fontSize": LABEL_SIZE, **mark}
        return self._layer(look, rows, text="text", color="colour")

    def _key_texts(self, rows: Sequence[tuple[float, str]]) -> dict[str, Any]:
        """Return a layer of keys at the left of their lanes, each with its height."""
        texts = [self._text(0, y, shortened_to_width(key, 12, 130), LIGHT.text) for y, key in rows if key]
        return self._texts(texts, align="right", baseline="middle", dx=-8, fontSize=12)

    def _bands(self, bands: Sequence[tuple[int, int]]) -> Iterator[dict[str, Any]]:
        shown = [(self.axis.clamp(start), self.axis.clamp(end)) for start, end in bands]
        ends = [{"x": self.axis.number(start), "x2": self.axis.number(end)} for start, end in shown if start < end]
        rows = [{**row, "y": 0, "y2": self.height, "shown": "window"} for row in ends]
        if rows:
            mark = {"type": "rect", "color": LIGHT.band}
            yield self._layer(mark, rows, "x2", "y2", description="shown")

    def _ctis(self) -> Iterator[dict[str, Any]]:
        """Yield the layers of the last CTIs: lines, and the instant of each above, where there is room."""
        shown = [t for t in self.history.ctis[-MOST_CTIS:] if self.axis.low <= t <= self.axis.high]
        if not shown:
            return
        lines = [{"x": self.axis.number(t), "y": -3, "y2": self.height} for t in shown]
        dots = {"type": "rule", "strokeDash": [2, 3], "strokeWidth": 1.5, "color": LIGHT.cti}
        yield self._layer(dots, lines, "y2")
        texts, room = [], 0.0
        for t in shown:
            label = f"CTI {self.history.instant(t)}"
            half = text_width(label, LABEL_SIZE) / 2
            middle = max(half, min(self.axis.pixels(t), WIDTH - half))
            if middle - half >= room:
                texts.append(self._text(middle, -6, label, LIGHT.cti))
                room = middle + half + 6
        yield self._texts(texts, align="center")

    # bars

    def _bar_layers(self, bars: Sequence[Bar], colours: Colours) -> Iterator[dict[str, Any]]:
        """Yield the layers of keys, bars, arrows where bars go on, links to what replaced events, and labels."""
        by_key: dict[int, list[float]] = {}
        for bar in bars:
            by_key.setdefault(bar.key, []).append(bar.top)
        yield self._key_texts([((min(own) + max(own) + BAR_HEIGHT) / 2, self.keys[key]) for key, own in by_key.items()])
        standing = [self._bar(bar, colours) for bar in bars if not self._is_gone(bar.event)]
        gone = [self._bar(bar, colours) for bar in bars if self._is_gone(bar.event)]
        yield self._rects(standing, cornerRadius=2)
        yield self._rects(gone, cornerRadius=2, strokeDash=[4, 3], fillOpacity=0)
        yield from self._arrows(bars, colours)
        yield from self._links(bars)
        yield self._texts([label for label in self._labels(bars) if label["text"]])

    def _colours(self, key: str, colours: Colours) -> tuple[str, str]:
        """Return the surface and the border of what belongs to a key; windows are of no colour."""
        return (LIGHT.band, LIGHT.faint) if self.history.is_windows else LIGHT.key(colours[key])

    def _bar(self, bar: Bar, colours: Colours) -> dict[str, Any]:
        surface, border = self._colours(self.keys[bar.key], colours)
        ends = {"x": self.axis.instant_of(bar.left), "x2": self.axis.instant_of(bar.right)}
        look = {"fill": border if self.history.has_points else surface, "stroke": border}
        return {**ends, "y": bar.top, "y2": bar.top + BAR_HEIGHT, **look, "shown": self._tooltip(bar)}

    def _is_gone(self, event: int) -> bool:
        return bool(self.history.successors[event] != STANDS)

    def _tooltip(self, bar: Bar) -> str:
        """Return an event's key, payload and lifetime as text, and what became of it."""
        history = self.history
        words = [self.keys[bar.key], bar.label, history.lifetime_text(bar.event)]
        successor = int(history.successors[bar.event])
        if successor == DELETED:
            words.append("taken back")
        elif successor != STANDS:
            words.append(f"replaced by {history.labels([successor])[0]} {history.lifetime_text(successor)}")
        return html.with_escapes(" ".join(word for word in words if word))

    def _goes_on(self, bar: Bar) -> bool:
        """Return True if an event goes on beyond the end of the axis."""
        return int(self.history.ends[bar.event]) > self.axis.high

    def _arrows(self, bars: Sequence[Bar], colours: Colours) -> Iterator[dict[str, Any]]:
        beyond = {
            "triangle-right": [bar for bar in bars if self._goes_on(bar)],
            "triangle-left": [bar for bar in bars if int(self.history.starts[bar.event]) < self.axis.low],
        }
        for shape, own in beyond.items():
            at = WIDTH + ARROW / 2 if shape == "triangle-right" else -ARROW / 2
            rows = [
                {
                    "x": self.axis.instant_of(at),
                    "y": bar.top + BAR_HEIGHT / 2,
                    "colour": self._colours(self.keys[bar.key], colours)[1],
                }
                for bar in own
            ]
            if rows:
                yield self._layer({"type": "point", "shape": shape, "filled": True, "opacity": 1}, rows, color="colour")

    def _links(self, bars: Sequence[Bar]) -> Iterator[dict[str, Any]]:
        """Yield the layers of links from events that were taken back to those that replaced them."""
        by_event = {bar.event: bar for bar in bars}
        lines, heads = [], []
        for bar in bars:
            new = by_event.get(int(self.history.successors[bar.event]))
            if new is None:
                continue
            is_down = new.top > bar.top
            x = (bar.left + bar.right) / 2
            to_x = max(new.left + 3, min(new.right - 3, x)) if new.right - new.left > 6 else (new.left + new.right) / 2
            y, to_y = bar.top + (BAR_HEIGHT if is_down else 0), new.top + (0 if is_down else BAR_HEIGHT)
            end = {"x2": self.axis.instant_of(to_x), "y2": to_y}
            lines.append({"x": self.axis.instant_of(x), "y": y, **end})
            heads.append({"x": end["x2"], "y": to_y - (2 if is_down else -2), "down": is_down})
        if lines:
            yield self._layer({"type": "rule", "color": LIGHT.faint}, lines, "x2", "y2")
        for shape, down in (("triangle-down", True), ("triangle-up", False)):
            own = [head for head in heads if head["down"] == down]
            if own:
                mark = {"type": "point", "shape": shape, "filled": True, "opacity": 1, "size": 25, "color": LIGHT.faint}
                yield self._layer(mark, own)

    def _labels(self, bars: Sequence[Bar]) -> Iterator[dict[str, Any]]:
        """Yield the labels of the bars: inside where they fit, else at their right up to the next bar of the lane."""
        lanes: dict[int, list[Bar]] = {}
        for bar in sorted(bars, key=lambda bar: bar.left):
            lanes.setdefault(bar.lane, []).append(bar)
        for own in lanes.values():
            limits = [*(bar.left for bar in own[1:]), WIDTH + 8]
            for bar, limit in zip(own, limits, strict=True):
                yield self._label(bar, limit)

    def _label(self, bar: Bar, limit: float) -> dict[str, Any]:
        """Return a bar's label, which ends before ``limit``; faint if the event was taken back, "" if it does not fit."""
        inside, behind = bar.right - bar.left - 8, limit - bar.right - 7
        is_inside = text_width(bar.label, LABEL_SIZE) <= inside or inside >= max(40, behind)
        margin = ARROW if self._goes_on(bar) else 0
        shown = shortened_to_width(bar.label, LABEL_SIZE, inside if is_inside else behind - margin)
        left = bar.left + 4 if is_inside else bar.right + 4 + margin
        return self._text(
            left, bar.top + BAR_HEIGHT / 2 + 4, shown, LIGHT.faint if self._is_gone(bar.event) else LIGHT.text
        )

    # bins

    def _bin_layers(self, colours: Colours) -> Iterator[dict[str, Any]]:
        """Yield the layers of keys, bins as columns whose heights are numbers of events, and the greatest number of each row."""
        own = [int(row.alive.max()) for row in self._bins if row.is_key]
        columns, keys, most = [], [], []
        for number, row in enumerate(self._bins):
            base = (number + 1) * (BIN_HEIGHT + KEY_GAP) - KEY_GAP
            greatest = int(row.alive.max())
            scale = max([1, *own] if row.is_key else [1, greatest])
            surface, border = self._colours(row.title, colours) if row.is_key else (LIGHT.band, LIGHT.faint)
            keys.append((base - BIN_HEIGHT / 2, row.title))
            most.append(self._text(WIDTH + 3, base, _short_number(greatest), LIGHT.faint))
            for low, high, alive in self._filled_bins(row):
                tall = max(1.0, BIN_HEIGHT * alive / scale)
                what = "windows" if self.history.is_windows else "events alive"
                span = f"[{self.history.instant(low)}, {self.history.instant(high)})"
                place = {"x": self.axis.number(low), "x2": self.axis.number(high), "y": base - tall, "y2": base}
                shown = html.with_escapes(f"{row.title or 'all'}: {alive:,} {what} in {span}")
                columns.append({**place, "fill": surface, "stroke": border, "shown": shown})
        yield self._key_texts(keys)
        yield self._rects(columns, strokeWidth=0.4)
        yield self._texts(most)

    def _filled_bins(self, row: DensityRow) -> Iterator[tuple[int, int, int]]:
        """Yield the bins of a row that have events: from, to, and how many."""
        for (low, high), alive in zip(pairwise(bin_edges(self.axis)), row.alive.tolist(), strict=True):
            if alive:
                yield low, high, alive

    def _bin_table(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [row.title or "all", self.history.instant(low), self.history.instant(high), f"{alive:,}"]
            for row in self._bins
            for low, high, alive in self._filled_bins(row)
        ]
        return ["key", "from", "to", "alive"], rows


def _short_number(number: int) -> str:
    """Return a number in at most four characters: ``12k`` for 12,345."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)


def _event_rows(history: PanelHistory) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table of events, in order of appearance."""
    payloads = python_rows(history.payload) if history.payload.column_names else [{}] * history.count
    lifetimes = zip(history.starts.tolist(), history.ends.tolist(), strict=True)
    rows = [
        [*map(shown_value, payload.values()), history.instant(s), "NULL" if e == INFINITY else history.instant(e)]
        for payload, (s, e) in zip(payloads, lifetimes, strict=True)
    ]
    header = [*history.payload.column_names, "start", "end"]
    if not history.is_gone.any():
        return header, rows
    return [*header, "taken back"], [[*row, _fate(history, event)] for event, row in enumerate(rows)]


def _fate(history: PanelHistory, event: int) -> str:
    """Return what became of an event: nothing, deleted, or the row that replaced it, counted from 1."""
    match int(history.successors[event]):
        case successor if successor == STANDS:
            return ""
        case successor if successor == DELETED:
            return "yes"
        case successor:
            return f"replaced by row {successor + 1}"
