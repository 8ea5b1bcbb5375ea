"""A timing wheel: deltas that wait for an instant, in slots that are the wider, the farther away the instant is.

So the slots are few, however many instants there are. The rows of a slot that is due are returned together; those whose own
instant is still far away then go into narrower slots (Varghese and Lauck, *Hashed and Hierarchical Timing Wheels*).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import COMPACT_AT, KernelBaskets
from streamq.runtime.columnar import concat, ints, net_deltas, split_by
from streamq.runtime.event import WEIGHT
from streamq.runtime.values import Ints
from streamq.time import INFINITY

ASLEEP = "asleep"
"""The basket of the deltas in the wheel, a bin for each slot."""

REWRITTEN = 256
"""The number of rows of a slot for which it may have one more chunk before it is rewritten."""


def slots(at: Ints, now: int, parts: int) -> Ints:
    """Return the start of the slot of each instant, which is later than ``now``: an instant after ``now``, at most its own.

    The slot is not wider than the distance to the instant, divided by 2 to the power of ``parts``, which may be negative.
    """
    # modulo 2^64 a distance beyond int64 is right
    distance = at.view(np.uint64) - np.full(1, now, np.int64).view(np.uint64)
    width = np.clip(np.floor(np.log2(distance.astype(np.float64))).astype(np.int64) - parts, 0, 62)
    return np.maximum(now + 1, (at >> width) << width)


class TimingWheel:
    """The deltas of a kernel that wait for an instant."""

    def __init__(self, state: KernelBaskets):
        self.state = state

    def add(self, deltas: pa.Table, slot: Ints) -> None:
        """Add deltas, each to a slot, which :func:`slots` returns."""
        for start, rows in split_by(deltas, slot):
            name, live = str(start), int(ints(rows, WEIGHT).sum())
            filled = self.state.filled(ASLEEP, name)
            if filled.chunks < COMPACT_AT + filled.stored // REWRITTEN:
                self.state.append(ASLEEP, name, rows, live)
            else:
                rows = net_deltas(concat([self._read(name), rows]))
                self.state.replace(ASLEEP, name, rows, int(ints(rows, WEIGHT).sum()))

    def take(self, before: int) -> pa.Table | None:
        """Take out the deltas of the slots that start before an instant, all at INFINITY, added up; None if there are none."""
        due = [name for name in self.state.bins(ASLEEP) if before == INFINITY or int(name) < before]
        tables = [self._read(name) for name in due]
        for name in due:
            self.state.drop(ASLEEP, name)
        return net_deltas(concat(tables)) if tables else None

    def _read(self, name: str) -> pa.Table:
        """Return the deltas of a slot."""
        rows = self.state.read(ASLEEP, name)
        assert rows is not None
        return rows


__all__ = ["TimingWheel", "slots"]
