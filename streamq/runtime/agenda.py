"""Agendas: for each group, the least progress at which it must be evaluated without new rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.columnar import ints
from streamq.runtime.groups import HASH
from streamq.runtime.values import Ints, Mask
from streamq.time import INFINITY


@dataclass(repr=False)
class Agenda:
    """The instants that the groups of a bin, or one group, wait for; INFINITY: for none.

    c, m: the least CTI and the least watermark at which a group must be evaluated. due: the least progress that sends a row, of
    those that wait, if ``waits``. held: the least instant that a group holds the CTI back to. since: the least end of a sent row
    that may still change. reaches: a group has events that lie in windows to come.
    """

    c: int = INFINITY
    m: int = INFINITY
    due: int = INFINITY
    held: int = INFINITY
    since: int = INFINITY
    waits: bool = False
    reaches: bool = False

    @staticmethod
    def of_rows(rows: Sequence[pa.Table]) -> Agenda:
        """Return the agenda of several groups, each a row of the tables."""
        least = Agenda()
        for table in rows:
            if table.num_rows:
                for name in _INSTANTS:
                    setattr(least, name, min(getattr(least, name), int(ints(table, name).min())))
                for name in _FLAGS:
                    setattr(least, name, getattr(least, name) or bool(pc.any(table.column(name)).as_py()))
        return least

    @property
    def values(self) -> list[Any]:
        """The fields' values in their order."""
        return [getattr(self, f.name) for f in fields(self)]

    def is_due(self, c: int, m: int, is_further: bool) -> bool:
        """Return True if a group must be evaluated; ``is_further``: the bound on windows to come has moved."""
        return self.c <= c or self.m <= m or (is_further and self.reaches)


_INSTANTS = ("c", "m", "due", "held", "since")
_FLAGS = ("waits", "reaches")
STORED = pa.schema([(HASH, pa.uint32()), *((n, pa.int64()) for n in _INSTANTS), *((n, pa.bool_()) for n in _FLAGS)])


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


__all__ = ["STORED", "Agenda", "agenda_of", "latest_agenda", "without_silent"]
