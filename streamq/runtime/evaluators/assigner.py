"""Window assigners: which windows each event lies in, as ranges of the windows that a group numbers.

Each kind of windows has its own, in its room in ``streamq/windows``; executors get nothing else of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from streamq.grid import Grid
from streamq.runtime.values import Ints, Mask

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import Cti, MissingRows


@dataclass(frozen=True)
class Ranges:
    """Events (by row), the windows ``low .. high`` of ``owner`` each lies in, and where those windows are.

    An owner is whatever numbers its own windows; an event may occur under several.
    """

    event: Ints
    owner: Ints
    low: Ints
    high: Ints
    where: Callable[[Ints, Ints], tuple[Ints, Ints]]

    def some(self) -> Ranges:
        """Without empty ranges."""
        is_some = self.low <= self.high
        return Ranges(self.event[is_some], self.owner[is_some], self.low[is_some], self.high[is_some], self.where)


class Assigner(ABC):
    """Assigns the events of groups ``g`` to windows of one kind."""

    is_piecewise: bool = False
    """True where windows are the pieces between changes: a change leaves those before it as they are, and ends one of them."""

    @property
    def grid(self) -> Grid | None:
        """The grid on which the windows lie, if they do: then they are reported one by one."""
        return None

    @property
    def cti(self) -> Cti:
        """The CTI rule of results that live on their windows, where corrections would cost progress."""
        from streamq.runtime.progress_rule import Cti

        return Cti.EARLIEST_WINDOW

    def wanted(self, *, grouped: bool) -> MissingRows | None:
        """The rows that a window waits for when no progress can close it; None: progress closes it."""
        return None

    @abstractmethod
    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Every event's windows that end after ``since``, as far as those are bounded by ``upto``; ranges may be empty."""

    @abstractmethod
    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        """Mark the events of which windows that end at or after c - 1 are made."""

    @abstractmethod
    def least_open_start(self, g: Ints, table: pa.Table, rows: pa.Table, c: int) -> int:
        """Return the least start of a window that is not final at c, of those that are (``rows``) and those to come."""


__all__ = ["Assigner", "Ranges"]
