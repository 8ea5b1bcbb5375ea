"""Rows as they are, as a relation of their own: for paths that make several rows of one. No state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamq.runtime.basket import Scope
from streamq.runtime.columnar import concat
from streamq.runtime.kernel import Arrival, Clock, Output, Uncombined


@dataclass(frozen=True)
class RelayKernel(Uncombined):
    """No parameters: deltas with their lifetimes and weights."""

    def advance(self, state: Scope, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """What arrives."""
        tables = [a.table for a in arrivals if a.table.num_rows]
        return Output(concat(tables) if tables else None, clock.c)
