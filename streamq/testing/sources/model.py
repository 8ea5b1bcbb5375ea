"""The model of a source: which items it admits, what it counts, and the second definition of late policies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from streamq.choices import CountReason
from streamq.operators import Source
from streamq.runtime.kernel import ADJUST, DROP, FAIL
from streamq.testing.arrival import Item, count_contradictions, count_distinct, is_event
from streamq.time import INFINITY, MINUS_INFINITY

WEIGHTS = {DROP: 2, ADJUST: 3, FAIL: 1}
"""How often each late policy is drawn for a source with late items."""

WEIGHTS_ON_TIME = {DROP: 3, ADJUST: 1, FAIL: 1}
"""How often each late policy is drawn for a source without late items."""


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
