"""The model of a source of points or intervals: lateness by start, duplicates and contradictions by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from streamq.choices import CountReason
from streamq.operators import Source
from streamq.testing.arrival import Item, comparable_payload, end_ticks, start_of
from streamq.testing.python_values import comparable
from streamq.testing.sources.model import Reach, SourceModel


class InsertOnlyModel(SourceModel[Source]):
    """Points and intervals. With ids, an equal row of an id is a duplicate, a row that differs from the id's first is invalid.

    ``standing``: the valid row by id and start. ``seen``: all valid rows.
    """

    def __init__(self, source: Source):
        super().__init__(source)
        self.standing: dict[Any, Any] = {}
        self.seen: set[Any] = set()

    def _pass(self, at: Reach) -> None:
        """Do nothing, as no item waits for another."""

    def _take(self, items: Sequence[Item], at: Reach) -> None:
        """Count rows that differ from their id's first and duplicates, admit rows on time, and adjust or drop late ones.

        The first of an id and start is the least of its rows in the micro-batch that brings them. A late row that ended at c or
        before is dropped whatever the policy. Without ids no row counts as a duplicate or as invalid here.
        """
        by_name: dict[Any, list[Item]] = {}
        for item in items if self.source.ids else ():
            by_name.setdefault(self._name(item), []).append(item)
        for name, rows in by_name.items():
            self.standing.setdefault(name, self._whole(_least(rows)))
        for item in items:
            start, end, whole = start_of(item), end_ticks(item.end), self._whole(item)
            if self.source.ids and self.standing[self._name(item)] != whole:
                self.admitted.contradicted = True
                self._count(CountReason.INVALID, item)
                continue
            if self.source.ids and whole in self.seen:
                is_sure = end >= at.c
                self._count(CountReason.DUPLICATES, item, None if is_sure else at.c, forgotten=not is_sure)
                self.admitted.sure_duplicates += is_sure
                continue
            self.seen.add(whole)
            if start >= at.c:
                self.admitted.events.append(item)
                continue
            self.admitted.late += 1
            if self._acts(start, at) and end > at.c:
                self._count(CountReason.ADJUSTED, item, at.c)
                self.admitted.events.append(replace(item, start=at.c))
            else:
                self._count(CountReason.DROPPED, item, at.c)

    def _name(self, item: Item) -> Any:
        return (item.start, *(comparable(item.payload[name]) for name in self.source.ids))

    @staticmethod
    def _whole(item: Item) -> Any:
        return (item.start, end_ticks(item.end), comparable_payload(item))


def _least(rows: Sequence[Item]) -> Item:
    """Return the row, among rows of one id and start in one micro-batch, that is valid: the least by end, then by payload."""
    first, *_ = rows
    differ = [n for n in first.payload if any(comparable(r.payload[n]) != comparable(first.payload[n]) for r in rows)]
    return min(rows, key=lambda row: (end_ticks(row.end), *(row.payload[n] for n in differ)))


__all__ = ["InsertOnlyModel"]
