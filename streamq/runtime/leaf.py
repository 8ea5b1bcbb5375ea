"""Bins by group: the range of hashes of each, and what its groups wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamq.runtime.agenda import Agenda
from streamq.runtime.groups import BITS
from streamq.time import INFINITY


@dataclass(eq=False, repr=False)
class Leaf:
    """A bin: the hashes from ``start`` on that agree in the first ``depth`` bits, and what its groups wait for.

    ``clean`` is the least CTI at which many of its events are settled, so that all its groups are evaluated to forget them;
    ``needed`` is the number of settled events that were still needed when that last happened; ``lacks`` is the number of events
    with earlier ends that must come before there can be an earlier such CTI. A bin that is evaluated as a ``whole`` has no
    agendas of single groups. ``split_above`` is the number of live events above which it is split, if that is more than for all
    bins.
    """

    start: int
    depth: int
    agenda: Agenda
    clean: int = INFINITY
    needed: int = 0
    whole: bool = True
    lacks: int = 0
    split_above: int = 0

    @property
    def name(self) -> str:
        """The bin's name in every basket."""
        return f"g{self.depth}.{self.start >> (BITS - self.depth)}"

    @staticmethod
    def from_values(values: Sequence[Any]) -> Leaf:
        """Return the bin with these ``values``."""
        start, depth, clean, needed, whole, lacks, split_above, *agenda = values
        return Leaf(start, depth, Agenda(*agenda), clean, needed, whole, lacks, split_above)

    @property
    def values(self) -> list[Any]:
        """The fields' values, with those of the agenda last."""
        return [
            *(self.start, self.depth, self.clean, self.needed, self.whole, self.lacks, self.split_above),
            *self.agenda.values,
        ]


__all__ = ["Leaf"]
