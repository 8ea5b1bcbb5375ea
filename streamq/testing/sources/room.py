"""Rooms of sources: rows, queries for the oracle, generators and text of a kind; and models of what a source admits and counts.

A model is the second definition of late policies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.choices import CountReason
from streamq.errors import PlanError
from streamq.operators import Source
from streamq.plan.schema import Field
from streamq.progress_policies import GeneratedCtis
from streamq.runtime.deltas import CTI, INSERT
from streamq.runtime.kernel import ADJUST, DROP, FAIL
from streamq.runtime.time.progress_policy import ProgressPolicy
from streamq.testing.arrival import Item, Scale, count_contradictions, count_distinct, is_event, table_of
from streamq.testing.intent import Draw, Intent
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.testing.oracle.run import Run


WEIGHTS = {DROP: 2, ADJUST: 3, FAIL: 1}
"""The weights by which late policies are drawn for a source with late items."""

WEIGHTS_ON_TIME = {DROP: 3, ADJUST: 1, FAIL: 1}
"""The weights by which late policies are drawn for a source without late items."""


S = TypeVar("S", bound=Source)


@dataclass(frozen=True)
class Reach:
    """The progress of a source: its own CTI ``promised``, its CTI ``c`` at the level of consistency, and its watermark ``w``."""

    c: int = MINUS_INFINITY
    promised: int = MINUS_INFINITY
    w: int = MINUS_INFINITY


@dataclass(frozen=True)
class SetAsideItem:
    """An item that a source sets aside: ``reason`` is its count, ``late_by`` how many ticks its start lay behind the CTI.

    ``late_by`` is None for an item that is not late. ``forgotten_by`` is set for a duplicate of an event that the source may have
    forgotten: the source then drops the duplicate as so many ticks late.
    """

    reason: CountReason
    item: Item
    late_by: int | None = None
    forgotten_by: int | None = None


@dataclass
class Admission:
    """The items of a case that one source admits, and the counts of the others."""

    events: list[Item] = field(default_factory=list)
    """The events that the query reads, as intervals."""

    counts: Counter[str] = field(default_factory=Counter)
    """The numbers of dropped, adjusted, invalid and duplicate items."""

    set_aside: list[SetAsideItem] = field(default_factory=list)
    """The counted items, each with its count: the rows of the late output."""

    late: int = 0
    """The number of late items."""

    sure_duplicates: int = 0
    """The number of duplicates of events that have not ended before c; duplicates of other events may count as late instead."""

    contradicted: bool = False
    """True if two rows of one id and start differed."""

    come: int = MINUS_INFINITY
    """The greatest start or CTI among the source's rows."""

    refused: bool = False
    """True if an item was late under ``late="fail"``, so that the query fails."""

    filtered: bool = False
    """True if a filter may run before rows are judged, so that late rows that it drops are not counted."""


class SourceModel(ABC, Generic[S]):
    """The model of one source: call ``take`` with each micro-batch in order, then ``end``, which returns the result."""

    def __init__(self, source: S):
        self.source, self.admitted = source, Admission()

    def take(self, items: Sequence[Item], at: Reach) -> None:
        """Process a micro-batch; ``at`` is the source's progress before it.

        First items whose awaited item can no longer come are decided on; then rows that are no events are counted as invalid.
        """
        self._pass(at)
        events = [item for item in items if is_event(item)]
        for item in items:
            if not is_event(item):
                self._count(CountReason.INVALID, item)
        self._take(events, at)

    def end(self) -> Admission:
        """End the input; return what the source admits."""
        self._pass(Reach(INFINITY, INFINITY))
        return self.admitted

    def repeated(self, events: Sequence[Item]) -> int:
        """Return the number of items of a legal arrival sequence that the source recognizes as repetitions."""
        return len(events) - count_distinct(events) if self.source.ids else 0

    def unmatched(self, events: Sequence[Item]) -> int:
        """Return the number of items, valid by themselves, that refer to an item that is not there, or contradict their id's."""
        return count_contradictions(self.source, events)

    def is_plain(self, events: Sequence[Item]) -> bool:
        """True if the model covers these items."""
        return True

    @abstractmethod
    def _pass(self, at: Reach) -> None:
        """Decide on items whose awaited item (a retraction's event, an end's start) can no longer come in time."""

    @abstractmethod
    def _take(self, items: Sequence[Item], at: Reach) -> None:
        """Process the items of a micro-batch that are events."""

    def _count(self, reason: CountReason, item: Item, c: int | None = None, *, forgotten: bool = False) -> None:
        """Count an item by its ``reason``, and set it aside as late by its distance behind ``c``.

        With None, with INFINITY, and without a start, it is not late.

        ``forgotten``: the item repeats one that the source may have forgotten, and is late only then.
        """
        by = None if c in (None, INFINITY) or item.start is None else c - item.start
        late_by, forgotten_by = (None, by) if forgotten else (by, None)
        self.admitted.counts[reason] += 1
        self.admitted.set_aside.append(SetAsideItem(reason, item, late_by, forgotten_by))

    def _acts(self, sync: int, at: Reach) -> bool:
        """True if an item takes effect, at least from c on: it is on time by the source's own CTI, or the policy adjusts it.

        It may be late at the level of consistency all the same.

        ``sync``: the earliest instant that the item changes. An item late under ``late="fail"`` marks the case as refused.
        """
        if sync < at.promised:
            self.admitted.refused |= self.source.policy.late is FAIL
            return self.source.policy.late is ADJUST
        return True


Payloads = st.SearchStrategy[dict[str, Any]]


