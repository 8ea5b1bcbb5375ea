"""Progress maps: how the steps of a path change the CTI and the watermark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streamq.time import INFINITY, MINUS_INFINITY, saturating_add


class ProgressMap(Protocol):
    """A step that moves lifetimes."""

    def apply(self, t: int) -> int:
        """Return the instant that the step gives for an instant between the ends of the axis."""


@dataclass(frozen=True)
class ProgressShift:
    """A shift by ``by`` ticks, kept on the axis."""

    by: int = 0

    def apply(self, t: int) -> int:
        """Return ``t + by``."""
        return min(INFINITY - 1, saturating_add(t, self.by))


def map_progress(t: int, steps: Sequence[ProgressMap]) -> int:
    """Return an instant of progress after the steps of a path; both ends of the axis stay as they are."""
    for step in steps:
        if t in (INFINITY, MINUS_INFINITY):
            return t
        t = step.apply(t)
    return t
