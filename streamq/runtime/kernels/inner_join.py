"""Inner join of two streams, bilinear: what is new on one side with what the other side holds, and with what is new there.

State: each side's events, in bins of time by length of life, so that a micro-batch reads only the bins that its events can
overlap; a bin goes as a whole once all in it has ended. Cost: the pairs of what is new, and the bins they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import COMPACT_AT, Scope
from streamq.runtime.columnar import concat, ints, net, with_column
from streamq.runtime.evaluators.joins import JoinEvaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, Uncombined
from streamq.runtime.lateness import taken
from streamq.time import INFINITY, MINUS_INFINITY

ENDLESS = "inf"
CELLS = 16
"""Bins that the starts of the first micro-batch with more than one are spread over: the least width of a bin."""


@dataclass(frozen=True)
class InnerJoinKernel(Uncombined):
    """evaluator: which pairs; inputs: the columns of each side beside its lifetimes; result: those of a pair."""

    evaluator: JoinEvaluator
    inputs: tuple[pa.Schema, pa.Schema]
    result: tuple[str, ...]

    def advance(self, state: Scope, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """The pairs that the micro-batch makes and takes back."""
        totals = Totals()
        fresh = [self._taken(arrivals, port, totals) for port in (0, 1)]
        out = []
        if fresh[0] is not None or fresh[1] is not None:
            held = [self._overlapping(state, 1 - port, fresh[port]) for port in (0, 1)]
            right = [t for t in (held[0], fresh[1]) if t is not None]
            if fresh[0] is not None and right:
                out += self._pairs(fresh[0], concat(right))
            if fresh[1] is not None and held[1] is not None:
                out += self._pairs(held[1], fresh[1])
        if clock.c != INFINITY:
            for port in (0, 1):
                self._store(state, port, fresh[port])
        self._forget(state, clock.c)
        table = net(concat(out)) if out else None
        return Output(table if table is not None and table.num_rows else None, clock.c, totals)

    def _taken(self, arrivals: Sequence[Arrival], port: int, totals: Totals) -> pa.Table | None:
        columns = [*self.inputs[port].names, LE, RE, WEIGHT]
        found = [t.select(columns) for a in arrivals if a.port == port and (t := taken(a, totals)).num_rows]
        return concat(found) if found else None

    def _pairs(self, left: pa.Table, right: pa.Table) -> list[pa.Table]:
        at, of = self.evaluator.pairs(left, right)
        if not len(at):
            return []
        weight = ints(left, WEIGHT)[at] * ints(right, WEIGHT)[of]
        made = self.evaluator.paired(left, right, at, of)
        return [with_column(made.select([*self.result, LE, RE]), WEIGHT, weight)]

    # bins: events of one length class (a power of two, at least the grain) and one cell of starts of that width

    def _grain(self, state: Scope, le: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
        grain = state.values.get("grain")
        if grain is None:
            span = int(le.max()) - int(le.min())
            grain = int(np.log2(max(1.0, span / CELLS)))
            if span:
                # events of one instant say nothing of how dense the stream is
                state.values["grain"] = grain
        return int(grain)

    def _store(self, state: Scope, port: int, table: pa.Table | None) -> None:
        if table is None:
            return
        le, re = ints(table, LE), ints(table, RE)
        endless = re == INFINITY
        if endless.any():
            self._append(state, port, ENDLESS, table.filter(pa.array(endless)))
            table, le, re = table.filter(pa.array(~endless)), le[~endless], re[~endless]
        if not len(le):
            return
        grain = self._grain(state, le)
        # modulo 2^64 a length beyond int64 is right; as a float it may be a little too long, which only widens the bin
        length = np.maximum((re.view(np.uint64) - le.view(np.uint64)).astype(np.float64), 1.0)
        cls = np.clip(np.floor(np.log2(length)).astype(np.int64), grain, 62)
        bins, number = np.unique(np.stack([cls, le >> cls], axis=1), axis=0, return_inverse=True)
        for n, (k, cell) in enumerate(bins):
            self._append(state, port, f"{k}.{cell}", table.filter(pa.array(number.reshape(-1) == n)))

    def _append(self, state: Scope, port: int, bin: str, table: pa.Table) -> None:
        state.append(f"side{port}", bin, table)
        if state.chunks(f"side{port}", bin) > COMPACT_AT:
            state.read(f"side{port}", bin, net)

    def _overlapping(self, state: Scope, port: int, fresh: pa.Table | None) -> pa.Table | None:
        """What a side holds in the bins that some fresh event of the other side can overlap."""
        if fresh is None:
            return None
        le, re = ints(fresh, LE), ints(fresh, RE)
        first, last = le.min(), re.max()
        found = []
        for bin in state.bins(f"side{port}"):
            low, high = reach(bin)
            if first < high and last > low and ((re > low) & (le < high)).any():
                table = state.read(f"side{port}", bin, net)
                if table is not None:
                    found.append(table)
        return concat(found) if found else None

    def _forget(self, state: Scope, c: int) -> None:
        if c == MINUS_INFINITY:
            return
        for port in (0, 1):
            for bin in state.bins(f"side{port}"):
                if c == INFINITY or reach(bin)[1] < c:
                    state.drop(f"side{port}", bin)


def reach(bin: str) -> tuple[int, int]:
    """The least start and (exclusive) greatest end of the events a bin can hold."""
    if bin == ENDLESS:
        return MINUS_INFINITY, INFINITY
    cls, _, cell = bin.partition(".")
    start = int(cell) << int(cls)
    return start, min(INFINITY, start + (1 << int(cls)) + (2 << int(cls)))
