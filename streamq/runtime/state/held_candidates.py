"""The candidates of a pattern's scan in a kernel's state: a basket for each input, in bins of time that are split by group.

A micro-batch reads the candidates of the groups whose events look at them, a few bins at first and more of them if it must; it
appends what has come and what has been consumed. A bin is dropped once all of it is out of the scope.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, group, ints, is_matching, net_deltas, with_column
from streamq.runtime.arrow.values import Mask, distinct
from streamq.runtime.candidates import ReadOrder
from streamq.runtime.deltas import history_of, weighted
from streamq.runtime.event import LE, RE
from streamq.runtime.groups import HASH, distinct_hashes, with_hashes
from streamq.runtime.state.baskets import COUNTS, KernelBaskets, Span, grain
from streamq.runtime.state.bins import Bins
from streamq.runtime.state.group_bins import GroupBins
from streamq.runtime.time.tick_arithmetic import saturating
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.evaluators.scan import MatchScanEvaluator
    from streamq.runtime.state.baskets import BinSizes

CANDIDATES = "candidates"
"""The beginning of the names of the baskets of candidates."""

MOST_BINS = 32
"""The number of bins, roughly, up to which a scope is divided."""

PART = 8
"""The part of the rows above which a bin is split by group: a bin of time may have as many, and as many are read first."""

FACTOR = 4
"""The factor by which more bins are read each time that those read were too few."""

SOURCE = "__source"
"""The column of the number of an input."""

COUNT = "__count"
"""The column of a number of candidates."""

NEWEST = "__newest"
"""The column of the last start of a candidate that has come, consumed or not."""


def candidates_basket(source: int) -> str:
    return f"{CANDIDATES}{source}"


@dataclass(frozen=True, eq=False)
class ReachedBin:
    """A bin of a basket, with the first and the last start of its candidates, and the number of its rows."""

    bins: Bins
    name: str
    starts: Span
    rows: int


class HeldCandidates:
    """The candidates of a scan in a kernel's state.

    The more candidates there are, the narrower are new bins. A candidate's bin is as wide as its lifetime, which says where it is
    once it is consumed and is nothing else, as candidates count by their starts. ``sizes``: those above which bins are split by
    group.
    """

    def __init__(self, state: KernelBaskets, evaluator: MatchScanEvaluator, sizes: BinSizes):
        self.state, self.evaluator, self.step = state, evaluator, evaluator.step
        self.few = sizes.split_above // PART
        self.sizes = replace(sizes, whole_upto=2 * self.few)

    def read(self, events: pa.Table, most: int) -> tuple[pa.Table, bool]:
        """Return candidates that events may look at, and True if these are all of them.

        Bins are read in the step's order: as many as ``most`` says, and more as long as these have few rows; all if the step is
        sure only of all candidates. ``events`` have the hashes of their groups.
        """
        order = self.step.read_order
        bins = sorted(self._reached(events), key=lambda bin: bin.starts, reverse=order is ReadOrder.NEWEST_FIRST)
        first = len(bins) if order is ReadOrder.ALL else max(most, self._number_of_few(bins))
        rest, hashes = bins[first:], distinct_hashes([events])
        tables = [
            table for bin in bins[:first] if (table := bin.bins.read_groups(bin.name, lambda: hashes)) is not None
        ]
        if not tables:
            return events.slice(0, 0), not rest
        rows = _rows_before(concat(tables), [bin.starts for bin in rest], order)
        if keys := self.evaluator.keys:
            rows = rows.filter(pa.array(is_matching(rows, events, keys)))
        return history_of(rows), not rest

    def change(self, waiting: pa.Table, consumed: pa.Table) -> None:
        """Add candidates, and take out those that have been consumed."""
        waiting = with_column(waiting, RE, saturating(ints(waiting, LE), self._width(waiting.num_rows)))
        deltas = concat([weighted(waiting, 1), weighted(consumed, -1)])
        sources = self.evaluator.sources(deltas)
        for source in distinct(sources).tolist():
            mine = deltas.filter(pa.array(sources == source))
            start = ints(mine, LE)
            self._bins(source).place(mine, start, np.log2(ints(mine, RE) - start).astype(np.int64))

    def forget(self, c: int) -> None:
        """Drop the bins with candidates that no event from c on can have a match with."""
        for bins in map(self._bins, range(len(self.step.inputs))):
            bins.forget(c - self.step.within)

    def _number_of_few(self, bins: Sequence[ReachedBin]) -> int:
        """Return the number of the first bins that together have few rows."""
        rows = np.cumsum([bin.rows for bin in bins], dtype=np.int64)
        return int((rows <= self.few).sum())

    def _width(self, more: int) -> int:
        """Return the width of bins for new candidates, a power of two; ``more``: the number of these."""
        bins = (self.state.size(CANDIDATES)[0] + more) // max(1, self.few)
        return 1 << grain(0, self.step.within, max(1, min(MOST_BINS, bins)))

    def _bins(self, source: int) -> Bins:
        return Bins(self.state, candidates_basket(source), net_deltas, self.evaluator.keys, self.sizes)

    def _reached(self, events: pa.Table) -> Iterator[ReachedBin]:
        """Yield the bins that events look at and that their scope reaches."""
        since = int(ints(events, LE).min(initial=INFINITY)) - self.step.within
        for bins in map(self._bins, self.evaluator.looked_at(events)):
            for bin in bins:
                if (starts := bins.span(bin))[1] >= since:
                    yield ReachedBin(bins, bin, starts, bins.stored(bin))


def _rows_before(rows: pa.Table, others: Sequence[Span], order: ReadOrder) -> pa.Table:
    """Return the rows that are read before those of all bins with ``others`` as their first and last starts."""
    if not others:
        return rows
    le = ints(rows, LE)
    if order is ReadOrder.NEWEST_FIRST:
        return rows.filter(pa.array(le > max(last for _, last in others)))
    return rows.filter(pa.array(le < min(start for start, _ in others)))


class CandidateCounts:
    """The numbers of candidates of the active groups by input: if a group has none, no candidates are read to learn that.

    Groups whose last candidate is out of the scope of events from ``c`` on are left out. A count may be too great by other
    candidates that are out of it.
    """

    def __init__(self, bins: GroupBins, evaluator: MatchScanEvaluator, c: int):
        self.bins, self.evaluator = bins, evaluator
        self.compact = partial(_added_up, by=evaluator.keys, since=max(MINUS_INFINITY, c - evaluator.step.within))

    def have_candidates(self, events: pa.Table) -> Mask:
        """Mark the events of groups that may have candidates of an input that one of the events looks at."""
        counts = self.bins.read(COUNTS) if events.num_rows else None
        if counts is None:
            return np.zeros(events.num_rows, bool)
        counts = self.compact(counts)
        some = counts.filter(pa.array(np.isin(ints(counts, SOURCE), self.evaluator.looked_at(events))))
        keys = self.evaluator.keys
        return is_matching(events, some, keys) if keys else np.full(events.num_rows, some.num_rows > 0)

    def change(self, waiting: pa.Table, consumed: pa.Table) -> None:
        """Count the candidates that have come, and those that have been consumed."""
        changes = [with_column(rows, COUNT, np.full(rows.num_rows, n)) for rows, n in ((waiting, 1), (consumed, -1))]
        counts = with_hashes(concat(changes), self.evaluator.keys)
        counts = with_column(counts, SOURCE, self.evaluator.sources(counts))
        counts = with_column(counts, NEWEST, ints(counts, LE))
        columns = [*self.evaluator.keys, HASH, SOURCE, COUNT, NEWEST]
        self.bins.append(COUNTS, _summed(counts.select(columns), self.evaluator.keys), self.compact)


def _summed(counts: pa.Table, by: tuple[str, ...]) -> pa.Table:
    aggregates = {COUNT: (COUNT, "sum"), NEWEST: (NEWEST, "max")}
    return group(counts, [*by, HASH, SOURCE], aggregates)


def _added_up(counts: pa.Table, by: tuple[str, ...], since: int) -> pa.Table:
    """Return a row for each group and input that has candidates."""
    summed = _summed(counts, by)
    return summed.filter(pa.array((ints(summed, COUNT) > 0) & (ints(summed, NEWEST) >= since)))
