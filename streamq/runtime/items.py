"""The items of a source: which of them start events, which carry CTIs, and which are deltas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.event import LE

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Mark:
    """The items with a value in a column; if ``negated``, all other items."""

    column: str
    value: str | bool
    negated: bool = False

    def __invert__(self) -> Mark:
        return replace(self, negated=not self.negated)

    def in_arrow(self, items: pa.Table) -> Any:
        """Return the mask of these items in a table; the column has no NULLs."""
        is_equal = pc.equal(items.column(self.column), pa.scalar(self.value))
        return pc.invert(is_equal) if self.negated else is_equal

    def on_spark(self) -> Column:
        """Return the same mask as a column."""
        from pyspark.sql import functions as F

        is_equal = F.col(self.column) == F.lit(self.value)
        return ~is_equal if self.negated else is_equal


@dataclass(frozen=True)
class Items:
    """A source's description of its items, each of which has its instant in ``__le``; by default each inserts an event.

    ``starts`` marks the items that start an event and move the watermark (None: all); ``ctis`` marks those that carry a CTI and
    are no deltas (None: none); ``mover`` is a user's word for an item that moves the watermark.
    """

    starts: Mark | None = None
    ctis: Mark | None = None
    mover: str = "row"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that determine progress."""
        marked = (mark.column for mark in (self.starts, self.ctis) if mark is not None)
        return tuple(dict.fromkeys((LE, *marked)))

    def starting(self, items: pa.Table) -> pa.Table:
        """Return the items that start an event."""
        return items if self.starts is None else items.filter(self.starts.in_arrow(items))

    def starts_of(self, items: pa.Table) -> Any:
        """Return the instants of the items that start an event."""
        return _filtered(items, self.starts)

    def ctis_of(self, items: pa.Table) -> Any:
        """Return the CTIs that items carry."""
        return items.column(LE).slice(0, 0) if self.ctis is None else _filtered(items, self.ctis)

    def deltas_of(self, items: pa.Table) -> pa.Table:
        """Return the items that change the history: all but CTIs."""
        return items if self.ctis is None else items.filter((~self.ctis).in_arrow(items))


def _filtered(items: pa.Table, mark: Mark | None) -> Any:
    """Return the instants of marked items; of all, if there is no mark."""
    return items.column(LE) if mark is None else items.column(LE).filter(mark.in_arrow(items))


__all__ = ["Items", "Mark"]
