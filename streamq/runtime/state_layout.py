"""The layout of a kernel's state: its parts, which move into other buckets when the number of buckets changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streamq.runtime.basket import KernelBaskets
from streamq.runtime.spread import Events, Spread

States = Sequence[KernelBaskets]
"""The states of one kernel in several buckets."""


class StatePart(Protocol):
    """A part of a kernel's state."""

    def move(self, old: States, new: States, spread: Spread) -> None:
        """Take the part out of ``old``, in the order of buckets, and put it into ``new``, by the bucket of each row."""


@dataclass(frozen=True, kw_only=True)
class StateLayout:
    """All parts of a kernel's state, in the order in which they move: those first that read others.

    sent_by: the events by which rows that the kernel has sent find their bucket, where no column of theirs tells.
    """

    parts: tuple[StatePart, ...] = ()
    sent_by: Events | None = None


__all__ = ["StateLayout", "StatePart", "States"]
