"""The axis of a picture, and the events of one panel: an answer, or a changelog, of which each event is followed to its end."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.schema import lazy, show_keys
from streamq.runtime.arrow.columnar import codes, concat, ints
from streamq.runtime.arrow.values import ORDER, Ints, combine_numbers, number_values, python_rows
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, instant_label

WIDTH = 760
"""The width of the axis, in pixels."""

TIMES_OF_DAY = {"hours": "%H:%M", "minutes": "%H:%M"}
"""The form of marks that are not at midnight: the clock has 24 hours, where Vega's has 12."""

CALENDAR = tuple(
    (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) for moment in (dt.datetime.min, dt.datetime.max)
)
"""The first and the last instant of the years 1 to 9999, in ticks."""


@dataclass(frozen=True)
class TimeAxis:
    """The instants from ``low`` to ``high``, in ticks of the axis ``kind``."""

    low: int
    high: int
    kind: str

    def clamp(self, t: int) -> int:
        """Return an instant, or the border of the axis that it is beyond."""
        return max(self.low, min(self.high, t))

    def number(self, t: float) -> float:
        """Return an instant as Vega reads it: of timestamps milliseconds."""
        return t / 1_000 if self._is_temporal else t

    def pixels(self, t: int) -> float:
        """Return the distance of an instant from the left border, in pixels."""
        return (self.clamp(t) - self.low) / (self.high - self.low) * WIDTH

    def instant_of(self, pixel: float) -> float:
        """Return the instant that lies so many pixels from the left border, as Vega reads it."""
        return self.number(self.low + pixel / WIDTH * (self.high - self.low))

    def encoding(self, *, has_labels: bool) -> dict[str, Any]:
        """Return the horizontal channel of a panel, without its field; the labels stand below the last panel."""
        scale = {"domain": [self.number(self.low), self.number(self.high)], "nice": False}
        lines = {"grid": True, "labels": has_labels, "ticks": has_labels, "domain": has_labels}
        title = "UTC" if has_labels and self.kind == TIMESTAMP else None
        if self._is_temporal:
            axis = {**lines, "format": TIMES_OF_DAY}
            return {"type": "temporal", "scale": {"type": "utc", **scale}, "title": title, "axis": axis}
        axis = {**lines, "tickMinStep": 1, "format": ",d"}
        return {"type": "quantitative", "scale": scale, "title": title, "axis": axis}

    @property
    def _is_temporal(self) -> bool:
        """True if marks are dates and times: those of timestamps, as long as the calendar has both ends."""
        return self.kind == TIMESTAMP and CALENDAR[0] <= self.low and self.high <= CALENDAR[1]


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


STANDS, DELETED = -1, -2
"""The successors of an event that was not taken back, and of one that nothing replaced."""

LONGEST_VALUE = 200
"""The most characters of a value in a table or a tooltip."""


