"""Tracks: the parts of a program at different levels of consistency.

Results of one level are on one track, and share what they have in common. An operator that results of two levels need runs on
both of their tracks, with a state on each. All tracks read the same rows of the sources; progress counts on each by its level.

Names of operators are the same on all tracks but for the track's number at their end. Number 0 has none, so a program of one
level has the names that it would have if there were no tracks.
"""

from __future__ import annotations

_AT = "@"
"""The text between a name and the number of its track."""

TrackedRelation = tuple[str, int]
"""A relation and the number of a track; of a kernel always number 0, since its own name tells its track."""


def on_track(name: str, track: int) -> str:
    """Return a name as it is on a track."""
    return f"{name}{_AT}{track}" if track else name


def off_track(name: str, track: int) -> str:
    """Return a name without the number of its track."""
    return name.removesuffix(f"{_AT}{track}") if track else name


def source_relation(table: str) -> str:
    """Return the name of the relation of a source."""
    return f"source:{table}"


__all__ = ["TrackedRelation", "off_track", "on_track", "source_relation"]
