"""The positions of generated events: multiples of a unit around an anchor, and instants beside them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from streamq.grid import Grid


@dataclass(frozen=True)
class Scale:
    """The positions of generated events, in ticks: multiples of a unit away from ``anchor``, or a ``step`` beside.

    ``units``: the units, the finest first. ``reach``: how far a result's lifetime can extend beyond all instants of the input.
    ``lengths``: the lengths of time in the query; ``grids``: the grids of its windows and pieces.
    """

    anchor: int = 0
    units: tuple[int, ...] = (1,)
    step: int = 1
    reach: int = 13
    lengths: tuple[int, ...] = ()
    grids: tuple[Grid, ...] = ()

    @property
    def is_coarse(self) -> bool:
        """True if the query's lengths are many steps long."""
        return self.units[0] > self.step

    def edges(self, near: int, many: int = 3) -> list[int]:
        """Return the bounds of ``many`` windows and pieces of each grid, from about the instant ``near`` on.

        They are sorted, without repetitions, and rounded down to ``step``; none without grids.
        """
        return sorted({
            (grid.offset + ((near - grid.offset) // grid.hop + i) * grid.hop + part) // self.step * self.step
            for grid in self.grids
            for i in range(many)
            for part in (0, grid.size)
        })  # fmt: skip

    def with_unit(self, unit: int) -> Scale:
        """Return the scale with one unit, in ticks, instead of the query's lengths."""
        unit = max(self.step, unit // self.step * self.step)
        return dataclasses.replace(self, units=(unit,), reach=13 * unit + self.reach, lengths=(), grids=())


TICKS = Scale()
"""The scale of single ticks around zero."""


__all__ = ["TICKS", "Scale"]
