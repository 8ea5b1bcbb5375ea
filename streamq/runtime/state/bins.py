"""Bins of time that are split by group, so that a micro-batch reads few rows, and past bins are dropped as a whole.

A bin ``class.cell`` holds the places of one cell of an axis, as wide as the class says: 2 to the power of it. Lifetimes are
placed by start, in cells of the power of two that is next below their length. So few bins hold all live events, however long some
of them live; those that never end have a bin of their own.

A bin with many rows is split by their groups: a part ``bin:bits.part`` holds the rows whose groups' hashes begin with the same
bits, together with these hashes, in the order of which each chunk is stored. All parts of a bin have as many bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, split_by
from streamq.runtime.arrow.values import Ints
from streamq.runtime.deltas import LE, RE
from streamq.runtime.groups import BITS, HASH, GroupHashes, hashes_with, with_hashes
from streamq.runtime.state.baskets import CELLS, SIZES, BinSizes, Compact, KernelBaskets, Span, grain
from streamq.time import INFINITY, MINUS_INFINITY

ENDLESS = "inf"
"""The bin of lifetimes that never end."""
_ENDLESS_CLASS = 64
"""A class that no bin of a cell has."""
MOST = 4 * CELLS
"""The number of bins, parts not counted, above which the least width is doubled, because each bin has a cost of its own."""
MOST_BITS = 8
"""The number of bits up to which bins are split: events of one group stay together, however many they are."""


class Bins:
    """The bins of one basket, in one micro-batch. A bin that becomes large is split by groups, and its parts if they become so.

    ``group_columns`` separate the groups; without any, bins are not split. A bin may have ``sizes.whole_upto`` rows before it is
    split, and its parts ``sizes.split_above`` on average. ``compact`` rewrites a bin, or a part of one, that has many chunks or
    dead rows; the rows of a part have hashes. ``live`` returns how many of new rows are live; None: their weights say so.
    """

    def __init__(
        self,
        state: KernelBaskets,
        basket: str,
        compact: Compact,
        group_columns: Sequence[str] = (),
        sizes: BinSizes = SIZES,
        live: Callable[[pa.Table], int] | None = None,
    ):
        self.values, self.basket, self.compact, self.live = state.values, state.basket(basket), compact, live
        self.group_columns, self.sizes = group_columns, sizes
        self.parts: dict[str, list[str]] = {}
        for name in self.basket:
            self.parts.setdefault(whole_bin(name), []).append(name)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.parts))

    # writing

    def hold(self, table: pa.Table) -> None:
        """Add lifetimes to bins by length and start; a bin spans the instants from the least start to the greatest end.

        As long as there are then more than MOST bins of the least width, the width is doubled and their rows, compacted, move to
        wider bins.
        """
        if not table.num_rows:
            return
        width = self._least_width(ints(table, LE))
        self._place_lifetimes(table, width)
        while len(fine := [bin for bin in self if bin != ENDLESS and class_of(bin) <= width]) > MOST:
            width += 1
            self.values["grain"] = width
            rows = [rows for bin in fine if (rows := self.read(bin)) is not None]
            for bin in fine:
                self.drop(bin)
            self._place_lifetimes(self.compact(concat(rows)), width)

    def place(
        self,
        table: pa.Table,
        at: Ints,
        classes: Ints,
        span: tuple[Ints, Ints] | None = None,
        packed: Compact | None = None,
    ) -> None:
        """Add rows to bins by their places ``at``, INFINITY for ENDLESS; ``classes`` are those of the bins of others.

        ``span``: the first and the last instant of each row; None: its place. ``packed`` returns rows as they are stored.
        """
        if not len(at):
            return
        first, last = (at, at) if span is None else span
        classes = np.where(at == INFINITY, _ENDLESS_CLASS, classes)
        cells = np.stack([classes, at >> np.minimum(classes, 63)], axis=1)
        bins, number = np.unique(cells, axis=0, return_inverse=True)
        for n, (width, cell) in enumerate(bins):
            is_in_it = number.reshape(-1) == n
            rows = table.filter(pa.array(is_in_it))
            bin = ENDLESS if width == _ENDLESS_CLASS else f"{width}.{cell}"
            bounds = int(first[is_in_it].min()), int(last[is_in_it].max())
            self.append(bin, rows if packed is None else packed(rows), bounds)

    def append(self, bin: str, rows: pa.Table, span: Span) -> None:
        """Add rows to a bin, as a chunk to each part that has some of them; ``span`` bounds their instants."""
        names = self.parts.get(bin, [])
        bits = _bits_and_part(names[0])[0] if names else 0
        stored = (rows.num_rows if self.live is None else self.live(rows)) + self.stored(bin)
        if not self.group_columns or (not bits and stored <= self.sizes.whole_upto):
            self._add(bin, bin, rows, span)
            return
        further = max(1, bits, min(MOST_BITS, int(np.ceil(np.log2(max(1, stored) / self.sizes.split_above)))))
        rows = with_hashes(rows, self.group_columns)
        if further > bits:
            held = [with_hashes(t, self.group_columns) for name in names if (t := self._read(name)) is not None]
            rows = concat([*held, rows])
            first, last = self.span(bin)
            span = min(first, span[0]), max(last, span[1])
            self.drop(bin)
        rows = _sort_by_hash(rows)
        part_of = (rows.column(HASH).to_numpy() >> np.uint32(BITS - further)).astype(np.int64)
        for part, mine in split_by(rows, part_of):
            self._add(bin, f"{bin}:{further}.{part}", mine, span)

    def drop(self, bin: str) -> None:
        for name in self.parts.pop(bin, ()):
            self.basket.drop(name)

    def forget(self, before: int) -> None:
        """Drop the bins all of whose rows are over before an instant; all bins if it is INFINITY."""
        for bin in self:
            if before == INFINITY or self.span(bin)[1] < before:
                self.drop(bin)

    # reading

    def span(self, bin: str) -> Span:
        """Return the first and the last instant, or number of a window, of the rows that a bin has had."""
        parts = [self.basket.known(name) for name in self.parts.get(bin, ())]
        first, last = (part.first for part in parts), (part.last for part in parts)
        return min(first, default=INFINITY), max(last, default=MINUS_INFINITY)

    def stored(self, bin: str) -> int:
        return sum(self.basket.known(name).stored for name in self.parts.get(bin, ()))

    def is_split(self, bin: str) -> bool:
        return any(map(is_part, self.parts.get(bin, ())))

    def read(self, bin: str) -> pa.Table | None:
        """Return the rows of a bin, None if it is empty. They are without hashes, and may be in chunks that are not compacted."""
        tables = [t for name in self.parts.get(bin, ()) if (t := self._read(name)) is not None]
        return without_hashes(concat(tables)) if tables else None

    def read_groups(self, bin: str, hashes: Callable[[], GroupHashes]) -> pa.Table | None:
        """Return the rows of a bin; of one that has been split, those of the groups with these hashes, without decoding others.

        ``hashes`` returns them in order, each once; a bin that has not been split needs none. Rows are as in :meth:`read`; None
        if there are none.
        """
        if not self.is_split(bin):
            return self.read(bin)
        tables, some = [], hashes()
        for name in self.parts[bin]:
            if not len(mine := hashes_with(some, *_bits_and_part(name))):
                continue
            tables.append(self.basket.read_groups(name, mine, self._compacted))
        read = [without_hashes(table) for table in tables if table is not None and table.num_rows]
        return concat(read) if read else None

    # inside

    def _add(self, bin: str, name: str, rows: pa.Table, span: Span) -> None:
        """Add rows to a bin, or a part of one; it is rewritten if it has many chunks for its rows, or dead ones."""
        names = self.parts.setdefault(bin, [])
        if name not in names:
            names.append(name)
        live = None if self.live is None else self.live(rows)
        self.basket.add(name, rows, self._compacted, live, span)

    def _read(self, name: str) -> pa.Table | None:
        return self.basket.read(name, self._compacted)

    def _compacted(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a bin or part added up, in the order in which they are stored."""
        return _sort_by_hash(self.compact(rows))

    def _least_width(self, le: Ints) -> int:
        """Return the least class of bins; the first starts that differ set it, and the state keeps it."""
        width = self.values.get("grain")
        if width is None:
            least, most = int(le.min()), int(le.max())
            width = grain(least, most, CELLS)
            if most > least:
                # events of one instant do not show how dense the stream is
                self.values["grain"] = width
        return int(width)

    def _place_lifetimes(self, table: pa.Table, least_width: int) -> None:
        """Add lifetimes to bins by start and length; ``least_width`` is the least class of the bins."""
        le, re = ints(table, LE), ints(table, RE)
        # modulo 2^64 a length beyond int64 is right; as a float it may be a little too long, which only widens the bin
        length = np.maximum((re.view(np.uint64) - le.view(np.uint64)).astype(np.float64), 1.0)
        classes = np.clip(np.floor(np.log2(length)).astype(np.int64), least_width, 63)
        self.place(table, np.where(re == INFINITY, INFINITY, le), classes, (le, re))


