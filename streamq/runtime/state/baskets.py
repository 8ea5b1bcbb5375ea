"""Baskets: a kernel's state, as named columnar buffers cut into bins of Arrow chunks (DataCell, section 2).

Rows are appended as a chunk; a bin with many chunks, or dead rows, is rewritten when it gets rows or is read; a bin is dropped as
a whole once progress has passed it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, decode_rows, decode_small, encode_small
from streamq.runtime.deltas import live_rows
from streamq.runtime.groups import HASH, GroupHashes, is_among
from streamq.time import INFINITY, MINUS_INFINITY

COMPACT_AT = 8
"""The number of chunks from which a bin is rewritten; bins of many rows may have more (``Basket.needs_rewrite``)."""
UNREAD = 8
"""The factor by which a bin may have more chunks as long as nobody reads it."""
CHUNK_ROWS = 2_048
"""The number of rows for which a bin may have one more chunk: the more rows it has, the less often it is rewritten."""
CHUNK_BYTES = 1 << 20
"""The size above which a chunk is cut into several, because huge state values are slow to move."""
SMALL = 1 << 13
"""The bytes up to which a bin that has been read is rewritten, because that costs less than to read several chunks later."""

AGENDA = "agenda"
"""The basket in which a kernel notes what its groups wait for."""

COUNTS = "counts"
"""The basket of the numbers of candidates by group: see :class:`CandidateCounts`."""

ENDS = "ends"
"""The basket of endpoints that bound the windows of lifetimes without an end."""


CELLS = 16
"""The number of bins for the starts of the first rows with several starts; it sets how wide bins are, or cells of hashes."""


def grain(least: int, most: int, bins: int) -> int:
    """Return log2, rounded down, of the width of so many bins over a span; 0 for a span shorter than that."""
    return int(np.log2(max(1.0, (most - least) / bins)))


Span = tuple[int, int]
"""The first and the last instant, or number of a window, of some rows."""

UNKNOWN: Span = (INFINITY, MINUS_INFINITY)
"""The span of rows without instants."""

Compact = Callable[[pa.Table], pa.Table]
"""A function that adds up the rows of a bin, so that these are fewer."""
Decoder = Callable[[bytes], pa.Table]


class Store(Protocol):
    """A store of chunks: a dict in-process, Spark's MapState on a cluster."""

    def __contains__(self, key: str) -> bool: ...

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...

    def remove(self, key: str) -> None: ...


class DictStore:
    """Chunks in memory."""

    def __init__(self, held: dict[str, bytes] | None = None):
        self.held = {} if held is None else held

    def __contains__(self, key: str) -> bool:
        return key in self.held

    def get(self, key: str) -> bytes | None:
        return self.held.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.held[key] = value

    def remove(self, key: str) -> None:
        del self.held[key]


@dataclass(eq=False, repr=False)
class Bin:
    """The facts about a bin that are known without reading it.

    These are its chunks, live rows, rows stored and bytes, and the instants that they span.
    Where later chunks take back rows of earlier ones, live are those that are left. ``first`` and ``last`` bound the instants, or
    numbers of windows, of all rows that it has had. ``notes`` are JSON-like values of those who place rows.
    """

    chunks: int = 0
    rows: int = 0
    stored: int = 0
    bytes: int = 0
    first: int = INFINITY
    last: int = MINUS_INFINITY
    notes: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class TimeBinSizes:
    """Sizes of bins of time, in live rows: ``most`` above which one is divided, ``few`` up to which the first one may stay."""

    most: int = 2_048
    few: int = 256


@dataclass(frozen=True)
class BinSizes:
    """The sizes at which bins are treated otherwise.

    split_above: the number of live events above which a bin is split. whole_upto: the number up to which all groups of an opened
    bin are evaluated, or a bin of time is not split, because that costs less than to tell groups apart. slack: the number of
    settled events that a bin may always hold. awake_upto: the number of events of a group up to which none of them sleeps.
    slot_parts: the slots in which events sleep are so narrow (``condensing.slots``). block_rank: a block merges
    ``2**block_rank`` basic windows, or smaller blocks. blocks_above: the number of rows of basic windows above which there are
    blocks.
    """

    split_above: int = 32_768
    whole_upto: int = 512
    slack: int = 64
    awake_upto: int = 256
    slot_parts: int = 2
    block_rank: int = 3
    blocks_above: int = 32_768


SIZES = BinSizes(whole_upto=8_192)
"""The sizes of bins of time that are split by group."""


@dataclass(eq=False, repr=False)
class Work:
    """The bins, and the rows of them, that have been read; and the processor time in microseconds that it took."""

    bins: int = 0
    rows: int = 0
    cpu_us: int = 0


