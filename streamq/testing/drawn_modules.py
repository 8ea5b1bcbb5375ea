"""Operators of a user's kind that give their own lifetimes, for random queries: what time-bound ones make of any window."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import streamq as sq
from streamq.choices import Stamp
from streamq.plan.aggregate import Aggregate
from streamq.testing.windows.room import room_of
from streamq.windows import Window

OWN_STAMPS = (Stamp.TIME_BOUND, Stamp.TIME_BOUND, Stamp.UNCHANGED, Stamp.CLIP)
"""Stamps of operators that give their own lifetimes, each as often as it is drawn."""

COLUMN = "others"
"""The column of their rows."""


@sq.udo(f"{COLUMN} bigint", time_sensitive=True, properties=[sq.time_bound])
def earlier_members(events: Any, window: Any) -> Iterator[tuple[Any, Any, int]]:
    """Each member's lifetime within the window, and how many members started before it: nothing later changes that."""
    import pandas as pd

    starts = sorted(events["start"])
    for start, end in zip(events["start"], events["end"], strict=True):
        ends = [instant for instant in (end, window.end) if not pd.isna(instant)]
        yield max(start, window.start), min(ends, default=None), bisect_left(starts, start)


@sq.udo(f"{COLUMN} bigint", time_sensitive=True, properties=[sq.time_bound])
def all_members(events: Any, window: Any) -> Iterator[tuple[Any, Any, int]]:
    """How many members a window has, at its last instant, when all of them are there."""
    import pandas as pd

    if not pd.isna(window.end):
        tick = pd.Timedelta(microseconds=1) if isinstance(window.end, pd.Timestamp) else 1
        yield window.end - tick, window.end, len(events)


def time_bound_over(window: Window) -> Aggregate:
    """A time-bound operator that keeps its promise over windows of a kind.

    Some kinds are there only once their last members are, so that nothing can be said before their last instant.
    """
    operator: Any = all_members if room_of(window).begins_with_its_last_member else earlier_members
    applied: Aggregate = operator()
    return applied


__all__ = ["COLUMN", "OWN_STAMPS", "time_bound_over"]
