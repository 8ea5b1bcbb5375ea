"""Edges into deltas: per key, the edges that can still matter are kept; a batch's effect is the difference of lifetimes.

An edge that comes again, equal as a whole to one that is held, is left out before it is judged: key, instant and edge name it.

State: per key its open start and every edge at or after c. Cost: a sort of the keys a batch touches. CTI: c; if the edge that
closes an event brings its payload, the least open start, for that changes what was said from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.basket import Scope
from streamq.runtime.columnar import codes, concat, ints, net, with_column
from streamq.runtime.event import LE, OPENS, RE, WEIGHT
from streamq.runtime.kernel import (
    Arrival,
    Clock,
    Judge,
    Output,
    Totals,
    Uncombined,
    remembered_judge,
)
from streamq.runtime.lateness import adjusts, is_late, late_rows, left_out, once_more
from streamq.runtime.repetitions import repetitions
from streamq.time import INFINITY

TIE = "two edges of one key at one instant"
GHOST = "__ghost"
"""True for an edge that was dropped as late; such a start is held, for the end that belongs to it goes with it."""


@dataclass(frozen=True)
class EdgesKernel(Uncombined):
    """key: the columns that make a chain; from_end: a closed event carries the end row's payload."""

    key: tuple[str, ...]
    from_end: bool

    def advance(self, state: Scope, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Lifetimes after this batch less lifetimes before it, as deltas."""
        totals = Totals()
        judge = remembered_judge(state, arrivals)
        held = state.read_all("edges")
        if held is None and not arrivals:
            return Output(None, clock.c, totals)
        fresh = [self._judged(self._once(a, held, judge, totals), held, totals) for a in arrivals]
        every = [t for t in (held, *fresh) if t is not None]
        names = every[0].column_names
        old = np.concatenate([np.full(t.num_rows, t is held) for t in every])
        edges = concat([t.select(names) for t in every])
        edges, old, number = self._ordered(edges, old)
        tie = self._ties(edges, number)
        left_out(edges.filter(pa.array(tie)), judge, TIE, totals)
        edges, old, number = edges.filter(pa.array(~tie)), old[~tie], number[~tie]
        touched = np.isin(number, number[~old])
        before = self._lifetimes(edges.filter(pa.array(old & touched)), number[old & touched], -1)
        after = self._lifetimes(edges.filter(pa.array(touched)), number[touched], 1)
        self._keep(state, edges, number, judge, clock.c, totals)
        cti = min(clock.c, self._least_open(edges, number, clock.c)) if self.from_end else clock.c
        made = net(concat([before, after]))
        return Output(made if made.num_rows else None, cti, totals)

    def _least_open(self, edges: pa.Table, number: np.ndarray[Any, Any], c: int) -> int:
        """The least start that is open at c: the edge that closes it brings another payload, from that start on."""
        if c == INFINITY:
            return c
        time = ints(edges, LE)
        following, _ = self._closed_by(edges, number)
        starts = edges.column(OPENS).to_numpy() & ~edges.column(GHOST).to_numpy() & (time < c)
        return int(time[starts & ((following < 0) | (time[following] >= c))].min(initial=c))

    def _ordered(
        self, edges: pa.Table, old: np.ndarray[Any, Any]
    ) -> tuple[pa.Table, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """By key, time, ends before starts; among ties what was there first, then by payload."""
        number, _ = codes(edges, list(self.key)) if edges.num_rows else (np.zeros(0, np.int64), None)
        rest = [n for n in edges.column_names if n not in (*self.key, LE, OPENS, GHOST)]
        ranks = [codes_in_order(edges, n) for n in reversed(rest)]
        opens = edges.column(OPENS).to_numpy()
        order = np.lexsort([*ranks, ~old, opens, ints(edges, LE), number])
        return edges.take(pa.array(order)), old[order], number[order]

    def _ties(self, edges: pa.Table, number: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        time, opens = ints(edges, LE), edges.column(OPENS).to_numpy()
        tie = np.zeros(len(time), bool)
        tie[1:] = (number[1:] == number[:-1]) & (time[1:] == time[:-1]) & (opens[1:] == opens[:-1])
        return tie

    def _closed_by(
        self, edges: pa.Table, number: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """For each edge: the position of the next edge of its key (or -1), ghosts left out; and whether it is a lost end."""
        n = edges.num_rows
        real = np.flatnonzero(~edges.column(GHOST).to_numpy())
        following = np.full(n, -1)
        same = number[real[1:]] == number[real[:-1]]
        following[real[:-1][same]] = real[1:][same]
        opens, time = edges.column(OPENS).to_numpy(), ints(edges, LE)
        matched = np.zeros(n, bool)
        starts = np.flatnonzero(opens & (following >= 0))
        matched[following[starts]] = time[following[starts]] > time[starts]
        return following, ~opens & ~matched

    def _lifetimes(self, edges: pa.Table, number: np.ndarray[Any, Any], weight: int) -> pa.Table:
        following, _ = self._closed_by(edges, number)
        starts = np.flatnonzero(edges.column(OPENS).to_numpy() & ~edges.column(GHOST).to_numpy())
        end = np.full(len(starts), INFINITY)
        closed = following[starts] >= 0
        end[closed] = ints(edges, LE)[following[starts][closed]]
        rows = starts
        if self.from_end:
            by_end = closed & ~edges.column(OPENS).to_numpy()[following[starts]]
            rows = np.where(by_end, following[starts], starts)
        made = edges.take(pa.array(rows)).drop_columns([OPENS, GHOST])
        made = with_column(with_column(made, LE, ints(edges, LE)[starts]), RE, end)
        return with_column(made, WEIGHT, np.full(len(starts), weight, np.int64))

    def _keep(
        self, state: Scope, edges: pa.Table, number: np.ndarray[Any, Any], judge: Judge, c: int, totals: Totals
    ) -> None:
        """Keep what can still matter; an end that no start can reach any more is no event."""
        time, opens, ghost = ints(edges, LE), edges.column(OPENS).to_numpy(), edges.column(GHOST).to_numpy()
        _, lost = self._closed_by(edges, number)
        over = lost & (time < c) & ~ghost
        if over.any():
            with_ghost = over & np.isin(number, number[ghost & opens])
            n = int(with_ghost.sum())
            totals.add(judge.source, "dropped", n)
            if n:
                totals.rows.append(late_rows(judge.source, "dropped", edges.filter(pa.array(with_ghost)), None))
            left_out(edges.filter(pa.array(over & ~with_ghost)), judge, "an end without an open start", totals)
        if c == INFINITY:
            for bin in state.bins("edges"):
                state.drop("edges", bin)
            return
        # an end that was dropped closes nothing, but the start that was dropped before it
        ended = np.zeros(len(time), bool)
        ended[:-1] = ghost[:-1] & ghost[1:] & ~opens[1:] & (number[1:] == number[:-1])
        stands = np.flatnonzero(opens | ~ghost)
        last = np.zeros(len(time), bool)
        last[stands] = np.append((number[stands][1:] != number[stands][:-1]) | (time[stands][1:] >= c), True)[
            : len(stands)
        ]
        state.replace("edges", "0", edges.filter(pa.array((time >= c) | (last & opens & (time < c) & ~ended))))

    def _once(self, arrival: Arrival, held: pa.Table | None, judge: Judge, totals: Totals) -> Arrival:
        """The edges that say something new; of those of one key and instant that differ the first one is one."""
        table = arrival.table
        whose = [*self.key, LE, OPENS]
        repeated, contrary = repetitions(table, held, whose, [n for n in table.column_names if n not in whose])
        once_more(table.filter(pa.array(repeated)), judge, totals)
        left_out(table.filter(pa.array(contrary)), judge, TIE, totals)
        return replace(arrival, table=table.filter(pa.array(~(repeated | contrary))))

    def _judged(self, arrival: Arrival, held: pa.Table | None, totals: Totals) -> pa.Table:
        table, judge, c = arrival.table, arrival.judge, arrival.c
        time, opens = ints(table, LE), table.column(OPENS).to_numpy(zero_copy_only=False)
        ghost = np.zeros(len(time), bool)
        late = is_late(time, c) if judge is not None else ghost
        if judge is None or not late.any():
            return with_column(table, GHOST, ghost)
        left = adjusts(judge, table, time, late, arrival.promised)
        left = left & self._still_matters(table, held, time, opens, c) if left.any() else left
        gone = late & ~left
        for mask, reason in ((gone, "dropped"), (left, "adjusted")):
            totals.add(judge.source, reason, int(mask.sum()))
            if mask.any():
                totals.rows.append(late_rows(judge.source, reason, table.filter(pa.array(mask)), c))
        return with_column(with_column(table, LE, np.where(left, c, time)), GHOST, gone)

    def _still_matters(
        self, table: pa.Table, held: pa.Table | None, time: np.ndarray[Any, Any], opens: np.ndarray[Any, Any], c: int
    ) -> np.ndarray[Any, Any]:
        """Whether a late edge has an effect from c on: nothing of its key lies between it and c; an end needs an open start."""
        parts = [table.select([*self.key, LE, OPENS])]
        if held is not None:
            parts.append(held.filter(pc.invert(held.column(GHOST))).select([*self.key, LE, OPENS]))
        both = concat([p.cast(parts[0].schema) for p in parts])
        number, _ = codes(both, list(self.key))
        all_time, all_opens = ints(both, LE), both.column(OPENS).to_numpy(zero_copy_only=False)
        found = np.zeros(len(time), bool)
        for i in np.flatnonzero(time < c):
            same = number == number[i]
            between = same & (all_time <= c) & ((all_time > time[i]) | ((all_time == time[i]) & all_opens & ~opens[i]))
            open_start = (same & all_opens & (all_time < time[i])).any()
            found[i] = not between.any() and (opens[i] or open_start)
        return found


def codes_in_order(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    """A rank a row by one column, equal values sharing it; NULLs last. A column without an order ranks all rows equal."""
    column = table.column(name).combine_chunks()
    if pa.types.is_nested(column.type):
        return np.zeros(table.num_rows, np.int64)
    return np.asarray(pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy()).astype(np.int64)
