"""Progress rules: the CTI that an operator sends on, and the progress that lets its rows go.

The rules of all operators: docs/language.md, "Progress, finality, state, cost".

Every kernel and evaluator has one ``ProgressRule``. Explain shows it, and ``why()`` derives from it what a query waits for.
Executors need only its ``Release``, by which the kernel ``recompute`` sends its rows; the property ``progress_rule`` is not sent.
The arithmetic of instants and window numbers is written once for integers, numpy arrays and SQL; on arrays of instants nothing
overflows, lifetimes saturate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import ints
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.deltas import LE, RE
from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY, Grid, saturating_add

Ticks = np.ndarray[Any, np.dtype[np.int64]]


def saturating(base: Ticks, by: Ticks | int) -> Ticks:
    """Return ``base + by`` of int64 ticks; a sum beyond the axis becomes FIRST_INSTANT or INFINITY.

    INFINITY on either side stays.
    """
    base = np.asarray(base, np.int64)
    by = np.broadcast_to(np.asarray(by, np.int64), base.shape)
    with np.errstate(over="ignore"):
        moved = base + by
    moved = np.where((by > 0) & (moved < base), INFINITY, moved)
    moved = np.where((by < 0) & ((moved > base) | (moved == MINUS_INFINITY)), FIRST_INSTANT, moved)
    return np.where((base == INFINITY) | (by == INFINITY), INFINITY, moved)


Number = Any
"""An integer, an int64 array or SQL of a bigint; they add, subtract and compare with ``+``, ``-``, ``<`` and ``==``."""


class Arithmetic(Protocol):
    """The operations that integers, arrays and SQL each write in their own way.

    Those of SQL are in ``streamq/windows/batch_events.py``.
    """

    def quotient(self, x: Number, by: int) -> Number:
        """Return ``floor(x / by)``, exact."""

    def remainder(self, x: Number, by: int) -> Number:
        """Return ``x - by * floor(x / by)``, from 0 to ``by - 1``."""

    def choose(self, condition: Any, then: Number, otherwise: Number) -> Number:
        """Return ``then`` where the condition holds, else ``otherwise``."""

    def moved(self, x: Number, by: int) -> Number:
        """Return ``x + by``, kept on the axis; ``x`` is an instant or INFINITY, not MINUS_INFINITY."""

    def floor(self, x: Number, by: int) -> Number:
        """Return the greatest multiple of ``by`` that is not above x, kept on the axis."""


class _Integers:
    def quotient(self, x: Number, by: int) -> Number:
        return x // by

    def remainder(self, x: Number, by: int) -> Number:
        return x % by

    def choose(self, condition: Any, then: Number, otherwise: Number) -> Number:
        return then if condition else otherwise

    def moved(self, x: Number, by: int) -> Number:
        return saturating_add(x, by)

    def floor(self, x: Number, by: int) -> Number:
        return max(FIRST_INSTANT, x // by * by)


class _Arrays(_Integers):
    def choose(self, condition: Any, then: Number, otherwise: Number) -> Number:
        return np.where(condition, then, otherwise)

    def moved(self, x: Number, by: int) -> Number:
        return saturating(x, by)

    def floor(self, x: Number, by: int) -> Number:
        rest = x % by
        return np.where(x < FIRST_INSTANT + rest, FIRST_INSTANT, x - rest)


INTEGERS: Arithmetic = _Integers()
ARRAYS: Arithmetic = _Arrays()


class Release(Enum):
    """The progress, CTI or watermark, that lets a row go: a lifetime column, and if progress must be a tick past it.

    AT_ONCE: any row goes at once. PAST_START: the row has started. PAST_END: it is settled. AT_END: its window has ended.
    AT_WINDOW_END, PAST_WINDOW_END: the same for rows that are points at their window's end, so that their start is that end.
    """

    PAST_START = (LE, True, "start")
    PAST_END = (RE, True, "end")
    AT_END = (RE, False, "end")
    AT_WINDOW_END = (LE, False, "end")
    PAST_WINDOW_END = (LE, True, "end")
    AT_ONCE = (LE, False, "start")

    @property
    def is_strict(self) -> bool:
        """True if progress must be past the instant, not just at it."""
        return self.value[1]

    @property
    def by_start(self) -> bool:
        """True if rows go by their start, not by their end or their window's end."""
        return self.value[2] == "start"

    def lets_go(self, rows: pa.Table, progress: int) -> Mask:
        """Mark the rows that go at this CTI or watermark; at the end of the input all do."""
        if progress == INFINITY or self is Release.AT_ONCE:
            return np.ones(rows.num_rows, bool)
        at = ints(rows, self.value[0])
        return at < progress if self.is_strict else at <= progress

    def dues(self, rows: pa.Table) -> Ints:
        """Return the least progress that lets each of these rows go; INFINITY: the end of the input."""
        return saturating(ints(rows, self.value[0]), int(self.is_strict))

    def due(self, rows: pa.Table) -> int | None:
        """Return the least progress that lets one of these rows go; INFINITY: the end of the input; None: there is no row."""
        return int(self.dues(rows).min()) if rows.num_rows else None


