"""The kinds of windows, a room each: which windows there are, which events are in them, and all that is asked of them."""

from streamq.windows.calendar import Calendar
from streamq.windows.count import Count
from streamq.windows.hopping import Hopping
from streamq.windows.landmark import Landmark
from streamq.windows.rows import Rows
from streamq.windows.session import Session
from streamq.windows.snapshot import Snapshot
from streamq.windows.window import Window

KINDS: tuple[type[Window], ...] = (Hopping, Snapshot, Count, Rows, Session, Landmark, Calendar)
"""All of them, in the order of the docs."""

__all__ = ["KINDS", "Calendar", "Count", "Hopping", "Landmark", "Rows", "Session", "Snapshot", "Window"]
