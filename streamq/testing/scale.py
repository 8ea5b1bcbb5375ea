"""The positions of generated events: multiples of a unit around an anchor, and instants beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from streamq.time import Grid


class Bounds(Protocol):
    """The instants at which windows or pieces begin and end."""

    def edges_near(self, near: int, many: int) -> Iterator[int]:
        """Yield the starts and ends of ``many`` windows, from about the instant ``near`` on; none where there is no window."""


@dataclass(frozen=True)
class GridBounds:
    """The bounds of the windows of a grid."""

    grid: Grid

    def edges_near(self, near: int, many: int) -> Iterator[int]:
        first = (near - self.grid.offset) // self.grid.hop
        for index in range(first, first + many):
            start = self.grid.offset + index * self.grid.hop
            yield from (start, start + self.grid.size)


@dataclass(frozen=True)
class Scale:
    """The positions of generated events, in ticks: multiples of a unit away from ``anchor``, or a ``step`` beside.

    ``units``: the units, the finest first. ``reach``: how far a result's lifetime can extend beyond all instants of the input.
    ``lengths``: the lengths of time in the query; ``bounds``: those of its windows and pieces.
    """

    anchor: int = 0
    units: tuple[int, ...] = (1,)
    step: int = 1
    reach: int = 13
    lengths: tuple[int, ...] = ()
    bounds: tuple[Bounds, ...] = ()

    @property
    def is_coarse(self) -> bool:
        """True if the query's lengths are many steps long."""
        return self.units[0] > self.step

    def edges(self, near: int, many: int = 3) -> list[int]:
        """Return the starts and ends of ``many`` windows and pieces of each kind, from about the instant ``near`` on.

        They are sorted, without repetitions, and rounded down to ``step``; none without bounds.
        """
        return sorted({t // self.step * self.step for bounds in self.bounds for t in bounds.edges_near(near, many)})

    def with_unit(self, unit: int) -> Scale:
        """Return the scale with one unit, in ticks, instead of the query's lengths."""
        unit = max(self.step, unit // self.step * self.step)
        return dataclasses.replace(self, units=(unit,), reach=13 * unit + self.reach, lengths=(), bounds=())


TICKS = Scale()
"""The scale of single ticks around zero."""
