"""Lateness: how each item behind the CTI is treated, and the late output, the rows that were left out or changed.

The batch form of an evaluator, for Spark's ``mapInArrow``, is the whole result over the whole histories of a task's groups, with
the rows that it sets aside.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import CountReason, Invalid
from streamq.errors import LateEvent
from streamq.plan.partial import COUNT
from streamq.plan.schema import shown_group
from streamq.runtime.arrow.columnar import concat, ints, split_by, with_column
from streamq.runtime.arrow.values import Ints, Mask, python_rows
from streamq.runtime.deltas import KIND, LE, NEW_END, OPENS, RE, beside_names, with_ends, with_weights
from streamq.runtime.groups import HASH, number_groups
from streamq.runtime.kernel import Arrival, Judge, Totals, late_error, refuse_invalid
from streamq.time import INFINITY, MINUS_INFINITY

WINDOW_START, WINDOW_END, GROUP = "window_start", "window_end", "group"
"""The columns of the late output for the window and group in which a module failed."""

LATE_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("reason", pa.string()),
        ("kind", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("new_end", pa.int64()),
        ("late_by", pa.int64()),
        ("payload", pa.string()),
        (WINDOW_START, pa.int64()),
        (WINDOW_END, pa.int64()),
        (GROUP, pa.string()),
    ]
)
"""The columns of the late output.

start, end and new_end are in ticks (end NULL: no end); late_by is in ticks behind the CTI (NULL for rows that are not late).

kind is set for sources that may retract: insert, retract or cti, or start or end for edges. new_end is the end to which a
retraction moves its event. Both are NULL for rows of other sources.

