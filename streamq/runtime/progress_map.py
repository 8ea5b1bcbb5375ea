"""What the steps of a path make of the progress of those who move along it: of c and of W."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streamq.time import INFINITY, MINUS_INFINITY, saturating_add


class ProgressMap(Protocol):
    """A step that moves lifetimes."""

    def apply(self, t: int) -> int:
        """Where it puts an instant between the ends of the axis."""


@dataclass(frozen=True)
class ProgressShift:
    """Moved by ``by`` ticks, kept on the axis."""

    by: int = 0

    def apply(self, t: int) -> int:
        """``t + by``."""
        return max(MINUS_INFINITY + 1, min(INFINITY - 1, saturating_add(t, self.by)))


def map_progress(t: int, steps: Sequence[ProgressMap]) -> int:
    """An instant of progress after the steps of a path; one that has not spoken, or has ended, stays so."""
    for step in steps:
        if t in (INFINITY, MINUS_INFINITY):
            return t
        t = step.apply(t)
    return t
