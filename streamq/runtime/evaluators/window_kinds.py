"""The kinds of windows, as ranges of numbered windows: an event lies in windows ``low .. high`` of its group.

Which kinds there are: docs/concepts.md, "Windows".

A kind says how windows are numbered, where they lie, when they are final, and which events they still need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from streamq.runtime.arithmetic import ARRAYS
from streamq.runtime.columnar import ints, runs
from streamq.runtime.evaluators.numbering import beyond, bounds, distinct, first_in, places
from streamq.runtime.event import LE, RE
from streamq.runtime.grid import grid_index, grid_lifetimes, grid_range
from streamq.runtime.lifetimes import saturating
from streamq.runtime.values import Ints, Mask, ranks
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows import Count, Hopping, Landmark, Rows, Session, Snapshot, Window


@dataclass(frozen=True)
class Ranges:
    """Events (by row), the windows ``low .. high`` of ``owner`` each lies in, and where those windows are.

    An owner is whatever numbers its own windows; an event may occur under several.
    """

    event: Ints
    owner: Ints
    low: Ints
    high: Ints
    where: Callable[[Ints, Ints], tuple[Ints, Ints]]

    def some(self) -> Ranges:
        """Without empty ranges."""
        is_some = self.low <= self.high
        return Ranges(self.event[is_some], self.owner[is_some], self.low[is_some], self.high[is_some], self.where)


class Kind(Protocol):
    """One kind of windows over events of groups ``g``."""

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Every event's windows that end after ``since``, as far as those are bounded by ``upto``; ranges may be empty."""

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        """The events of which windows that end at or after c - 1 are made."""

    def aligned_progress(self, g: Ints, table: pa.Table, c: int) -> int:
        """The least start of a window that is not final at c, of those that are and those to come."""


@dataclass(frozen=True)
class HoppingKind:
    window: Hopping

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        low, high = grid_range(self.window, table, since, upto)
        return Ranges(np.arange(len(g)), g, low, high, lambda _, index: grid_lifetimes(self.window, index))

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        # first_ending_after(x): windows with RE > x; those that end at c - 1 count for points at the end
        least = self.window.start(self.window.first_ending_after(c - 2))
        return ints(table, RE) > min(c - 1, least)

    def aligned_progress(self, g: Ints, table: pa.Table, c: int) -> int:
        return self.window.start(self.window.first_ending_after(c))


@dataclass(frozen=True)
class SnapshotKind:
    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        le, re = ints(table, LE), ints(table, RE)
        group, at = distinct(np.concatenate([g, g]), np.concatenate([le, re]))
        low, high = places(group, at, g, le), places(group, at, g, re) - 1
        if len(at):
            # those that end after since
            ends = np.append(at[1:], INFINITY)
            low = np.maximum(low, first_in(group, ends > since, g))
        return Ranges(np.arange(len(g)), np.zeros_like(g), low, high, lambda _, index: (at[index], at[index + 1]))

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        le, re = ints(table, LE), ints(table, RE)
        # the window in which a tick before c lies starts at the last endpoint before that, if somebody is alive there
        c = c - 1
        least = np.full(int(g.max(initial=0)) + 1, MINUS_INFINITY)
        for at in (le, re):
            before = at < c
            np.maximum.at(least, g[before], at[before])
        alive = np.zeros(len(least), bool)
        alive[g[(le < c) & (re >= c)]] = True
        return re >= np.where(alive, least, c)[g]

    def aligned_progress(self, g: Ints, table: pa.Table, c: int) -> int:
        return c


@dataclass(frozen=True)
class CountKind:
    n: int
    by: str

    def _instants(self, table: pa.Table) -> Ints:
        return ints(table, LE if self.by == "start" else RE)

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        mine = self._instants(table)
        finite = np.flatnonzero(mine < INFINITY)
        g, mine = g[finite], mine[finite]
        group, at = distinct(g, mine)
        place, n = places(group, at, g, mine), self.n
        first, last = bounds(group, g)
        low = np.maximum(place - n + 1, np.maximum(first, first_in(group, at >= since, g) - n + 1))
        high = np.minimum(place, last - n + 1)
        return Ranges(finite, np.zeros_like(g), low, high, lambda _, index: (at[index], at[index + n - 1] + 1))

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        mine = self._instants(table)
        group, at = distinct(g, np.minimum(mine, c - 2))
        _, last = bounds(group, g)
        return mine >= (at[np.maximum(last - (self.n - 1), bounds(group, g)[0])] if len(at) else mine)

    def aligned_progress(self, g: Ints, table: pa.Table, c: int) -> int:
        mine = self._instants(table)
        past = mine < c
        if self.n == 1 or not past.any():
            return c
        group, at = distinct(g[past], mine[past])
        first, last = bounds(group, g[past])
        return min(c, int(at[np.maximum(last - (self.n - 2), first)].min()))


