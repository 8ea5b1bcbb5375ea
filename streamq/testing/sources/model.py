"""The model of one source: what it admits of the items of each micro-batch, and what it counts the others as."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from streamq.choices import CountReason
from streamq.operators import Source
from streamq.testing.arrival import Item, is_event
from streamq.testing.late_policies import late_room_of
from streamq.time import INFINITY, MINUS_INFINITY

S = TypeVar("S", bound=Source)


@dataclass(frozen=True)
class Reach:
    """The position of a source: the CTI it ``promised`` itself, its CTI ``c`` at the level of consistency, its watermark."""

    c: int = MINUS_INFINITY
    promised: int = MINUS_INFINITY
    w: int = MINUS_INFINITY


@dataclass(frozen=True)
class SetAside:
    """An item that a source does not take as it came, as what it is counted, and how ``late_by`` many ticks its start was.

    None: it is not late. ``forgotten_by``: a duplicate of what the source may have forgotten, which then is dropped, so late.
    """

    reason: CountReason
    item: Item
    late_by: int | None = None
    forgotten_by: int | None = None


@dataclass
class Admitted:
    """What one source admits of a case."""

    events: list[Item] = field(default_factory=list)
    """The events that the query sees, as intervals."""

    counts: Counter[str] = field(default_factory=Counter)
    """How many items were dropped, adjusted, invalid and duplicates."""

    set_aside: list[SetAside] = field(default_factory=list)
    """These items: the rows of the late output."""

    late: int = 0

    sure_duplicates: int = 0
    """How many duplicates must count as duplicates: those of events that have not ended before c. Others may count as late."""

    contradicted: bool = False
    """Whether two rows of one id and start differed."""

    come: int = MINUS_INFINITY
    """The greatest start or CTI among its rows."""

    refused: bool = False
    """Whether an item was late under ``late="fail"``, so that the query raises."""

    filtered: bool = False
    """Whether a filter may run before rows are judged, so that late rows that it drops are not counted."""


class SourceModel(ABC, Generic[S]):
    """The model of one source: call ``take`` with each micro-batch, in order, then ``end`` for what it admits."""

    def __init__(self, source: S):
        self.source, self.admitted = source, Admitted()

    def take(self, items: Sequence[Item], at: Reach) -> None:
        """Process a micro-batch; ``at`` is how far the source had come before it."""
        self._pass(at)
        events = [item for item in items if is_event(item)]
        for item in items:
            if not is_event(item):
                self._count(CountReason.INVALID, item)
        self._take(events, at)

    def end(self) -> Admitted:
        """End the input; return what the source admits."""
        self._pass(Reach(INFINITY, INFINITY))
        return self.admitted

    @abstractmethod
    def _pass(self, at: Reach) -> None:
        """Decide on items that wait for one (a retraction for its event, an end for its start) that now cannot come in time."""

    @abstractmethod
    def _take(self, items: Sequence[Item], at: Reach) -> None:
        """Process the items of a micro-batch that are events."""

    def _count(self, reason: CountReason, item: Item, c: int | None = None, *, forgotten: bool = False) -> None:
        """Count an item: as late behind ``c``, or, where the source may have ``forgotten`` what it repeats, maybe so."""
        by = None if c in (None, INFINITY) or item.start is None else c - item.start
        late_by, forgotten_by = (None, by) if forgotten else (by, None)
        self.admitted.counts[reason] += 1
        self.admitted.set_aside.append(SetAside(reason, item, late_by, forgotten_by))

    def _acts(self, sync: int, at: Reach) -> bool:
        """Whether an item takes effect, if only from c on: it is in time by the CTI promised, or the policy is to adjust it."""
        room = late_room_of(self.source)
        if sync < at.promised:
            self.admitted.refused |= room.fails
            return room.adjusts
        return True


__all__ = ["Admitted", "Reach", "SetAside", "SourceModel"]