class Cti(StrEnum):
    """The CTI that an operator sends on, once its inputs have promised c together; the value is its text in explain."""

    INPUT = "c"
    EARLIEST_WINDOW = "start of the earliest window not final"
    COUNTED = "the (n-1)-th greatest instant below c, the least if there are fewer, at most c"
    FIRST_ROW = "the start of the first row of the earliest incomplete window; none: c"
    SESSION = "the least start of a session not final; none: c"
    LANDMARK = "the landmark of the earliest window not final; none: c"
    UNSETTLED = "the least start of a row not settled, at most c"
    WINDOW_END = "the least end of a window not final, at most c"
    LEFT_BEHIND = "the least start of a left event that lives on at c, at least c, at most the left input's CTI"
    OPEN_EDGE = "the least open start, at most c"
    OPEN_END = "the least start of such a row, at most c"

    def shown(self, inputs: int = 1) -> str:
        """Return the rule as explain shows it; with several inputs c is the least of theirs."""
        return f"{self}, the least over the inputs" if self is Cti.INPUT and inputs > 1 else str(self)


class EndlessRow(StrEnum):
    """The event that lets a row go if a lifetime without an end contributes to it."""

    ITS_END = "its end"
    A_CUT = "a row of the other input that cuts it"
    THE_NEXT = "the next row of its key"
    LATER_ROWS = "later rows of its key"


class NoRowReason(StrEnum):
    """The reason why no row may come though progress would let one go; the value is its text in ``run.why()``."""

    OF_MODULE = "rows come only if the module gives some"
    OF_PAIRS = "rows come only if events of both inputs match"
    OF_MATCH = "rows come only if the events until then complete a match"


@dataclass(frozen=True)
class MissingRows:
    """The rows that a window of ``n`` rows or instants still needs, when no progress alone can close it.

    distinct: the instants that are counted, "start" or "end", or "" if rows are counted; grouped: each group has its own windows.
    """

    n: int
    distinct: str
    grouped: bool


@dataclass(frozen=True)
class ProgressRule:
    """The CTI that a kernel or an evaluator sends on, and the progress that lets its rows go.

    cti: the CTI that it sends on.
    final: when the CTI makes a row final; None: the kernel sends every row at once.
    early: when the watermark sends a row that may still be taken back; None: rows wait until they are final.
    windows: the rows are windows, and all members of one count; else each row goes by its own lifetime.
    grid: the grid of the windows, if they lie on one and are reported one by one.
    has_sizes: other windows than those of ``grid``, which are not longer, are reported, too; the CTI is that of ``grid``.
    waits_for_members: a window is final only once its members are settled, too.
    wanted: the rows that a count window waits for, beside progress.
    endless: what lets rows without an end go.
    sorts: waiting rows lie in the basket of rows that the level of consistency holds back, in order of time.
    may_be_empty: the next window has no row if all its members have been taken back.
    subtracts: rows of the second input subtract from rows of the first.
    may_be_none: the reason why progress may let no row go; None: there is always a row.
    """

    cti: Cti = Cti.INPUT
    final: Release | None = None
    early: Release | None = None
    windows: bool = False
    grid: Grid | None = None
    has_sizes: bool = False
    waits_for_members: bool = False
    wanted: MissingRows | None = None
    endless: EndlessRow = EndlessRow.ITS_END
    sorts: bool = False
    may_be_empty: bool = False
    subtracts: bool = False
    may_be_none: NoRowReason | None = None

    @property
    def holds(self) -> bool:
        """True if rows wait for progress; else they are sent at once."""
        return self.final is not None

    @property
    def sends_window_start(self) -> bool:
        """True if the CTI is the start of a window of a grid."""
        return self.grid is not None and self.cti is Cti.EARLIEST_WINDOW

    @property
    def follows_input(self) -> bool:
        """True if the input's CTI alone is a lower bound of the CTI sent on; else the rows in state count, too."""
        return self.cti in (Cti.INPUT, Cti.LEFT_BEHIND) or (self.sends_window_start and not self.waits_for_members)

    @property
    def final_rows(self) -> str:
        """The final rows, as explain describes them."""
        if self.final is None:
            return "rows of final events"
        if not self.windows:
            return "rows that start before c" if self.final.by_start else "settled rows"
        ended = f"windows that end {'before' if self.final.is_strict else 'at or before'} c"
        return f"{ended}, once their members are settled" if self.waits_for_members else ended

    def released(self, *, final: bool, early: bool) -> ProgressRule:
        """Return the rule of a kernel that sends rows only once they are final, or else, if ``early``, at once.

        At once, rows are corrected until they are final; if ``final``, they wait whatever the level of consistency.
        """
        if final:
            return replace(self, early=None)
        return replace(self, early=Release.AT_ONCE) if early and self.holds else self


AT_ONCE = ProgressRule()
"""Rows are sent at once, and c is passed on unchanged."""
SETTLED = ProgressRule(final=Release.PAST_END, early=Release.PAST_START)
"""Rows are final once settled, and sent once started; none changes before its start, so c is passed on unchanged."""
