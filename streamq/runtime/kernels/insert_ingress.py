"""Ingress kernel of an insert-only source: drops repeated rows and judges lateness, in a pass over the micro-batch.

Repetitions and contradictions among rows are told here for all sources that may deliver a row more than once.

State: none; if events have ids, the rows so far, until they are settled. They lie in bins by start and id: a micro-batch
reads the bins of its own rows, and those in which most rows are settled, to forget these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arrow.columnar import codes, concat
from streamq.runtime.arrow.values import Ints, Mask, column_ranks
from streamq.runtime.deltas import LE, RE, beside_names, with_ends, without_beside
from streamq.runtime.groups import HASH, distinct_hashes
from streamq.runtime.kernel import Arrival, Clock, Judge, Output, Totals, UncombinedKernel
from streamq.runtime.state.baskets import BinSizes, KernelBaskets
from streamq.runtime.state.group_bins import GroupBins, agenda_of, with_timed_hashes
from streamq.runtime.time.lateness import count_duplicates, count_invalid, weighted_events
from streamq.runtime.time.progress_rule import AT_ONCE, ProgressRule
from streamq.time import INFINITY, WindowEnds


def repetitions(fresh: pa.Table, held: pa.Table | None, whose: Sequence[str], what: Sequence[str]) -> tuple[Mask, Mask]:
    """Return two masks of rows of ``fresh`` to drop: repetitions, and rows that contradict the valid row.

    Rows with equal columns ``whose`` are about one thing. The valid row is that of ``held`` (which has at most one), else the
    least by the columns ``what``. A repetition is equal to it in these: NULL equals NULL, NaN NaN, -0.0 0.0, and maps are equal
    whatever the order of their entries.
    """
    n = fresh.num_rows
    repeated, contrary = np.zeros(n, bool), np.zeros(n, bool)
    rivals = _Rivals.find(fresh, held, whose, what)
    if rivals is None:
        return repeated, contrary
    order = np.lexsort((*reversed(rivals.columns), ~rivals.old, rivals.number))
    begins = np.concatenate(([True], rivals.number[order][1:] != rivals.number[order][:-1]))
    stands = order[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    equal = np.ones(len(order), bool)
    for column in rivals.columns:
        equal[order] &= column[order] == column[stands]
    left_out = np.ones(len(order), bool)
    left_out[order[begins]] = False
    left_out &= ~rivals.old
    repeated[rivals.place[left_out & equal]] = True
    contrary[rivals.place[left_out & ~equal]] = True
    return repeated, contrary


def repeats(fresh: pa.Table, held: pa.Table | None, whose: Sequence[str], what: Sequence[str]) -> Mask:
    """Mark the rows of ``fresh`` that are equal, in all these columns, to a row of ``held``, or to another that stays.

    The columns ``what`` are compared only where rows have equal columns ``whose``.
    """
    repeated = np.zeros(fresh.num_rows, bool)
    rivals = _Rivals.find(fresh, held, whose, what)
    if rivals is None:
        return repeated
    order = np.lexsort((~rivals.old, *reversed(rivals.columns), rivals.number))
    equal = np.ones(len(order) - 1, bool)
    for column in (rivals.number, *rivals.columns):
        equal &= column[order][1:] == column[order][:-1]
    again = order[1:][equal & ~rivals.old[order][1:]]
    repeated[rivals.place[again]] = True
    return repeated


@dataclass(frozen=True)
class _Rivals:
    """Rows, of one table or of two, that are about one thing with others; only these are compared in all columns, as that costs.

    number: the number of the thing; old: the row is of the held table; place: its place in the fresh one, negative for an old
    one; columns: the values compared, as ranks.
    """

    number: Ints
    old: Mask
    place: Ints
    columns: list[Ints]

    @staticmethod
    def find(fresh: pa.Table, held: pa.Table | None, whose: Sequence[str], what: Sequence[str]) -> _Rivals | None:
        """Return the rows that share the columns ``whose`` with others, ranked by the columns ``what``; None if none do."""
        names = [*dict.fromkeys((*whose, *what))]
        every = fresh.select(names)
        if held is not None:
            every = concat([held.select(names).cast(every.schema), every])
        number, _ = codes(every, whose)
        at = np.flatnonzero(np.bincount(number)[number] > 1)
        if not len(at):
            return None
        place = at - (every.num_rows - fresh.num_rows)
        return _Rivals(number[at], place < 0, place, column_ranks(every.take(pa.array(at)), what))


ROWS = "rows"


@dataclass(frozen=True)
class InsertIngressKernel(UncombinedKernel):
    """A kernel that reads an insert-only source.

    points: the source declares points, so RE = LE + 1; round_to: the ends of windows to which c is rounded down; ids: the
    columns that with its start identify an event, if rows may be delivered again.
    """

    points: bool
    round_to: WindowEnds | None = None
    ids: tuple[str, ...] = ()

    @property
    def progress_rule(self) -> ProgressRule:
        return AT_ONCE

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Send the events that are on time, and late ones as the policy adjusts them; late ones are counted.

        If rows have ids, repeated and conflicting ones are left out first. With ``round_to``, events are judged by the CTI
        rounded down to the end of one of its windows; the CTI sent is the input's in either case.
        """
        totals = Totals()
        c = clock.c
        if self.round_to is not None:
            down = self.round_to.floor_to_end
            c = down(c)
            arrivals = [replace(a, c=down(a.c), promised=down(a.promised)) for a in arrivals]
        evaluated = None
        if self.ids:
            arrivals, evaluated = self._without_repetitions(state, arrivals, totals, c)
        out = [without_beside(weighted_events(a, totals)) for a in arrivals]
        return Output(concat(out) if out else None, clock.c, totals, evaluated=evaluated)

    def _without_repetitions(
        self, state: KernelBaskets, arrivals: Sequence[Arrival], totals: Totals, c: int
    ) -> tuple[Sequence[Arrival], int]:
        """Return the rows without repeated and conflicting ones, and the number of rows compared.

        Those that are left, late or not, are held until c has passed their ends; at the end of the stream none are held.
        """
        whose = [*self.ids, LE]
        fresh = [with_timed_hashes(with_ends(a.table), whose, state) for a in arrivals]
        bins = GroupBins(state, BinSizes(slack=0))
        bins.open(distinct_hashes(fresh), c)
        held = bins.events(ROWS)
        compared = sum(t.num_rows for t in (held, *fresh) if t is not None)
        new: list[Arrival] = []
        for arrival, table in zip(arrivals, fresh, strict=True):
            left = self._new_rows(table, held, arrival.judge, totals)
            rows = without_beside(left)
            held = rows if held is None else concat([held, rows])
            new.append(replace(arrival, table=left.drop_columns([HASH])))
        if c == INFINITY:
            bins.drop([ROWS])
        elif bins.opened and held is not None:
            # a row that has ended before c would be late, and dropped, if it came again
            bins.replace_events(ROWS, held.filter(pc.greater_equal(held.column(RE), c)))
            bins.write_agenda(agenda_of(np.zeros(0, np.uint32)), [ROWS])
            bins.close([ROWS], c)
        return new, compared

    def _new_rows(self, table: pa.Table, held: pa.Table | None, judge: Judge | None, totals: Totals) -> pa.Table:
        """Return the rows that are neither repeated, which are counted as duplicates, nor conflicting, counted as invalid.

        The latter raise InvalidEvent if the policy is ``fail``.
        """
        assert judge is not None
        whose = [*self.ids, LE]
        aside = (*whose, RE, HASH, *beside_names(table))
        what = [RE, *(n for n in table.column_names if n not in aside)]
        repeated, contrary = repetitions(table, held, whose, what)
        count_duplicates(table.filter(pa.array(repeated)), judge, totals)
        count_invalid(table.filter(pa.array(contrary)), judge, "two rows of one id and start that differ", totals)
        return table.filter(pa.array(~(repeated | contrary)))
