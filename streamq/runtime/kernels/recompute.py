"""Any evaluator, incrementally: keep what can still matter, evaluate what is open, hand on the difference to what was reported.

State: the events the evaluator needs, with weights, and the reported rows that are not settled. Both only grow by chunks;
what is no longer needed goes when they are compacted. Cost: a micro-batch evaluates a bucket's open events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arithmetic import ARRAYS
from streamq.runtime.basket import COMPACT_AT, Scope
from streamq.runtime.columnar import concat, group, ints, net, with_column
from streamq.runtime.endpoints import Bound, Endpoint, Endpoints, endpoint
from streamq.runtime.evaluator import Evaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, Uncombined
from streamq.runtime.lateness import weighted_events
from streamq.runtime.release import Release
from streamq.runtime.values import Mask
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule

BIN = "0"


@dataclass(frozen=True)
class RecomputeKernel(Uncombined):
    """inputs: the columns of each port's events beside their lifetime; result: those of the rows handed on.

    final: rows are handed on once they are final, else as soon as the watermark speaks for them; bound: which windows (or
    pieces) the end of the input brings; pointwise: ports whose ends play no part; compact_at: chunks beyond which state is
    compacted.
    """

    evaluator: Evaluator
    inputs: tuple[pa.Schema, ...]
    result: tuple[str, ...]
    final: bool = False
    bound: Bound = Bound.NONE
    pointwise: tuple[int, ...] = ()
    compact_at: int = COMPACT_AT
    final_release: Release | None = field(init=False)
    early_release: Release | None = field(init=False)

    def __post_init__(self) -> None:
        # executors need no more of the rule than this
        object.__setattr__(self, "final_release", self.progress_rule.final)
        object.__setattr__(self, "early_release", self.progress_rule.early)

    @property
    def progress_rule(self) -> ProgressRule:
        """The evaluator's; rows wait until they are final if only such are asked for."""
        rule = self.evaluator.progress_rule
        return rule.when_final() if self.final else rule

    def announce(self, port: int, table: pa.Table) -> list[Endpoint] | None:
        """The endpoints, as far as they bound the windows reported at the end of the stream."""
        if self.bound is Bound.NONE or table.num_rows == 0:
            return None
        le = ints(table, LE)
        re = ints(table, RE) if RE in table.column_names else le + 1
        endless = re == INFINITY
        rows = pa.table({"end": endpoint(le, re, ARRAYS), "endless": endless.astype(np.int64), "w": _weights(table)})
        weights = group(rows, ["end", "endless"], {"w": ("w", "sum")})
        return [Endpoint(r["end"], bool(r["endless"]), r["w"]) for r in weights.to_pylist() if r["w"]]

    def advance(self, state: Scope, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Take in deltas, evaluate, report what is new and take back what is no longer so."""
        totals = Totals()
        fresh: list[list[pa.Table]] = [[] for _ in self.inputs]
        for arrival in arrivals:
            table = weighted_events(arrival, totals)
            if arrival.port in self.pointwise:
                table = with_column(table, RE, ints(table, LE) + 1)
            if table.num_rows:
                fresh[arrival.port].append(table.select([*self.inputs[arrival.port].names, LE, RE, WEIGHT]))
        upto = self._upto(state, clock)
        moved = clock.c != clock.c_before or clock.m != clock.m_before
        if not any(fresh) and not moved:
            return Output(None, int(state.values.get("cti", MINUS_INFINITY)), totals, state.values.get("due"))

        histories: list[pa.Table] = []
        for port, schema in enumerate(self.inputs):
            held = state.read(f"in{port}", BIN)
            histories.append(_history([t for t in (held, *fresh[port]) if t is not None], schema))
        since = clock.c_before if clock.c_before in (INFINITY, MINUS_INFINITY) else clock.c_before - 1
        rows = self.evaluator.rows(histories, since, upto)
        is_open = self._is_open(rows, clock.c_before)
        is_reported = _lets_go(self.final_release, rows, clock.c) | _lets_go(self.early_release, rows, clock.m)
        reported = rows.select([*self.result, LE, RE]).filter(pa.array(is_open & is_reported))
        delta = self._difference(state, reported, clock.c_before)

        cti = self.evaluator.cti(histories, rows, clock.c) if clock.c != MINUS_INFINITY else MINUS_INFINITY
        cti = max(cti, int(state.values.get("cti", MINUS_INFINITY)))
        waiting, release = rows.filter(pa.array(~is_reported)), self.early_release or self.final_release
        state.values["cti"], state.values["due"] = cti, release.due(waiting) if release is not None else None
        if clock.c == INFINITY:
            for basket in (*(f"in{port}" for port in range(len(self.inputs))), "reported"):
                state.drop(basket, BIN)
        else:
            self._keep(state, fresh, histories, rows, delta, clock.c)
        return Output(delta if delta is not None and delta.num_rows else None, cti, totals, state.values["due"])

    def _is_open(self, rows: pa.Table, c: int) -> Mask:
        """Which rows may change at c: none that was final and reported, even if its floats now added up in another order."""
        return (ints(rows, RE) >= c) & ~_lets_go(self.final_release, rows, c)

    # taking in

    def _upto(self, state: Scope, clock: Clock) -> int:
        """Windows of lifetimes without an end are made up to here: what holds the watermark, at the end what bounds them all."""
        if self.bound is Bound.NONE:
            return INFINITY
        endpoints = Endpoints(state.values)
        endpoints.add([e for note in clock.notes for e in note.endpoints], clock.reach)
        if clock.c != INFINITY:
            return clock.m + 1 if clock.m > MINUS_INFINITY else clock.m
        return endpoints.limit(self.bound, clock.reach, clock.until)

    # keeping and forgetting

    def _difference(self, state: Scope, now: pa.Table, c_before: int) -> pa.Table:
        now = with_column(now, WEIGHT, np.ones(now.num_rows, np.int64))
        old = state.read("reported", BIN)
        if old is None:
            return now
        old = old.filter(pa.array(self._is_open(old, c_before)))
        return net(concat([now, with_column(old, WEIGHT, pc.negate(old.column(WEIGHT)))]))

    def _keep(
        self,
        state: Scope,
        fresh: list[list[pa.Table]],
        histories: list[pa.Table],
        rows: pa.Table,
        delta: pa.Table,
        c: int,
    ) -> None:
        crowded = any(
            state.crowded(f"in{port}", BIN, histories[port], self.compact_at - len(new))
            for port, new in enumerate(fresh)
        )
        needed = self.evaluator.needed(histories, rows, c) if crowded and c != MINUS_INFINITY else None
        for port, new in enumerate(fresh):
            if needed is None:
                for table in new:
                    state.append(f"in{port}", BIN, table)
                continue
            needed_events = histories[port].filter(pa.array(needed[port]))
            state.replace(
                f"in{port}", BIN, net(with_column(needed_events, WEIGHT, np.ones(needed_events.num_rows, np.int64)))
            )
        state.append("reported", BIN, delta)
        reported = state.read("reported", BIN) if state.chunks("reported", BIN) > self.compact_at else None
        if reported is not None and state.crowded("reported", BIN, reported, self.compact_at):
            state.replace("reported", BIN, net(reported.filter(pc.greater_equal(reported.column(RE), c))))


def _lets_go(release: Release | None, rows: pa.Table, progress: int) -> Mask:
    """Which rows a release lets go at this progress; none where there is no such release."""
    return np.zeros(rows.num_rows, bool) if release is None else release.lets_go(rows, progress)


def _history(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Deltas as a history: every event as often as its weights add up to."""
    whole = pa.schema([*schema, (LE, pa.int64()), (RE, pa.int64())])
    if not tables:
        return whole.empty_table()
    summed = net(concat(tables))
    weight = ints(summed, WEIGHT)
    rows = summed.select(whole.names)
    if (weight == 1).all():
        return rows
    return rows.take(pa.array(np.repeat(np.arange(len(weight)), np.maximum(weight, 0))))


def _weights(table: pa.Table) -> Any:
    return ints(table, WEIGHT) if WEIGHT in table.column_names else np.ones(table.num_rows, np.int64)