@dataclass(frozen=True)
class ArrivalPlan:
    """The parameters for drawing the items of a source: payloads, an intent, a scale, and the function from a number to an id.

    ``id`` is the column of ids, if there is one; ``explicit``: CTIs are among the items; ``causal``: a retraction arrives after
    the item that it retracts (None: drawn).
    """

    payloads: Payloads
    intent: Intent
    scale: Scale
    id: str | None = None
    number: Callable[[int], Any] = lambda n: n
    explicit: bool = True
    causal: bool | None = None


class SourceRoom(ABC, Generic[S]):
    """One kind of sources. Defining a subclass registers it; its module registers the oracle's definition by ``@defines``."""

    kind: ClassVar[type[Source]]

    simplicity: ClassVar[int]
    """The kind's rank: failing cases shrink towards kinds of lower rank."""

    shapes: ClassVar[tuple[str, ...]]
    """The shapes of streams that are drawn from this kind; the name of a shape with ids ends with "_ids"."""

    shapes_on_request: ClassVar[tuple[str, ...]] = ()
    """Further shapes that are drawn on request only."""

    items: ClassVar[tuple[str, ...]] = (INSERT,)
    """The kinds of items that may arrive."""

    model: ClassVar[type[SourceModel[Any]]]
    """The model of late items for this kind."""

    usual_progress: ClassVar[ProgressPolicy] = GeneratedCtis()
    """The default progress policy."""

    goes_by_key: ClassVar[bool] = False
    """True if the first payload column is a key that relates items to each other."""

    late_by_start: ClassVar[bool] = True
    """True if items must come out of order of their starts to be late."""

    # rows

    def id_of(self, source: S) -> str | None:
        """Return the column of ids; None if there is none."""
        return source.ids[0] if source.ids else None

    @abstractmethod
    def row(self, source: S, item: Item) -> dict[str, Any]:
        """Return the columns of an item's row that are not payload; times are ticks."""

    def late_row(self, source: S, item: Item) -> dict[str, Any]:
        """Return the kind, the start and the ends that the late output has for an item; times are ticks."""
        return {"kind": None, "start": item.start, "end": item.end, "new_end": None}

    # the oracle

    @abstractmethod
    def starts(self, source: S, run: Run) -> str:
        """Return a query for the starts ``t`` of the rows that start an event; NULL for a row without a start.

        Repetitions of an id and start are in it; of the invalid rows only those whose ends are wrong are left out.
        """

    def ctis(self, source: S, run: Run) -> str | None:
        """Return a query for the CTIs ``t`` among the rows; None for a kind without them."""
        return None

    # draws

    @abstractmethod
    def drawn(self, draw: Draw, name: str, time: t.DataType, fields: tuple[Field, ...], ids: tuple[Field, ...]) -> S:
        """Draw a source whose times have the type ``time`` and whose payload is ``fields`` and ``ids``."""

    @abstractmethod
    def arriving(self, source: S, how: ArrivalPlan) -> st.SearchStrategy[list[Item]]:
        """Draw the items of a source, in order of arrival, all of them legal: retractions match, none is late, rows are events.

        Rows that the source can recognize as repetitions are delivered more than once. Shrinking leads to few events in order,
        without corrections. (Test framework, section 5.)
        """

    @abstractmethod
    def invalid(self, draw: Draw, items: Sequence[Item], start: int, payload: Mapping[str, Any], scale: Scale) -> Item:
        """Draw an item that is not an event; ``start`` is that of another item, or near one."""

    # text

    @abstractmethod
    def written(self, source: S) -> tuple[str, list[str]]:
        """Return the verb that makes the source, and the verb's arguments as text: columns, ids and keys."""


@cache
def rooms() -> dict[type[Source], SourceRoom[Any]]:
    """Return the rooms by kind, in order of simplicity."""
    return {room.kind: room() for room in sorted(SourceRoom.__subclasses__(), key=lambda room: room.simplicity)}


def room_of(source: Source) -> SourceRoom[Any]:
    """Return the room of a source; raise PlanError if there is none."""
    if type(source) not in rooms():
        raise PlanError("testing", f"no room for a source {type(source).__name__}")
    return rooms()[type(source)]


def room_of_shape(shape: str) -> SourceRoom[Any]:
    """Return the room from which streams of a shape, with or without ids, are drawn; raise StopIteration if there is none."""
    return next(room for room in rooms().values() if shape in (*room.shapes, *room.shapes_on_request))


def model_of(source: Source) -> SourceModel[Any]:
    """Return the model of a source that has brought nothing yet."""
    return room_of(source).model(source)


def row(source: Source, item: Item) -> dict[str, Any]:
    """Return an item as a row of its source; times are ticks."""
    return {**item.columns, **room_of(source).row(source, item)}


def table(source: Source, items: Sequence[Item]) -> pa.Table:
    """Return items as an Arrow table with the columns and types of their source."""
    return table_of(source, [row(source, item) for item in items])


def repeated(source: Source, items: Sequence[Item]) -> int:
    """Return the number of items of a legal arrival sequence that the source recognizes as repetitions."""
    return model_of(source).repeated([item for item in items if is_event(item)])


def unmatched(source: Source, items: Sequence[Item]) -> int:
    """Return the number of rows of an arrival sequence without late items that are not events.

    They are invalid by themselves, the item that they refer to does not exist, or another row of their id and start differs.
    """
    rows = [item for item in items if item.kind != CTI]
    events = [item for item in rows if is_event(item)]
    return len(rows) - len(events) + model_of(source).unmatched(events)


def is_plain(source: Source, items: Sequence[Item]) -> bool:
    """True if the model of late items covers the items of a source."""
    return model_of(source).is_plain([item for item in items if item.kind != CTI and is_event(item)])
