"""Bins of events by length of life and start, so that a micro-batch reads few of them, and past bins are dropped as a whole.

A bin ``class.cell`` holds lifetimes of one length class, a power of two, with starts in one cell of that width. So few bins hold
all live events, however long some of them live. One with many events is split by their groups (:mod:`streamq.runtime.parts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import KernelBaskets, grain
from streamq.runtime.columnar import concat, ints
from streamq.runtime.event import LE, RE
from streamq.runtime.group_bins import BinSizes
from streamq.runtime.parts import SIZES, Compact, PartedBins, whole_bin
from streamq.runtime.values import Ints, Mask
from streamq.time import INFINITY, MINUS_INFINITY

ENDLESS = "inf"
"""The bin of lifetimes that never end."""
CELLS = 16
"""The number of bins for the starts of the first micro-batch with several starts; it sets the least width of a bin."""
MOST = 4 * CELLS
"""The number of bins, parts not counted, above which the least width is doubled, because each bin has a cost of its own."""


def hold(
    state: KernelBaskets,
    basket: str,
    table: pa.Table,
    compact: Compact,
    group_columns: Sequence[str] = (),
    sizes: BinSizes = SIZES,
) -> None:
    """Append events to their bins; a bin with many chunks or dead rows is rewritten by ``compact``.

    ``group_columns`` separate the groups by which bins are split that exceed ``sizes``; parts have the groups' hashes, too.

    As long as there are then more than MOST bins of the least width, the width is doubled and their events, compacted, move to
    wider bins.
    """
    if not table.num_rows:
        return
    width = _width(state, ints(table, LE))
    bins = PartedBins(state, basket, compact, group_columns, sizes)
    _place(bins, table, width)
    while len(fine := _fine_bins(bins, width)) > MOST:
        width += 1
        state.values["grain"] = width
        chunks = [rows for bin in fine if (rows := bins.read(bin)) is not None]
        for bin in fine:
            bins.drop(bin)
        _place(bins, compact(concat(chunks)), width)


def bin_reach(bin: str) -> tuple[int, int]:
    """Return the least start and (exclusive) greatest end of the events a bin can hold: the whole axis for endless events."""
    start, _ = bin_starts(bin)
    return start, INFINITY if _is_endless(bin) else min(INFINITY, start + 3 * (1 << _class(bin)))


def bin_starts(bin: str) -> tuple[int, int]:
    """Return the least and (exclusive) greatest start of the events a bin can hold: the whole axis for endless events."""
    if _is_endless(bin):
        return MINUS_INFINITY, INFINITY
    start = int(whole_bin(bin).split(".")[1]) << _class(bin)
    return start, min(INFINITY, start + (1 << _class(bin)))


def in_bins(starts: Ints, widths: Ints) -> Iterator[tuple[str, Mask]]:
    """Yield the name of each bin that has starts, with the mask of its starts; ``widths`` are the length classes (log2)."""
    bins, number = np.unique(np.stack([widths, starts >> widths], axis=1), axis=0, return_inverse=True)
    for n, (width, cell) in enumerate(bins):
        yield f"{width}.{cell}", number.reshape(-1) == n


def forget(state: KernelBaskets, basket: str, c: int) -> None:
    """Drop the bins in which all events have ended before ``c``; all bins if it is INFINITY."""
    for bin in state.bins(basket):
        if c == INFINITY or bin_reach(bin)[1] < c:
            state.drop(basket, bin)


def _is_endless(bin: str) -> bool:
    """Return True if a bin holds endless lifetimes."""
    return bin.startswith(ENDLESS)


def _fine_bins(bins: PartedBins, width: int) -> list[str]:
    """Return the bins of length classes up to ``width``."""
    return [bin for bin in bins if not _is_endless(bin) and _class(bin) <= width]


def _class(bin: str) -> int:
    """Return the length class of a bin: the base-2 logarithm of its width."""
    return int(bin.partition(".")[0])


def _width(state: KernelBaskets, le: Ints) -> int:
    """Return the least length class of bins; the first starts that differ set it, and the state keeps it."""
    width = state.values.get("grain")
    if width is None:
        least, most = int(le.min()), int(le.max())
        width = grain(least, most, CELLS)
        if most > least:
            # events of one instant do not show how dense the stream is
            state.values["grain"] = width
    return int(width)


def _place(bins: PartedBins, table: pa.Table, least_width: int) -> None:
    """Append events to bins by start and length; ``least_width`` is the least length class of the bins.

    Endless events are in a bin of their own.
    """
    le, re = ints(table, LE), ints(table, RE)
    endless = re == INFINITY
    if endless.any():
        bins.append(ENDLESS, table.filter(pa.array(endless)))
        table, le, re = table.filter(pa.array(~endless)), le[~endless], re[~endless]
    if not len(le):
        return
    # modulo 2^64 a length beyond int64 is right; as a float it may be a little too long, which only widens the bin
    length = np.maximum((re.view(np.uint64) - le.view(np.uint64)).astype(np.float64), 1.0)
    widths = np.clip(np.floor(np.log2(length)).astype(np.int64), least_width, 63)
    for bin, is_in_it in in_bins(le, widths):
        bins.append(bin, table.filter(pa.array(is_in_it)))
