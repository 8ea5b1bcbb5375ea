"""Baskets: a kernel's state, as named columnar buffers cut into bins of Arrow chunks (DataCell, section 2).

A chunk is appended, and later rows never rewrite it; a bin with many chunks is compacted when it is read; a bin is dropped as a
whole once progress has passed it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import concat, decode_small, encode_small

COMPACT_AT = 8
"""The number of chunks above which reading a bin rewrites it; bins of full chunks may have more (``crowded``)."""
CHUNK_BYTES = 1 << 20
"""The size above which a chunk is cut into several, because huge state values are slow to move."""


AGENDA = "agenda"
"""The basket in which a kernel notes what its groups wait for."""

COUNTS = "counts"
"""The basket of the numbers of candidates by group: see :class:`CandidateCounts`."""

TIME_BINS = " bins"
"""The text behind a basket's name, in the name of the value that describes its bins of time."""

ENDS = "ends"
"""The basket of endpoints that bound the windows of lifetimes without an end."""


def grain(least: int, most: int, bins: int) -> int:
    """Return log2, rounded down, of the width of so many bins over a span; 0 for a span shorter than that."""
    return int(np.log2(max(1.0, (most - least) / bins)))


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
    """The counts of a bin, kept as its chunks are written: chunks, live rows, rows stored and bytes.

    Where later chunks take back rows of earlier ones, live are those that are left.
    """

    chunks: int = 0
    rows: int = 0
    stored: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class TimeBinSizes:
    """Sizes of bins of time, in live rows: ``most`` above which one is divided, ``few`` up to which the first one may stay."""

    most: int = 2_048
    few: int = 256


@dataclass(eq=False, repr=False)
class Work:
    """The bins, and the rows of them, that have been read; and the processor time in microseconds that it took."""

    bins: int = 0
    rows: int = 0
    cpu_us: int = 0