source is a source, or a module that failed. For a module, group is the group's keys as JSON, and the window, if any, is in ticks;
for rows of a source these three are NULL.
"""


def late_rows(source: str, reason: str, table: pa.Table, c: int | None) -> pa.Table:
    """Return a source's rows as rows of the late output; all but kind and lifetime goes into ``payload`` as JSON.

    So do columns beside the events. ``c`` is the CTI that rows are behind, by as much as the difference to their starts; None for
    rows that are not late. Then ``late_by`` is NULL, as it is for an infinite ``c`` and, in all rows, if one start is missing.
    The columns of windows and groups are NULL.
    """
    n = table.num_rows
    start = table.column(LE).cast(pa.int64()) if LE in table.column_names else pa.nulls(n, pa.int64())
    by: Any = pa.nulls(n, pa.int64())
    if c is not None and c not in (INFINITY, MINUS_INFINITY) and start.null_count == 0:
        by = pa.array(c - ints(table, LE))
    beside = beside_names(table)
    names = [name for name in table.column_names if not name.startswith("__") or name in beside]
    named = table.select(names).rename_columns([beside.get(name, name) for name in names])
    payload = [json.dumps(row, default=_plain, sort_keys=True) for row in python_rows(named)] if names else ["{}"] * n
    lifetime = [_kinds(table), start, _ends(table, RE), _ends(table, NEW_END), by]
    own = [pa.array([source] * n), pa.array([reason] * n), *lifetime, pa.array(payload, pa.string())]
    where = [pa.nulls(n, LATE_SCHEMA.field(name).type) for name in (WINDOW_START, WINDOW_END, GROUP)]
    return pa.table([*own, *where], schema=LATE_SCHEMA)


def _kinds(table: pa.Table) -> Any:
    """Return the kinds of rows of a source that may retract, in the words that the source reads by default.

    They are NULL for other sources.
    """
    if KIND in table.column_names:
        return table.column(KIND)
    if OPENS in table.column_names:
        return pc.if_else(table.column(OPENS), "start", "end")
    return pa.nulls(table.num_rows, pa.string())


def _ends(table: pa.Table, name: str) -> Any:
    """Return a column of ends, NULL where an end is infinite; NULLs where the table has no such column."""
    if name not in table.column_names:
        return pa.nulls(table.num_rows, pa.int64())
    ends = table.column(name)
    return pc.if_else(pc.equal(ends, INFINITY), pa.scalar(None, pa.int64()), ends)


@dataclass(eq=False, repr=False)
class Judgement:
    """The decision on items: those behind ``c`` are late, and either act from c on or are dropped.

    acts: the late items that act. An insert ``[LE, RE)`` becomes ``[c, RE)``; an edge or a retraction changes the history from c
    on.
    """

    is_late: Mask
    acts: Mask
    c: int

    @property
    def is_dropped(self) -> Mask:
        """The late items that have no effect."""
        return self.is_late & ~self.acts

    def acting_from(self, times: Ints) -> Ints:
        """Return the instants from which items of these times act: late ones from c on."""
        return np.where(self.is_late, self.c, times)

    def leaves(self, ends: Ints) -> Mask:
        """Mark the late items that keep a part of their lifetime, for lifetimes until ``ends``."""
        return self.acts & (ends > self.c)


def is_behind(times: Ints, c: int) -> Mask:
    """Mark the instants behind c; none, if the source has sent no CTI yet."""
    return times < c if c != MINUS_INFINITY else np.zeros(len(times), bool)


def judgement(judge: Judge, times: Ints, c: int, promised: int, error: Callable[[Mask], LateEvent]) -> Judgement:
    """Return the decision on items of these sync times (instants, or window numbers); docs/concepts.md, "Late rows, invalid
    rows".

    An item behind ``promised``, the CTI that its source has sent, breaks that promise: the policy decides, and may raise
    ``error`` for these items. An item behind ``c`` alone is late by the level of consistency, and is adjusted.
    """
    is_late = is_behind(times, c)
    judge.late.meet(is_late & is_behind(times, promised), error)
    return Judgement(is_late, is_late & ~is_behind(times, judge.late.acts_from(promised)), c)


def error_of_rows(judge: Judge, table: pa.Table, promised: int) -> Callable[[Mask], LateEvent]:
    """Return a function that builds the error for some rows of ``table``, showing the first of them."""

    def error(is_broken: Mask) -> LateEvent:
        first = python_rows(table.slice(int(is_broken.argmax()), 1))[0]
        return late_error(judge, int(is_broken.sum()), promised, first)

    return error


def count_late(table: pa.Table, mask: Mask, reason: CountReason, judge: Judge, c: int | None, totals: Totals) -> None:
    """Count the rows of a mask as dropped or adjusted, and add them to the late output with their distance behind c."""
    if mask.any():
        events = ints(table, COUNT)[mask] if COUNT in table.column_names else mask
        totals.add(judge.source, reason, int(events.sum()))
        totals.rows.append(late_rows(judge.source, reason, table.filter(pa.array(mask)), c))


def judged_inserts(table: pa.Table, judge: Judge, c: int, promised: int, totals: Totals) -> pa.Table:
    """Return a source's inserts that are on time, and those behind c that the policy, or the level, adjusts to ``[c, RE)``.

    The late ones are counted in ``totals``, as dropped or adjusted; late points are dropped under any policy, because nothing is
    left of them. A window of the reader's has an event as a whole or not at all. Raises LateEvent if the policy is to fail.
    """
    if judge.ends is not None:
        c, promised = judge.ends.floor_to_end(c), judge.ends.floor_to_end(promised)
    start, end = ints(table, LE), ints(table, RE)
    error = error_of_rows(judge, table, promised)
    if COUNT in table.column_names:
        events = ints(table, COUNT)

        def error(is_broken: Mask) -> LateEvent:
            return late_error(judge, int(events[is_broken].sum()), promised)

    verdict = judgement(judge, start, c, promised, error)
    if not verdict.is_late.any():
        return table
    is_left = np.zeros(len(end), bool) if judge.points else verdict.leaves(end)
    is_gone = verdict.is_late & ~is_left
    count_late(table, is_gone, CountReason.DROPPED, judge, c, totals)
    count_late(table, is_left, CountReason.ADJUSTED, judge, c, totals)
    return with_column(table, LE, verdict.acting_from(start)).filter(pa.array(~is_gone))


def weighted_events(arrival: Arrival, totals: Totals) -> pa.Table:
    """Return an arrival's deltas with ends and weights.

    If the arrival is judged, late ones are dropped, adjusted or an error, as in :func:`judged_inserts`.
    """
    table = with_ends(arrival.table)
    if arrival.judge is not None:
        table = judged_inserts(table, arrival.judge, arrival.c, arrival.promised, totals)
    return with_weights(table)


def count_invalid(rows: pa.Table, judge: Judge, reason: str, totals: Totals) -> None:
    """Count rows that are no events, and add them to the late output; raise InvalidEvent if the policy is ``fail``."""
    if not rows.num_rows:
        return
    if judge.invalid == Invalid.FAIL:
        refuse_invalid(judge.source, reason, python_rows(rows.slice(0, 1))[0], judge.axis)
    totals.add(judge.source, CountReason.INVALID, rows.num_rows)
    totals.rows.append(late_rows(judge.source, reason, rows, None))


def count_duplicates(rows: pa.Table, judge: Judge, totals: Totals) -> None:
    """Count rows that repeat others, and add them to the late output; no policy applies, as sources may repeat rows."""
    if not rows.num_rows:
        return
    totals.add(judge.source, CountReason.DUPLICATES, rows.num_rows)
    totals.rows.append(late_rows(judge.source, "duplicate", rows, None))


@dataclass(eq=False)
class QuarantineRows:
    """The failures of modules, as tables of late-output rows; ``modules`` are the names of the modules, a name per failure.

    is_final: marks, by lifetimes, the result rows that can no longer change; failures for other rows are not set aside yet.
    """

    is_final: Callable[[pa.Table], Mask] = lambda rows: np.ones(rows.num_rows, bool)
    modules: list[str] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)

    def add(
        self,
        module: str,
        reason: str,
        events: pa.Table,
        *,
        window: tuple[int, int] | None = None,
        group: Mapping[str, Any],
    ) -> None:
        """Set aside the events of a call that failed: payload columns, and ``__le`` and ``__re``.

        ``window``: start and end of the window that the call was for, in ticks; None: it was for no window.
        """
        rows = late_rows(module, reason, events, None)
        start, end = window or (None, None)
        one = {
            WINDOW_START: pa.scalar(start, pa.int64()),
            WINDOW_END: pa.scalar(None if end == INFINITY else end, pa.int64()),
            GROUP: pa.scalar(json.dumps(shown_group(group), default=str, sort_keys=True)),
        }
        for name, value in one.items():
            rows = with_column(rows, name, pa.array([value.as_py()] * rows.num_rows, value.type))
        self.modules.append(module)
        self.tables.append(rows)

    @property
    def rows(self) -> pa.Table:
        return concat([LATE_SCHEMA.empty_table(), *self.tables])

    def count(self, totals: Totals) -> None:
        """Add the failed calls, however many events each has, to a kernel's counts, and all their rows to its late rows."""
        for module in self.modules:
            totals.add(module, CountReason.QUARANTINED, 1)
        totals.rows += self.tables


