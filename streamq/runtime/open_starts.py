"""The least start of the events that live on, kept without reading the events again.

The starts lie in bins of time, so that events which come in order are added at one end and forgotten at the other. Of the events
that have ended some stay, behind one that lives on; once they are the majority, all starts are read to forget them.
"""

from __future__ import annotations

import pyarrow as pa

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.columnar import ints, net_deltas
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.time_bins import TimeBins
from streamq.time import INFINITY

LIFETIMES = "lifetimes"
"""The basket of the events' lifetimes."""


class OpenStarts:
    """The lifetimes of events, in a basket of a kernel's state, by their starts."""

    def __init__(self, state: KernelBaskets, slack: int):
        """Open the lifetimes; so many of ended events may stay, beside as many as lived on when such were last forgotten."""
        self._bins = TimeBins(state, LIFETIMES, LE)
        self._values, self._slack = state.values, slack

    def advance(self, events: pa.Table, c: int) -> int:
        """Add deltas of events; return the least start of one that lives beyond ``c``, INFINITY if none does."""
        if c == INFINITY:
            self._bins.take(INFINITY)
            self._values.pop(LIFETIMES, None)
            return INFINITY
        least, until, most = self._values.get(LIFETIMES, [INFINITY, INFINITY, 0])
        fresh = events.select([LE, RE, WEIGHT]).filter(pa.array(ints(events, RE) > c))
        if fresh.num_rows:
            self._bins.append(net_deltas(fresh))
        if until <= c or (fresh.num_rows and int(ints(fresh, LE).min()) <= least):
            least, until = self._first(c)
        if self._bins.live > 2 * most + self._slack:
            most = self._forget_ended(c)
        self._values[LIFETIMES] = [least, until, most]
        return least

    def _first(self, c: int) -> tuple[int, int]:
        """Return the least start of an event that lives beyond ``c``, and the last end of those that start then.

        Events before it are forgotten. INFINITY, twice, if there is none.
        """
        while self._bins:
            rows = self._bins.first_rows
            living = rows.filter(pa.array((ints(rows, RE) > c) & (ints(rows, WEIGHT) > 0)))
            starts = ints(living if living.num_rows else rows, LE)
            if living.num_rows:
                least = int(starts.min())
                self._bins.take(least)
                return least, int(ints(living, RE)[starts == least].max())
            self._bins.take(int(starts.max()) + 1)
        return INFINITY, INFINITY

    def _forget_ended(self, c: int) -> int:
        """Forget the events that do not live beyond ``c``; return the number of the others."""
        rows = self._bins.take(INFINITY)
        if rows is None:
            return 0
        living = rows.filter(pa.array(ints(rows, RE) > c))
        self._bins.append(living)
        return living.num_rows


__all__ = ["OpenStarts"]
