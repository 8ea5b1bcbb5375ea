"""The evaluator interface: an operator as a pure function of the histories of its inputs, and what it asks of progress.

The kernel ``recompute`` hosts any evaluator incrementally: it keeps the events that can still matter, evaluates what is
open, and hands on the difference to what it has reported. So an operator says only what it means.

An evaluator can be asked for a part of its result: it is given the histories of some groups only, and a range of windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from streamq.runtime.values import Mask

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule


class Evaluator(Protocol):
    """Histories are bags: tables with ``__le`` and ``__re`` (int64 ticks, INFINITY while open) and payload; no order.

    A history may be empty, with its columns all the same.

    A result has ``__le``, ``__re`` and the result's payload; further columns that begin with two underscores are the
    evaluator's own and are not handed on.
    """

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """The operator's result over these histories: all rows with ``RE > since``, others may be left out.

        Of windows and pieces without number those that start before ``upto``. The histories may be those of some groups only
        (``group_columns``): the result is what these groups have in the result over all.
        """

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        """Per input the columns that tell groups apart, those of several inputs in the same order; (): there is one group.

        Events make a row together only where these columns are equal, NULL with NULL: the result over the histories of some
        groups is a part of the result over all, and the parts add up to it.
        """

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Per input, the events that must stay at CTI c.

        From them, and whatever legal input follows, ``rows`` must again give every row with ``RE >= c`` exactly (rows with
        ``RE < c`` may come out wrong or not at all, nobody looks at them).
        """

    def cti(self, inputs: Sequence[pa.Table], rows: pa.Table, progress: Sequence[int]) -> int:
        """The output CTI, at those of the inputs: no row with a smaller LE is still to come or to change before it."""

    @property
    def progress_rule(self) -> ProgressRule:
        """Which CTI that is, when a row is final, and when a watermark speaks for it."""
