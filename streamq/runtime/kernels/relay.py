"""Rows as they are, as a relation of their own: for paths that make several rows of one. No state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamq.runtime.basket import Scope
from streamq.runtime.columnar import concat
from streamq.runtime.kernel import Arrival, Clock, Output, Uncombined

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule


@dataclass(frozen=True)
class RelayKernel(Uncombined):
    """No parameters: deltas with their lifetimes and weights."""

    @property
    def progress_rule(self) -> ProgressRule:
        """Rows go on as they come."""
        from streamq.runtime.progress_rule import AT_ONCE

        return AT_ONCE

    def advance(self, state: Scope, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """What arrives."""
        tables = [a.table for a in arrivals if a.table.num_rows]
        return Output(concat(tables) if tables else None, clock.c)
