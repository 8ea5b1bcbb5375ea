"""Kernel of windows whose results merge: settled events that stay together are replaced by one row with their partial results.

State: partial results of single events that are not settled, and of the settled ones of each window, or of each range of
windows that have the same ones. So it goes with windows, not with events. Sent rows as of ``recompute``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamq.runtime.columnar import ints
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.groups import HASH
from streamq.runtime.kernel import Arrival, Totals
from streamq.runtime.kernels.windows import WindowsKernel
from streamq.runtime.values import Mask


@dataclass(frozen=True)
class CondensingKernel(WindowsKernel):
    """A kernel of an evaluator that condenses events; its events have their partial results from the start."""

    ends_move: bool = False
    """True if an event's end may still move after its start has settled."""

    def _fresh(self, arrivals: Sequence[Arrival], totals: Totals) -> list[pa.Table]:
        """Return the deltas that have come, with their partial results and the hashes of their groups; late ones are counted."""
        (deltas,) = super()._fresh(arrivals, totals)
        deltas = self.evaluator.with_partials(deltas)
        return [deltas.select([*self.evaluator.condensed_columns, LE, RE, WEIGHT, HASH])]

    def _outdated(self, histories: Sequence[pa.Table], rows: pa.Table, c: int) -> list[tuple[Mask, pa.Table | None]]:
        """Return the events of final windows, and settled ones that are condensed, with the rows that replace these."""
        (events,) = histories
        ((is_outdated, _),) = super()._outdated(histories, rows, c)
        is_settled = ~is_outdated & (ints(events, RE if self.ends_move else LE) < c)
        is_replaced, condensed = self.evaluator.condensed(events.filter(pa.array(is_settled)), rows, c)
        is_outdated[is_settled] = is_replaced
        return [(is_outdated, condensed)]
