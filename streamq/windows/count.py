"""Count windows: a number of consecutive distinct starts, or ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamq.choices import ClipInput, check_word
from streamq.errors import PlanError, check_whole_number, sentence
from streamq.plan.footprint import Footprint, Retention
from streamq.runtime.arrow.columnar import codes, ints
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.evaluators.assigner import Assigner, Ranges
from streamq.runtime.evaluators.numbering import distinct_pairs, find_places, first_place, group_bounds
from streamq.runtime.event import LE, RE
from streamq.runtime.groups import Holds, no_holds
from streamq.runtime.time.tick_arithmetic import saturating
from streamq.time import INFINITY
from streamq.windows.window import W, Window, WindowKindVerbs

if TYPE_CHECKING:
    from streamq.runtime.time.progress_rule import Cti, MissingRows


@dataclass(frozen=True)
class Count(Window):
    """Count windows: ``[s_i, s_(i+n-1) + 1)``, over the distinct starts ``s_1 < s_2 < ...`` of a group's events.

    With ``by="end"`` the s are the finite ends. A window's members are the events that start (end) in it: n, or more where
    several start at one instant. Every instant that n - 1 others follow begins a window; fewer than n make none.
    """

    n: int
    by: str = "start"

    name = "count"
    by_numbers = True

    @classmethod
    def from_arguments(cls, n: Any, by: Any) -> Count:
        """Return windows of n instants; raise PlanError unless n is a whole number of at least 1 and ``by`` "start" or "end"."""
        check_word(by, ("start", "end"), "by", "count_window")
        check_whole_number("count_window", "n", n)
        return cls(n, by)

    def clip(self, asked: str | None) -> str:
        """Return ``asked``, by default "full", by ends "right"; raise PlanError for what windows by ends do not allow."""
        clip = asked or (ClipInput.RIGHT if self.by == "end" else ClipInput.FULL)
        if self.by == "end" and clip not in (ClipInput.NONE, ClipInput.RIGHT):
            wrong, hint = "windows of ends clip right or not at all", 'Say clip_input="none", or leave it out.'
            raise PlanError(sentence("count_window", wrong, f"found {clip!r}", hint))
        return clip

    def footprint(self, longest: int | None, keys: tuple[str, ...], *, condenses: bool) -> Footprint:
        return replace(
            super().footprint(longest, keys, condenses=condenses),
            cti="the (n-1)-th greatest instant below c",
            keeps="events of windows not final, or still to come",
            opens="parts of a group that rows touch or with a window due: the events of windows not final",
            for_good="the last events of each group, whose windows others have to end" if keys else "",
        )

    def _retention(self, longest: int, keys: tuple[str, ...], *, condenses: bool) -> Retention | None:
        """Return a bound where the settled events of an instant are one row."""
        return Retention(longest, self.n, keys) if condenses else None

    @property
    def windows_of_a_point(self) -> int:
        return self.n

    @property
    def by_starts(self) -> bool:
        return self.by == "start"

    def shown(self, axis: str) -> str:
        return f"{self.n} {self.by}s"

    def assigner(self, names: Sequence[str]) -> Assigner:
        return CountAssigner(self.n, self.by)


class CountVerbs(WindowKindVerbs[W]):
    """The verb for count windows."""

    def count_window(self, n: int, by: str = "start", *, clip_input: str | None = None, stamp: str | None = None) -> W:
        """Windows of ``n`` consecutive distinct starts (or finite ends, ``by="end"``): ``[s_i, s_(i+n-1) + 1 tick)``.

        Members are the events whose start (end) lies in the window: with ties more than n. By ends, ``clip_input`` is "right"
        (the default) or "none". Results are points at the window's end unless ``stamp="align"``. Raises PlanError.

        ::

            events   3 at 1  5 at 4  1 at 9           n = 2
            windows  [1,5):3 5  [4,10):5 1  reported at 5 and 10

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5}), (9, 10, {"v": 1})])
        >>> s.count_window(2).select(total=sq.sum("v")).show()
        total  start  end
            8      5    6
            6     10   11
        """
        window = Count.from_arguments(n, by)
        return self._in_windows(lambda axis: window, "count_window", window.clip(clip_input), stamp)


@dataclass(frozen=True)
class CountAssigner(Assigner):
    """Assigns events to count windows by the distinct instants of their group."""

    n: int
    by: str

    @property
    def cti(self) -> Cti:
        from streamq.runtime.time.progress_rule import Cti

        return Cti.COUNTED

    def wanted(self, *, grouped: bool) -> MissingRows:
        from streamq.runtime.time.progress_rule import MissingRows

        return MissingRows(self.n, self.by, grouped)

    def _instants(self, table: pa.Table) -> Ints:
        """Return the starts or the ends of events, as the windows count them."""
        return ints(table, LE if self.by == "start" else RE)

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Return each event's windows that end after ``since``; ``upto`` bounds nothing.

        A window's number is the place of its first instant among those of all groups. An event without an end is in no window of
        ends.
        """
        mine = self._instants(table)
        finite = np.flatnonzero(mine < INFINITY)
        g, mine = g[finite], mine[finite]
        group, at = distinct_pairs(g, mine)
        place, n = find_places(group, at, g, mine), self.n
        first, last = group_bounds(group, g)
        low = np.maximum(place - n + 1, np.maximum(first, first_place(group, at >= since, g) - n + 1))
        high = np.minimum(place, last - n + 1)
        return Ranges(finite, g, low, high, lambda _, index: (at[index], at[index + n - 1] + 1))

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        """Mark the events from the n-th greatest instant of their group on, where instants after c - 2 count as c - 2.

        In a group of fewer instants mark all.
        """
        mine = self._instants(table)
        group, at = distinct_pairs(g, np.minimum(mine, c - 2))
        _, last = group_bounds(group, g)
        return mine >= (at[np.maximum(last - (self.n - 1), group_bounds(group, g)[0])] if len(at) else mine)

    def chains(self, g: Ints, table: pa.Table, c: int) -> Ints:
        """Return equal numbers for events of one instant, which are in the same windows."""
        return codes(pa.table({"g": g, "at": self._instants(table)}), ["g", "at"])[0]

    def holds(self, g: Ints, table: pa.Table, rows: pa.Table, c: int) -> Holds:
        """Return the (n-1)-th greatest instant before c of each group, or its first of fewer, until the next instant is past.

        None if n is 1.
        """
        if self.n == 1:
            return no_holds()
        mine = self._instants(table)
        past = mine < c
        group, at = distinct_pairs(g[past], mine[past])
        first, last = group_bounds(group, g[past])
        held = at[np.maximum(last - (self.n - 2), first)] if len(at) else at
        to_come = np.full(int((~past).sum()), INFINITY)
        return Holds(
            np.concatenate([g[past], g[~past]]),
            np.concatenate([held, to_come]),
            np.concatenate([np.full(len(held), INFINITY), saturating(mine[~past], 1)]),
        )
