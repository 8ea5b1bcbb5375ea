"""Kernel that runs any evaluator: it recomputes the rows that may still change, and sends the difference to those sent before.

State: the events that the evaluator still needs, with weights, and the sent rows that are not settled. A micro-batch appends a
chunk of new rows to both; unneeded rows are removed when a basket has many chunks, or when most of its rows are unneeded.

Cost: a micro-batch evaluates all events in the state of a bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import COMPACT_AT, KernelBaskets
from streamq.runtime.columnar import concat, group, ints, net_deltas
from streamq.runtime.deltas import as_points, cancelling_deltas, weighted, with_ends, with_weights
from streamq.runtime.endpoints import Bound, Endpoint, bound_at_end, endpoint
from streamq.runtime.evaluator import Evaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.lateness import weighted_events
from streamq.runtime.lifetimes import saturating
from streamq.runtime.open_windows import LAST_END, waits_for_members
from streamq.runtime.release import Release
from streamq.runtime.tick_arithmetic import ARRAYS
from streamq.runtime.values import Mask
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule

E = TypeVar("E", bound=Evaluator)

BIN = "0"
"""The only bin of each basket: the state is read as a whole."""


@dataclass(frozen=True)
class RecomputeKernel(UncombinedKernel, Generic[E]):
    """A kernel of one evaluator; ``inputs`` are the payload columns of each port, ``result`` those of the rows that it sends."""

    evaluator: E
    inputs: tuple[pa.Schema, ...]
    result: tuple[str, ...]

    final: bool = False
    """True if a row is sent only once it is final; else it is sent when the watermark reaches it (``early_release``)."""

    early: bool = False
    """True if a row that is not final is sent at once, before the watermark reaches it."""

    bound: Bound = Bound.NONE
    """The bound on windows (or pieces) of endless lifetimes once the input has ended."""

    pointwise: tuple[int, ...] = ()
    """The ports whose events the evaluator sees as points at their starts."""

    compact_at: int = COMPACT_AT
    """The number of chunks above which state is compacted."""

    compact_above: int = 1_000
    """The number of events of an input above which it is compacted, too, once it has more than doubled and over half of them
    are settled."""

    final_release: Release | None = field(init=False)
    """The CTI that makes a row final, relative to its lifetime; None: the CTI never sends a row."""

    early_release: Release | None = field(init=False)
    """The watermark that sends a row before it is final, relative to its lifetime; None: it sends no row."""

    def __post_init__(self) -> None:
        # executors need no other parts of the rule
        object.__setattr__(self, "final_release", self.progress_rule.final)
        object.__setattr__(self, "early_release", self.progress_rule.early)

    @property
    def _sends_at_once(self) -> bool:
        """True if rows are sent before the watermark reaches them."""
        return self.early_release is Release.AT_ONCE

    @property
    def progress_rule(self) -> ProgressRule:
        """The evaluator's rule.

        If the kernel sends only final rows, no row goes early; if it sends rows early, every row goes at once.
        """
        rule = self.evaluator.progress_rule
        if self.final:
            return rule.when_final()
        return rule.at_once() if self.early else rule

    def announce(self, port: int, table: pa.Table) -> list[Endpoint] | None:
        """Return the endpoints of these deltas, each with the sum of its weights, those of sum 0 left out.

        Endless lifetimes have endpoints of their own, their starts. None if there are no deltas, or if no windows need a bound at
        the end of the stream.
        """
        if self.bound is Bound.NONE or table.num_rows == 0:
            return None
        table = with_weights(with_ends(table))
        le, re = ints(table, LE), ints(table, RE)
        endless = re == INFINITY
        rows = pa.table(
            {"end": endpoint(le, re, ARRAYS), "endless": endless.astype(np.int64), "w": table.column(WEIGHT)}
        )
        weights = group(rows, ["end", "endless"], {"w": ("w", "sum")})
        return [Endpoint(r["end"], bool(r["endless"]), r["w"]) for r in weights.to_pylist() if r["w"]]

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Add deltas to the state and evaluate it.

        The output inserts the rows that are new, and retracts those sent before that are no longer in the result. Its CTI never
        falls. If no deltas have come and neither progress nor the bound of rows sent at once has moved, nothing is evaluated,
        and the CTI and due instant are those sent last. Late events are counted; at the end of the stream the state is emptied.
        """
        totals = Totals()
        fresh: list[list[pa.Table]] = [[] for _ in self.inputs]
        for arrival in arrivals:
            table = weighted_events(arrival, totals)
            if arrival.port in self.pointwise:
                table = as_points(table)
            if table.num_rows:
                fresh[arrival.port].append(table.select([*self.inputs[arrival.port].names, LE, RE, WEIGHT]))
        upto = self._upto(state, clock)
        is_further = self._sends_at_once and state.values.get("upto") != upto
        if self._sends_at_once:
            state.values["upto"] = upto
        if not any(fresh) and not clock.has_moved and not is_further:
            return Output(None, int(state.values.get("cti", MINUS_INFINITY)), totals, state.values.get("due"))

        histories: list[pa.Table] = []
        for port, schema in enumerate(self.inputs):
            held = state.read(f"in{port}", BIN)
            histories.append(_history([t for t in (held, *fresh[port]) if t is not None], schema))
        rows = self._evaluated(state, histories, fresh, clock, upto=upto, totals=totals)
        reported = rows.select(self._reported_columns(rows)).filter(pa.array(self._is_sent(rows, clock)))
        change = self._difference(state, reported, clock.c_before)
        delta = net_deltas(change.drop_columns([LAST_END])) if LAST_END in change.column_names else change

        progress = clock.by_port or (clock.c,) * len(self.inputs)
        cti = self.evaluator.cti(histories, rows, progress) if clock.c != MINUS_INFINITY else MINUS_INFINITY
        cti = max(cti, int(state.values.get("cti", MINUS_INFINITY)))
        waiting = rows.filter(pa.array(~self._is_reached(rows, clock)))
        state.values["cti"], state.values["due"] = cti, self._due(waiting, histories, clock)
        if LAST_END in rows.column_names:
            # a window may end before c while it waits for members
            state.values["open"] = int(ints(rows, RE)[self._is_open(rows, clock.c)].min(initial=INFINITY))
        if clock.c == INFINITY:
            for basket in (*(f"in{port}" for port in range(len(self.inputs))), "reported"):
                state.drop(basket, BIN)
        else:
            self._keep(state, fresh, histories, rows, change, clock.c)
        return Output(delta if delta.num_rows else None, cti, totals, state.values["due"])

    def _evaluated(
        self,
        state: KernelBaskets,
        histories: Sequence[pa.Table],
        fresh: Sequence[Sequence[pa.Table]],
        clock: Clock,
        *,
        upto: int,
        totals: Totals,
    ) -> pa.Table:
        """Return the evaluator's rows; kernels with more state override it. ``fresh``: the deltas of this micro-batch."""
        return self.evaluator.rows(histories, open_since(clock, state), upto)

    def _due(self, waiting: pa.Table, histories: Sequence[pa.Table], clock: Clock) -> int | None:
        """Return the least progress that sends one of the rows ``waiting``; None: no row waits, or progress sends none."""
        release = self.early_release or self.final_release
        if release is None or not waiting.num_rows:
            return None
        dues = release.dues(waiting)
        if LAST_END in waiting.column_names and self.early_release is None:
            dues = np.maximum(dues, saturating(ints(waiting, LAST_END), 1))
        return int(dues.min())

    def _reported_columns(self, rows: pa.Table) -> list[str]:
        """Return the columns that state keeps of the rows that have been sent."""
        return [*self.result, LE, RE, *([LAST_END] if LAST_END in rows.column_names else [])]

    def _is_sent(self, rows: pa.Table, clock: Clock) -> Mask:
        """Mark the rows that are sent after this micro-batch and could change in it."""
        return self._is_open(rows, clock.c_before) & self._is_reached(rows, clock)

    def _is_reached(self, rows: pa.Table, clock: Clock) -> Mask:
        """Mark the rows that progress lets go."""
        return self._is_final(rows, clock.c) | _lets_go(self.early_release, rows, clock.m)

    def _is_final(self, rows: pa.Table, c: int) -> Mask:
        """Mark the rows that the CTI ``c`` makes final."""
        return _lets_go(self.final_release, rows, c) & ~waits_for_members(rows, c)

    def _is_open(self, rows: pa.Table, c: int) -> Mask:
        """Mark the rows that may still change at CTI ``c``.

        A final row is not marked, even if its floats, added up in another order, now come out differently.
        """
        return ((ints(rows, RE) >= c) | waits_for_members(rows, c)) & ~self._is_final(rows, c)

    # reading

    def _upto(self, state: KernelBaskets, clock: Clock) -> int:
        """Return the instant before which windows (or pieces) of endless lifetimes must start to be included in this micro-batch.

        That is one tick past the progress so far (``clock.m``). Once the input has ended, and always if rows are sent at once,
        it is the bound of all windows (``runtime.endpoints``). INFINITY: the operator needs no bound. Announced endpoints are
        added to the state.
        """
        if self.bound is Bound.NONE:
            return INFINITY
        at_end = bound_at_end(state.values, clock, self.bound)
        if clock.c != INFINITY and not self._sends_at_once:
            return clock.m + 1 if clock.m > MINUS_INFINITY else clock.m
        return at_end

    # keeping and forgetting

    def _difference(self, state: KernelBaskets, reported: pa.Table, c_before: int) -> pa.Table:
        """Return the deltas from the rows sent before to ``reported``; if none were, all of these as inserts.

        Of the rows sent before, those that could no longer change at ``c_before`` are left out, as ``reported`` may lack them.
        """
        new = weighted(reported, 1)
        old = state.read("reported", BIN)
        if old is None:
            return new
        old = old.filter(pa.array(self._is_open(old, c_before)))
        return net_deltas(concat([new, cancelling_deltas(old)]))

    def _keep(
        self,
        state: KernelBaskets,
        fresh: list[list[pa.Table]],
        histories: list[pa.Table],
        rows: pa.Table,
        change: pa.Table,
        c: int,
    ) -> None:
        """Append the new events, and the change of the rows sent, to the state.

        If an input's basket has too many chunks, or too many settled events, all are rewritten without the rows that no longer
        matter; the rows sent are rewritten also if only their own basket has too many chunks.
        """
        crowded = any(
            state.crowded(f"in{port}", BIN, histories[port], self.compact_at - len(new))
            or self._outgrown(state, port, histories[port], c)
            for port, new in enumerate(fresh)
        )
        needed = self.evaluator.needed(histories, rows, c) if crowded and c != MINUS_INFINITY else None
        for port, new in enumerate(fresh):
            if needed is None:
                for table in new:
                    state.append(f"in{port}", BIN, table)
                continue
            needed_events = histories[port].filter(pa.array(needed[port]))
            state.values[f"kept{port}"] = needed_events.num_rows
            state.replace(f"in{port}", BIN, net_deltas(weighted(needed_events, 1)))
        state.append("reported", BIN, change)
        is_due = needed is not None or state.chunks("reported", BIN) > self.compact_at
        reported = state.read("reported", BIN) if is_due else None
        if reported is not None and (needed is not None or state.crowded("reported", BIN, reported, self.compact_at)):
            still_changes = (ints(reported, RE) >= c) | waits_for_members(reported, c)
            state.replace("reported", BIN, net_deltas(reported.filter(pa.array(still_changes))))

    def _outgrown(self, state: KernelBaskets, port: int, history: pa.Table, c: int) -> bool:
        """Return True if a history has more than doubled since it was rewritten, and over half of its events are settled.

        It must have more than ``compact_above`` events.
        """
        least = max(self.compact_above, 2 * int(state.values.get(f"kept{port}", 0)))
        return history.num_rows > least and int((ints(history, RE) < c).sum()) > history.num_rows // 2


def open_since(clock: Clock, state: KernelBaskets) -> int:
    """Return an instant such that rows that could change in a micro-batch end after it; an infinite CTI before it as it is."""
    if clock.c_before in (INFINITY, MINUS_INFINITY):
        return clock.c_before
    return min(clock.c_before, int(state.values.get("open", INFINITY))) - 1


def _lets_go(release: Release | None, rows: pa.Table, progress: int) -> Mask:
    """Mark the rows that a release lets go at this progress; none if there is no release."""
    return np.zeros(rows.num_rows, bool) if release is None else release.lets_go(rows, progress)


def _history(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return deltas added up to a history, without weights: each event occurs in it as often as its weights add up to.

    A negative sum counts as 0.
    """
    whole = pa.schema([*schema, (LE, pa.int64()), (RE, pa.int64())])
    if not tables:
        return whole.empty_table()
    summed = net_deltas(concat(tables))
    weight = ints(summed, WEIGHT)
    rows = summed.select(whole.names)
    if (weight == 1).all():
        return rows
    return rows.take(pa.array(np.repeat(np.arange(len(weight)), np.maximum(weight, 0))))
