"""The events of one panel of a picture: an answer, or a changelog with the events that were taken back."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.own_names import show_keys
from streamq.plan.tree import lazy
from streamq.runtime.arrow.rendering import python_rows
from streamq.runtime.arrow.values import Ints, Numbered, combine_numbers, number_values
from streamq.time import INFINITY, TIMESTAMP, show_ticks

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
        numbers, _ = row_numbers(self.payload.select(list(self.keys)), sense="order")
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

    def instant(self, t: int) -> str:
        """Return an instant as text, without a fraction of a second that is zero."""
        return instant_label(t, self.axis)


def instant_label(t: int, axis: str) -> str:
    """Return an instant as text for readers of a picture: ``2024-05-01 12:00:00``, in UTC, or a number; ``inf``: no end."""
    text = show_ticks(t, axis)
    return text.replace("T", " ").removesuffix("Z").removesuffix(".000000") if axis == TIMESTAMP else text


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


def row_numbers(table: pa.Table, sense: str = "equal") -> Numbered:
    """Return a number for each row of a table; rows of equal values have equal numbers. Without columns all have 0."""
    if not table.column_names:
        return np.zeros(table.num_rows, np.int64), 1
    return combine_numbers([number_values(column, sense) for column in table.columns])


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
