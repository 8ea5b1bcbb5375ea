"""Format instants for run.metrics, run.progress and run.why(): as text, in ticks, and as ISO 8601."""

from __future__ import annotations

import datetime as dt
from typing import Any

from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, show_ticks


def instant_text(t: int, axis: str) -> str:
    """Return an instant as text, without a fraction of a second that is zero; infinities are "its end" and "no CTI"."""
    if t == INFINITY:
        return "its end"
    if t == MINUS_INFINITY:
        return "no CTI"
    return show_ticks(t, axis).replace("T", " ").replace(".000000", "").removesuffix("Z")


def finite_instant(t: int | None) -> int | None:
    """Return an instant; None for the two infinities."""
    return None if t in (INFINITY, MINUS_INFINITY) else t


def instant_fields(name: str, t: int | None, axis: str) -> dict[str, Any]:
    """Return an instant in ticks as ``name`` and, on the timestamp axis, in ISO 8601 as ``name_at``; None for infinities."""
    return {name: finite_instant(t), f"{name}_at": iso(t) if axis == TIMESTAMP and t is not None else None}


def iso(t: int) -> str | None:
    """Return microseconds since 1970 as ISO 8601; None for an instant outside the calendar's range."""
    if finite_instant(t) is None:
        return None
    try:
        return iso_moment(dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=t))
    except OverflowError:
        return None


def iso_moment(moment: dt.datetime) -> str:
    """Return a moment as ISO 8601, in UTC."""
    return moment.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")


def moment_of(milliseconds: int) -> dt.datetime:
    """Return a time of day, in milliseconds since 1970, as a datetime in UTC."""
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)


def iso_time_of_day(milliseconds: int | None) -> str | None:
    """Return a time of day, in milliseconds since 1970, as ISO 8601; None stays None."""
    return None if milliseconds is None else iso_moment(moment_of(milliseconds))
