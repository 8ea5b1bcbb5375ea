"""User-defined operators that set their own lifetimes and keep the time_bound promise over any window, for random queries."""

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
"""Stamps for operators that set their own lifetimes; a stamp is listed as often as it is to be drawn."""

COLUMN = "others"
"""The column that these operators return."""


@sq.udo(f"{COLUMN} bigint", time_sensitive=True, properties=[sq.time_bound])
def earlier_members(events: Any, window: Any) -> Iterator[tuple[Any, Any, int]]:
    """Yield each member's lifetime within the window (None: no end) and the number of members that started before it.

    Members that start later do not change such a row.
    """
    import pandas as pd

    starts = sorted(events["start"])
    for start, end in zip(events["start"], events["end"], strict=True):
        ends = [instant for instant in (end, window.end) if not pd.isna(instant)]
        yield max(start, window.start), min(ends, default=None), bisect_left(starts, start)


@sq.udo(f"{COLUMN} bigint", time_sensitive=True, properties=[sq.time_bound])
def all_members(events: Any, window: Any) -> Iterator[tuple[Any, Any, int]]:
    """Yield, for a finite window only, its last instant, its end, and the number of members, all of which are known then."""
    import pandas as pd

    if not pd.isna(window.end):
        tick = pd.Timedelta(microseconds=1) if isinstance(window.end, pd.Timestamp) else 1
        yield window.end - tick, window.end, len(events)


def time_bound_over(window: Window) -> Aggregate:
    """Return a time-bound operator that keeps its promise over windows of this kind.

    A window that begins with its last member has no result before its last instant, so it takes :func:`all_members`.
    """
    operator: Any = all_members if room_of(window).begins_with_its_last_member else earlier_members
    applied: Aggregate = operator()
    return applied


__all__ = ["COLUMN", "OWN_STAMPS", "time_bound_over"]