# names of bins


def class_of(bin: str) -> int:
    """Return the class of a bin: the base-2 logarithm of its width."""
    return int(bin.partition(".")[0])


def bin_start(bin: str) -> int:
    """Return the least place of the rows that a bin of a cell can hold."""
    return int(bin.partition(".")[2]) << class_of(bin)


def whole_bin(name: str) -> str:
    """Return the name of the bin that a part belongs to; that of a bin is its own."""
    return name.partition(":")[0]


def is_part(name: str) -> bool:
    """Return True for a part of a bin that has been split, so that its rows have the hashes of their groups."""
    return whole_bin(name) != name


def _bits_and_part(name: str) -> tuple[int, int]:
    """Return the number of bits by which a bin has been split, 0 if it has not been, and those that its hashes begin with."""
    bits, _, part = name.partition(":")[2].partition(".")
    return (int(bits), int(part)) if bits else (0, 0)


def without_hashes(table: pa.Table) -> pa.Table:
    return table.drop_columns([HASH]) if HASH in table.column_names else table


def _sort_by_hash(rows: pa.Table) -> pa.Table:
    """Return the rows of a part in order of hashes; other rows as they are."""
    if HASH not in rows.column_names:
        return rows
    return rows.take(pa.array(np.argsort(rows.column(HASH).to_numpy(), kind="stable")))