class Baskets:
    """The baskets of one bucket; ``values`` holds small JSON-like values beside them, ``scopes`` those of each scope.

    ``counts`` are those of the bins of each basket, oldest first, by its full name, which begins with its scope; no basket is
    empty. ``flush`` makes changes durable.
    """

    MANIFEST = "manifest"

    def __init__(self, store: Store, time_bins: TimeBinSizes | None = None):
        """Read values, and counts of bins, from the manifest in ``store``; without one there are none.

        ``time_bins`` are the sizes of bins of time; None: the usual ones.
        """
        self.store, self.work, self.time_bins = store, Work(), time_bins or TimeBinSizes()
        # Spark logs a warning when a missing value is read
        body = store.get(self.MANIFEST) if self.MANIFEST in store else None
        manifest = json.loads(body) if body else {"values": {}, "scopes": {}, "bins": {}}
        self.values: dict[str, Any] = manifest["values"]
        self.scopes: dict[str, dict[str, Any]] = manifest["scopes"]
        self.counts: dict[str, dict[str, Bin]] = {
            basket: {name: Bin(*counts) for name, counts in bins.items()} for basket, bins in manifest["bins"].items()
        }

    def scoped(self, prefix: str) -> KernelBaskets:
        """Return the baskets of one kernel of the stage."""
        return KernelBaskets(self, prefix)

    def drop_scope(self, prefix: str) -> None:
        """Remove a scope, with its values and baskets; nothing happens if there is none."""
        scope = self.scoped(prefix)
        for name in scope.names():
            scope.drop_basket(name)
        del self.scopes[prefix]

    def flush(self) -> None:
        """Write the manifest, as the last step of a micro-batch."""
        manifest = {"values": self.values, "scopes": self.scopes, "bins": self.counts}
        text = json.dumps(manifest, default=lambda bin: list(vars(bin).values()), separators=(",", ":"))
        self.store.put(self.MANIFEST, text.encode())


class KernelBaskets:
    """One kernel's baskets, which are those of its bucket whose names begin with ``prefix``."""

    def __init__(self, baskets: Baskets, prefix: str):
        self.baskets, self.prefix = baskets, prefix
        self.values: dict[str, Any] = baskets.scopes.setdefault(prefix, {})

    def names(self) -> list[str]:
        """Return the baskets that are not empty."""
        prefix = f"{self.prefix}."
        return [name.removeprefix(prefix) for name in self.baskets.counts if name.startswith(prefix)]

    def basket(self, name: str) -> Basket:
        """Return a basket, as nobody has read it yet."""
        return Basket(self.baskets, f"{self.prefix}.{name}")

    def size(self, basket: str = "") -> tuple[int, int]:
        """Return live rows and bytes, as counted when written, of the baskets whose names begin with ``basket``, or of all.

        Of all baskets, the rows of AGENDA, COUNTS and ENDS are no events, and do not count.
        """
        bins = [(name, bin) for name in self.names() if name.startswith(basket) for bin in self.basket(name).counts()]
        notes = () if basket else (AGENDA, COUNTS, ENDS)
        return sum(bin.rows for name, bin in bins if not name.startswith(notes)), sum(bin.bytes for _, bin in bins)

    def drop_columns(self, names: tuple[str, ...]) -> None:
        """Remove the columns whose names begin with one of ``names`` from all rows."""
        for basket in map(self.basket, self.names()):
            for bin in basket:
                table = basket.read(bin)
                gone = [] if table is None else [name for name in table.column_names if name.startswith(names)]
                if table is not None and gone:
                    basket.replace(bin, table.drop_columns(gone), basket.known(bin).rows)

    def read_all(self, name: str) -> pa.Table | None:
        """Return the rows of all bins of a basket, None if it is empty."""
        basket = self.basket(name)
        tables = [table for bin in basket if (table := basket.read(bin)) is not None]
        return concat(tables) if tables else None

    def drop_basket(self, name: str) -> None:
        """Remove all bins of a basket."""
        basket = self.basket(name)
        for bin in basket:
            basket.drop(bin)


