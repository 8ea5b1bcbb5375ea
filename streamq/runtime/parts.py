"""Bins split by group: a large one into parts, so that a micro-batch reads the rows of the groups that it touches.

A part ``bin:bits.part`` holds the rows whose groups' hashes begin with the same bits, together with these hashes, in the order of
which each chunk is stored. All parts of a bin have as many bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.columnar import concat, decode_rows, expand_ranges, split_by
from streamq.runtime.deltas import live_rows
from streamq.runtime.group_bins import FULL, BinSizes
from streamq.runtime.groups import BITS, HASH, GroupHashes, with_hashes
from streamq.runtime.values import Mask

SIZES = BinSizes(whole_upto=8_192)
"""The rows of a part, on average, above which the parts of a bin are split in two, and those up to which a bin is not split."""
MOST_BITS = 8
"""The number of bits up to which bins are split: events of one group stay together, however many they are."""

SELDOM = 8
"""The factor by which a bin that is not split may have more chunks than a part: it is rewritten when it is read, too."""

Compact = Callable[[pa.Table], pa.Table]


class PartedBins:
    """The bins of one basket, in one micro-batch. A bin that becomes large is split by groups, and its parts if they become so.

    ``group_columns`` separate the groups; without any, bins are not split. ``compact`` rewrites a bin, or a part of one, that
    has many chunks or dead rows; the rows of a part have hashes.
    """

    def __init__(
        self,
        state: KernelBaskets,
        basket: str,
        compact: Compact,
        group_columns: Sequence[str] = (),
        sizes: BinSizes = SIZES,
    ):
        self.state, self.basket, self.compact = state, basket, compact
        self.group_columns, self.sizes = group_columns, sizes
        self.parts: dict[str, list[str]] = {}
        for name in state.bins(basket):
            self.parts.setdefault(whole_bin(name), []).append(name)

    def __iter__(self) -> Iterator[str]:
        """Yield the bins, each once."""
        return iter(list(self.parts))

    def is_split(self, bin: str) -> bool:
        """True if a bin has been split."""
        return any(map(is_part, self.parts.get(bin, ())))

    def append(self, bin: str, rows: pa.Table) -> None:
        """Add rows to a bin, as a chunk to each part that has some of them."""
        names = self.parts.get(bin, [])
        bits = _bits_and_part(names[0])[0] if names else 0
        stored = rows.num_rows + sum(self.state.filled(self.basket, name).stored for name in names)
        if not self.group_columns or (not bits and stored <= self.sizes.whole_upto):
            self._append_chunk(bin, bin, rows)
            return
        further = max(1, bits, min(MOST_BITS, int(np.ceil(np.log2(max(1, stored) / self.sizes.split_above)))))
        rows = with_hashes(rows, self.group_columns)
        if further > bits:
            held = [with_hashes(t, self.group_columns) for name in names if (t := self._read(name)) is not None]
            rows = concat([*held, rows])
            self.drop(bin)
        rows = _sort_by_hash(rows)
        part_of = (rows.column(HASH).to_numpy() >> np.uint32(BITS - further)).astype(np.int64)
        for part, mine in split_by(rows, part_of):
            self._append_chunk(bin, f"{bin}:{further}.{part}", mine)

    def read(self, bin: str) -> pa.Table | None:
        """Return the rows of a bin, None if it is empty. They are without hashes, and may be in chunks that are not compacted."""
        tables = [table for name in self.parts.get(bin, ()) if (table := self._read(name)) is not None]
        return without_hashes(concat(tables)) if tables else None

    def read_groups(self, bin: str, hashes: GroupHashes) -> pa.Table | None:
        """Return the rows of a bin that has been split, of the groups with these hashes, without decoding others.

        ``hashes`` are in order, each once. Rows are as in :meth:`read`; None if there are none.
        """
        tables = []
        for name in self.parts[bin]:
            if len(mine := hashes_in(name, hashes)):
                decode = partial(decode_rows, by=HASH, choose=partial(_is_among, some=mine))
                tables.append(self.state.baskets.decoded(self.state.encoded(self.basket, name), decode))
        some = [without_hashes(table) for table in tables if table is not None and table.num_rows]
        return concat(some) if some else None

    def read_touched(self, bin: str, hashes: Callable[[], GroupHashes]) -> pa.Table | None:
        """Return the rows of a bin; of one that has been split those of the groups with ``hashes``, which others do not need."""
        return self.read_groups(bin, hashes()) if self.is_split(bin) else self.read(bin)

    def drop(self, bin: str) -> None:
        """Remove a bin with all its parts, if it exists."""
        for name in self.parts.pop(bin, ()):
            self.state.drop(self.basket, name)

    def _read(self, name: str) -> pa.Table | None:
        """Return the rows of a bin or part as they are stored; one with many chunks is rewritten."""
        return self.state.read(self.basket, name, lambda rows: _sort_by_hash(self.compact(rows)))

    def _append_chunk(self, bin: str, name: str, rows: pa.Table) -> None:
        """Add rows to a bin, or a part of one, as a chunk; it is rewritten if it has many chunks for its rows, or dead ones."""
        names = self.parts.setdefault(bin, [])
        if name not in names:
            names.append(name)
        live = live_rows(rows)
        most = (
            self.sizes.compact_at * (1 if is_part(name) else SELDOM)
            + self.state.filled(self.basket, name).stored // FULL
        )
        if not self.state.needs_rewrite(self.basket, name, rows.num_rows, live, most=most, small=0):
            self.state.append(self.basket, name, rows, live)
            return
        before = self.state.read(self.basket, name)
        if before is not None:
            rows = _sort_by_hash(self.compact(concat([before, rows])))
        self.state.replace(self.basket, name, rows, live_rows(rows))


def whole_bin(name: str) -> str:
    """Return the name of the bin that a part belongs to; that of a bin is its own."""
    return name.partition(":")[0]


def is_part(name: str) -> bool:
    """Return True for a part of a bin that has been split, so that its rows have the hashes of their groups."""
    return whole_bin(name) != name


def hashes_in(name: str, hashes: GroupHashes) -> GroupHashes:
    """Return the hashes that rows of a part of a bin may have, of hashes in order."""
    bits, part = _bits_and_part(name)
    bounds = np.array([part, part + 1], np.uint64) << np.uint64(BITS - bits)
    first, last = np.searchsorted(hashes.astype(np.uint64), bounds)
    return hashes[first:last]


def without_hashes(table: pa.Table) -> pa.Table:
    """Return rows without the hashes of their groups."""
    return table.drop_columns([HASH]) if HASH in table.column_names else table


def _sort_by_hash(rows: pa.Table) -> pa.Table:
    """Return the rows of a part in order of hashes; other rows as they are."""
    if HASH not in rows.column_names:
        return rows
    return rows.take(pa.array(np.argsort(rows.column(HASH).to_numpy(), kind="stable")))


def _is_among(hashes: pa.ChunkedArray, some: GroupHashes) -> Mask:
    """Mark the hashes, in order, that are among some others."""
    values = hashes.to_numpy()
    _, place = expand_ranges(np.searchsorted(values, some), np.searchsorted(values, some, "right") - 1)
    is_among = np.zeros(len(values), bool)
    is_among[place] = True
    return is_among


def _bits_and_part(name: str) -> tuple[int, int]:
    """Return the number of bits by which a bin has been split, 0 if it has not been, and those that its hashes begin with."""
    bits, _, part = name.partition(":")[2].partition(".")
    return (int(bits), int(part)) if bits else (0, 0)


__all__ = ["SIZES", "Compact", "PartedBins", "hashes_in", "is_part", "whole_bin", "without_hashes"]
