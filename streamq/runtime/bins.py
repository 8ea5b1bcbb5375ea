"""Bins of events by length of life and start: what a micro-batch does not meet is not read, and bins go whole once they are over.

A bin ``class.cell`` holds lifetimes of one length class, a power of two, with starts in one cell of that width. So few bins
hold whatever is alive, however long some of it lives.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import COMPACT_AT, KernelBaskets
from streamq.runtime.columnar import concat, ints
from streamq.runtime.event import LE, RE
from streamq.time import INFINITY, MINUS_INFINITY

ENDLESS = "inf"
CELLS = 16
"""Bins that the starts of the first micro-batch with more than one are spread over: the least width of a bin."""
MOST = 4 * CELLS
"""Bins of the least width beyond which it is doubled: each costs, whatever it holds."""

Compact = Callable[[pa.Table], pa.Table]


def hold(state: KernelBaskets, basket: str, table: pa.Table, compact: Compact) -> None:
    """Append events to their bins; one with many chunks is rewritten by ``compact``."""
    if not table.num_rows:
        return
    grain = _grain(state, ints(table, LE))
    _place(state, basket, table, grain, compact)
    while len(fine := [bin for bin in state.bins(basket) if bin != ENDLESS and _class(bin) <= grain]) > MOST:
        grain += 1
        state.values["grain"] = grain
        chunks = [t for bin in fine if (t := state.read(basket, bin)) is not None]
        for bin in fine:
            state.drop(basket, bin)
        _place(state, basket, compact(concat(chunks)), grain, compact)


def bin_reach(bin: str) -> tuple[int, int]:
    """The least start and (exclusive) greatest end of the events a bin can hold."""
    if bin == ENDLESS:
        return MINUS_INFINITY, INFINITY
    start, width = int(bin.partition(".")[2]) << _class(bin), 1 << _class(bin)
    return start, min(INFINITY, start + 3 * width)


def bin_starts(bin: str) -> tuple[int, int]:
    """The least and the (exclusive) greatest start of the events a bin can hold."""
    if bin == ENDLESS:
        return MINUS_INFINITY, INFINITY
    start = int(bin.partition(".")[2]) << _class(bin)
    return start, min(INFINITY, start + (1 << _class(bin)))


def _class(bin: str) -> int:
    return int(bin.partition(".")[0])


def _grain(state: KernelBaskets, le: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    grain = state.values.get("grain")
    if grain is None:
        span = int(le.max()) - int(le.min())
        grain = int(np.log2(max(1.0, span / CELLS)))
        if span:
            # events of one instant say nothing of how dense the stream is
            state.values["grain"] = grain
    return int(grain)


def _place(state: KernelBaskets, basket: str, table: pa.Table, grain: int, compact: Compact) -> None:
    le, re = ints(table, LE), ints(table, RE)
    endless = re == INFINITY
    if endless.any():
        _append(state, basket, ENDLESS, table.filter(pa.array(endless)), compact)
        table, le, re = table.filter(pa.array(~endless)), le[~endless], re[~endless]
    if not len(le):
        return
    # modulo 2^64 a length beyond int64 is right; as a float it may be a little too long, which only widens the bin
    length = np.maximum((re.view(np.uint64) - le.view(np.uint64)).astype(np.float64), 1.0)
    cls = np.clip(np.floor(np.log2(length)).astype(np.int64), grain, 62)
    bins, number = np.unique(np.stack([cls, le >> cls], axis=1), axis=0, return_inverse=True)
    for n, (k, cell) in enumerate(bins):
        _append(state, basket, f"{k}.{cell}", table.filter(pa.array(number.reshape(-1) == n)), compact)


def _append(state: KernelBaskets, basket: str, bin: str, table: pa.Table, compact: Compact) -> None:
    state.append(basket, bin, table)
    if state.chunks(basket, bin) > COMPACT_AT:
        state.read(basket, bin, compact)
