"""What an operator promises: the CTI that it sends on, and the progress that lets its rows go.

The rules of all operators: docs/language.md, "Progress, finality, state, cost".

Every kernel and evaluator gives one ``ProgressRule``. Explain shows it, and ``why()`` reads from it what a query waits for; of
it executors need only the ``Release``, by which the kernel ``recompute`` reports its rows. So kernels and evaluators import
this module where they give their rule, on the driver, and do not take it along.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from streamq.runtime.release import Release

if TYPE_CHECKING:
    from streamq.grid import Grid


class Cti(StrEnum):
    """The CTI that an operator sends on, once its inputs have promised c together; the value is how explain says it."""

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
        """The rule as explain shows it; of several inputs c is the least."""
        return f"{self}, the least over the inputs" if self is Cti.INPUT and inputs > 1 else str(self)


class EndlessRow(StrEnum):
    """What lets a row go that is part of something without an end."""

    ITS_END = "its end"
    A_CUT = "a row of the other input that cuts it"
    THE_NEXT = "the next row of its key"


class NoRowReason(StrEnum):
    """The reason why no row may come though progress would let one go; the value is how ``run.why()`` says it."""

    OF_MODULE = "rows come only if the module gives some"
    OF_MATCH = "rows come only if the events until then complete a match"


@dataclass(frozen=True)
class MissingRows:
    """What a window of ``n`` waits for when no progress can close it: the missing rows.

    distinct: which instants are counted, "start" or "end"; "": rows are; grouped: whether each group has windows of its own.
    """

    n: int
    distinct: str
    grouped: bool


@dataclass(frozen=True)
class ProgressRule:
    """What a kernel or an evaluator promises, and which progress lets its rows go.

    cti: the CTI that it sends on.
    final: when a row can no longer change, for the CTI; None: the kernel hands every row on as it makes it.
    early: when a row goes that may still be taken back, for the watermark; None: it waits until it is final.
    windows: whether the rows are windows, of which all members count; else each row goes by its own lifetime.
    grid: the windows, where they lie on a grid and are reported one by one.
    waits_for_members: whether a window is final only once its members are settled, too.
    wanted: the rows that a window of so many waits for, beside progress.
    endless: what lets rows go that have no end.
    sorts: whether rows that wait lie in the basket of what the level of consistency holds back, in order of time.
    may_be_empty: whether nothing comes of the next window if all its members have been taken back.
    subtracts: whether rows of the second input take away from rows of the first.
    may_be_none: what decides whether any row comes when progress lets it go; None: one is known to.
    """

    cti: Cti = Cti.INPUT
    final: Release | None = None
    early: Release | None = None
    windows: bool = False
    grid: Grid | None = None
    waits_for_members: bool = False
    wanted: MissingRows | None = None
    endless: EndlessRow = EndlessRow.ITS_END
    sorts: bool = False
    may_be_empty: bool = False
    subtracts: bool = False
    may_be_none: NoRowReason | None = None

    @property
    def holds(self) -> bool:
        """Whether rows wait for progress; else they go on as they are made."""
        return self.final is not None

    @property
    def sends_window_start(self) -> bool:
        """Whether the CTI is the start of a window of a grid."""
        return self.grid is not None and self.cti is Cti.EARLIEST_WINDOW

    @property
    def follows_input(self) -> bool:
        """Whether the input's CTI alone decides how far the CTI sent on has come at least; else the rows do, too."""
        return self.cti in (Cti.INPUT, Cti.LEFT_BEHIND) or (self.sends_window_start and not self.waits_for_members)

    @property
    def final_rows(self) -> str:
        """Which rows are final, as explain shows it."""
        if self.final is None:
            return "rows of final events"
        if not self.windows:
            return "rows that start before c" if self.final.by_start else "settled rows"
        ended = f"windows that end {'before' if self.final.past else 'at or before'} c"
        return f"{ended}, once their members are settled" if self.waits_for_members else ended

    def when_final(self) -> ProgressRule:
        """The same rule where every row waits until it is final, whatever the level of consistency."""
        return replace(self, early=None)

    def at_once(self) -> ProgressRule:
        """The same rule where no row waits: each is told as soon as it is there, and corrected until it is final."""
        return replace(self, early=Release.AT_ONCE) if self.holds else self


AT_ONCE = ProgressRule()
"""Rows are handed on as they are made, and so is c."""
SETTLED = ProgressRule(final=Release.PAST_END, early=Release.PAST_START)
"""Rows are final once they are settled, and reported once they have started; nothing reaches back, so c goes on as it is."""
