"""The evaluator interface: an operator as a pure function of its inputs' histories, with its progress.

The kernel ``recompute`` hosts any evaluator incrementally: it keeps the events that can still matter, evaluates those, and sends
the difference from the rows it has reported. So an operator defines only its meaning. An evaluator can compute a part of its
result: from the histories of some groups, and for a range of windows. With most evaluators a row is final once it is settled, and
c is passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.values import Mask
from streamq.runtime.groups import Holds, ToCome, no_holds
from streamq.runtime.time.progress_rule import SETTLED, ProgressRule


class Evaluator(Protocol):
    """An operator over histories.

    Histories are bags: tables with ``__le`` and ``__re`` (int64 ticks, INFINITY while open), payload, and the number of each
    event's group (``groups.GROUP_NUMBER``), in no order. An empty history still has its columns.

    A result has ``__le``, ``__re``, the number of each row's group and the result's payload; its other columns that begin with
    two underscores are for the evaluator alone and are not passed on.
    """

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Return the operator's result over these histories: all rows with ``RE > since``; others may be left out.

        Where an endless event has windows or pieces without limit, as on a grid, those that start at ``upto`` or later are left
        out, for all events. The histories may be those of some groups only (``group_columns``); the result is then those groups'
        part of the whole result.
        """

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        """Each input's columns that separate groups, in matching order; (): there is one group.

        Events contribute to one row only if these columns are equal, NULL with NULL. So the result over some groups is a part
        of the whole result, and the parts add up to it.
        """

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Return, per input, a mask of the events that must stay at CTI c.

        From these events and any legal further input, ``rows`` must again give every row with ``RE >= c`` exactly; rows with
        ``RE < c`` may be wrong or missing, because nobody reads them.
        """

    def holds(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> Holds:
        """Return the instants by which the groups of these histories hold back the output CTI at CTI ``c``, if none holds any."""

    def cti(self, progress: Sequence[int], held: int) -> int:
        """Return the output CTI for the inputs' CTIs ``progress``: no row before it is still to come or to change.

        ``held`` is the least instant by which a group holds it back; INFINITY if none does.
        """

    def to_come(self, inputs: Sequence[pa.Table], upto: int) -> ToCome:
        """Return the groups with rows that ``rows`` leaves out because they start at ``upto`` or later, if it does so."""

    @property
    def leaves_out_rows_to_come(self) -> bool:
        """True if ``rows`` may leave out the rows that start at ``upto`` or later, of finite lifetimes too."""

    @property
    def progress_rule(self) -> ProgressRule:
        """The rule for the CTI it sends, and for when its rows are final or sent early by the watermark."""


class SettledProgress:
    """The progress of an operator whose rows are final once settled, and that never changes rows before c."""

    @property
    def progress_rule(self) -> ProgressRule:
        """Rows are final once they are settled, and sent once they have started."""
        return SETTLED

    def holds(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> Holds:
        return no_holds()

    def cti(self, progress: Sequence[int], held: int) -> int:
        """Return c: all that starts or changes before it is known."""
        return min(progress)

    def to_come(self, inputs: Sequence[pa.Table], upto: int) -> ToCome:
        nothing = np.zeros(0, np.int64)
        return ToCome(nothing, nothing)

    @property
    def leaves_out_rows_to_come(self) -> bool:
        return False
