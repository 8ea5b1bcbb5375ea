"""Mistakes about windows: who is a member, where windows lie, how they are cut and stamped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.grid import Grid
from streamq.plan.partial import COUNT
from streamq.runtime import grid_ranges
from streamq.runtime.columnar import ints, with_column
from streamq.runtime.evaluators.assigner import Ranges
from streamq.runtime.evaluators.member_evaluator import MemberEvaluator
from streamq.runtime.evaluators.top_k_evaluator import Ranking
from streamq.runtime.evaluators.window_evaluator import WindowEvaluator
from streamq.runtime.event import LE, RE, WAKES
from streamq.runtime.grid_ranges import grid_lifetimes, window_range
from streamq.runtime.kernels import window_aggregate
from streamq.runtime.kernels.condensing import ASLEEP, CondensingKernel
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.ordered_partials import PartialFirst
from streamq.runtime.state.time_bins import TimeBins
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows import count, landmark, rows, session, snapshot
from tests.mutation.mutant import Edit, Mutant, wrapped

BLOCKS = "streamq/runtime/state/blocks.py"
LANDMARK = "streamq/windows/landmark.py"
LATENESS = "streamq/runtime/lateness.py"
SIZES = "streamq/runtime/kernels/windows_of_sizes.py"
COPIES = "streamq/runtime/counted_values.py"
TOP_K = "streamq/runtime/evaluators/top_k_evaluator.py"
CONDENSING = "streamq/runtime/kernels/condensing.py"
RANKED = "streamq/runtime/kernels/ranked_windows.py"
VALUES = "streamq/runtime/counted_values.py"


def first_too_early(window: Grid, le: Any, re: Any, arithmetic: Any) -> Any:
    low, high = window_range(window, le, re, arithmetic)
    return low - 1, high


def end_belongs(right: Any, kernel: WindowAggregateKernel, table: Any) -> Any:
    if RE not in table.column_names:
        return right(kernel, table)
    re = ints(table, RE)
    return right(kernel, with_column(table, RE, np.where(re < INFINITY, re + 1, re)))


def offset_subtracted(window: Grid, index: Any) -> Any:
    return grid_lifetimes(replace(window, offset=-window.offset), index)


def toward_zero(x: Any, shift: int, hop: int, arithmetic: Any) -> Any:
    return np.where(x < shift, -((shift - x) // hop), (x - shift) // hop)


def snapshot_of_its_end(right: Any, kind: Any, g: Any, table: Any, since: int, upto: int) -> Ranges:
    found = right(kind, g, table, since, upto)
    last = np.zeros(int(g.max(initial=0)) + 1, np.int64)
    np.maximum.at(last, g, found.high)
    return replace(found, high=np.minimum(found.high + 1, last[g]))


def whatever_values(evaluator: WindowEvaluator, events: Any, number: Any) -> Any:
    return number


def joins_at_the_gap(right: Any, kind: Any, g: Any, table: Any) -> Any:
    order, number, start, end = right(replace(kind, gap=kind.gap + 1), g, table)
    return order, number, start, np.where(end < INFINITY, end - 1, end)


def each_event_an_instant(g: Any, at: Any) -> Any:
    order = np.lexsort((at, g))
    return g[order], at[order]


def order_by_ignored(right: Any, kind: Any, g: Any, table: Any) -> Any:
    return right(replace(kind, order_by=()), g, table)


def each_row_an_event(right: Any, row: Any, g: Any, table: Any) -> Any:
    return right(row, g, table.drop_columns([COUNT]) if COUNT in table.column_names else table)


def steps_condensed_together(right: Any, kind: Any, g: Any, table: Any, c: int) -> Any:
    return right(replace(kind, step=2 * kind.step), g, table, c)


def runs_over_the_next_mark(right: Any, kind: Any, g: Any, table: Any, since: int, upto: int) -> Ranges:
    found, hop = right(kind, g, table, since, upto), kind.window.hop

    def where(owner: Any, index: Any) -> Any:
        start, _ = found.where(owner, index)
        return start, start + index * hop

    return replace(found, where=where)


def not_clipped_on_the_right(right: Any, evaluator: WindowEvaluator, *given: Any) -> Any:
    return right(replace(evaluator, clip="left"), *given)


def point_on_the_last_instant(evaluator: Any, made: Any, start: Any, end: Any) -> Any:
    if evaluator.stamp == "point_at_end":
        start, end = end - 1, end
    return with_column(with_column(made, LE, start), RE, end)


def ordered_by_start(right: Any, partial: Any, table: Any) -> Any:
    columns = right(partial, table)
    start, *payload = columns[partial.order_column].flatten()
    blank = [pa.nulls(len(column), column.type) for column in payload]
    order = pa.StructArray.from_arrays([start, *blank], partial.order.names, mask=start.is_null())
    return columns | {partial.order_column: order}


def ties_cut(right: Any, ranking: Ranking, *given: Any) -> Any:
    return right(replace(ranking, ties="break"), *given)


def one_session_a_group(kind: Any, g: Any, table: Any, c: int) -> Any:
    return g


def condensed_before_its_end(right: Any, kernel: CondensingKernel, *given: Any) -> Any:
    return right(replace(kernel, ends_move=False), *given)


def every_window_read(right: Any, evaluator: Any, *given: Any, **rest: Any) -> Any:
    return right(evaluator, *given, **{name: value for name, value in rest.items() if name != "is_asked"})


def woken_at_the_end_only(right: Any, bins: TimeBins, before: int) -> Any:
    return right(bins, before) if before == INFINITY or bins.basket != ASLEEP else None


def lives_to_the_greatest_end(right: Any, evaluator: MemberEvaluator, events: Any, number: Any) -> Any:
    rows, of = right(evaluator, events, number)
    end = np.full(int(number.max(initial=-1)) + 1, MINUS_INFINITY)
    np.maximum.at(end, number, ints(events, RE))
    return with_column(rows, RE, end[of]), of


def sleeps_beside_the_next_end(right: Any, kind: Any, g: Any, table: Any, upto: int) -> Any:
    return right(kind, g, table.drop_columns([WAKES]) if WAKES in table.column_names else table, upto)


MUTANTS = (
    Mutant(
        "first window too early",
        "an event is also a member of the window that ends where it starts",
        "hopping",
        ((window_aggregate, "window_range", first_too_early),),
    ),
    Mutant(
        "last window too late",
        "an event is also a member of the window that starts where it ends",
        "hopping",
        (wrapped(WindowAggregateKernel, "_partials", end_belongs),),
    ),
    Mutant(
        "offset subtracted",
        "a window's interval is moved by its offset the other way",
        "hopping",
        ((window_aggregate, "grid_lifetimes", offset_subtracted),),
    ),
    Mutant(
        "division toward zero",
        "the grid is numbered by a division that rounds toward zero, not down",
        "hopping",
        ((grid_ranges, "grid_index", toward_zero),),
    ),
    Mutant(
        "snapshot of its end",
        "an event is also a member of the snapshot that begins where it ends",
        "snapshot",
        (wrapped(snapshot.SnapshotAssigner, "ranges", snapshot_of_its_end),),
    ),
    Mutant(
        "session joined at the gap",
        "an event joins a session at just the gap's distance, not only below it",
        "session",
        (wrapped(session.SessionAssigner, "_sessions", joins_at_the_gap),),
    ),
    Mutant(
        "count windows count events",
        "a count window goes over N events, not over N distinct instants",
        "count",
        ((count, "distinct_pairs", each_event_an_instant),),
    ),
    Mutant(
        "rows in order of arrival",
        "rows of one instant are numbered as they came, not by order_by",
        "rows",
        (wrapped(rows.RowsAssigner, "_ordered", order_by_ignored),),
    ),
    Mutant(
        "rows counted after they were condensed",
        "a row that stands for several events has the place of one",
        "rows in steps",
        (wrapped(rows.OrderedRows, "of", each_row_an_event),),
    ),
    Mutant(
        "two steps condensed together",
        "settled events become one row although a window begins between them",
        "rows in steps",
        (wrapped(rows.RowsAssigner, "chains", steps_condensed_together),),
    ),
    Mutant(
        "condensed too soon",
        "new events of landmark windows become one row though they may be taken back",
        "landmark",
        edits=(
            Edit(
                "streamq/runtime/kernels/condensing.py",
                "if self._condenses and not self.retracts and",
                "if self._condenses and",
            ),
        ),
    ),
    Mutant(
        "landmark window not cut",
        "the last window of a landmark runs on beyond the next landmark",
        "landmark",
        (wrapped(landmark.LandmarkAssigner, "ranges", runs_over_the_next_mark),),
    ),
    Mutant(
        "not clipped on the right",
        "a lifetime that is read keeps its end beyond the window",
        "time_weighted_avg",
        (wrapped(WindowEvaluator, "_spanned", not_clipped_on_the_right),),
    ),
    Mutant(
        "sessions condensed over a gap",
        "settled events of a group become one event although a gap parts them",
        "session",
        ((session.SessionAssigner, "chains", one_session_a_group),),
    ),
    Mutant(
        "other values condensed",
        "settled events of a session become one event although they have different values",
        "median of sessions",
        ((WindowEvaluator, "alike", whatever_values),),
    ),
    Mutant(
        "sums of windows that are not sent",
        "a sum overflows over the members that a window has so far, though nobody reads it",
        "session of integers",
        (wrapped(WindowEvaluator, "rows", every_window_read),),
    ),
    Mutant(
        "an open end condensed",
        "an event is condensed when it has started, although its end may still move",
        "session",
        (wrapped(CondensingKernel, "_outdated", condensed_before_its_end),),
    ),
    Mutant(
        "asleep to the end",
        "events that sleep are not woken before the input ends",
        "sliding",
        (wrapped(TimeBins, "take", woken_at_the_end_only),),
    ),
    Mutant(
        "a stand-in too long",
        "the row that stands for sleeping events lives to the last of their ends, not the first",
        "sliding",
        (wrapped(MemberEvaluator, "condensed", lives_to_the_greatest_end),),
    ),
    Mutant(
        "nobody lives on",
        "of sleeping events none seems to live on when the first of them ends, so no snapshot seems to begin there",
        "sliding",
        (wrapped(snapshot.SnapshotAssigner, "to_come", sleeps_beside_the_next_end),),
    ),
    Mutant(
        "point on the last instant",
        "a result stamped at the window's end stands one tick before it",
        "count",
        ((MemberEvaluator, "_stamped", point_on_the_last_instant),),
    ),
    Mutant(
        "first among equals by arrival",
        "of events of one start the first that came is the first, not the least payload",
        "first and last",
        (wrapped(PartialFirst, "of_events", ordered_by_start),),
    ),
    Mutant(
        "ties of top_k cut",
        "of members that share the last rank only some are kept",
        "top_k",
        (wrapped(Ranking, "ranked", ties_cut),),
    ),
    Mutant(
        "equal members once",
        "members that are equal in all that is held of them are listed once",
        "lists of some hops",
        edits=(Edit(COPIES, "if (members.number > 1).any():", "if False:"),),
    ),
    Mutant(
        "forgotten ones uncounted",
        "in rows windows, events of a step that are not among its best are no rows any more",
        "best of five rows",
        edits=(Edit(TOP_K, "count[heads] += (", "count[heads] += 0 * ("),),
    ),
    Mutant(
        "places among the repeated",
        "in rows windows, places are counted among the settled events whose values occur again",
        "medians of five rows",
        edits=(Edit(CONDENSING, "if not self.evaluator.assigner.counts_events:", "if True:"),),
    ),
    Mutant(
        "the best of one last window",
        "events with the same last window are ranked together in a stream, whatever their first windows",
        "greatest of five hops",
        edits=(Edit(RANKED, "codes(table, [*self.keys, *windows])", "codes(table, [*self.keys, windows[-1]])"),),
    ),
    Mutant(
        "late ones beside better ones uncounted",
        "of events that come together only the best are counted as late",
        "greatest of five hops",
        edits=(Edit(RANKED, "ints(table, EVENTS) if self.merges else", "ints(table, COUNT) if self.merges else"),),
    ),
    Mutant(
        "the best of one last window, in batch",
        "events with the same last window are ranked together before they are copied, whatever their first windows",
        "greatest of five hops",
        edits=(Edit("streamq/operators/top_k.py", "[HI] if is_single else [LO, HI]", "[HI]"),),
        spark=True,
    ),
    Mutant(
        "block from before the window",
        "a block that begins one basic window before a window counts in it",
        "hopping over many",
        edits=(Edit(BLOCKS, "self.first <= (cell", "self.first <= 1 + (cell"),),
    ),
    Mutant(
        "block from beyond the window",
        "a block that ends one basic window behind a window counts in it",
        "hopping in blocks",
        edits=(Edit(BLOCKS, "<= self.end", "<= 1 + self.end"),),
    ),
    Mutant(
        "windows after the start",
        "of an event that lasts long, windows that begin after it are lost",
        "hopping of lifetimes",
        edits=(Edit(BLOCKS, "if later is not None:", "if False:"),),
    ),
    Mutant(
        "value not in its last window",
        "a value is no member of the last of the windows that its event is in",
        "median of hops",
        edits=(Edit(VALUES, "last=last[row],", "last=np.maximum(first[row], last[row] - 1),"),),
    ),
    Mutant(
        "values counted by rows",
        "a value that several events of a basic window have counts once",
        "median of hops",
        edits=(Edit(VALUES, "number=number[row],", "number=np.ones(len(row), np.int64),"),),
    ),
    Mutant(
        "shorter windows a hop too short",
        "windows that read the basic windows of longer ones lack their last one",
        "windows of two sizes",
        edits=(Edit(SIZES, "return self.grid.size // self.basic.hop", "return self.grid.size // self.basic.hop - 1"),),
    ),
    Mutant(
        "sizes with one offset",
        "windows of another offset are placed as if they had that of the longer ones",
        "windows of two sizes",
        edits=(Edit(SIZES, "grid_index(first, self.offset,", "grid_index(first, 0,"),),
    ),
    Mutant(
        "hops of a landmark in one",
        "points of one landmark become one row before the shuffle, whatever their hop",
        "landmark of points",
        edits=(Edit(LANDMARK, "starts - np.mod(behind_landmark, self.hop)", "starts - behind_landmark"),),
    ),
    Mutant(
        "late points counted by rows",
        "late points that have become one row before the shuffle count once",
        "landmark of points",
        edits=(
            Edit(
                LATENESS,
                "totals.add(judge.source, reason, int(events.sum()))",
                "totals.add(judge.source, reason, int(mask.sum()))",
            ),
        ),
    ),
)
