"""The room of a kind of sources: rows, events for the oracle, a model, draws, text; and which room a source has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.errors import PlanError, sentence
from streamq.operators import Source
from streamq.plan.schema import Field
from streamq.progress.generate import GeneratedCtis
from streamq.runtime.event import CTI, INSERT
from streamq.runtime.progress_policy import ProgressPolicy
from streamq.testing.arrival import Item, contradictions, distinct, is_event, table_of
from streamq.testing.sources.model import SourceModel

if TYPE_CHECKING:
    from streamq.testing.intent import Intent
    from streamq.testing.oracle.run import Run
    from streamq.testing.scale import Scale

S = TypeVar("S", bound=Source)

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Arriving:
    """The draws of what arrives at a source: payloads, an intent at a scale, and how ids are made of numbers.

    ``id`` is the column of ids, if there is one; ``explicit``: CTIs come as items; ``causal`` as in
    :func:`streamq.testing.events.physical`.
    """

    payloads: st.SearchStrategy[dict[str, Any]]
    intent: Intent
    scale: Scale
    id: str | None
    number: Callable[[int], Any]
    explicit: bool
    causal: bool | None


class SourceRoom(ABC, Generic[S]):
    """One kind of sources; a subclass is registered by being there. It defines its events for the oracle by ``@defines``."""

    kind: ClassVar[type[Source]]

    simplicity: ClassVar[int]
    """Its place among all kinds: what fails shrinks towards those with lesser ones."""

    shapes: ClassVar[tuple[str, ...]]
    """The shapes of streams that are drawn of it; one with ids ends with "_ids"."""

    shapes_on_request: ClassVar[tuple[str, ...]] = ()
    """Those that are drawn only where they are asked for."""

    items: ClassVar[tuple[str, ...]] = (INSERT,)
    """The kinds of items that may arrive."""

    model: ClassVar[type[SourceModel[Any]]]
    """The model of what it admits."""

    usual_progress: ClassVar[ProgressPolicy] = GeneratedCtis()
    """Its progress unless the user says it."""

    goes_by_key: ClassVar[bool] = False
    """True if its first column of payload is a key by which items belong together."""

    late_by_start: ClassVar[bool] = True
    """True if items are late by their instants alone, so that they have to come out of order."""

    # rows

    def id_of(self, source: S) -> str | None:
        """Return the column of ids; None if there is none."""
        return source.ids[0] if source.ids else None

    @abstractmethod
    def row(self, source: S, item: Item) -> dict[str, Any]:
        """Return the columns beside the payload of an item, as a row has them; times are ticks."""

    def late_row(self, source: S, item: Item) -> dict[str, Any]:
        """Return the kind, the start and the ends that the late output has for an item; times are ticks."""
        return {"kind": None, "start": item.start, "end": item.end, "new_end": None}

    def repeated(self, source: S, events: Sequence[Item]) -> int:
        """Return how many items of a legal arrival sequence repeat others, where the source can tell."""
        return len(events) - distinct(events) if source.ids else 0

    def unmatched(self, source: S, events: Sequence[Item]) -> int:
        """Return how many items, on time and valid by themselves, are no events, for they speak of what never was."""
        return contradictions(source, events)

    def is_plain(self, source: S, events: Sequence[Item]) -> bool:
        """Return True if the model holds for these items."""
        return True

    # the oracle

    @abstractmethod
    def starts(self, source: S, run: Run) -> str:
        """Return a query for the instants ``t`` of its rows that start an event."""

    def ctis(self, source: S, run: Run) -> str | None:
        """Return a query for the CTIs ``t`` among its rows; None if none of them is one."""
        return None

    # draws

    @abstractmethod
    def drawn(self, draw: Draw, name: str, time: t.DataType, fields: tuple[Field, ...], ids: tuple[Field, ...]) -> S:
        """Return a source with times of a type and a payload of ``fields`` and ``ids``."""

    @abstractmethod
    def arriving(self, draw: Draw, source: S, how: Arriving) -> list[Item]:
        """Return what arrives at a source, in order, all of it legal."""

    @abstractmethod
    def invalid(self, draw: Draw, items: Sequence[Item], start: int, payload: Mapping[str, Any], scale: Scale) -> Item:
        """Return an item that is no event; ``start`` is that of another item, or near."""

    # text

    @abstractmethod
    def written(self, source: S) -> tuple[str, list[str]]:
        """Return the verb that makes it, and its arguments as text: columns, ids and keys."""


@cache
def rooms() -> dict[type[Source], SourceRoom[Any]]:
    """Return the rooms by kind, simple ones first."""
    return {room.kind: room() for room in sorted(SourceRoom.__subclasses__(), key=lambda room: room.simplicity)}


def room_of(source: Source) -> SourceRoom[Any]:
    """Return the room of a source."""
    if type(source) not in rooms():
        raise PlanError(sentence("testing", f"no room for a source {type(source).__name__}"))
    return rooms()[type(source)]


def room_of_shape(shape: str) -> SourceRoom[Any]:
    """Return the room of which streams of a shape are drawn."""
    return next(room for room in rooms().values() if shape in (*room.shapes, *room.shapes_on_request))


def row(source: Source, item: Item) -> dict[str, Any]:
    """Return an item as a row of its source; times are ticks."""
    return {**item.payload, **room_of(source).row(source, item)}


def table(source: Source, items: Sequence[Item]) -> pa.Table:
    """Return items as the Arrow table of their source, its columns of their declared types."""
    return table_of(source, [row(source, item) for item in items])


def repeated(source: Source, items: Sequence[Item]) -> int:
    """Return how many items of a legal arrival sequence repeat others, where the source can tell."""
    return room_of(source).repeated(source, [item for item in items if is_event(item)])


def unmatched(source: Source, items: Sequence[Item]) -> int:
    """Return how many rows of an arrival sequence on time are no events: by themselves, or as they speak of what never was."""
    rows = [item for item in items if item.kind != CTI]
    events = [item for item in rows if is_event(item)]
    return len(rows) - len(events) + room_of(source).unmatched(source, events)


def is_plain(source: Source, items: Sequence[Item]) -> bool:
    """True if the model of late items holds for what arrives at a source."""
    return room_of(source).is_plain(source, [item for item in items if item.kind != CTI and is_event(item)])


__all__ = [
    "Arriving",
    "Draw",
    "SourceRoom",
    "is_plain",
    "repeated",
    "room_of",
    "room_of_shape",
    "rooms",
    "row",
    "table",
    "unmatched",
]
