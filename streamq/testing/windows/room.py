"""The room of a kind of windows: its definition for the oracle, its draws, its verbs; and which room a window has."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from hypothesis import strategies as st

from streamq.choices import ClipInput, Stamp
from streamq.grid import Grid
from streamq.plan.node import Node
from streamq.plan.schema import Schema
from streamq.testing.oracle.run import Run
from streamq.time import TIMESTAMP
from streamq.windows import KINDS, Window

W = TypeVar("W", bound=Window)

Draw = Callable[[st.SearchStrategy[Any]], Any]


Argument = Callable[[str], st.SearchStrategy[Any]]
"""A strategy for an argument of a verb, by the stream's time axis."""


def one_of(*values: Any) -> Argument:
    """Return how one of some values is drawn, on any axis."""
    return lambda axis: st.sampled_from(values)


def lengths_of_time(least: int, most: int) -> Argument:
    """Return how a length of so many ticks is drawn, as the axis has it: an integer or a timedelta."""

    def drawn(axis: str) -> st.SearchStrategy[Any]:
        many = st.integers(least, most)
        return many.map(lambda n: dt.timedelta(microseconds=n)) if axis == TIMESTAMP else many

    return drawn


class Reading(Protocol):
    """A stream, or its groups, in the second reading of the verbs: what a window verb is read on."""

    @property
    def plan(self) -> Node:
        """The plan of the stream."""

    def ticks(self, duration: Any) -> int:
        """Return a duration in ticks of the stream's axis."""

    def in_windows(self, window: Window, clip: str, stamp: str | None, plan: Node | None = None) -> Any:
        """Return the stream, or one of another plan, in windows."""


@dataclass(frozen=True)
class Members:
    """A table of the oracle with events of ``schema``: columns ``groups`` of their group, the payload as ``p0, ...``."""

    events: str
    groups: Sequence[str]
    schema: Schema

    @property
    def by(self) -> str:
        """The groups as a window function of SQL takes them."""
        return f"PARTITION BY {', '.join(self.groups)}" if self.groups else ""


class WindowRoom(ABC, Generic[W]):
    """One kind of windows: its definition, its draws, its verbs, its lengths; a subclass is registered by being there."""

    kind: ClassVar[type[Window]]

    weight: ClassVar[int] = 1
    """Draws of it among those of all kinds; 0: random queries have none."""

    needs_exact_columns: ClassVar[bool] = False
    """True where the order of whole events decides: it is drawn only over events all of whose columns are exact."""

    usual_stamp: ClassVar[Stamp] = Stamp.ALIGN
    """Where results live unless the user says it, from the language's own pages."""

    begins_with_its_last_member: ClassVar[bool] = False
    """True where no window is there before its last members are: nothing can be said of it before its last instant."""

    verbs: ClassVar[Mapping[str, Callable[..., Any]]] = {}
    """The verbs that make such windows, read a second time, by name."""

    arguments: ClassVar[Mapping[tuple[str, str], Argument]] = {}
    """How arguments of the verbs are drawn, by verb and name, where a name alone does not say it."""

    @abstractmethod
    def members(self, window: W, of: Members, run: Run) -> str:
        """Return a table of events with ``w`` (which window), ``w_le`` and ``w_re``: a row for each window that they are in."""

    def drawn(self, draw: Draw, clip: ClipInput, stamp: Stamp, ordered: Sequence[str]) -> tuple[W, ClipInput, Stamp]:
        """Return a window with clip and stamp, those given or others; ``ordered``: columns by which events can be ordered.

        A kind of weight 0 needs none.
        """
        raise AssertionError(f"{self.kind.__name__} has weight {self.weight}, and no draw")

    @abstractmethod
    def written(self, window: W, axis: str) -> tuple[str, list[str]]:
        """Return the verb that makes it, without ``_window``, and its arguments as text."""

    def complete(self, draw: Draw, arguments: dict[str, Any], open: Any) -> None:
        """Set those arguments of its verb that depend on each other; ``open`` stands for one that is still to be drawn."""

    def usual_clip(self, window: W) -> ClipInput:
        """Return how members are cut unless the user says it."""
        return ClipInput.FULL

    def lengths(self, window: W) -> Iterator[int]:
        """Yield its lengths of time."""
        yield from ()

    def recurrences(self, window: W) -> Iterator[int]:
        """Yield the distances at which a lifetime without an end gives row after row."""
        yield from ()

    def grids(self, window: W) -> Iterator[Grid]:
        """Yield the grids on which windows begin and end."""
        yield from ()

    def lateness_grid(self, window: W) -> Grid | None:
        """Return the grid by whose windows the items of a source are late that only such windows read; None: by each instant."""
        return None

    def instants(self, window: W, axis: str) -> Iterator[int]:
        """Yield the instants that it speaks of."""
        yield from ()


@cache
def rooms() -> dict[type[Window], WindowRoom[Any]]:
    """Return the rooms by kind, in the order of the kinds."""
    there = {room.kind: room() for room in WindowRoom.__subclasses__()}
    return {kind: there[kind] for kind in KINDS}


def room_of(window: Window) -> WindowRoom[Any]:
    """Return the room of a window."""
    return rooms()[type(window)]


__all__ = ["Argument", "Draw", "Members", "Reading", "WindowRoom", "lengths_of_time", "one_of", "room_of", "rooms"]
