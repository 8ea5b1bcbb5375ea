"""The geometry of a picture: the axis of time with its marks, and the lanes on which the bars of events lie."""

from __future__ import annotations

import datetime as dt
import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamq.html import text_width
from streamq.pictures.panel_history import PanelHistory
from streamq.runtime.arrow.values import Ints
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, show_ticks

SECOND = 1_000_000
DAY = 86_400 * SECOND

_STEPS = [
    *(unit * factor for unit in (1, 10, 100, 1_000, 10_000, 100_000) for factor in (1, 2, 5)),
    *(seconds * SECOND for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * 60 * SECOND for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * 3_600 * SECOND for hours in (1, 2, 3, 6, 12)),
    *(days * DAY for days in (1, 2, 7, 14)),
]
"""The distances of marks on a timestamp axis, in ticks; months and years follow."""

_MONTHS = (1, 2, 3, 6, *(12 * years for years in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)))
"""The distances of marks on a timestamp axis, in months."""

CALENDAR = tuple(
    (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) for moment in (dt.datetime.min, dt.datetime.max)
)
"""The first and the last instant of the years 1 to 9999, in ticks."""

MARKS = 10
"""The most marks of an axis, but for one."""


@dataclass(frozen=True)
class TimeMark:
    """A round instant with its label; ``day`` is the date where it differs from that of the mark before, else ""."""

    at: int
    label: str
    day: str = ""


@dataclass(frozen=True)
class TimeAxis:
    """The instants from ``low`` to ``high``, in ticks of the axis ``kind``, drawn from ``left`` to ``right``, in pixels."""

    low: int
    high: int
    kind: str
    left: float
    right: float

    def place(self, t: int) -> float:
        """Return the place of an instant, in pixels; what is beyond the section is at its border."""
        within = max(self.low, min(self.high, t))
        return self.left + (within - self.low) / (self.high - self.low) * (self.right - self.left)

    def places(self, instants: Ints) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the places of many instants."""
        # differences of the axis' own instants fit 64 bits only as floats
        share = (instants.astype(np.float64) - float(self.low)) / float(self.high - self.low)
        return self.left + np.clip(share, 0.0, 1.0) * (self.right - self.left)

    def marks(self) -> list[TimeMark]:
        """Return the marks: at multiples of a step of 1, 2 or 5, or of a unit of the calendar, in UTC."""
        if self.kind == TIMESTAMP and self._is_in_calendar:
            return list(self._calendar_marks())
        step = _decimal_step(self.high - self.low)
        first = -(-self.low // step) * step
        return [TimeMark(t, f"{t:,}".replace(",", "\u2009")) for t in range(first, self.high + 1, step)]

    @property
    def _is_in_calendar(self) -> bool:
        """True if a Python datetime can hold both ends."""
        return CALENDAR[0] <= self.low and self.high <= CALENDAR[1]

    def _calendar_marks(self) -> Iterator[TimeMark]:
        """Yield the marks of a timestamp axis."""
        least = (self.high - self.low) // MARKS
        if least > _STEPS[-1]:
            yield from self._month_marks(least)
            return
        step = _STEPS[bisect_left(_STEPS, least)]
        # weeks begin on a Monday, as 1970-01-05
        offset = 4 * DAY if step >= 7 * DAY else 0
        first = -((offset - self.low) // step) * step + offset
        before = ""
        for t in range(first, self.high + 1, step):
            day, _, time = show_ticks(t, TIMESTAMP).removesuffix("Z").partition("T")
            if step >= DAY:
                yield TimeMark(t, day)
                continue
            yield TimeMark(t, _time_label(time, step), day if day != before else "")
            before = day

    def _month_marks(self, least: int) -> Iterator[TimeMark]:
        """Yield marks at the first days of months, at least ``least`` ticks apart."""
        months = next(n for n in _MONTHS if n * 30 * DAY >= least or n == _MONTHS[-1])
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=self.low)
        month = -(-(moment.year * 12 + moment.month - 1) // months) * months
        while 12 <= month < 12 * 10_000:
            first = dt.datetime(month // 12, month % 12 + 1, 1)
            t = (first - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
            if t > self.high:
                return
            if t >= self.low:
                yield TimeMark(t, f"{first.year:04}" if months >= 12 else f"{first.year:04}-{first.month:02}")
            month += months


def _decimal_step(span: int) -> int:
    """Return the least of 1, 2, 5, 10, 20, ... that divides a span into at most MARKS parts."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if span <= MARKS * step * factor:
                return step * factor
        step *= 10


def _time_label(time: str, step: int) -> str:
    """Return a time of day without the parts that are zero at every mark."""
    if step >= 60 * SECOND:
        return time[:5]
    return time[:8] if step >= SECOND else time.rstrip("0").rstrip(".")


def section(instants: Ints, kind: str) -> tuple[int, int]:
    """Return the least and the greatest finite instant, with a small margin; (0, 1) if there is none.

    The margin does not leave the calendar if both instants of an axis of timestamps, by its ``kind``, are in it.
    """
    finite = instants[(instants != INFINITY) & (instants != MINUS_INFINITY)]
    if not len(finite):
        return 0, 1
    low, high = int(finite.min()), int(finite.max())
    margin = max(1, (high - low) // 50) if high - low > 40 else 0 if high > low else 1
    # ends that are round numbers are easier to read in the description
    unit = 10 ** (len(str(margin)) - 1)
    in_calendar = kind == TIMESTAMP and CALENDAR[0] <= low and high <= CALENDAR[1]
    first, last = CALENDAR if in_calendar else (MINUS_INFINITY + 1, INFINITY - 1)
    low, high = low - margin, high + margin
    return max(first, low - low % unit), min(last, high - high % -unit)


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
