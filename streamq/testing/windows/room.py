"""The base class of the rooms of windows: the oracle's definition and the generator; and the look-up of rooms."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

from hypothesis import strategies as st

from streamq.plan.schema import Schema
from streamq.testing.arrival import Bounds, GridBounds
from streamq.testing.oracle.run import Run
from streamq.time import TIMESTAMP, Grid
from streamq.windows import KINDS, Window

W = TypeVar("W", bound=Window)

Draw = Callable[[st.SearchStrategy[Any]], Any]

Argument = Callable[[str], st.SearchStrategy[Any]]
"""A function from the stream's time axis to the strategy for an argument of a verb."""


def one_of(*values: Any) -> Argument:
    """Return an argument that is one of these values on any axis."""
    return lambda axis: st.sampled_from(values)


def lengths_of_time(least: int, most: int) -> Argument:
    """Return an argument that is a length of ``least`` to ``most`` ticks: an integer or, on the timestamp axis, a timedelta."""

    def drawn(axis: str) -> st.SearchStrategy[Any]:
        many = st.integers(least, most)
        return many.map(lambda n: dt.timedelta(microseconds=n)) if axis == TIMESTAMP else many

    return drawn


@dataclass(frozen=True)
class Members:
    """The oracle's table of events of ``schema``, with the columns ``groups`` of their group, and the payload as ``p0, ...``."""

    events: str
    groups: Sequence[str]
    schema: Schema

    @property
    def partition_clause(self) -> str:
        """The PARTITION BY clause of the groups for SQL's window functions; empty without groups."""
        return f"PARTITION BY {', '.join(self.groups)}" if self.groups else ""


class WindowRoom(ABC, Generic[W]):
    """One kind of windows: its definition, generator and lengths. Defining a subclass registers it."""

    kind: ClassVar[type[Window]]

    arguments: ClassVar[Mapping[tuple[str, str], Argument]] = {}
    """The arguments of the verbs, by verb and name, whose generator depends on the verb."""

    @abstractmethod
    def members(self, window: W, source: Members, run: Run) -> str:
        """Return a table of events, each once for each of its windows, with ``w`` (the window's number), ``w_le``, ``w_re``."""

    def complete(self, draw: Draw, verb: str, arguments: dict[str, Any], open: Any) -> None:
        """Draw arguments that depend on each other, if the verb makes such windows, and set them in ``arguments``.

        ``open`` is the value of an argument that is left open; one that keeps it is drawn by itself later.
        """

    def lengths(self, window: W) -> Iterator[int]:
        """Yield the window's lengths of time, in ticks."""
        yield from ()

    def recurrences(self, window: W) -> Iterator[int]:
        """Yield the distances, in ticks, at which an endless lifetime gives row after row."""
        yield from ()

    def grids(self, window: W) -> Iterator[Grid]:
        """Yield the grids on which windows begin and end."""
        yield from ()

    def bounds(self, window: W) -> Iterator[Bounds]:
        """Yield the instants at which windows begin and end, if they do not depend on events; by default those of the grids."""
        yield from map(GridBounds, self.grids(window))

    def last_end(self, window: W, c: int) -> int:
        """Return the instant to which a CTI is rounded when only such windows read a source: the CTI, if it is not rounded."""
        return c

    def instants(self, window: W, axis: str) -> Iterator[int]:
        """Yield the instants among the window's parameters, in ticks."""
        yield from ()


@cache
def rooms() -> dict[type[Window], WindowRoom[Any]]:
    """Return the rooms by kind, in the order of the kinds."""
    there = {room.kind: room() for room in WindowRoom.__subclasses__()}
    return {kind: there[kind] for kind in KINDS}


def room_of(window: Window) -> WindowRoom[Any]:
    """Return the room of a window."""
    return rooms()[type(window)]
