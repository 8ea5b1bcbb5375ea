"""Bins of events by length of life and start, so that a micro-batch reads few of them, and past bins are dropped as a whole.

A bin ``class.cell`` holds lifetimes of one length class, a power of two, with starts in one cell of that width. So few bins hold
all live events, however long some of them live. One with many events is split by their groups into ``class.cell.bits.part``, of
which each has the hashes that begin with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import COMPACT_AT, KernelBaskets, grain
from streamq.runtime.columnar import concat, ints, split_by
from streamq.runtime.event import LE, RE
from streamq.runtime.group_bins import FULL, BinSizes
from streamq.runtime.groups import BITS, HASH, GroupHashes, with_hashes
from streamq.runtime.values import Ints, Mask
from streamq.time import INFINITY, MINUS_INFINITY

ENDLESS = "inf"
"""The bin of lifetimes that never end."""
CELLS = 16
"""The number of bins for the starts of the first micro-batch with several starts; it sets the least width of a bin."""
MOST = 4 * CELLS
"""The number of bins, parts not counted, above which the least width is doubled, because each bin has a cost of its own."""
SIZES = BinSizes(whole_upto=8_192)
"""The rows of a part, on average, above which the parts of a bin are split in two, and those up to which a bin is not split."""
MOST_BITS = 8
"""The number of bits up to which bins are split: events of one group stay together, however many they are."""

Compact = Callable[[pa.Table], pa.Table]


def hold(
    state: KernelBaskets,
    basket: str,
    table: pa.Table,
    compact: Compact,
    group_columns: Sequence[str] = (),
    sizes: BinSizes = SIZES,
) -> None:
    """Append events to their bins; a bin with many chunks is rewritten by ``compact``.

    ``group_columns`` separate the groups by which bins are split that exceed ``sizes``; parts have the groups' hashes, too.

    As long as there are then more than MOST bins of the least width, the width is doubled and their events, compacted, move to
    wider bins.
    """
    if not table.num_rows:
        return
    width = _width(state, ints(table, LE))
    place = partial(_place, state, basket, compact=compact, group_columns=group_columns, sizes=sizes)
    place(table, width)
    while len(set(map(_whole, fine := _fine_bins(state, basket, width)))) > MOST:
        width += 1
        state.values["grain"] = width
        chunks = [without_hashes(t) for bin in fine if (t := state.read(basket, bin)) is not None]
        for bin in fine:
            state.drop(basket, bin)
        place(compact(concat(chunks)), width)


def bin_reach(bin: str) -> tuple[int, int]:
    """Return the least start and (exclusive) greatest end of the events a bin can hold: the whole axis for endless events."""
    start, _ = bin_starts(bin)
    return start, INFINITY if _is_endless(bin) else min(INFINITY, start + 3 * (1 << _class(bin)))


def bin_starts(bin: str) -> tuple[int, int]:
    """Return the least and (exclusive) greatest start of the events a bin can hold: the whole axis for endless events."""
    if _is_endless(bin):
        return MINUS_INFINITY, INFINITY
    start = int(bin.split(".")[1]) << _class(bin)
    return start, min(INFINITY, start + (1 << _class(bin)))


def is_part(bin: str) -> bool:
    """Return True if a bin has been split, so that its rows have the hashes of their groups."""
    return _part(bin) != (0, 0)


def may_hold(bin: str, hashes: GroupHashes) -> bool:
    """Return True if a part of a bin can hold events of one of these groups, by hash."""
    bits, part = _part(bin)
    return bool((hashes >> np.uint32(BITS - bits) == part).any())


def without_hashes(table: pa.Table) -> pa.Table:
    """Return rows without the hashes of their groups."""
    return table.drop_columns([HASH]) if HASH in table.column_names else table


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


def _whole(bin: str) -> str:
    """Return the name of a bin before it was split."""
    return ENDLESS if _is_endless(bin) else ".".join(bin.split(".")[:2])


def _part(bin: str) -> tuple[int, int]:
    """Return the number of bits by which a bin has been split, and those that its hashes begin with."""
    parts = bin.removeprefix(_whole(bin)).split(".")
    return (int(parts[1]), int(parts[2])) if len(parts) > 1 else (0, 0)


def _fine_bins(state: KernelBaskets, basket: str, width: int) -> list[str]:
    """Return the bins, or parts of such, of length classes up to ``width``."""
    return [bin for bin in state.bins(basket) if not _is_endless(bin) and _class(bin) <= width]


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


def _place(
    state: KernelBaskets,
    basket: str,
    table: pa.Table,
    least_width: int,
    *,
    compact: Compact,
    group_columns: Sequence[str],
    sizes: BinSizes,
) -> None:
    """Append events to bins by start and length; ``least_width`` is the least length class of the bins.

    Endless events are in a bin of their own. A bin with many chunks is rewritten by ``compact``.
    """
    parts: dict[str, list[str]] = {}
    for name in state.bins(basket):
        parts.setdefault(_whole(name), []).append(name)

    def append(bin: str, rows: pa.Table) -> None:
        _append(state, basket, bin, rows, parts.get(bin, []), compact, group_columns, sizes)

    le, re = ints(table, LE), ints(table, RE)
    endless = re == INFINITY
    if endless.any():
        append(ENDLESS, table.filter(pa.array(endless)))
        table, le, re = table.filter(pa.array(~endless)), le[~endless], re[~endless]
    if not len(le):
        return
    # modulo 2^64 a length beyond int64 is right; as a float it may be a little too long, which only widens the bin
    length = np.maximum((re.view(np.uint64) - le.view(np.uint64)).astype(np.float64), 1.0)
    widths = np.clip(np.floor(np.log2(length)).astype(np.int64), least_width, 63)
    for bin, is_in_it in in_bins(le, widths):
        append(bin, table.filter(pa.array(is_in_it)))


def _append(
    state: KernelBaskets,
    basket: str,
    bin: str,
    table: pa.Table,
    parts: Sequence[str],
    compact: Compact,
    group_columns: Sequence[str],
    sizes: BinSizes,
) -> None:
    """Append events to a bin, as a chunk to each of its ``parts``; ``compact`` rewrites a part with many chunks.

    A bin that becomes large is split by groups, and its parts if they become so.
    """
    bits = _part(parts[0])[0] if parts else 0
    rows = table.num_rows + sum(state.filled(basket, name).stored for name in parts)
    if bits or rows > sizes.whole_upto:
        further = max(1, bits, min(MOST_BITS, int(np.ceil(np.log2(max(1, rows) / sizes.split_above)))))
        table = with_hashes(table, group_columns)
        if further > bits:
            held = [with_hashes(t, group_columns) for name in parts if (t := state.read(basket, name)) is not None]
            table = concat([*held, table])
            for name in parts:
                state.drop(basket, name)
        part_of = (table.column(HASH).to_numpy() >> np.uint32(BITS - further)).astype(np.int64)
        for part, mine in split_by(table, part_of):
            _append_chunk(state, basket, f"{bin}.{further}.{part}", mine, compact)
        return
    _append_chunk(state, basket, bin, table, compact)


def _append_chunk(state: KernelBaskets, basket: str, bin: str, table: pa.Table, compact: Compact) -> None:
    """Append events to a bin, or a part of one, as a chunk; ``compact`` rewrites it if it has many chunks for its rows."""
    filled = state.filled(basket, bin)
    if filled.chunks < COMPACT_AT + filled.stored // FULL:
        state.append(basket, bin, table)
    else:
        whole = state.read(basket, bin)
        state.replace(basket, bin, compact(table if whole is None else concat([whole, table])))
