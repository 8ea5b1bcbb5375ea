"""Numbers of candidates by group and input, in bins by group: if a group has none, no candidates are read to learn that."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import concat, group, ints, is_matching, with_column
from streamq.runtime.event import LE
from streamq.runtime.groups import HASH, with_hashes
from streamq.runtime.state.baskets import COUNTS
from streamq.runtime.state.group_bins import GroupBins
from streamq.runtime.values import Mask
from streamq.time import MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.evaluators.match_scan import MatchScanEvaluator

SOURCE = "__source"
"""The column of the number of an input."""

COUNT = "__count"
"""The column of a number of candidates."""

NEWEST = "__newest"
"""The column of the last start of a candidate that has come, consumed or not."""


class CandidateCounts:
    """The counts of the active groups, without those whose last candidate is out of the scope of events from ``c`` on.

    A count may be too great by other candidates that are out of it.
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
    """Return a row for each group and input."""
    aggregates = {COUNT: (COUNT, "sum"), NEWEST: (NEWEST, "max")}
    return group(counts, [*by, HASH, SOURCE], aggregates)


def _added_up(counts: pa.Table, by: tuple[str, ...], since: int) -> pa.Table:
    """Return a row for each group and input that has candidates."""
    summed = _summed(counts, by)
    return summed.filter(pa.array((ints(summed, COUNT) > 0) & (ints(summed, NEWEST) >= since)))


__all__ = ["CandidateCounts"]
