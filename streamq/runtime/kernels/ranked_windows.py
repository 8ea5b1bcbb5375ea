"""Kernel of ``top_k`` over windows on a grid: keeps the best events of each range of windows, and ranks those of a window.

The best of a union are among the best of its parts: DataCell's partial sorted lists.

State: as of ``window_aggregate``, with the best events as partial results; if input may be taken back, all events with weights.
Cost: a micro-batch ranks its own events by range of windows; a reported window ranks the rows that it spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamq.plan.partial import COUNT
from streamq.runtime.columnar import codes, expand_ranges, first_places, ints, with_column, with_columns
from streamq.runtime.deltas import weighted
from streamq.runtime.evaluators.top_k_evaluator import Ranking
from streamq.runtime.event import WEIGHT
from streamq.runtime.grid_ranges import HI, LO
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.range_partials import INDEX
from streamq.runtime.state.window_bins import PartialsBasket, ReportedBasket
from streamq.runtime.touched_windows import TouchedWindows
from streamq.runtime.values import Ints

EVENTS = "__events"
"""The column with the number of events that a row stands for, those included that are no longer there since others are better."""


@dataclass(frozen=True)
class RankedWindowsKernel(WindowAggregateKernel):
    """A kernel of the best events of windows, by ``ranking``; it has no partial results and no reductions."""

    ranking: Ranking = field(kw_only=True)

    def combine(self, port: int, table: pa.Table) -> pa.Table:
        """Return the events with their ranges of windows; unless they may be taken back, the best of each key and range.

        A row of each range has the number of its events, by which late ones are counted.
        """
        events = self._partials(table)
        if not self.merges:
            return self._held.merged(events)
        number, first = codes(events, [*self.keys, LO, HI])
        best = self._held.merged(with_column(events, EVENTS, number))
        of, many = ints(best, EVENTS), np.zeros(best.num_rows, np.int64)
        heads = first_places(of)
        many[heads] = np.bincount(number, minlength=len(first))[of[heads]]
        return with_column(best, EVENTS, many)

    def _events(self, table: pa.Table) -> Ints:
        return ints(table, EVENTS) if self.merges else super()._events(table)

    def _arrived(self, fresh: Sequence[pa.Table]) -> pa.Table | None:
        new = super()._arrived(fresh)
        return new if new is None or not self.merges else new.drop_columns([EVENTS])

    @property
    def _values(self) -> tuple[str, ...]:
        keys = set(self.keys)
        return (self.ranking.by, *(name for name in self.ranking.payload if name not in keys))

    @property
    def held_form(self) -> str:
        return "the best events of each range of windows" if self.merges else "events with weights"

    @property
    def may_have_blocks(self) -> bool:
        return False

    @property
    def _held(self) -> PartialsBasket:
        return BestBasket(**vars(super()._held), ranking=self.ranking)

    @property
    def _reported(self) -> ReportedBasket:
        places = [name for name in (self.ranking.rank, self.ranking.row_number) if name]
        return ReportedBasket(self.keys, (*self.ranking.payload, INDEX, *places, WEIGHT), self.sizes)

    def _rows_in(self, partials: pa.Table, low: Ints, high: Ints) -> list[pa.Table]:
        number, _ = codes(partials, self.keys) if self.keys else (np.zeros(partials.num_rows, np.int64), None)
        event, index = _members(partials, low, high)
        return self._best(partials, event, number[event], index, index)

    def _touched_rows(self, partials: pa.Table, touched: TouchedWindows) -> list[pa.Table]:
        windows, first, last = touched.places(partials, ints(partials, LO), ints(partials, HI))
        event, place = _members(partials, first, last)
        return self._best(partials, event, np.zeros(len(event), np.int64), place, windows.index[place])

    def _best(self, events: pa.Table, event: Ints, owner: Ints, place: Ints, index: Ints) -> list[pa.Table]:
        """Return the best members of windows as inserts, in one table; an empty list if there are none.

        A member is an event, by row, in a window, by owner and place; ``index`` are the numbers of the windows.
        """
        if not len(event):
            return []
        ranked = self.ranking.ranked(events, event, owner, place)
        best = ranked.order[ranked.is_best]
        rows = events.select([*self.ranking.payload]).take(pa.array(event[best]))
        rows = self.ranking.with_places(rows, ranked.rank[ranked.is_best], ranked.number[ranked.is_best])
        return [weighted(with_columns(rows, {INDEX: index[best]}), 1)]


@dataclass(frozen=True, kw_only=True)
class BestBasket(PartialsBasket):
    """Events by key and range of windows, of which only the best stay if they merge."""

    ranking: Ranking

    def merged(self, table: pa.Table, windows: Sequence[str] = (LO, HI)) -> pa.Table:
        """Return the best rows of each key and range; if they may be retracted, all, with their weights, that do not cancel."""
        if not self.merges:
            return super().merged(table, windows)
        every = np.arange(table.num_rows)
        ranked = self.ranking.ranked(table, every, codes(table, [*self.keys, *windows])[0], every * 0)
        return table.take(pa.array(np.sort(ranked.order[ranked.is_best])))


def _members(events: pa.Table, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return the members of windows ``first..last`` of each row of ``events``, empty for some: their rows, and their windows."""
    row = np.flatnonzero((first <= last) & (ints(events, COUNT) > 0))
    which, window = expand_ranges(first[row], last[row])
    event = row[which]
    copies = ints(events, COUNT)[event]
    return np.repeat(event, copies), np.repeat(window, copies)


__all__ = ["RankedWindowsKernel"]
