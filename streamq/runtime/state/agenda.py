"""What groups wait for: of each the least progress at which it must be evaluated without new rows; and the bins of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import ints
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.groups import BITS, HASH, GroupHashes
from streamq.time import INFINITY, MINUS_INFINITY

NOBODY = -1
"""A hash that no group has."""

_NAMES = ("c", "m", "due", "held", "since", "waits", "reaches")


@dataclass(repr=False)
class Agenda:
    """The instants that the groups of a bin, or one group, wait for; INFINITY: for none.

    c, m: the least CTI and the least watermark at which a group must be evaluated. due: the least progress that sends a row, of
    those that wait. held: the least instant that a group holds the CTI back to. since: the least end of a sent row that may still
    change. waits, reaches: MINUS_INFINITY if a row waits, or if a group has events that lie in windows to come. by: for each of
    these the hash of a group to which it is due, so that changes of other groups need not be compared with all.
    """

    c: int = INFINITY
    m: int = INFINITY
    due: int = INFINITY
    held: int = INFINITY
    since: int = INFINITY
    waits: int = INFINITY
    reaches: int = INFINITY
    by: list[int] = field(default_factory=lambda: [NOBODY] * len(_NAMES))

    @staticmethod
    def of_rows(rows: pa.Table) -> Agenda:
        """Return the agenda of several groups, each a row of a table."""
        if not rows.num_rows:
            return Agenda()
        hashes, dues = rows.column(HASH).to_numpy(), []
        for name in _NAMES:
            column = ints(rows, name)
            place = int(column.argmin())
            due = int(column[place])
            dues.append((due, int(hashes[place]) if due < INFINITY else NOBODY))
        return Agenda._of_dues(dues)

    @staticmethod
    def _of_dues(dues: Sequence[tuple[Any, int]]) -> Agenda:
        """Return the agenda of instants, each with the hash of a group to which it is due."""
        return Agenda(**{name: at for name, (at, _) in zip(_NAMES, dues, strict=True)}, by=[by for _, by in dues])

    @property
    def _dues(self) -> list[tuple[int, int]]:
        """Each instant, with the hash of a group to which it is due."""
        return [(getattr(self, name), by) for name, by in zip(_NAMES, self.by, strict=True)]

    def earlier(self, other: Agenda) -> Agenda:
        """Return what the groups of both wait for."""
        least = [min(pair, key=lambda due: due[0]) for pair in zip(self._dues, other._dues, strict=True)]
        return Agenda._of_dues(least)

    def stands_without(self, groups: GroupHashes, instead: Agenda) -> bool:
        """Return True if nothing of it is due to some groups that wait for ``instead`` now, or if that is no less."""
        is_later = [new > at for (at, _), (new, _) in zip(self._dues, instead._dues, strict=True)]
        return not (np.isin(self.by, groups) & is_later).any()

    @property
    def values(self) -> list[Any]:
        return [getattr(self, f.name) for f in fields(self)]

    def is_due(self, c: int, m: int, is_further: bool) -> bool:
        """Return True if a group must be evaluated; ``is_further``: the bound on windows to come has moved."""
        return self.c <= c or self.m <= m or (is_further and self.reaches < INFINITY)


@dataclass(eq=False, repr=False)
class Leaf:
    """A bin: the hashes from ``start`` on that agree in the first ``depth`` bits, and what its groups wait for.

    ``clean`` is the least CTI at which many of its events are settled, so that all its groups are evaluated to forget them;
    ``needed`` is the number of settled events that were still needed when that last happened; ``lacks`` is the number of events
    with earlier ends that must arrive before ``clean`` can become earlier. A bin that is evaluated as a ``whole`` has no
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
        return f"g{self.depth}.{self.start >> (BITS - self.depth)}"

    @staticmethod
    def from_values(values: Sequence[Any]) -> Leaf:
        start, depth, clean, needed, whole, lacks, split_above, *agenda = values
        return Leaf(start, depth, Agenda(*agenda), clean, needed, whole, lacks, split_above)

    @property
    def values(self) -> list[Any]:
        """The fields' values, with those of the agenda last."""
        return [
            *(self.start, self.depth, self.clean, self.needed, self.whole, self.lacks, self.split_above),
            *self.agenda.values,
        ]


STORED = pa.schema([(HASH, pa.uint32()), *((name, pa.int64()) for name in _NAMES)])


def agenda_of(hashes: Any, **columns: Ints | Mask) -> pa.Table:
    """Return the agenda of groups, a row each; what ``columns`` do not name they do not wait for.

    A column may be a mask of the groups that wait.
    """
    dues = dict.fromkeys(_NAMES, np.full(len(hashes), INFINITY)) | columns
    at = {name: np.where(due, MINUS_INFINITY, INFINITY) if due.dtype == bool else due for name, due in dues.items()}
    return pa.table({HASH: hashes, **at}, schema=STORED)


def without_silent(agenda: pa.Table) -> pa.Table:
    """Return the rows of an agenda without those of groups that wait for nothing."""
    waits = np.any([ints(agenda, name) < INFINITY for name in _NAMES], axis=0)
    return agenda.filter(pa.array(waits))


def latest_agenda(agenda: pa.Table) -> pa.Table:
    """Return the last row of each group, without groups that wait for nothing."""
    hashes = agenda.column(HASH).to_numpy()
    _, last = np.unique(hashes[::-1], return_index=True)
    return without_silent(agenda.take(pa.array(len(hashes) - 1 - last)))