class Baskets:
    """The baskets of one bucket; ``values`` holds small JSON-like values beside them, ``scopes`` those of each scope.

    ``flush`` makes changes durable.
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
        self._bins: dict[str, dict[str, Bin]] = {
            basket: {name: Bin(**fields) for name, fields in bins.items()} for basket, bins in manifest["bins"].items()
        }

    def scoped(self, prefix: str) -> KernelBaskets:
        """Return the baskets of one kernel of the stage."""
        return KernelBaskets(self, prefix)

    def drop_scope(self, prefix: str) -> None:
        """Remove a scope, with its values and baskets; nothing happens if there is none."""
        self.scopes.pop(prefix, None)
        for basket in [name for name in self._bins if name.startswith(f"{prefix}.")]:
            for bin in self.bins(basket):
                self.drop(basket, bin)

    def bins(self, basket: str) -> list[str]:
        """Return the bins that are not empty, oldest first."""
        return list(self._bins.get(basket, {}))

    def append(self, basket: str, bin: str, table: pa.Table, live: int | None = None) -> None:
        """Add rows to a bin, as one chunk, or as several if they are large; an empty table adds none.

        ``live`` is the number of live rows that they add; None: as many as they are.
        """
        if table.num_rows == 0:
            return
        filled = self._bins.setdefault(basket, {}).setdefault(bin, Bin())
        rows = max(1, CHUNK_BYTES * table.num_rows // max(1, table.nbytes))
        for at in range(0, table.num_rows, rows):
            body = encode_small(table.slice(at, rows))
            self.store.put(f"{basket}/{bin}/{filled.chunks}", body)
            filled.chunks += 1
            filled.bytes += len(body)
        filled.stored += table.num_rows
        filled.rows += table.num_rows if live is None else live

    def filled(self, basket: str, bin: str) -> Bin:
        """Return the counts of a bin."""
        return self._bins.get(basket, {}).get(bin, Bin())

    def names(self, prefix: str) -> list[str]:
        """Return the baskets with this prefix that are not empty."""
        return [name for name in self._bins if name.startswith(prefix)]

    def size(self, prefix: str) -> tuple[int, int]:
        """Return live rows and bytes of the baskets with this prefix, as counted when written; no chunk is read."""
        every = [b for name, bins in self._bins.items() if name.startswith(prefix) for b in bins.values()]
        return sum(b.rows for b in every), sum(b.bytes for b in every)

    def read(self, basket: str, bin: str) -> pa.Table | None:
        """Return the rows of a bin; None if it is empty. Raises RuntimeError if the store lacks a chunk."""
        return self.decoded(self.encoded(basket, bin), decode_small)

    def encoded(self, basket: str, bin: str) -> list[bytes]:
        """Return the chunks of a bin as they are stored. Raises RuntimeError if the store lacks one."""
        bodies = []
        for seq in range(self.filled(basket, bin).chunks):
            body = self.store.get(f"{basket}/{bin}/{seq}")
            if body is None:
                raise RuntimeError(f"basket {basket}/{bin}: chunk {seq} is gone from the state store")
            bodies.append(body)
        self.work.bins += bool(bodies)
        return bodies

    def decoded(self, bodies: Sequence[bytes], decode: Decoder) -> pa.Table | None:
        """Return the rows that ``decode`` returns of some chunks; None if there are no chunks."""
        if not bodies:
            return None
        table = concat([decode(body) for body in bodies])
        self.work.rows += table.num_rows
        return table

    def drop(self, basket: str, bin: str) -> None:
        """Remove a bin with its chunks, if it exists."""
        for seq in range(self._bins.get(basket, {}).pop(bin, Bin()).chunks):
            self.store.remove(f"{basket}/{bin}/{seq}")
        if not self._bins.get(basket, True):
            del self._bins[basket]

    def replace(self, basket: str, bin: str, table: pa.Table, live: int | None = None) -> None:
        """Replace the rows of a bin; ``live`` as in :meth:`append`."""
        self.drop(basket, bin)
        self.append(basket, bin, table, live)

    def flush(self) -> None:
        """Write the manifest, as the last step of a micro-batch."""
        text = json.dumps(
            {"values": self.values, "scopes": self.scopes, "bins": self._bins}, default=vars, separators=(",", ":")
        )
        self.store.put(self.MANIFEST, text.encode())


class KernelBaskets:
    """One kernel's view of its bucket's baskets."""

    def __init__(self, baskets: Baskets, prefix: str):
        self.baskets, self.prefix = baskets, prefix
        self.values: dict[str, Any] = baskets.scopes.setdefault(prefix, {})

    def size(self, basket: str = "") -> tuple[int, int]:
        """Return live rows and bytes of the baskets whose names begin with ``basket``; by default of all.

        The rows of AGENDA, COUNTS and ENDS are no events, and do not count.
        """
        rows, size = self.baskets.size(f"{self.prefix}.{basket}")
        notes = () if basket else (AGENDA, COUNTS, ENDS)
        return rows - sum(self.baskets.size(f"{self.prefix}.{name}")[0] for name in notes), size

    def bins(self, basket: str) -> list[str]:
        """Return the bins of a basket."""
        return self.baskets.bins(f"{self.prefix}.{basket}")

    def append(self, basket: str, bin: str, table: pa.Table, live: int | None = None) -> None:
        """Add rows to a bin; ``live`` of them are live, by default all."""
        self.baskets.append(f"{self.prefix}.{basket}", bin, table, live)

    def drop(self, basket: str, bin: str) -> None:
        """Remove a bin."""
        self.baskets.drop(f"{self.prefix}.{basket}", bin)

    def drop_basket(self, basket: str) -> None:
        """Remove all bins of a basket, of time or not."""
        for bin in self.bins(basket):
            self.drop(basket, bin)
        self.values.pop(f"{basket}{TIME_BINS}", None)

    def replace(self, basket: str, bin: str, table: pa.Table, live: int | None = None) -> None:
        """Replace the rows of a bin; ``live`` of them are live, by default all."""
        self.baskets.replace(f"{self.prefix}.{basket}", bin, table, live)

    def read(self, basket: str, bin: str, compact: Callable[[pa.Table], pa.Table] | None = None) -> pa.Table | None:
        """Return the rows of a bin, None if it is empty; if it has many chunks, rewrite it by ``compact`` and return those."""
        name = f"{self.prefix}.{basket}"
        table = self.baskets.read(name, bin)
        if table is not None and compact is not None and self.crowded(basket, bin, table, COMPACT_AT - 1):
            table = compact(table)
            self.baskets.replace(name, bin, table)
        return table

    def encoded(self, basket: str, bin: str) -> list[bytes]:
        """Return the chunks of a bin as they are stored."""
        return self.baskets.encoded(f"{self.prefix}.{basket}", bin)

    def filled(self, basket: str, bin: str) -> Bin:
        """Return the counts of a bin."""
        return self.baskets.filled(f"{self.prefix}.{basket}", bin)

    def chunks(self, basket: str, bin: str) -> int:
        """Return the number of chunks of a bin."""
        return self.filled(basket, bin).chunks

    def names(self) -> list[str]:
        """Return the kernel's baskets that are not empty."""
        return [name.removeprefix(f"{self.prefix}.") for name in self.baskets.names(f"{self.prefix}.")]

    def needs_rewrite(self, basket: str, bin: str, rows: int, live: int, *, most: int, small: int) -> bool:
        """Return True if a bin is to be rewritten together with rows to add, as it would have too many chunks or dead rows.

        These are more than ``most`` chunks, or more dead rows than live ones. So is a bin of at most ``small`` bytes, because
        that costs less than reading several chunks later.
        """
        filled = self.filled(basket, bin)
        is_dead = filled.stored + rows > 2 * (filled.rows + live)
        return is_dead or filled.bytes <= small or self.chunks(basket, bin) >= most + 3 * (filled.bytes // CHUNK_BYTES)

    def crowded(self, basket: str, bin: str, table: pa.Table, most: int) -> bool:
        """Return True if a bin has more than ``most`` chunks, and enough more than its rows need for rewriting to pay.

        ``table`` holds the rows of the bin.
        """
        return self.chunks(basket, bin) > most + 3 * (table.nbytes // CHUNK_BYTES)

    def read_all(self, basket: str, compact: Callable[[pa.Table], pa.Table] | None = None) -> pa.Table | None:
        """Return the rows of all bins of a basket, None if it is empty; bins with many chunks are rewritten by ``compact``."""
        tables = [t for b in self.bins(basket) if (t := self.read(basket, b, compact)) is not None]
        return concat(tables) if tables else None