def _plain(value: Any) -> Any:
    """Return a value that JSON lacks in another form: an interval as microseconds, bytes as base64, all others as text."""
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


PORT, UNTIL = "__port", "__until"
"""Columns of an event: its input's number, and the bound on endless windows, the same in every row."""

ASIDE = "__aside"
"""The column of the rows that modules have set aside, as in the late output; NULL in rows of the result."""

ASIDE_TYPE = pa.struct(list(LATE_SCHEMA))


PARTS, PART_ROWS = 64, 1 << 17
"""The most parts in which a task evaluates its rows, by the hash of their keys, and the rows of one: their arrays fit a cache."""


def port_column(number: int, place: int) -> str:
    """Return the name of a column of an input by its place."""
    return f"{PORT}{number}_{place}"


@dataclass(frozen=True)
class BatchEvaluation:
    """An ``evaluator`` over the events of some groups, with the columns of its ``inputs`` and of its ``result``.

    sets_aside: events for which modules fail follow the result, in ``__aside``.
    """

    evaluator: Any
    inputs: tuple[pa.Schema, ...]
    result: pa.Schema
    sets_aside: bool = False

    def rows(self, events: pa.Table) -> pa.Table:
        """Return the result over the events of a task, at least one.

        They have ``__port``, the remainder of the hash of their keys by PARTS and, if there is a bound, ``__until``.
        """
        if events.num_rows <= PART_ROWS:
            return self._rows(events)
        parts = min(PARTS, 1 << (events.num_rows // PART_ROWS).bit_length())
        return concat([self._rows(part) for _, part in split_by(events, ints(events, HASH) % parts)])

    def _rows(self, events: pa.Table) -> pa.Table:
        """Return the result over the events of some groups, at least one.

        Events set aside follow as rows in which only ``__aside`` is not NULL.
        """
        histories = [self._history(events, number) for number in range(len(self.inputs))]
        histories = number_groups(histories, self.evaluator.group_columns)
        until = events.column(UNTIL)[0].as_py() if UNTIL in events.column_names else INFINITY
        if not self.sets_aside:
            rows = self.evaluator.rows(histories, MINUS_INFINITY, until)
            return rows.select(self.result.names).cast(self.result)
        aside = QuarantineRows()
        rows = self.evaluator.rows(histories, MINUS_INFINITY, until, aside=aside)
        rows = rows.select(self.result.names).cast(self.result)
        rows = rows.append_column(ASIDE, pa.nulls(rows.num_rows, ASIDE_TYPE))
        structs = pa.table({ASIDE: aside.rows.to_struct_array().cast(ASIDE_TYPE)})
        return pa.concat_tables([rows, structs], promote_options="default")

    def _history(self, events: pa.Table, number: int) -> pa.Table:
        """Return the events of an input as its evaluator reads them: lifetimes, and the input's columns."""
        alone = len(self.inputs) == 1
        mine = events if alone else events.filter(pc.equal(events.column(PORT), number))
        payload = {
            field.name: mine.column(port_column(number, place)).cast(field.type)
            for place, field in enumerate(self.inputs[number])
        }
        return pa.table({LE: mine.column(LE), RE: mine.column(RE), **payload})
