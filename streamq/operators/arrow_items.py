"""The rows of an Arrow table as a source's items: instants in ticks, and why a row is no event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.errors import NeedsSpark, sentence
from streamq.runtime.event import LE, RE, start_reasons
from streamq.time import INFINITY, show_ticks


class ArrowItems:
    """Technical ``columns`` of items (``__le`` and others), and a ``reason`` a row: NULL where it is an event."""

    def __init__(self, columns: Mapping[str, pa.Array]):
        self.columns = columns
        self.reason: Any = pa.nulls(len(columns[LE]), pa.string())

    def refuse(self, is_wrong: Any, why: str) -> None:
        """Items that are no events, for a reason, unless an earlier one is there."""
        is_first = pc.and_(pc.is_null(self.reason), pc.fill_null(is_wrong, False))
        self.reason = pc.if_else(is_first, why, self.reason)

    def refuse_starts(self, last: int = INFINITY - 1, but: Any = None) -> None:
        """Items that have no instant to start at, up to ``last``; ``but`` those of a mask."""
        reasons = start_reasons(self.columns[LE], last)
        self.reason = pc.coalesce(self.reason, reasons if but is None else pc.if_else(but, None, reasons))

    def reason_with_lifetime(self, axis: str) -> Any:
        """The reasons, the first one with its item's start and end: it is the one that is raised."""
        at = pc.index(pc.is_valid(self.reason), True).as_py()
        if at < 0:
            return self.reason
        ticks = {n: self.columns[c][at].as_py() for n, c in (("start", LE), ("end", RE)) if c in self.columns}
        shown = ", ".join(
            f"{n} {'NULL' if v is None or (n, v) == ('end', INFINITY) else show_ticks(v, axis)}"
            for n, v in ticks.items()
        )
        is_first = pa.array(np.arange(len(self.reason)) == at)
        return pc.if_else(is_first, f"{self.reason[at].as_py()} ({shown})", self.reason)


def column_ticks(table: pa.Table, name: str, missing: int | None = None) -> pa.Array:
    """A time column as ticks, with ``missing`` for NULL; raises NeedsSpark for a type that Arrow has no instants of."""
    column = table.column(name).combine_chunks()
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz="UTC"))
    elif not pa.types.is_integer(column.type):
        wrong = f"column {name!r} of type {column.type} in-process"
        raise NeedsSpark(sentence("source", wrong, "", "Use integers or timestamps."))
    ticks = column.cast(pa.int64())
    return ticks if missing is None else pc.fill_null(ticks, missing)


__all__ = ["ArrowItems", "column_ticks"]