@dataclass(frozen=True, kw_only=True)
class PanelHistory:
    """The events of a panel, in order of appearance: ``payload`` has a row for each, ``starts`` and ``ends`` are in ticks.

    ``successors``: by event STANDS, DELETED, or the number of the event that replaced it. ``keys``: the columns whose values
    give lanes and colours. ``axis``: the kind of the time axis. ``has_points``: events were declared as points. ``is_windows``:
    the events are windows, with the number of their members. ``note``: a sentence about what is not drawn.
    """

    title: str
    axis: str
    payload: pa.Table
    starts: Ints
    ends: Ints
    successors: Ints
    ctis: Sequence[int] = ()
    keys: tuple[str, ...] = ()
    has_points: bool = False
    is_windows: bool = False
    note: str = ""

    @property
    def count(self) -> int:
        """The number of events, those taken back included."""
        return len(self.starts)

    @property
    def is_gone(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """The mask of the events that were taken back."""
        return self.successors != STANDS

    @lazy
    def key_groups(self) -> tuple[list[str], Ints]:
        """The distinct keys as text, in the order of their values, and the number of each event's key.

        Without key columns all events have the key "".
        """
        if not self.keys or not self.count:
            return [""], np.zeros(self.count, np.int64)
        numbers, _ = combine_numbers([number_values(self.payload.column(key), ORDER) for key in self.keys])
        _, firsts, groups = np.unique(numbers, return_index=True, return_inverse=True)
        rows = python_rows(self.payload.select(list(self.keys)).take(pa.array(firsts)))
        labels = _distinct_labels([", ".join(shown_value(v) for v in row.values()) for row in rows])
        return labels, groups.astype(np.int64)

    def labels(self, events: Sequence[int]) -> list[str]:
        """Return the payload of some events as text, without the key columns, which stand beside the lane."""
        names = [name for name in self.payload.column_names if name not in self.keys]
        rows = (
            python_rows(self.payload.select(names).take(pa.array(events, pa.int64()))) if names else [{}] * len(events)
        )
        if len(names) == 1:
            return [shown_value(value) for row in rows for value in row.values()]
        texts = (" ".join(f"{name}={shown_value(value)}" for name, value in row.items()) for row in rows)
        return [_shortened(text, 2 * LONGEST_VALUE) for text in texts]

    @property
    def legend(self) -> str:
        """The columns that the labels of events show, and those that give lanes: ``toll by booth``."""
        shown = "members" if self.is_windows else ", ".join(n for n in self.payload.column_names if n not in self.keys)
        return f"{shown}{show_keys(self.keys)}".strip()

    def lifetime_text(self, event: int) -> str:
        """Return an event's lifetime as text: ``[1, 5)``."""
        return f"[{self.instant(int(self.starts[event]))}, {self.instant(int(self.ends[event]))})"

    @property
    def span_text(self) -> str:
        """The span of the events as words."""
        first, endless = self.instant(int(self.starts.min())), int((self.ends == INFINITY).sum())
        finite = self.ends[self.ends != INFINITY]
        last = f" to {self.instant(int(finite.max()))}" if len(finite) else ""
        return f"from {first}{last}" + (f", {endless:,} without an end" if endless else "")

    def instant(self, t: int) -> str:
        """Return an instant as text, without a fraction of a second that is zero."""
        return instant_label(t, self.axis)


def shown_value(value: Any) -> str:
    """Return a value of a payload as text: NULL for None, at most LONGEST_VALUE characters."""
    match value:
        case None:
            text = "NULL"
        case bytes():
            text = f"0x{value[:LONGEST_VALUE].hex()}"
        case dt.datetime():
            text = value.replace(tzinfo=None).isoformat(" ")
        case _:
            text = str(value)
    return _shortened(text, LONGEST_VALUE)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def answer_history(
    answer: pa.Table, title: str, axis: str, keys: tuple[str, ...], *, has_points: bool, is_windows: bool = False
) -> PanelHistory:
    """Return an answer, as users get it, as the history of a panel."""
    starts = answer.column("start").cast(pa.int64()).to_numpy()
    ends = pc.fill_null(answer.column("end").cast(pa.int64()), INFINITY).to_numpy()
    return PanelHistory(
        title=title,
        axis=axis,
        payload=answer.drop_columns(["start", "end"]),
        starts=starts,
        ends=ends,
        successors=np.full(len(starts), STANDS),
        keys=keys,
        has_points=has_points,
        is_windows=is_windows,
    )


def _distinct_labels(texts: Sequence[str]) -> list[str]:
    """Return the texts, those that equal an earlier one with a number behind: NULL, and the text NULL."""
    seen: Counter[str] = Counter()
    distinct = []
    for text in texts:
        seen[text] += 1
        distinct.append(text if seen[text] == 1 else f"{text} ({seen[text]})")
    return distinct


MOST_ROWS = 20_000
"""The most rows of all tables that a picture follows one by one."""


def history_of_changes(
    steps: Sequence[pa.Table],
    ctis: Sequence[int],
    title: str,
    axis: str,
    keys: tuple[str, ...],
    *,
    has_points: bool,
    note: str = "",
) -> PanelHistory:
    """Return the events that a result ever had, by its deltas in each micro-batch, with the successors of those taken back.

    What replaces an event appears in the same micro-batch: the same event with another end, else an event of the same key and
    start, else one of the same key that overlaps it. An event without an end that gets one was not taken back.
    """
    deltas = concat(steps)
    rows = deltas.drop_columns([LE, RE, WEIGHT])
    follower = _Follower(ints(deltas, LE), ints(deltas, RE), codes(rows, rows.column_names)[0], codes(rows, keys)[0])
    first, weights = 0, ints(deltas, WEIGHT)
    for step in steps:
        follower.follow(range(first, first + step.num_rows), weights)
        first += step.num_rows
    events = np.array(follower.events, np.int64)
    return PanelHistory(
        title=title,
        axis=axis,
        payload=rows.take(pa.array(events)),
        starts=follower.starts[events],
        ends=np.array(follower.last_ends, np.int64),
        successors=np.array(follower.successors, np.int64),
        ctis=ctis,
        keys=keys,
        has_points=has_points,
        note=note,
    )


Identity = tuple[int, int, int]
"""The number of a payload, and a lifetime."""


class _Follower:
    """Follows deltas micro-batch by micro-batch.

    ``events`` are the rows that inserted an event, ``last_ends`` their ends, ``successors`` what replaced them.
    """

    def __init__(self, starts: np.ndarray, ends: np.ndarray, payloads: np.ndarray, keys: np.ndarray) -> None:
        self.starts, self.ends = starts, ends
        self._payloads, self._keys = payloads, keys
        self._alive: dict[Identity, list[int]] = defaultdict(list)
        self.events: list[int] = []
        self.last_ends: list[int] = []
        self.successors: list[int] = []

    def _identity(self, row: int) -> Identity:
        return int(self._payloads[row]), int(self.starts[row]), int(self.ends[row])

    def follow(self, rows: range, weights: np.ndarray) -> None:
        """Take the deltas of a micro-batch: what they add and take back at once never was an event."""
        net: Counter[Identity] = Counter()
        row_of: dict[Identity, int] = {}
        for row in rows:
            identity = self._identity(row)
            net[identity] += int(weights[row])
            row_of.setdefault(identity, row)
        self._give_ends(net)
        inserted = [self._insert(row_of[identity]) for identity, weight in net.items() for _ in range(weight)]
        for identity, weight in net.items():
            for _ in range(-weight):
                event = self._alive[identity].pop()
                self.successors[event] = self._successor(event, inserted)

    def _insert(self, row: int) -> int:
        event = len(self.events)
        self._alive[self._identity(row)].append(event)
        self.events.append(row)
        self.last_ends.append(int(self.ends[row]))
        self.successors.append(STANDS)
        return event

    def _give_ends(self, net: Counter[Identity]) -> None:
        """Give ends to events without one; the deltas that do so no longer count."""
        ended = [identity for identity, weight in net.items() if weight < 0 and identity[2] == INFINITY]
        for opened in ended:
            closed = [i for i, weight in net.items() if weight > 0 and i[:2] == opened[:2] and i[2] != INFINITY]
            for identity in closed:
                for _ in range(min(-net[opened], net[identity])):
                    event = self._alive[opened].pop()
                    self._alive[identity].append(event)
                    self.last_ends[event] = identity[2]
                    net[opened] += 1
                    net[identity] -= 1

    def _successor(self, event: int, inserted: list[int]) -> int:
        """Return the event among those ``inserted`` at once that replaces an event, or DELETED."""
        row = self.events[event]

        def likeness(other: int) -> int:
            """Return 3 for the same event with another end, 2 for an equal key and start, 1 for a key that overlaps, else 0."""
            place = self.events[other]
            if self._keys[place] != self._keys[row]:
                return 0
            if self.starts[place] == self.starts[row]:
                return 3 if self._payloads[place] == self._payloads[row] else 2
            return int(self.starts[place] < self.last_ends[event] and self.starts[row] < self.last_ends[other])

        best = max(inserted, key=likeness, default=DELETED)
        return best if best != DELETED and likeness(best) else DELETED
