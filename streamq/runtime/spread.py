"""The spread of a kernel's rows over buckets, when their number changes: the bucket of each row that its state keeps.

A row of an input has the columns that choose its bucket. A row of the result is in the bucket of the events behind it; where none
of its columns tell, an event of the same bucket that agrees with it in the columns that both have shows the bucket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.bucket import buckets_of
from streamq.runtime.columnar import codes, concat
from streamq.runtime.values import Ints


@dataclass(frozen=True, kw_only=True)
class Events:
    """Events in a basket of a kernel's state, rows of the input ``port``, by which rows without a key find their bucket.

    columns: those in which a row and its event agree, by the row's names.
    """

    basket: str
    port: int = 0
    columns: Mapping[str, str]


@dataclass(frozen=True)
class Spread:
    """The spread of one kernel's rows over ``buckets``.

    hashed: by port, the columns whose values choose a row's bucket; result: the columns of its result that do so, None if no
    columns do.
    """

    buckets: int
    hashed: tuple[tuple[str, ...], ...]
    result: tuple[str, ...] | None

    @property
    def is_whole(self) -> bool:
        """True if all rows are in one bucket."""
        return self.buckets == 1 or not any(self.hashed)

    def of_input(self, rows: pa.Table, port: int = 0) -> Ints:
        """Return the bucket of each row of an input."""
        return buckets_of(rows, self.hashed[port], self.buckets)

    def of_result(self, rows: pa.Table, state: KernelBaskets, events: Events | None) -> Ints:
        """Return the bucket of each row of the result; ``events`` in ``state`` show it if no columns do.

        Rows whose events are gone, or of a kernel without such events, are never taken back: any bucket may have them.
        """
        if self.is_whole:
            return np.zeros(rows.num_rows, np.int64)
        if self.result is not None:
            return buckets_of(rows, self.result, self.buckets)
        held = None if events is None else state.read_all(events.basket)
        if events is None or held is None or not rows.num_rows:
            return np.zeros(rows.num_rows, np.int64)
        keys = {name: other for name, other in events.columns.items() if name in rows.column_names}
        theirs = held.select(list(keys.values())).rename_columns(list(keys))
        number, first = codes(concat([rows.select(list(keys)).cast(theirs.schema), theirs]), list(keys))
        places = np.full(len(first), self.buckets, np.int64)
        np.minimum.at(places, number[rows.num_rows :], self.of_input(held, events.port))
        return places[number[: rows.num_rows]] % self.buckets


__all__ = ["Events", "Spread"]
