"""Ingress of an insert-only source: judges lateness where c is kept; no state of its own, one pass over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamq.runtime.basket import Scope
from streamq.runtime.columnar import concat
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, Uncombined
from streamq.runtime.lateness import taken
from streamq.windows import Hopping


@dataclass(frozen=True)
class InsertIngressKernel(Uncombined):
    """points: the source declares points, so RE = LE + 1; round_to: the grid c is rounded down to (SEMANTICS section 7)."""

    points: bool
    round_to: Hopping | None = None

    def advance(self, state: Scope, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """The events that are on time, and what the policy leaves of the others."""
        totals = Totals()
        grid = self.round_to
        if grid:
            down = grid.floor_to_end
            arrivals = [replace(a, c=down(a.c), promised=down(a.promised)) for a in arrivals]
        out = [taken(a, totals) for a in arrivals]
        return Output(concat(out) if out else None, clock.c, totals)
