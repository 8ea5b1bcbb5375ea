"""Pictures of histories: panels under one another on one axis of time, described in words and with a table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from streamq import html
from streamq.errors import counted
from streamq.html import element, markup_text, text_width
from streamq.pictures.bars import LABEL_SIZE, TimeAxis, bar_chart, section
from streamq.pictures.panel import (
    MARGIN,
    MOST_CTIS,
    MOST_KEYS,
    BarPanel,
    BinPanel,
    KeyColours,
    Panel,
    density_chart,
    keys_with_rows,
)
from streamq.pictures.panel_history import DELETED, PanelHistory
from streamq.pictures.svg_picture import WIDTH, SvgPicture, label_ids, named_elements, style_sheet
from streamq.time import INFINITY, TIMESTAMP


def describe(panels: Sequence[Panel]) -> list[str]:
    """Return a sentence or more on each panel, and one on the axis."""
    axis, kind = panels[0].axis, panels[0].history.axis
    zone = " (UTC)" if kind == TIMESTAMP else ""
    span = f"The axis goes from {panels[0].history.instant(axis.low)} to {panels[0].history.instant(axis.high)}{zone}."
    return [*(" ".join(_sentences(panel)) for panel in panels), span]


def _sentences(panel: Panel) -> Iterator[str]:
    """Yield the sentences on a panel: numbers of events and keys, their span, what was taken back, how it is drawn."""
    history = panel.history
    noun = "window" if history.is_windows else "event"
    if not history.count:
        yield f"{history.title}: no {noun}s."
        return
    keys = f" of {counted(len(panel.keys), 'key')} ({', '.join(history.keys)})" if history.keys else ""
    yield f"{history.title}: {counted(history.count, noun)}{keys}, {_span(history)}."
    gone = int(history.is_gone.sum())
    if gone:
        replaced = gone - int((history.successors == DELETED).sum())
        yield f"{gone:,} taken back, {replaced:,} of them replaced."
    if history.ctis:
        shown = f", the last {MOST_CTIS} are drawn" if len(history.ctis) > MOST_CTIS else ""
        yield f"{counted(len(history.ctis), 'CTI')}, the last is {history.instant(history.ctis[-1])}{shown}."
    beyond = int(((history.ends <= panel.axis.low) | (history.starts > panel.axis.high)).sum())
    if beyond:
        yield f"{counted(beyond, noun)} outside the axis."
    yield from panel.sentences(noun)
    if history.note:
        yield history.note


def _span(history: PanelHistory) -> str:
    """Return the span of some events as words."""
    first = history.instant(int(history.starts.min()))
    endless = int((history.ends == INFINITY).sum())
    finite = history.ends[history.ends != INFINITY]
    last = f" to {history.instant(int(finite.max()))}" if len(finite) else ""
    return f"from {first}{last}" + (f", {endless:,} without an end" if endless else "")


def table_of(panel: Panel) -> str:
    """Return the table of a panel, as HTML: a row for each event, or for each bin that has events."""
    header, rows = panel.rows()
    return html.tabulated(header, rows, panel.history.title, most=len(rows))


GUTTER = (16.0, 150.0)
"""The least and the most room at the left of the axis, for keys."""
PANEL_GAP = 14.0
AXIS_HEIGHT = 36.0
MOST_BANDS = 60
"""The most windows that are drawn as bands behind the events."""


class Picture(SvgPicture):
    """A picture of histories: panels of events as bars on one axis of time. Equal histories have equal pictures."""

    def __init__(self, title: str, histories: Sequence[PanelHistory], between: tuple[int, int] | None = None):
        """Draw ``histories`` from top to bottom; ``between``: the first and last instant of the axis, in ticks, None: all."""
        instants = np.concatenate([np.concatenate([h.starts, h.ends, np.array(h.ctis, np.int64)]) for h in histories])
        low, high = section(instants, histories[0].axis) if between is None else between
        axis = TimeAxis(low, high, histories[0].axis, _gutter(histories), WIDTH - MARGIN)
        self._panels = [_panel(history, axis, histories) for history in histories]
        super().__init__(title, describe(self._panels))

    def _tables(self) -> str:
        return "\n".join(table_of(panel) for panel in self._panels)

    @cached_property
    def svg(self) -> str:
        body, height = self._body()
        words = " ".join(self.description)
        scope = f"streamq-{hashlib.sha256(f'{self.title}{words}{body}'.encode()).hexdigest()[:10]}"
        return element(
            "svg",
            named_elements(scope, self.title, words),
            element("style", f"\n{style_sheet(scope)}\n"),
            body,
            xmlns="http://www.w3.org/2000/svg",
            id=scope,
            role="img",
            aria_labelledby=label_ids(scope),
            viewBox=f"0 0 {WIDTH:g} {height:g}",
            width="100%",
            style=f"max-width:{WIDTH:g}px",
        )

    def _body(self) -> tuple[str, float]:
        """Return the elements of the picture, from back to front, and its height."""
        tops: list[float] = []
        y = 8.0
        for one in self._panels:
            tops.append(y)
            y += one.height + PANEL_GAP
        axis, bottom = self._panels[0].axis, y - PANEL_GAP + 6
        placed = list(zip(self._panels, tops, strict=True))
        colours = _key_colours(self._panels)
        parts = [
            element("rect", width=WIDTH, height=bottom + AXIS_HEIGHT, class_="ground"),
            *(part for one, _ in placed for part in _bands(one, placed)),
            *_axis_marks(axis, bottom),
            *(element("g", one.draw(colours), transform=f"translate(0 {top:g})") for one, top in placed),
        ]
        return "\n".join(parts), bottom + AXIS_HEIGHT


def _panel(history: PanelHistory, axis: TimeAxis, histories: Sequence[PanelHistory]) -> Panel:
    """Return the panel of one of some histories on an axis: bars, or bins if there are too many for that."""
    keys, groups = history.key_groups
    bars = bar_chart(history, axis, groups.tolist())
    if bars is not None:
        return BarPanel(history=history, axis=axis, keys=keys, chart=bars)
    keyed = [one for one in histories if one.keys == history.keys and not one.is_windows]
    bins = density_chart(history, axis, keys_with_rows([history] if history.is_windows else keyed))
    return BinPanel(history=history, axis=axis, keys=keys, chart=bins)


def _gutter(histories: Sequence[PanelHistory]) -> float:
    """Return the room for the keys at the left of the axis."""
    texts = [history.key_groups[0] for history in histories if history.keys]
    keys = [key for keys in texts for key in [*keys[:100], *["99 other keys"] * (len(keys) > MOST_KEYS)]]
    wide = max((text_width(key[:40], 12) for key in keys), default=0.0)
    return min(GUTTER[1], max(GUTTER[0], wide + 24)) if keys else GUTTER[0]


def _key_colours(panels: Sequence[Panel]) -> KeyColours:
    """Return the colours of all keys, numbered in the order of the panels; windows have none."""
    keys = dict.fromkeys(key for one in panels if not one.history.is_windows for key in one.keys)
    return KeyColours({key: number for number, key in enumerate(keys)})


def _bands(windows: Panel, placed: Sequence[tuple[Panel, float]]) -> Iterator[str]:
    """Yield bands behind the events of all panels, one for every second window, if windows do not overlap and are few."""
    history = windows.history
    if not history.is_windows:
        return
    lifetimes = sorted(set(zip(history.starts.tolist(), history.ends.tolist(), strict=True)))
    overlap = any(end > start for (_, end), (start, _) in pairwise(lifetimes))
    if overlap or len(lifetimes) > MOST_BANDS:
        return
    for start, end in lifetimes[::2]:
        left, right = windows.axis.place(start), windows.axis.place(end)
        for one, top in placed:
            if not one.history.is_windows:
                size = {"y": top + one.top - 3, "height": one.height - one.top + 3}
                yield element("rect", x=left, width=right - left, class_="band", **size)


def _axis_marks(axis: TimeAxis, bottom: float) -> Iterator[str]:
    """Yield the lines of an axis at round instants, with labels below where there is room, and a date wherever it changes."""
    yield element("line", x1=axis.left, x2=axis.right, y1=bottom, y2=bottom, class_="line")
    room = {16: 0.0, 29: 0.0}
    for mark in axis.marks():
        x = axis.place(mark.at)
        yield element("line", x1=x, x2=x, y1=8, y2=bottom + 4, class_="line")
        for below, label in ((16, mark.label), (29, mark.day)):
            half = text_width(label, LABEL_SIZE) / 2
            if label and x - half >= room[below]:
                room[below] = x + half + 4
                yield element("text", markup_text(label), x=x, y=bottom + below, class_="faint", text_anchor="middle")
    if axis.kind == TIMESTAMP:
        yield element("text", "UTC", x=WIDTH - 4, y=bottom + 29, class_="faint", text_anchor="end")
