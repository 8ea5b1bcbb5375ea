"""Evaluators over two streams: pairs of events that live at once, the lifetimes they cover, and lifetimes cut by other starts.

Pairs in windows of a grid are the inner join of the members' ranges of windows, then a row for each shared window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import JoinKind
from streamq.plan.expr import Expr
from streamq.plan.schema import Schema
from streamq.runtime.arrow.arrow_expr import evaluate
from streamq.runtime.arrow.columnar import concat, expand_ranges, ints, is_matching, with_column, with_columns
from streamq.runtime.arrow.overlap import next_after, overlapping_pairs, remaining_pieces, union_of_pieces
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluator import SettledProgress
from streamq.runtime.grid_ranges import grid_lifetimes, window_range
from streamq.runtime.groups import GROUP_NUMBER, ToCome, least_by_group, matching_groups
from streamq.runtime.time.progress_rule import ARRAYS, SETTLED, Cti, EndlessRow, NoRowReason, ProgressRule, Release
from streamq.time import INFINITY, Grid


@dataclass(frozen=True)
class PairCondition:
    """A condition ``where`` over the columns of a pair, whose schema is ``pair``."""

    where: Expr
    pair: Schema

    def holds(self, pairs: pa.Table) -> Mask:
        """Mark the pairs for which it is true, neither false nor NULL."""
        if not pairs.num_rows:
            return np.zeros(0, bool)
        columns = {n: pairs.column(n).combine_chunks() for n in self.pair.names}
        passed = pc.fill_null(evaluate(self.where, self.pair, columns, _no_lifetime, pairs.num_rows), False)
        return np.asarray(passed.to_numpy(zero_copy_only=False), bool)


def _no_lifetime(part: str) -> pa.Array:
    raise AssertionError("a condition on two events has no lifetime")


class KeyedSides(SettledProgress):
    """Two streams whose columns ``on`` must be equal."""

    on: tuple[tuple[str, str], ...]

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        return tuple(a for a, _ in self.on), tuple(b for _, b in self.on)

    def _matching(self, left: pa.Table, right: pa.Table) -> tuple[Ints, Ints]:
        """Return the group numbers of both sides, -1 where a key is NULL."""
        ours, theirs = self.group_columns
        return matching_groups(left, ours), matching_groups(right, theirs)


@dataclass(frozen=True)
class JoinEvaluator(KeyedSides):
    """Pairs with equal ``on`` columns for which ``where`` holds; semi, anti: maximal parts of left lifetimes with, without a
    partner.

    left, right: each side's columns of the pair, under the pair's names. Semi and anti joins rename the left ones to ``kept``. A
    row with a NULL key has no partner.
    """

    how: JoinKind
    on: tuple[tuple[str, str], ...]
    where: PairCondition | None
    left: tuple[str, ...]
    right: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def progress_rule(self) -> ProgressRule:
        if self.how == JoinKind.INNER:
            return SETTLED
        return replace(SETTLED, cti=Cti.LEFT_BEHIND, subtracts=self.how == JoinKind.ANTI)

    def cti(self, progress: Sequence[int], held: int) -> int:
        """Return c, the least CTI of the inputs, for an inner join, whose rows settle with both sides.

        Else return the least instant from c on at which a left event is alive that lives beyond c, at most the left input's
        CTI, and that if there is no such event: all rows lie within left events. ``held`` is the least start of such an event.
        """
        c, ours = min(progress), progress[0]
        return c if self.how == JoinKind.INNER else min(ours, max(held, c))

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Return pairs (inner, left), and parts of left lifetimes with a partner (semi) or without one (left, anti).

        A left join has the pairs, then the parts, with NULL in the right columns. Pairs are found in sorted starts, the covered
        parts as their union per left event. ``since`` and ``upto`` leave nothing out.
        """
        left, right = inputs
        at, of = self.pairs(left, right)
        if self.how == JoinKind.INNER:
            return self.paired(left, right, at, of)
        le, re = ints(left, LE), ints(left, RE)
        start, end = np.maximum(le[at], ints(right, LE)[of]), np.minimum(re[at], ints(right, RE)[of])
        owner, begin, until = union_of_pieces(at, start, end)
        if self.how != JoinKind.SEMI:
            owner, begin, until = remaining_pieces(le, re, owner, begin, until)
        # the group's number keeps the number of rows, where no column of theirs is read
        part = left.select([*self.left, GROUP_NUMBER]).take(pa.array(owner))
        part = part.rename_columns([*self.kept, GROUP_NUMBER])
        part = with_column(with_column(part, LE, begin), RE, until)
        if self.how != JoinKind.LEFT:
            return part
        for name in self.right:
            part = part.append_column(name, pa.nulls(part.num_rows, right.schema.field(name).type))
        return concat([self.paired(left, right, at, of), part])

    def pairs(self, left: pa.Table, right: pa.Table) -> tuple[Ints, Ints]:
        """Return the pairs that overlap, have equal keys and satisfy ``where``: row numbers on the left and on the right."""
        ours, theirs = self._matching(left, right)
        at, of = overlapping_pairs(ours, ints(left, LE), ints(left, RE), theirs, ints(right, LE), ints(right, RE))
        if self.where is not None:
            agree = self.where.holds(pair_rows(left, right, self.left, self.right, at, of))
            at, of = at[agree], of[agree]
        return at, of

    def paired(self, left: pa.Table, right: pa.Table, at: Ints, of: Ints) -> pa.Table:
        """Return the rows of pairs: ``[max(starts), min(ends))``, the columns of both."""
        pairs = pair_rows(left, right, [*self.left, GROUP_NUMBER], self.right, at, of)
        start = np.maximum(ints(left, LE)[at], ints(right, LE)[of])
        end = np.minimum(ints(left, RE)[at], ints(right, RE)[of])
        return with_column(with_column(pairs, LE, start), RE, end)

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Mark, on each side, the events that end at or after c.

        If there are parts of left lifetimes (not for an inner join), right events of equal keys that overlap such a left one are
        marked, too, even if ``where`` does not hold.
        """
        left, right = inputs
        ours, theirs = ints(left, RE) >= c, ints(right, RE) >= c
        if self.how != JoinKind.INNER:
            mine, others = self._matching(left, right)
            open_now = np.flatnonzero(ours)
            _, of = overlapping_pairs(
                mine[open_now],
                ints(left, LE)[open_now],
                ints(left, RE)[open_now],
                others,
                ints(right, LE),
                ints(right, RE),
            )
            theirs[of] = True
        return [ours, theirs]


def pair_rows(
    left: pa.Table, right: pa.Table, ours: Sequence[str], theirs: Sequence[str], at: Ints, of: Ints
) -> pa.Table:
    """Return the columns ``ours`` of the rows ``at`` of the left table beside ``theirs`` of the rows ``of`` of the right one.

    If neither side has columns, the one column is ``__rows``, with the rows ``at``, so that their number is kept.
    """
    one, other = left.select(list(ours)).take(pa.array(at)), right.select(list(theirs)).take(pa.array(of))
    pairs = pa.table({**{n: one.column(n) for n in ours}, **{n: other.column(n) for n in theirs}})
    # a table without columns has no rows: a technical one keeps their number
    return pairs if pairs.num_columns else pa.table({"__rows": pa.array(at)})


@dataclass(frozen=True)
class ExceptEvaluator(SettledProgress):
    """The units of the left stream above those of the right one, per payload, over maximal intervals."""

    names: tuple[str, ...]

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        return self.names, self.names

    @property
    def progress_rule(self) -> ProgressRule:
        return replace(SETTLED, subtracts=True)

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Return a row for each unit of a payload and each of its intervals; ``since`` and ``upto`` leave nothing out.

        The endpoints of each payload are swept: the level is ``max(0, l - r)``, and a unit lives while it is below the level.
        """
        both = concat([t.select([*self.names, GROUP_NUMBER, LE, RE]) for t in inputs])
        n = both.num_rows
        sign = np.where(np.arange(n) < inputs[0].num_rows, 1, -1)
        group = ints(both, GROUP_NUMBER)
        at = np.concatenate([ints(both, LE), ints(both, RE)])
        change, whose = np.concatenate([sign, -sign]), np.concatenate([group, group])
        first = np.concatenate([np.arange(n), np.arange(n)])
        # one change a payload and instant
        order = np.lexsort((at, whose))
        at, change, whose, first = at[order], change[order], whose[order], first[order]
        new = np.ones(len(at), bool)
        new[1:] = (whose[1:] != whose[:-1]) | (at[1:] != at[:-1])
        start = np.flatnonzero(new)
        at, whose, first = at[start], whose[start], first[start]
        # each payload's changes add up to nothing, so one running sum serves all
        level = np.maximum(np.cumsum(np.add.reduceat(change, start)) if len(start) else change, 0)
        before = np.concatenate([[0], level[:-1]])[: len(level)]
        rises, falls = expand_ranges(before + 1, level), expand_ranges(level + 1, before)
        ups = np.lexsort((at[rises[0]], rises[1], whose[rises[0]]))
        downs = np.lexsort((at[falls[0]], falls[1], whose[falls[0]]))
        # per payload and unit rises and falls alternate
        units = both.select([*self.names, GROUP_NUMBER]).take(pa.array(first[rises[0]][ups]))
        return with_column(with_column(units, LE, at[rises[0]][ups]), RE, at[falls[0]][downs])

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Mark, per payload, the events that end at or after the least of c and the starts of rows that end at or after c."""
        is_open = ints(rows, RE) >= c
        groups = [ints(t, GROUP_NUMBER) for t in inputs]
        count = 1 + max(int(g.max(initial=0)) for g in groups)
        least = least_by_group(count, (ints(rows, GROUP_NUMBER)[is_open], ints(rows, LE)[is_open]), otherwise=c)
        return [ints(t, RE) >= least[g] for t, g in zip(inputs, groups, strict=True)]


@dataclass(frozen=True)
class ClipEvaluator(KeyedSides):
    """Events end at the first start, after their own, of an event of the other stream with equal ``on``."""

    names: tuple[str, ...]
    on: tuple[tuple[str, str], ...]

    @property
    def progress_rule(self) -> ProgressRule:
        return replace(SETTLED, endless=EndlessRow.A_CUT)

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Return the left events, each ended by the first later start with equal keys on the other side.

        An event that ends before that, or has no such start, or a NULL key, is unchanged. Ends of the other side do not count.
        """
        left, by = inputs
        return with_column(left, RE, np.minimum(ints(left, RE), self.cuts(left, by)))

    def cuts(self, left: pa.Table, by: pa.Table) -> Ints:
        """Return, for each left event, the first later start with equal keys on the other side; INFINITY if there is none."""
        ours, theirs = self._matching(left, by)
        has_key = theirs >= 0
        return next_after(ours, ints(left, LE), theirs[has_key], ints(by, LE)[has_key])

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Mark left events that end at or after c; of the other side, the starts from c on, and those that cut such an event."""
        left, by = inputs
        ours, theirs = self._matching(left, by)
        open_now = ints(left, RE) >= c
        cuts = pa.table({GROUP_NUMBER: ours, LE: self.cuts(left, by)}).filter(pa.array(open_now))
        starts = pa.table({GROUP_NUMBER: theirs, LE: ints(by, LE)})
        return [open_now, (ints(by, LE) >= c) | is_matching(starts, cuts, [GROUP_NUMBER, LE])]


@dataclass(frozen=True)
class WindowedJoinEvaluator(SettledProgress):
    """Every pair of members of one window of a grid, with the window as lifetime.

    A member's range has the numbers of its windows as a lifetime: from the first to the one after the last, INFINITY if it never
    ends. Two members share the windows in which their ranges overlap; ``pairing`` is the inner join of ranges.
    """

    window: Grid
    pairing: JoinEvaluator

    def ranges(self, members: pa.Table) -> pa.Table:
        """Return members with their ranges in place of their lifetimes, without those that lie in gaps between windows."""
        low, high = window_range(self.window, ints(members, LE), ints(members, RE), ARRAYS)
        ranges = with_columns(members, {LE: low, RE: np.where(high == INFINITY, INFINITY, high + (high != INFINITY))})
        return ranges.filter(pa.array(low <= high)) if self.window.hop > self.window.size else ranges

    def windows(self, pairs: pa.Table, first: int, last: int) -> pa.Table:
        """Return a row for each pair and each window of its range, from window ``first`` to ``last``, with that as lifetime.

        Pairs without an end have none if ``last`` is INFINITY.
        """
        low, end = np.maximum(ints(pairs, LE), first), ints(pairs, RE)
        high = np.minimum(end - 1, last)
        has_some = np.flatnonzero((low <= high) & ((end != INFINITY) | (last != INFINITY)))
        which, index = expand_ranges(low[has_some], high[has_some])
        start, end = grid_lifetimes(self.window, index)
        return with_columns(pairs.take(pa.array(has_some[which])), {LE: start, RE: end})

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        """Return the pairs of the windows that end after ``since`` and start before ``upto``, each with its window as lifetime.

        Members with a NULL key have no pair. Endless pairs have no window if ``upto`` is INFINITY.
        """
        left, right = map(self.ranges, inputs)
        pairs = self.pairing.paired(left, right, *self.pairing.pairs(left, right))
        return self.windows(pairs, self.window.first_ending_after(since), self.window.last_starting_before(upto))

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        return self.pairing.group_columns

    @property
    def progress_rule(self) -> ProgressRule:
        return ProgressRule(
            Cti.EARLIEST_WINDOW,
            final=Release.AT_END,
            early=Release.AT_END,
            windows=True,
            grid=self.window,
            may_be_none=NoRowReason.OF_PAIRS,
        )

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Mark the members of windows that end at or after c, and the events that end at or after c."""
        least = self.window.start(self.window.first_ending_after(c - 1))
        return [ints(table, RE) > min(c - 1, least) for table in inputs]

    def to_come(self, inputs: Sequence[pa.Table], upto: int) -> ToCome:
        """Return the events that live beyond ``upto``, with the start of the first window from there on."""
        later = np.concatenate([ints(table, GROUP_NUMBER)[ints(table, RE) > upto] for table in inputs])
        return ToCome(later, np.full(len(later), self.window.next_start(upto)))

    def cti(self, progress: Sequence[int], held: int) -> int:
        """Return the start of the earliest window that is not final, with members or not; at the end of the input INFINITY."""
        c = min(progress)
        return c if c == INFINITY else self.window.start(self.window.first_ending_after(c))
