"""A micro-batch of one bucket of a stage, while its kernels run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamq.runtime.hosted_kernel import HostedKernel
from streamq.runtime.kernel import Arrival, Output, Totals
from streamq.runtime.progress import LevelProgress, Message, RelationClock
from streamq.runtime.state.baskets import Baskets, Work


@dataclass(eq=False, repr=False)
class BucketRun:
    """One micro-batch of one bucket, while its stage runs it."""

    bucket: int
    baskets: Baskets

    tables: dict[int, list[pa.Table]]
    """The deltas that came, by channel number."""

    messages: list[Message]

    clocks: dict[str, RelationClock]
    """The CTI and watermark that each relation has sent."""

    before: dict[str, LevelProgress]
    """The progress of each relation before this micro-batch; that of a source as it counts at the level of consistency."""

    now: dict[str, LevelProgress]
    """The same, after the messages of this micro-batch."""

    totals: dict[str, int]
    """Running counts of late, invalid and repeated items, by ``source|reason``."""

    notes: dict[int, list[Any]] = field(default_factory=dict)
    """The endpoints that the map side announced, by channel number."""

    outputs: list[tuple[HostedKernel, list[Arrival], Output, Work]] = field(default_factory=list)
    """The kernels that have advanced, each with what came, what it sent, and what it read of its state."""

    late: list[pa.Table] = field(default_factory=list)
    """Rows for the late output."""

    def count(self, totals: Totals) -> None:
        """Add the counts of late, invalid and repeated items, and their rows for the late output."""
        for key, n in totals.counts.items():
            self.totals[key] = self.totals.get(key, 0) + n
        self.late += totals.rows
