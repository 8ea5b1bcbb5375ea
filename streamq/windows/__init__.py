"""The kinds of windows, a room each."""

from streamq.windows.counting import Count, CountVerbs, Rows, RowsVerbs
from streamq.windows.hopping import Calendar, CalendarVerbs, Hopping, HoppingVerbs
from streamq.windows.landmark import Landmark, LandmarkVerbs
from streamq.windows.sessions import Session, SessionVerbs, Snapshot, SnapshotVerbs
from streamq.windows.window import W, Window

KINDS: tuple[type[Window], ...] = (Hopping, Snapshot, Count, Rows, Session, Landmark, Calendar)
"""All kinds, in the order of the docs."""


class AllWindowVerbs(
    HoppingVerbs[W],
    SnapshotVerbs[W],
    CountVerbs[W],
    RowsVerbs[W],
    SessionVerbs[W],
    LandmarkVerbs[W],
    CalendarVerbs[W],
):
    """The verbs of all kinds of windows, in the order of the docs."""


__all__ = [
    "KINDS",
    "Calendar",
    "Count",
    "AllWindowVerbs",
    "Hopping",
    "Landmark",
    "Rows",
    "Session",
    "Snapshot",
    "Window",
]
