"""Windows of every kind as ranges of numbered windows: an event lies in windows ``lo .. hi`` of its group (SEMANTICS section 3).

What differs between the kinds is how windows are numbered, where they lie, when they are final, and which events they
still need; what is made of their members is the same for all: partial results merged over the ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType

from streamq.plan.partial import COUNT, Partial
from streamq.plan.reduction import Floats, RangedMembers, Reduction
from streamq.runtime.arithmetic import ARRAYS
from streamq.runtime.columnar import ints, runs, with_column
from streamq.runtime.evaluators.reductions import payload_order, reduced
from streamq.runtime.event import LE, RE
from streamq.runtime.grid import grid_index, grid_lifetimes, grid_range
from streamq.runtime.lifetimes import saturating
from streamq.runtime.overlap import grouped_codes
from streamq.runtime.partial import PartialMin
from streamq.runtime.partials import INDEX, over_windows
from streamq.runtime.release import Release
from streamq.runtime.values import Ints, Mask, ranks
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows import POINT_AT_END, Count, Hopping, Landmark, Rows, Session, Snapshot, Window

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import Cti, ProgressRule, RowsWanted

OWNER, HEAD = "__owner", "__head"


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
        kept = self.low <= self.high
        return Ranges(self.event[kept], self.owner[kept], self.low[kept], self.high[kept], self.where)


@dataclass(frozen=True)
class Membership:
    """Each member's event (by row), window (by owner and number), and the window's interval."""

    event: Ints
    owner: Ints
    index: Ints
    start: Ints
    end: Ints


class _Kind(Protocol):
    """One kind of windows over events of groups ``g``."""

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Every event's windows that end after ``since``, as far as those are bounded by ``upto``; ranges may be empty."""

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        """The events of which windows that end at or after c - 1 are made."""

    def aligned_progress(self, g: Ints, table: pa.Table, c: int) -> int:
        """The least start of a window that is not final at c, of those that are and those to come."""


@dataclass(frozen=True)
class _Hopping:
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
class _Snapshot:
    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        le, re = ints(table, LE), ints(table, RE)
        group, at = _distinct(np.concatenate([g, g]), np.concatenate([le, re]))
        low, high = _place(group, at, g, le), _place(group, at, g, re) - 1
        if len(at):
            # those that end after since
            ends = np.append(at[1:], INFINITY)
            low = np.maximum(low, _first_in(group, ends > since, g))
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
class _Count:
    n: int
    by: str

    def _instants(self, table: pa.Table) -> Ints:
        return ints(table, LE if self.by == "start" else RE)

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        mine = self._instants(table)
        known = np.flatnonzero(mine < INFINITY)
        g, mine = g[known], mine[known]
        group, at = _distinct(g, mine)
        place, n = _place(group, at, g, mine), self.n
        first, last = _bounds(group, g)
        low = np.maximum(place - n + 1, np.maximum(first, _first_in(group, at >= since, g) - n + 1))
        high = np.minimum(place, last - n + 1)
        return Ranges(known, np.zeros_like(g), low, high, lambda _, index: (at[index], at[index + n - 1] + 1))

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        mine = self._instants(table)
        group, at = _distinct(g, np.minimum(mine, c - 2))
        _, last = _bounds(group, g)
        return mine >= (at[np.maximum(last - (self.n - 1), _bounds(group, g)[0])] if len(at) else mine)

    def aligned_progress(self, g: Ints, table: pa.Table, c: int) -> int:
        mine = self._instants(table)
        past = mine < c
        if self.n == 1 or not past.any():
            return c
        group, at = _distinct(g[past], mine[past])
        first, last = _bounds(group, g[past])
        return min(c, int(at[np.maximum(last - (self.n - 2), first)].min()))


