"""What the steps of a path make of the progress of those who move along it: of c and of W."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streamq.time import INFINITY, MINUS_INFINITY, saturating_add


class Carrier(Protocol):
    """A step that moves lifetimes."""

    def of(self, t: int) -> int:
        """Where it puts an instant between the ends of the axis."""


@dataclass(frozen=True)
class Carried:
    """Moved by ``by`` ticks, kept on the axis."""

    by: int = 0

    def of(self, t: int) -> int:
        """``t + by``."""
        return max(MINUS_INFINITY + 1, min(INFINITY - 1, saturating_add(t, self.by)))


def carry(t: int, steps: Sequence[Carrier]) -> int:
    """An instant of progress after the steps of a path; one that has not spoken, or has ended, stays so."""
    for step in steps:
        if t in (INFINITY, MINUS_INFINITY):
            return t
        t = step.of(t)
    return t