class Basket:
    """A basket: named bins, each of several chunks; who places rows in bins does so by these methods alone.

    What has been read of a bin stays at hand as long as this object does.
    """

    def __init__(self, baskets: Baskets, name: str):
        self.baskets, self.name = baskets, name
        self._chunks: dict[str, list[bytes]] = {}
        self._rows: dict[str, pa.Table | None] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield the bins that are not empty, oldest first."""
        return iter(list(self.baskets.counts.get(self.name, ())))

    def counts(self) -> Iterable[Bin]:
        """Return what is known of each bin."""
        return self.baskets.counts.get(self.name, {}).values()

    def known(self, bin: str) -> Bin:
        """Return what is known of a bin without reading it."""
        return self.baskets.counts.get(self.name, {}).get(bin) or Bin()

    # reading

    def is_read(self, bin: str) -> bool:
        """Return True if all rows of a bin are at hand."""
        return bin in self._rows or not self.known(bin).chunks

    def read(self, bin: str, compact: Compact | None = None) -> pa.Table | None:
        """Return the rows of a bin, None if it is empty; if it needs that, it is rewritten by ``compact``, and these returned."""
        if bin not in self._rows:
            self._rows[bin] = self._decoded(self._encoded(bin), decode_small)
            self._chunks.pop(bin, None)
        rows = self._rows[bin]
        if rows is not None and compact is not None and self.needs_rewrite(bin):
            rows = compact(rows)
            self.replace(bin, rows)
        return rows

    def read_groups(self, bin: str, hashes: GroupHashes, compact: Compact | None = None) -> pa.Table | None:
        """Return the rows of a bin of the groups with these hashes, without decoding others unless all have been read.

        The hashes are in order. None if the bin is empty; it is rewritten as :meth:`read` does.
        """
        choose = partial(is_among, some=hashes)
        if bin not in self._rows:
            bodies = self._encoded(bin)
            if compact is None or not bodies or not self.needs_rewrite(bin):
                return self._decoded(bodies, partial(decode_rows, by=HASH, choose=choose))
        rows = self.read(bin, compact)
        return None if rows is None else rows.filter(pa.array(choose(rows.column(HASH))))

    def _encoded(self, bin: str) -> list[bytes]:
        """Return the chunks of a bin as they are stored. Raises RuntimeError if the store lacks one."""
        if bin not in self._chunks:
            bodies = [self.baskets.store.get(f"{self.name}/{bin}/{seq}") for seq in range(self.known(bin).chunks)]
            if None in bodies:
                raise RuntimeError(f"basket {self.name}/{bin}: chunk {bodies.index(None)} is gone from the state store")
            self._chunks[bin] = [body for body in bodies if body is not None]
            self.baskets.work.bins += bool(bodies)
        return self._chunks[bin]

    def _decoded(self, bodies: Sequence[bytes], decode: Decoder) -> pa.Table | None:
        """Return the rows that ``decode`` returns of some chunks; None if there are no chunks."""
        if not bodies:
            return None
        table = concat([decode(body) for body in bodies])
        self.baskets.work.rows += table.num_rows
        return table

    # writing

    def append(self, bin: str, table: pa.Table, live: int | None = None, span: Span = UNKNOWN) -> None:
        """Add rows to a bin, as one chunk, or as several if they are large; an empty table adds none.

        ``live`` is the number of live rows that they add; None: their weight, or as many as they are if they have none. ``span``
        bounds their instants, or numbers of windows.
        """
        if table.num_rows == 0:
            return
        is_read = self.is_read(bin)
        known = self.baskets.counts.setdefault(self.name, {}).setdefault(bin, Bin())
        rows = max(1, CHUNK_BYTES * table.num_rows // max(1, table.nbytes))
        for at in range(0, table.num_rows, rows):
            body = encode_small(table.slice(at, rows))
            self.baskets.store.put(f"{self.name}/{bin}/{known.chunks}", body)
            known.chunks += 1
            known.bytes += len(body)
        known.stored += table.num_rows
        known.rows += live_rows(table) if live is None else live
        known.first, known.last = min(known.first, span[0]), max(known.last, span[1])
        self._chunks.pop(bin, None)
        if is_read:
            before = self._rows.get(bin)
            self._rows[bin] = table if before is None else concat([before, table])

    def needs_rewrite(self, bin: str, rows: int = 0, live: int = 0) -> bool:
        """Return True if a bin is to be rewritten, with rows to add if there are any, as it has too many chunks or dead rows.

        These are more dead rows than live ones, or COMPACT_AT chunks beside those that its rows and bytes need: UNREAD times as
        many if the bin has not been read. If it has been, it is rewritten with rows to add as long as it is SMALL.
        """
        known, is_read = self.known(bin), bin in self._rows or bin in self._chunks
        most = COMPACT_AT if is_read else UNREAD * COMPACT_AT
        needed = known.stored // CHUNK_ROWS + 3 * (known.bytes // CHUNK_BYTES)
        has_dead_rows = known.stored + rows > 2 * (known.rows + live)
        return has_dead_rows or known.chunks >= most + needed or (is_read and rows > 0 and known.bytes <= SMALL)

    def add(self, bin: str, rows: pa.Table, compact: Compact, live: int | None = None, span: Span = UNKNOWN) -> None:
        """Add rows to a bin as a chunk, or rewrite it with them by ``compact`` if it needs that.

        ``live`` and ``span`` as in :meth:`append`.
        """
        live = live_rows(rows) if live is None else live
        if not self.needs_rewrite(bin, rows.num_rows, live):
            self.append(bin, rows, live, span)
            return
        held = self.read(bin)
        self.replace(bin, compact(rows if held is None else concat([held, rows])), span=span)

    def replace(self, bin: str, table: pa.Table, live: int | None = None, span: Span = UNKNOWN) -> None:
        """Replace the rows of a bin; ``live`` as in :meth:`append`, ``span`` beside that of the bin so far, notes stay."""
        before = self.drop(bin)
        self.append(bin, table, live, (min(before.first, span[0]), max(before.last, span[1])))
        self.known(bin).notes = before.notes

    def drop(self, bin: str) -> Bin:
        """Remove a bin with its chunks, if it exists; return what was known of it."""
        bins = self.baskets.counts.get(self.name, {})
        dropped = bins.pop(bin, Bin())
        for seq in range(dropped.chunks):
            self.baskets.store.remove(f"{self.name}/{bin}/{seq}")
        if not bins:
            self.baskets.counts.pop(self.name, None)
        self._rows[bin] = None
        self._chunks.pop(bin, None)
        return dropped
