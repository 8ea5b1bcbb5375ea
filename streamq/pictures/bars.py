"""The geometry of events as bars: their places on the axis, and the lanes of their keys, on which none overlap."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamq.html import text_width
from streamq.pictures.panel_history import PanelHistory
from streamq.pictures.time_axis import TimeAxis
from streamq.time import INFINITY


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


MOST_BARS = 800
"""The most events of a panel that are drawn one by one; more are counted in bins of time."""

MOST_LANES = 40
"""The most lanes of a panel whose events are drawn one by one."""

LEAST_WIDTH = 3.0
"""The width of a point, and the least of a bar, in pixels."""

LANE_HEIGHT = 20.0
BAR_HEIGHT = 16.0
LABEL_SIZE = 11.0


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An event's bar: its number, key and lane, its ends in pixels, and its label.

    ``is_open``: it has no end, ``begins_before`` and ``ends_behind``: it goes on beyond the axis. ``is_point``: a declared point.
    """

    event: int
    key: int
    lane: int
    left: float
    right: float
    label: str
    is_open: bool
    begins_before: bool
    ends_behind: bool
    is_point: bool


@dataclass(frozen=True)
class KeyLanes:
    """The lanes of a key: the number of the first, and how many there are."""

    key: int
    first: int
    count: int


@dataclass(frozen=True)
class BarChart:
    """The bars of a panel, by event, and the lanes of its keys, in order; ``count`` is the number of lanes."""

    bars: list[Bar]
    keys: list[KeyLanes]

    @property
    def count(self) -> int:
        """The number of lanes."""
        return sum(lanes.count for lanes in self.keys)


def bar_chart(history: PanelHistory, axis: TimeAxis, groups: Sequence[int]) -> BarChart | None:
    """Return the bars of a panel's events, those of a key under one another; None if there are too many to be drawn one by one.

    ``groups``: the number of each event's key. Events outside the axis have no bar. Bars of a lane never overlap; if that takes
    few lanes, their labels do not either, those of windows excepted.
    """
    is_inside = (history.ends > axis.low) & (history.starts <= axis.high)
    events = np.flatnonzero(is_inside)
    if len(events) > MOST_BARS:
        return None
    bars = _unplaced_bars(history, axis, [int(event) for event in events], groups)
    placed: list[Bar] = []
    lanes: list[KeyLanes] = []
    for key in sorted({bar.key for bar in bars}):
        own = [bar for bar in bars if bar.key == key]
        places = lanes_for([(bar.left, bar.right) for bar in own]) if history.is_windows else _lanes_of_key(own)
        first = lanes[-1].first + lanes[-1].count if lanes else 0
        placed += [replace(bar, lane=first + place) for bar, place in zip(own, places, strict=True)]
        lanes.append(KeyLanes(key, first, max(places) + 1))
    chart = BarChart(sorted(placed, key=lambda bar: bar.event), lanes)
    return chart if chart.count <= MOST_LANES else None


def _unplaced_bars(history: PanelHistory, axis: TimeAxis, events: Sequence[int], groups: Sequence[int]) -> list[Bar]:
    """Return the bars of events, all on lane 0."""
    bars: list[Bar] = []
    for event, label in zip(events, history.labels(events), strict=True):
        start, end = int(history.starts[event]), int(history.ends[event])
        left = min(axis.place(start), axis.right - LEAST_WIDTH)
        right = left if history.has_points else axis.place(end)
        bars.append(
            Bar(
                event=event,
                key=int(groups[event]),
                lane=0,
                left=left,
                right=max(right, left + LEAST_WIDTH),
                label=label,
                is_open=end == INFINITY,
                begins_before=start < axis.low,
                ends_behind=axis.high < end < INFINITY,
                is_point=history.has_points,
            )
        )
    return bars


FEW_LANES = 4
"""The number of lanes of a key up to which each label gets room of its own."""


def _lanes_of_key(bars: Sequence[Bar]) -> list[int]:
    """Return the lane of each bar, from 0 on: with room for the labels if FEW_LANES are enough for that."""
    roomy = lanes_for([(bar.left, max(bar.right, bar.left + text_width(bar.label, LABEL_SIZE) + 14)) for bar in bars])
    return roomy if max(roomy) < FEW_LANES else lanes_for([(bar.left, bar.right) for bar in bars])