@dataclass(frozen=True)
class _Rows:
    n: int
    step: int
    order_by: tuple[str, ...]

    def _ordered(self, g: Ints, table: pa.Table) -> tuple[Ints, Ints]:
        """Events in the order of group, LE, order_by; and each place's number in its group.

        Of equal ones the first to end comes first: an end that may still move is after all that are settled.
        """
        order = np.lexsort((ints(table, RE), *reversed(ranks(table, self.order_by)), ints(table, LE), g))
        first, _ = _bounds(g[order], g[order])
        return order, np.arange(len(order)) - first

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        order, number = self._ordered(g, table)
        g, le, n, step = g[order], ints(table, LE)[order], self.n, self.step
        first, last = _bounds(g, g)
        asked = _first_in(g, le >= since, g) - first
        low = np.maximum(-((n - 1 - np.maximum(number, asked)) // step), 0)
        high = np.minimum(number, last - first + 1 - n) // step

        def where(owner: Ints, index: Ints) -> tuple[Ints, Ints]:
            start = owner + index * step
            return le[start], le[start + n - 1] + 1

        return Ranges(order, first, low, high, where)

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        order, number = self._ordered(g, table)
        first, last = _bounds(g[order], g[order])
        le = ints(table, LE)[order]
        # the last row of a window that is still asked for has LE >= c - 2; rows go by whole steps, so that numbers fit
        gone = np.zeros(len(order), np.int64)
        np.add.at(gone, first, (le < c - 2).astype(np.int64))
        settled = gone[first]
        earliest = np.maximum(-((self.n - 1 - settled) // self.step), 0) * self.step
        earliest = np.minimum(earliest, (last - first + 1) // self.step * self.step)
        kept = np.empty(len(order), bool)
        kept[order] = number >= np.minimum(earliest, settled // self.step * self.step)
        return kept

    def aligned_progress(self, g: Ints, table: pa.Table, c: int) -> int:
        order, _ = self._ordered(g, table)
        if not len(order):
            return c
        first, _ = _bounds(g[order], g[order])
        le = ints(table, LE)[order]
        past = np.zeros(len(order), np.int64)
        np.add.at(past, first, (le < c).astype(np.int64))
        heads = np.unique(first)
        # the first window whose last row is not there yet, and its first row, if that is
        j = np.maximum(-((self.n - 1 - past[heads]) // self.step), 0)
        begun = j * self.step < past[heads]
        return min(c, int(le[(heads + j * self.step)[begun]].min(initial=c)))


@dataclass(frozen=True)
class _Session:
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
        kept = np.zeros(len(order), bool)
        kept[order] = end[number] >= c - 1
        return kept

    def aligned_progress(self, g: Ints, table: pa.Table, c: int) -> int:
        _, _, start, end = self._sessions(g, table)
        return min(c, int(start[end > c].min(initial=c)))


@dataclass(frozen=True)
class _Landmark:
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
        last = np.minimum(last, _beyond(upto - 1, mark) // hop + 1)
        first = np.maximum(_beyond(le[which], mark), 0) // hop + 1
        if since > MINUS_INFINITY:
            first = np.maximum(first, _beyond(since, mark) // hop + 1)
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


def _kind(window: Window) -> _Kind:
    match window:
        case Hopping():
            return _Hopping(window)
        case Snapshot():
            return _Snapshot()
        case Count(n=n, by=by):
            return _Count(n, by)
        case Rows(n=n, step=step, order_by=order_by):
            return _Rows(n, step, order_by)
        case Session(gap=gap):
            return _Session(gap)
        case Landmark():
            return _Landmark(window)


# numbering


def _distinct(g: Ints, at: Ints) -> tuple[Ints, Ints]:
    """The distinct pairs, in order."""
    order = np.lexsort((at, g))
    g, at = g[order], at[order]
    new = _changes(g, at)
    return g[new], at[new]


def _beyond(t: Ints | int, mark: Ints) -> Ints:
    """How far instants lie behind others, at most as long as the axis."""
    with np.errstate(over="ignore"):
        found = t - mark
    found = np.where((t >= mark) & ((found < 0) | (found == INFINITY)), INFINITY - 1, found)
    return np.where((t < mark) & (found > 0), MINUS_INFINITY + 1, found)


def _changes(a: Ints, b: Ints) -> Mask:
    """Where an ordered pair is another than the one before."""
    new = np.ones(len(a), bool)
    new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    return new


def _place(group: Ints, at: Ints, g: Ints, t: Ints) -> Ints:
    """Where each (g, t) stands among the ordered pairs, which hold it."""
    every = np.unique(at)
    m = len(every) + 1
    return np.searchsorted(group * m + np.searchsorted(every, at), g * m + np.searchsorted(every, t))


def _bounds(group: Ints, g: Ints) -> tuple[Ints, Ints]:
    """The first and last place of each group among ordered places."""
    return np.searchsorted(group, g, "left"), np.searchsorted(group, g, "right") - 1


def _first_in(group: Ints, wanted: Mask, g: Ints) -> Ints:
    """The first wanted place of each group, behind its last if there is none."""
    first, last = _bounds(group, g)
    places = np.flatnonzero(wanted)
    found = np.searchsorted(places, first)
    return (
        np.where(found < len(places), places[np.minimum(found, max(len(places) - 1, 0))], last + 1)
        if len(places)
        else last + 1
    )


# evaluators


@dataclass(frozen=True)
class _OverWindows:
    """What aggregates and top_k have in common: membership, stamps, progress.

    keys: the group's columns; clip: how members' lifetimes are cut before they are read; holds_back: whether a row waits for its
    window to be final even where rows could be corrected at no cost to progress (a time-sensitive result).
    """

    window: Window
    keys: tuple[str, ...]
    clip: str
    stamp: str
    sensitive: bool

    def _ranges(self, table: pa.Table, since: int, upto: int) -> Ranges:
        # a point at the end lives one tick longer than its window
        since = since - 1 if self.stamp == POINT_AT_END and since > MINUS_INFINITY else since
        return _kind(self.window).ranges(grouped_codes(table, self.keys), table, since, upto).some()

    def _members(self, found: Ranges) -> Membership:
        """Every event in each of its windows that is reported."""
        which, index = runs(found.low, found.high)
        event, owner = found.event[which], found.owner[which]
        start, end = found.where(owner, index)
        kept = self._reported(end)
        return Membership(event[kept], owner[kept], index[kept], start[kept], end[kept])

    def _reported(self, end: Ints) -> Mask:
        return end < INFINITY if self.stamp == POINT_AT_END else np.ones(len(end), bool)

    def _stamped(self, made: pa.Table, start: Ints, end: Ints) -> pa.Table:
        if self.stamp == POINT_AT_END:
            start, end = end, end + 1
        return with_column(with_column(made, LE, start), RE, end)

    @property
    def progress_rule(self) -> ProgressRule:
        """The table of SEMANTICS section 6; a snapshot may become longer until progress is past its end."""
        from streamq.runtime.progress_rule import ProgressRule

        point, snapshot = self.stamp == POINT_AT_END, isinstance(self.window, Snapshot)
        at_end = Release.AT_WINDOW_END if point else Release.AT_END
        past_end = Release.PAST_WINDOW_END if point else Release.PAST_END
        return ProgressRule(
            self._cti_rule,
            final=past_end if snapshot else at_end,
            early=Release.PAST_START if snapshot and not (point or self.sensitive) else at_end,
            windows=True,
            grid=self.window if isinstance(self.window, Hopping) else None,
            wanted=self._rows_wanted,
        )

    @property
    def _sends_c(self) -> bool:
        """Whether c goes on as it is: of points at the end of windows, and of snapshots, whose corrections cost no progress."""
        return self.stamp == POINT_AT_END or (isinstance(self.window, Snapshot) and not self.sensitive)

    @property
    def _cti_rule(self) -> Cti:
        from streamq.runtime.progress_rule import Cti

        if self._sends_c:
            return Cti.INPUT
        match self.window:
            case Snapshot() | Hopping():
                return Cti.EARLIEST_WINDOW
            case Count():
                return Cti.COUNTED
            case Rows():
                return Cti.FIRST_ROW
            case Session():
                return Cti.SESSION
        return Cti.LANDMARK

    @property
    def _rows_wanted(self) -> RowsWanted | None:
        from streamq.runtime.progress_rule import RowsWanted

        match self.window:
            case Count(n=n, by=by):
                return RowsWanted(n, by, bool(self.keys))
            case Rows(n=n):
                return RowsWanted(n, "", bool(self.keys))
        return None

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """What windows are made of that may still be asked for."""
        table = inputs[0]
        return [_kind(self.window).needed(grouped_codes(table, self.keys), table, c)]

    def cti(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> int:
        """What the rule says of these events."""
        if c in (INFINITY, MINUS_INFINITY) or self._sends_c:
            return c
        if isinstance(self.window, Snapshot):
            return min(c, int(ints(rows, LE)[ints(rows, RE) >= c].min(initial=c)))
        table = inputs[0]
        return _kind(self.window).aligned_progress(grouped_codes(table, self.keys), table, c)


@dataclass(frozen=True)
class WindowEvaluator(_OverWindows):
    """One row a window with members: keys, the number of members ``__n``, partial results, and reductions of all members.

    order: the payload, by which first, last and collected values go.
    """

    partials: tuple[Partial, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    order: tuple[str, ...] = ()

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Partial results over ranges of windows; only what needs all members at once has them copied into every window."""
        table = self._in_order(inputs[0])
        found = self._ranges(table, since, upto)
        events = table.take(pa.array(found.event))
        events = with_column(events, COUNT, np.ones(len(found.event), np.int64))
        columns: dict[str, Any] = {OWNER: found.owner, COUNT: events.column(COUNT), HEAD: found.event}
        for partial in self.partials:
            columns |= partial.of_events(events)
        partials = (*self.partials, PartialMin(HEAD, HEAD, LongType()))
        windows = over_windows(pa.table(columns), found.low, found.high, (OWNER,), partials)
        windows = windows.sort_by([(OWNER, "ascending"), (INDEX, "ascending")])
        start, end = found.where(ints(windows, OWNER), ints(windows, INDEX))
        made = {k: table.column(k).take(windows.column(HEAD)) for k in self.keys}
        names = [COUNT, *(name for partial in self.partials for name in partial.columns)]
        made |= {name: windows.column(name) for name in names}
        if self.reductions:
            made |= reduced(self._spanned(table, found, windows, start, end), self.reductions)
        kept = self._reported(end)
        return self._stamped(pa.table(made).filter(pa.array(kept)), start[kept], end[kept])

    def _in_order(self, table: pa.Table) -> pa.Table:
        """Events in an order of their own where floats are added up: a window's sum is the same whoever came first."""
        added = [partial.arg for partial in self.partials if partial.depends_on_order]
        added += [a for r in self.reductions if r.depends_on_order for a in r.column.args]
        if not added:
            return table
        return table.take(pa.array(np.lexsort((*ranks(table, list(dict.fromkeys(added))), ints(table, LE)))))

    def _spanned(self, table: pa.Table, found: Ranges, windows: pa.Table, start: Ints, end: Ints) -> RangedMembers:
        first = _place(ints(windows, OWNER), ints(windows, INDEX), found.owner, found.low)
        place = None
        if self.order:
            place = np.empty(table.num_rows, np.int64)
            place[payload_order(table, self.order, ints(table, LE), ints(table, RE))] = np.arange(table.num_rows)
            place = place[found.event]
        le, re = ints(table, LE)[found.event], ints(table, RE)[found.event]

        def lasts(row: Ints, window: Ints) -> Floats:
            a, b = le[row], re[row]
            if self.clip in ("full", "left"):
                a = np.maximum(a, start[window])
            if self.clip in ("full", "right"):
                b = np.minimum(b, end[window])
            return np.maximum(b.astype(np.float64) - a.astype(np.float64), 0.0)

        names = dict.fromkeys(a for r in self.reductions for a in (*r.column.args, *filter(None, [r.column.where])))
        rows = table.select([*names, LE]).take(pa.array(found.event))
        return RangedMembers(rows, first, first + (found.high - found.low), len(start), place, lasts, (start, end))


@dataclass(frozen=True)
class TopKEvaluator(_OverWindows):
    """The ``k`` members of each window with the greatest (or least) ``by``, their ``payload`` and rank."""

    k: int = 1
    by: str = ""
    desc: bool = True
    ties: str = "keep"
    payload: tuple[str, ...] = ()
    rank: str = "rank"

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """A sort by window and value; SQL's RANK."""
        table = inputs[0]
        found = self._members(self._ranges(table, since, upto))
        value = ranks(table, [self.by])[0][found.event].astype(np.int64)
        value = -value if self.desc else value
        if self.ties == "break":
            place = np.empty(table.num_rows, np.int64)
            rest = (ints(table, RE), ints(table, LE), *reversed(ranks(table, self.payload)))
            place[np.lexsort(rest)] = np.arange(table.num_rows)
            order = np.lexsort((place[found.event], value, found.index, found.owner))
        else:
            order = np.lexsort((value, found.index, found.owner))
        value = value[order]
        number = np.arange(len(order))
        first = np.zeros(len(order), np.int64)
        rank = first
        if len(order):
            new = _changes(found.owner[order], found.index[order])
            first = np.maximum.accumulate(np.where(new, number, 0))
            new[1:] |= value[1:] != value[:-1]
            rank = np.maximum.accumulate(np.where(new, number, 0)) - first + 1
        number = number - first
        kept = rank <= self.k if self.ties == "keep" else number < self.k
        order, rank = order[kept], rank[kept]
        made = table.select(list(self.payload)).take(pa.array(found.event[order]))
        made = made.append_column(self.rank, pa.array(rank, pa.int32()))
        return self._stamped(made, found.start[order], found.end[order])


__all__ = ["Membership", "TopKEvaluator", "WindowEvaluator"]