@dataclass(frozen=True)
class RowsKind:
    n: int
    step: int
    order_by: tuple[str, ...]

    def _ordered(self, g: Ints, table: pa.Table) -> tuple[Ints, Ints]:
        """Events in the order of group, LE, order_by; and each place's number in its group.

        Of equal ones the first to end comes first: an end that may still move is after all that are settled.
        """
        order = np.lexsort((ints(table, RE), *reversed(ranks(table, self.order_by)), ints(table, LE), g))
        first, _ = bounds(g[order], g[order])
        return order, np.arange(len(order)) - first

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        order, number = self._ordered(g, table)
        g, le, n, step = g[order], ints(table, LE)[order], self.n, self.step
        first, last = bounds(g, g)
        asked = first_in(g, le >= since, g) - first
        low = np.maximum(-((n - 1 - np.maximum(number, asked)) // step), 0)
        high = np.minimum(number, last - first + 1 - n) // step

        def where(owner: Ints, index: Ints) -> tuple[Ints, Ints]:
            start = owner + index * step
            return le[start], le[start + n - 1] + 1

        return Ranges(order, first, low, high, where)

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        order, number = self._ordered(g, table)
        first, last = bounds(g[order], g[order])
        le = ints(table, LE)[order]
        # the last row of a window that is still asked for has LE >= c - 2; rows go by whole steps, so that numbers fit
        gone = np.zeros(len(order), np.int64)
        np.add.at(gone, first, (le < c - 2).astype(np.int64))
        settled = gone[first]
        earliest = np.maximum(-((self.n - 1 - settled) // self.step), 0) * self.step
        earliest = np.minimum(earliest, (last - first + 1) // self.step * self.step)
        is_needed = np.empty(len(order), bool)
        is_needed[order] = number >= np.minimum(earliest, settled // self.step * self.step)
        return is_needed

    def aligned_progress(self, g: Ints, table: pa.Table, c: int) -> int:
        order, _ = self._ordered(g, table)
        if not len(order):
            return c
        first, _ = bounds(g[order], g[order])
        le = ints(table, LE)[order]
        past = np.zeros(len(order), np.int64)
        np.add.at(past, first, (le < c).astype(np.int64))
        heads = np.unique(first)
        # the first window whose last row is not there yet, and its first row, if that is
        j = np.maximum(-((self.n - 1 - past[heads]) // self.step), 0)
        begun = j * self.step < past[heads]
        return min(c, int(le[(heads + j * self.step)[begun]].min(initial=c)))


@dataclass(frozen=True)
class SessionKind:
    gap: int

    def _sessions(self, g: Ints, table: pa.Table) -> tuple[Ints, Ints, Ints, Ints]:
        """Events in order of group and LE, each one's session, and the sessions' intervals."""
        le, re = ints(table, LE), ints(table, RE)
        order = np.lexsort((le, g))
        g, le, re = g[order], le[order], re[order]
        if not len(order):
            return order, order, order, order
        every = np.unique(re)
        reached = np.maximum.accumulate(g * (len(every) + 1) + np.searchsorted(every, re))
        alive = every[reached - g * (len(every) + 1)]
        new = np.ones(len(order), bool)
        new[1:] = (g[1:] != g[:-1]) | (le[1:] >= saturating(alive[:-1], self.gap - 1))
        number = np.cumsum(new) - 1
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(order)) - 1
        return order, number, le[first], saturating(alive[last], self.gap - 1)

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        order, number, start, end = self._sessions(g, table)
        low = np.where(end[number] > since, number, number + 1) if len(order) else number
        return Ranges(order, np.zeros_like(g), low, number, lambda _, index: (start[index], end[index]))

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        order, number, _, end = self._sessions(g, table)
        is_needed = np.zeros(len(order), bool)
        is_needed[order] = end[number] >= c - 1
        return is_needed

    def aligned_progress(self, g: Ints, table: pa.Table, c: int) -> int:
        _, _, start, end = self._sessions(g, table)
        return min(c, int(start[end > c].min(initial=c)))


@dataclass(frozen=True)
class LandmarkKind:
    window: Landmark

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        hop, at, period = self.window.hop, self.window.start, self.window.period
        le, re = ints(table, LE), ints(table, RE)
        if period is None:
            which = np.flatnonzero(re > at)
            mark, last = np.full(len(which), at), np.full(len(which), INFINITY)
        else:
            # landmarks before the bound whose stretch ends after since
            endless = np.minimum(re, upto) == INFINITY
            low = grid_index(le, at, period, ARRAYS)
            high = grid_index(np.where(endless, le, np.minimum(re, upto) - 1), at, period, ARRAYS)
            if since > MINUS_INFINITY:
                low = np.maximum(low, (since - at) // period)
            which, q = runs(low, np.where(endless, low - 1, high))
            mark, last = at + q * period, np.full(len(which), -(-period // hop))
        # [l, l + jH) is asked for while l + (j - 1)H lies before the bound, and while it ends after since
        last = np.minimum(last, beyond(upto - 1, mark) // hop + 1)
        first = np.maximum(beyond(le[which], mark), 0) // hop + 1
        if since > MINUS_INFINITY:
            first = np.maximum(first, beyond(since, mark) // hop + 1)
        pair = np.stack([g[which], mark])
        owners, owner = np.unique(pair, axis=1, return_inverse=True)

        def where(owner: Ints, index: Ints) -> tuple[Ints, Ints]:
            start = owners[1][owner]
            end = saturating(start + (index - 1) * hop, hop)
            return start, end if period is None else np.minimum(end, saturating(start, period))

        return Ranges(which, owner.reshape(-1).astype(np.int64), first, last, where)

    def _mark(self, t: int) -> int | None:
        """The last landmark at or before t."""
        at, period = self.window.start, self.window.period
        if t < at and period is None:
            return None
        return at if period is None else at + (t - at) // period * period

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        mark = self._mark(c - 2)
        return ints(table, RE) > (min(c - 1, mark) if mark is not None else MINUS_INFINITY)

    def aligned_progress(self, g: Ints, table: pa.Table, c: int) -> int:
        mark = self._mark(c)
        return c if mark is None or c in (INFINITY, MINUS_INFINITY) else min(c, mark)


def kind_of(window: Window) -> Kind:
    match window:
        case Hopping():
            return HoppingKind(window)
        case Snapshot():
            return SnapshotKind()
        case Count(n=n, by=by):
            return CountKind(n, by)
        case Rows(n=n, step=step, order_by=order_by):
            return RowsKind(n, step, order_by)
        case Session(gap=gap):
            return SessionKind(gap)
        case Landmark():
            return LandmarkKind(window)
