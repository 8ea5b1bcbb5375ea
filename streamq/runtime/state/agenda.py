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
from streamq.time import INFINITY

NOBODY = -1
"""A hash that no group has."""

_INSTANTS = ("c", "m", "due", "held", "since")
_FLAGS = ("waits", "reaches")
_NAMES = (*_INSTANTS, *_FLAGS)


@dataclass(repr=False)
class Agenda:
    """The instants that the groups of a bin, or one group, wait for; INFINITY: for none.

    c, m: the least CTI and the least watermark at which a group must be evaluated. due: the least progress that sends a row, of
    those that wait, if ``waits``. held: the least instant that a group holds the CTI back to. since: the least end of a sent row
    that may still change. reaches: a group has events that lie in windows to come. by: for each of these the hash of a group to
    which it is due, so that changes of other groups need not be compared with all.
    """

    c: int = INFINITY
    m: int = INFINITY
    due: int = INFINITY
    held: int = INFINITY
    since: int = INFINITY
    waits: bool = False
    reaches: bool = False
    by: list[int] = field(default_factory=lambda: [NOBODY] * len(_NAMES))

    @staticmethod
    def of_rows(rows: Sequence[pa.Table]) -> Agenda:
        """Return the agenda of several groups, each a row of the tables."""
        least = Agenda()
        for table in rows:
            if table.num_rows:
                least = least.earlier(_least_of(table))
        return least

    def earlier(self, other: Agenda) -> Agenda:
        """Return what the groups of both wait for."""
        mine, others = self.values, other.values
        chosen, by = [], []
        for place, name in enumerate(_NAMES):
            is_mine = mine[place] <= others[place] if name in _INSTANTS else mine[place]
            chosen.append(mine[place] if is_mine else others[place])
            by.append((self if is_mine else other).by[place])
        return Agenda(**dict(zip(_NAMES, chosen, strict=True)), by=by)

    def stands_without(self, groups: GroupHashes, instead: Agenda) -> bool:
        """Return True if nothing of it is due to some groups that wait for ``instead`` now, or if that is no less."""
        mine, others = self.values, instead.values
        is_theirs = np.isin(self.by, groups)
        return not any(
            theirs and not (others[place] <= mine[place] if name in _INSTANTS else others[place])
            for place, (name, theirs) in enumerate(zip(_NAMES, is_theirs, strict=True))
        )

    @property
    def values(self) -> list[Any]:
        """The fields' values in their order."""
        return [getattr(self, f.name) for f in fields(self)]

    def is_due(self, c: int, m: int, is_further: bool) -> bool:
        """Return True if a group must be evaluated; ``is_further``: the bound on windows to come has moved."""
        return self.c <= c or self.m <= m or (is_further and self.reaches)


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


STORED = pa.schema([(HASH, pa.uint32()), *((n, pa.int64()) for n in _INSTANTS), *((n, pa.bool_()) for n in _FLAGS)])


def _least_of(table: pa.Table) -> Agenda:
    """Return the agenda of groups, at least one, each a row of a table."""
    hashes = table.column(HASH).to_numpy()
    least, by = [], []
    for name in _NAMES:
        column = table.column(name).to_numpy()
        place = int(column.argmin() if name in _INSTANTS else column.argmax())
        least.append(column[place].item())
        by.append(int(hashes[place]) if column[place] != (INFINITY if name in _INSTANTS else False) else NOBODY)
    return Agenda(**dict(zip(_NAMES, least, strict=True)), by=by)


def agenda_of(hashes: Any, **columns: Ints | Mask) -> pa.Table:
    """Return the agenda of groups, a row each; what ``columns`` do not name they do not wait for."""
    n = len(hashes)
    nothing = {name: np.full(n, INFINITY) for name in _INSTANTS} | {name: np.zeros(n, bool) for name in _FLAGS}
    return pa.table({HASH: hashes, **nothing, **columns}, schema=STORED)


def without_silent(agenda: pa.Table) -> pa.Table:
    """Return the rows of an agenda without those of groups that wait for nothing."""
    waits = np.zeros(agenda.num_rows, bool)
    for name in _INSTANTS:
        waits |= ints(agenda, name) < INFINITY
    for name in _FLAGS:
        waits |= agenda.column(name).to_numpy()
    return agenda.filter(pa.array(waits))


def latest_agenda(agenda: pa.Table) -> pa.Table:
    """Return the last row of each group, without groups that wait for nothing."""
    hashes = agenda.column(HASH).to_numpy()
    _, last = np.unique(hashes[::-1], return_index=True)
    return without_silent(agenda.take(pa.array(len(hashes) - 1 - last)))
