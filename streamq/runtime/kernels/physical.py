"""Physical rows into deltas: retractions are matched with the lifetimes they name, late ones translated.

State: every live event until it is settled, as the source sees it (start, end) and as it was passed on; retractions whose
insert has not come yet. Cost: inserts are columnar; a retraction costs a look-up among the rows that share its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.basket import Scope
from streamq.runtime.columnar import concat, ints, with_column
from streamq.runtime.event import INSERT, KIND, LE, NEW_END, RE, RETRACT, WEIGHT
from streamq.runtime.kernel import (
    Arrival,
    Clock,
    Judge,
    Output,
    Totals,
    Uncombined,
    refuse_invalid,
    remembered_judge,
)
from streamq.runtime.kernels.window_aggregate import matching
from streamq.runtime.lateness import adjusts, is_late, late_rows
from streamq.time import INFINITY, MINUS_INFINITY

OWN_LE, OWN_RE = "__own_le", "__own_re"
"""The lifetime that was passed on; OWN_RE <= OWN_LE: nothing of it was."""


@dataclass(frozen=True)
class PhysicalKernel(Uncombined):
    """payload: the payload columns in order; id: the column that names an event, if the stream has ids."""

    payload: tuple[str, ...]
    id: str | None

    def advance(self, state: Scope, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Inserts, then retractions as often as they find their event; the others wait until c has passed their start."""
        totals = Totals()
        judge = remembered_judge(state, arrivals)
        c = max([a.c for a in arrivals], default=MINUS_INFINITY)
        promised = max([a.promised for a in arrivals], default=MINUS_INFINITY)
        items = [a.table for a in arrivals]
        waiting = state.read_all("waiting")
        if waiting is not None:
            state.drop("waiting", "0")
        out: list[pa.Table] = []
        inserted = [i.filter(pc.equal(i.column(KIND), INSERT)) for i in items]
        fresh = [self._inserted(i, judge, c, promised, totals, out) for i in inserted if i.num_rows]
        retractions = [i.filter(pc.equal(i.column(KIND), RETRACT)) for i in items]
        moves = [r for r in (waiting, *retractions) if r is not None and r.num_rows]
        late_from = waiting.num_rows if waiting is not None else 0
        if moves:
            self._retract(
                state,
                fresh,
                concat([m.select(moves[0].column_names) for m in moves]),
                late_from,
                judge,
                c,
                promised,
                clock.c,
                totals,
                out,
            )
        else:
            for table in fresh:
                state.append("live", "0", table)
        self._settle(state, clock)
        return Output(concat(out) if out else None, clock.c, totals)

    def _inserted(
        self, table: pa.Table, judge: Judge, c: int, promised: int, totals: Totals, out: list[pa.Table]
    ) -> pa.Table:
        """New live rows; those behind c dropped or cut, as the policy says."""
        le, re = ints(table, LE), ints(table, RE)
        own_le, own_re = le.copy(), re.copy()
        late = is_late(le, c)
        if late.any():
            left = adjusts(judge, le, late, promised) & (re > c)
            gone = late & ~left
            own_le[left], own_re[gone] = c, own_le[gone]
            for mask, reason in ((gone, "dropped"), (left, "adjusted")):
                totals.add(judge.source, reason, int(mask.sum()))
                if mask.any():
                    totals.rows.append(late_rows(judge.source, reason, table.filter(pa.array(mask)), c))
        live = table.select([*self.payload, LE, RE])
        live = with_column(with_column(live, OWN_LE, own_le), OWN_RE, own_re)
        passed = live.filter(pa.array(own_re > own_le))
        if passed.num_rows:
            out.append(self._delta(passed, 1))
        return live

    def _delta(self, live: pa.Table, weight: int) -> pa.Table:
        made = live.select(list(self.payload))
        made = with_column(with_column(made, LE, ints(live, OWN_LE)), RE, ints(live, OWN_RE))
        return with_column(made, WEIGHT, np.full(live.num_rows, weight, np.int64))

    def _retract(
        self,
        state: Scope,
        fresh: list[pa.Table],
        moves: pa.Table,
        waited: int,
        judge: Judge,
        c: int,
        promised: int,
        c_now: int,
        totals: Totals,
        out: list[pa.Table],
    ) -> None:
        held = state.read_all("live")
        every = [t for t in (held, *fresh) if t is not None]
        if not every:
            left = [n for n, _ in self._without_cycles(list(enumerate(moves.to_pylist())))]
            self._wait(state, moves.take(pa.array(left, pa.int64())), judge, c_now, totals)
            return
        live = concat([t.select(every[0].column_names) for t in every])
        near = matching(live, moves, [self.id] if self.id else [LE])
        rest, candidates = live.filter(pa.array(~near)), live.filter(pa.array(near))
        rows = candidates.to_pylist()
        where: dict[Any, list[int]] = {}
        for i, row in enumerate(rows):
            where.setdefault(self._name(row), []).append(i)
        before = [(r[OWN_LE], r[OWN_RE]) for r in rows]
        pieces: list[tuple[int, int, int]] = []
        open_moves = list(enumerate(moves.to_pylist()))
        dropped: list[int] = []
        adjusted: list[int] = []
        while True:
            again = []
            for number, move in open_moves:
                found = where.get(self._name(move))
                if not found:
                    again.append((number, move))
                    continue
                i = found.pop()
                fate = self._moved(rows[i], i, move[NEW_END], number >= waited, judge, c, promised, pieces)
                (dropped if fate == "dropped" else adjusted if fate == "adjusted" else []).append(number)
                where.setdefault(self._name(rows[i]), []).append(i)
            if len(again) == len(open_moves):
                break
            open_moves = again
        open_moves = self._without_cycles(open_moves)
        for numbers, reason in ((dropped, "dropped"), (adjusted, "adjusted")):
            totals.add(judge.source, reason, len(numbers))
            if numbers:
                totals.rows.append(late_rows(judge.source, reason, moves.take(pa.array(numbers)), c))
        changed = [i for i, row in enumerate(rows) if before[i] != (row[OWN_LE], row[OWN_RE])]
        self._emit(candidates, rows, before, changed, pieces, out)
        kept = [row for row in rows if row[RE] > row[LE]]
        tables = [rest] + ([pa.Table.from_pylist(kept, schema=candidates.schema)] if kept else [])
        for bin in state.bins("live"):
            state.drop("live", bin)
        state.append("live", "0", concat(tables))
        if open_moves:
            self._wait(state, moves.take(pa.array([n for n, _ in open_moves])), judge, c_now, totals)

    def _without_cycles(self, moves: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
        """The moves that are left once those that lead an event back to where it was are gone.

        Retractions of one event that arrive out of order may be matched in another order than they were made; what is
        then left over of them leads in circles, and adds up to nothing.
        """
        left = dict(moves)
        leaving: dict[Any, list[int]] = {}
        for number, move in moves:
            leaving.setdefault(self._name(move), []).append(number)
        for first in [number for number, _ in moves]:
            path: list[int] = []
            seen: dict[Any, int] = {}
            at: int | None = first if first in left else None
            while at is not None:
                seen[self._name(left[at])] = len(path)
                path.append(at)
                there = self._name({**left[at], RE: left[at][NEW_END]})
                if there in seen:
                    for gone in path[seen[there] :]:
                        del left[gone]
                    break
                at = next((n for n in leaving.get(there, ()) if n in left), None)
        return [(number, move) for number, move in moves if number in left]

    def _name(self, row: dict[str, Any]) -> Any:
        """What a retraction and its event agree in."""
        if self.id:
            # the end as well: of a chain of retractions each finds the one before it, in whatever order they come
            return (row[self.id], row[RE])
        return (row[LE], row[RE], *(_hashable(row[n]) for n in self.payload))

    def _moved(
        self,
        row: dict[str, Any],
        i: int,
        new: int,
        fresh: bool,
        judge: Judge,
        c: int,
        promised: int,
        pieces: list[tuple[int, int, int]],
    ) -> str:
        """Move a live row's end as the source says; what was passed on follows as far as c allows."""
        old = row[RE]
        row[RE] = new
        if row[OWN_RE] <= row[OWN_LE]:
            return "dropped"
        late = fresh and c != MINUS_INFINITY and min(old, new) < c
        if not late:
            row[OWN_RE] = max(new, row[OWN_LE])
            return "on time"
        sync = np.array([min(old, new)])
        if not adjusts(judge, sync, np.array([True]), promised)[0]:
            return "dropped"
        if old >= c:
            row[OWN_RE] = max(new, c)
            return "adjusted"
        if new <= c:
            return "dropped"
        # the settled part stays as it is; what the retraction adds from c on is an event of its own
        pieces.append((i, row[OWN_LE], row[OWN_RE]))
        row[OWN_LE], row[OWN_RE] = c, new
        return "adjusted"

    def _emit(
        self,
        candidates: pa.Table,
        rows: list[dict[str, Any]],
        before: list[tuple[int, int]],
        changed: list[int],
        pieces: list[tuple[int, int, int]],
        out: list[pa.Table],
    ) -> None:
        if not changed:
            return
        settled = {i for i, _, _ in pieces}
        for weight, lifetimes in (
            (-1, {i: before[i] for i in changed if i not in settled}),
            (1, {i: (rows[i][OWN_LE], rows[i][OWN_RE]) for i in changed}),
        ):
            alive = [i for i, (le, re) in lifetimes.items() if re > le]
            if alive:
                table = candidates.take(pa.array(alive))
                table = with_column(table, OWN_LE, np.array([lifetimes[i][0] for i in alive], np.int64))
                table = with_column(table, OWN_RE, np.array([lifetimes[i][1] for i in alive], np.int64))
                out.append(self._delta(table, weight))

    def _wait(self, state: Scope, moves: pa.Table, judge: Judge, c: int, totals: Totals) -> None:
        """Keep retractions whose event, or the one before them in its chain, may still come, or waits itself.

        What makes an event that ends where such a retraction starts from has that end in its sync time: c past it, none can.
        """
        lost = self._unreachable(moves, c)
        if lost.any():
            rows = moves.filter(pa.array(lost))
            reason = "a retraction that matches nothing"
            if judge.invalid == "fail":
                refuse_invalid(judge.source, reason, rows.slice(0, 1).to_pylist()[0])
            totals.add(judge.source, "invalid", rows.num_rows)
            totals.rows.append(late_rows(judge.source, reason, rows, None))
        state.append("waiting", "0", moves.filter(pa.array(~lost)))

    def _unreachable(self, moves: pa.Table, c: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        lost = (ints(moves, RE) < c) | (c == INFINITY)
        if lost.all() or not lost.any():
            return lost
        rows = moves.to_pylist()
        reached = {self._name({**row, RE: row[NEW_END]}) for row, gone in zip(rows, lost, strict=True) if not gone}
        going = True
        while going:
            going = False
            for i, row in enumerate(rows):
                if lost[i] and self._name(row) in reached:
                    lost[i], going = False, True
                    reached.add(self._name({**row, RE: row[NEW_END]}))
        return lost

    def _settle(self, state: Scope, clock: Clock) -> None:
        if clock.c == clock.c_before:
            return
        live = state.read_all("live")
        if live is None:
            return
        kept = live.filter(pc.greater_equal(live.column(RE), clock.c)) if clock.c != INFINITY else live.slice(0, 0)
        if kept.num_rows < live.num_rows:
            state.drop("live", "0")
            state.append("live", "0", kept)


def _hashable(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return "NaN"
    return repr(value) if isinstance(value, list | dict) else value
