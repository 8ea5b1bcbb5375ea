"""Windows that are computed anew because of late, retracted or early members: by key, without the others of the same groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.columnar import codes, concat, expand_ranges, group, ints, is_matching, with_column
from streamq.runtime.groups import HASH, GroupHashes, with_hashes
from streamq.runtime.range_partials import INDEX
from streamq.runtime.values import Ints, Mask


class TouchedWindows:
    """Windows by key: at least one, each once."""

    def __init__(self, rows: pa.Table, keys: Sequence[str]):
        """``rows`` have the ``keys`` and INDEX, each row once."""
        self.rows, self.keys = rows, list(keys)
        self.index = ints(rows, INDEX)
        self._hashes: GroupHashes | None = None

    @staticmethod
    def of_ranges(rows: pa.Table, keys: Sequence[str], low: Ints, high: Ints) -> TouchedWindows | None:
        """Return the windows ``low..high`` of each row's key, which may be empty ranges; None if all are."""
        inside = low <= high
        if not inside.any():
            return None
        which, index = expand_ranges(low[inside], high[inside])
        windows = rows.select(list(keys)).filter(pa.array(inside)).take(pa.array(which)) if keys else None
        windows = pa.table({INDEX: index}) if windows is None else with_column(windows, INDEX, index)
        return TouchedWindows(group(windows, [*keys, INDEX], {}), keys)

    @staticmethod
    def of_all(some: Sequence[TouchedWindows | None]) -> TouchedWindows | None:
        """Return all of some windows, each once; None if there are none."""
        parts = [windows for windows in some if windows is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        keys = parts[0].keys
        return TouchedWindows(group(concat([one.rows for one in parts]), [*keys, INDEX], {}), keys)

    def up_to(self, last: int) -> TouchedWindows | None:
        """Return the windows up to ``last``; None if there are none."""
        rows = self.rows.filter(pc.less_equal(self.rows.column(INDEX), last))
        return TouchedWindows(rows, self.keys) if rows.num_rows else None

    def are_among(self, first: int, last: int) -> bool:
        """Return True if one of the windows is among ``first..last``."""
        return bool(((self.index >= first) & (self.index <= last)).any())

    def hashes(self, first: int, last: int) -> GroupHashes:
        """Return the hashes of the groups with windows among ``first..last``, each once and in order."""
        if self._hashes is None:
            self._hashes = with_hashes(self.rows, self.keys).column(HASH).to_numpy()
        return np.unique(self._hashes[(self.index >= first) & (self.index <= last)])

    def has(self, rows: pa.Table) -> Mask:
        """Mark the rows, with keys and INDEX, that are of one of the windows."""
        return is_matching(rows, self.rows, [*self.keys, INDEX])

    def places(self, partials: pa.Table, low: Ints, high: Ints) -> tuple[TouchedWindows, Ints, Ints]:
        """Return the windows in order of groups, and the places in it of those that each range of windows of a group covers.

        These are ``first..last``; first > last: the range covers none. ``partials`` have the keys, ``low`` and ``high`` are their
        ranges.
        """
        number = np.zeros(len(self.index) + len(low), np.int64)
        if self.keys:
            mine = self.rows.select(self.keys)
            number, _ = codes(concat([mine, partials.select(self.keys).cast(mine.schema)]), self.keys)
        mine_of, of_range = np.split(number, [len(self.index)])
        steps = np.unique(self.index)
        place = mine_of * (len(steps) + 1) + np.searchsorted(steps, self.index)
        order = np.argsort(place)
        place, of_range = place[order], of_range * (len(steps) + 1)
        first = np.searchsorted(place, of_range + np.searchsorted(steps, low))
        last = np.searchsorted(place, of_range + np.searchsorted(steps, high, "right")) - 1
        return TouchedWindows(self.rows.take(pa.array(order)), self.keys), first, last
