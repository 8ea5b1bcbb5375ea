"""Pairs of a windowed join with windows to come, by the number of the next one: a row for a window is made when it is sent.

So a pair costs as much as the rows that it sends, however many windows it shares, and is forgotten after the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.columnar import concat, ints, with_column
from streamq.runtime.deltas import cancelling_deltas, net_retractions
from streamq.runtime.evaluators.windowed_join import WindowedJoinEvaluator
from streamq.runtime.event import LE, RE
from streamq.runtime.time_bins import TimeBins
from streamq.time import INFINITY, MINUS_INFINITY

PAIRS = "pairs"
"""The basket of pairs, with the range of windows that are to come as lifetime."""


class ComingWindows:
    """The windows to come of pairs, in a kernel's state; those from ``first`` on are not final.

    The windows up to ``sent`` have been sent.
    """

    def __init__(self, state: KernelBaskets, evaluator: WindowedJoinEvaluator, first: int, sent: int):
        self.bins = TimeBins(state, PAIRS, LE, then=RE)
        self.evaluator, self.first, self.sent = evaluator, first, sent

    def send(self, new: Sequence[pa.Table], last: int) -> list[pa.Table]:
        """Return the rows of the windows up to ``last`` that are to be sent, in tables, and hold what comes after them.

        ``new`` are deltas of pairs, which also change windows that have been sent. ``last`` is at least the last one of these.
        """
        pairs = [net_retractions(concat(new))] if new else []
        rows = [self.evaluator.windows(table, self.first, self.sent) for table in pairs]
        coming = [self._after(table, self.sent) for table in pairs]
        if last > self.sent:
            held = self.bins.take(past(last))
            coming += [] if held is None else [held]
            rows += [self.evaluator.windows(table, self.first, last) for table in coming]
            coming = [self._after(table, last) for table in coming]
            self.sent = last
        for table in coming:
            self.bins.append(table)
        return [table for table in rows if table.num_rows]

    def take_back(self, pairs: Sequence[pa.Table], last: int) -> list[pa.Table]:
        """Return retractions of the windows after ``last`` that have been sent, in tables; they are to come again.

        ``pairs`` are all that have windows after ``last``.
        """
        self.bins.take(INFINITY)
        coming = [self._after(net_retractions(table), last) for table in pairs]
        rows = [self.evaluator.windows(cancelling_deltas(table), self.first, self.sent) for table in coming]
        for table in coming:
            self.bins.append(table)
        self.sent = last
        return rows

    @property
    def next(self) -> int:
        """The number of the next window of a pair; INFINITY if there is none."""
        return self.bins.least

    def _after(self, pairs: pa.Table, last: int) -> pa.Table:
        """Return the pairs that have windows after ``last``, with the range of these."""
        later = pairs.filter(pa.array(ints(pairs, RE) > past(last)))
        return with_column(later, LE, np.maximum(ints(later, LE), past(last)))


def past(last: int) -> int:
    """Return the number of the window after ``last``, which may be infinite."""
    return last if last in (INFINITY, MINUS_INFINITY) else last + 1


__all__ = ["PAIRS", "ComingWindows", "past"]
