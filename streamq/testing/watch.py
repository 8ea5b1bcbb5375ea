"""Kernels under watch: what they change is held against the CTIs that they were promised and those that they have sent.

The law of progress: no output CTI is breached, in folded form, and none goes back.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamq.compiler.staged_plan import StagedPlan
from streamq.grid import Grid
from streamq.runtime.basket import COMPACT_AT, KernelBaskets
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Clock, Kernel, Output, UncombinedKernel
from streamq.runtime.kernels.call_modules import CallModulesKernel
from streamq.runtime.kernels.ctis import CtisKernel
from streamq.runtime.kernels.insert_ingress import InsertIngressKernel
from streamq.runtime.kernels.recompute import RecomputeKernel
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.progress_rule import ProgressRule
from streamq.runtime.stage import HostedKernel
from streamq.testing.python_values import comparable, plain_values
from streamq.testing.timeline import interval, shown
from streamq.time import INFINITY, INTEGER, MINUS_INFINITY


class ProgressViolation(AssertionError):
    """A kernel changed what it, or its input, had promised not to change."""


class CrowdedState(KernelBaskets):
    """A kernel's state in which every bin counts as one of many chunks: reading it rewrites it."""

    def __init__(self, state: KernelBaskets):
        super().__init__(state.baskets, state.prefix)

    def chunks(self, basket: str, bin: str) -> int:
        many = super().chunks(basket, bin)
        return many and many + COMPACT_AT


@dataclass(frozen=True)
class Crowded:
    """A kernel whose state is rewritten whenever it may be, as it is in a run of many micro-batches."""

    kernel: Kernel

    def combine(self, port: int, table: pa.Table) -> pa.Table:
        return self.kernel.combine(port, table)

    def announce(self, port: int, table: pa.Table) -> Any:
        return self.kernel.announce(port, table)

    @property
    def progress_rule(self) -> ProgressRule:
        """That of the kernel."""
        return self.kernel.progress_rule

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        return self.kernel.advance(CrowdedState(state), arrivals, clock)


@dataclass(frozen=True, kw_only=True)
class Watched(Crowded):
    """A kernel whose micro-batches are held against the CTIs that it was promised and that it has sent.

    ``grid``: where a hopping window is the first to take a source's rows, its CTIs count as rounded down to a window's end
    for the window and for what judges lateness before it; ``judges``: the kernel is the latter; ``axis``: how errors show
    instants.
    """

    name: str
    grid: Grid | None = None
    judges: bool = False
    axis: str = INTEGER
    sent: dict[str, int] = field(default_factory=dict)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        for port, of_port in itertools.groupby(sorted(arrivals, key=lambda a: a.port), key=lambda a: a.port):
            # what the map side has combined are partial results, no deltas
            tables = [a.table for a in of_port if a.judge is None and isinstance(self.kernel, UncombinedKernel)]
            if self.progress_rule.waits_for_members:
                # columns that read an end move with it
                tables = [table.select([n for n in (LE, RE, WEIGHT) if n in table.column_names]) for table in tables]
            promised = clock.c_before
            if isinstance(self.kernel, CtisKernel):
                # rows whose ends are read move as long as those do, which it takes off the CTI itself
                promised = min(promised, self.sent.get(self.name, MINUS_INFINITY))
            changed = changes_before(self._counts(promised), tables, self.axis)
            if changed:
                self._refuse(f"its input {port} changes before its CTI {shown(promised, self.axis)}: {changed}")
        output = super().advance(state, arrivals, clock)
        before = self.sent.get(self.name, MINUS_INFINITY)
        tables = [self._promised_rows(output.table)] if output.table is not None else []
        changed = changes_before(self._counts(before) if self.judges else before, tables, self.axis)
        if changed:
            self._refuse(f"it changes before the CTI {shown(before, self.axis)} that it has sent: {changed}")
        if output.c < before:
            self._refuse(f"its CTI goes back, from {shown(before, self.axis)} to {shown(output.c, self.axis)}")
        if clock.c == INFINITY and output.c < INFINITY:
            self._refuse("it does not end with its inputs")
        self.sent[self.name] = output.c
        return output

    def _promised_rows(self, table: pa.Table) -> pa.Table:
        """The rows that the CTIs sent speak of: of lists of rows that are time-bound the rows themselves."""
        if isinstance(self.kernel, CallModulesKernel) and self.kernel.time_bound_by:
            return self.kernel.own_rows(table)
        return table

    def _counts(self, c: int) -> int:
        """A CTI of the source as it counts here."""
        return c if self.grid is None else self.grid.floor_to_end(c)

    def _refuse(self, why: str) -> None:
        raise ProgressViolation(f"{self.name}: {why}")


def changes_before(c: int, tables: Sequence[pa.Table], axis: str) -> str:
    """What a micro-batch changes before c once deltas are folded into retractions, as text: weights, lifetimes and rows.

    Rows that start before c must pair up, and both ends of each pair lie at or after c. Empty if nothing changes.
    """
    weights: Counter[Any] = Counter()
    for table in tables:
        names = [n for n in table.column_names if n not in (LE, RE, WEIGHT)]
        some = table.filter(pc.less(table[LE], c))
        for values in zip(*(plain_values(column) for column in some.columns), strict=True):
            row = dict(zip(some.column_names, values, strict=True))
            whose = (tuple(comparable(row[n]) for n in names), row[LE])
            weights[whose, row.get(RE, row[LE] + 1)] += row.get(WEIGHT, 1)
    total: Counter[Any] = Counter()
    for (whose, _), weight in weights.items():
        total[whose] += weight
    changes = [(*whose, until, w) for (whose, until), w in weights.items() if w and (until < c or total[whose])]
    return ", ".join(f"{w:+d} {interval(le, until, axis)} {row}" for row, le, until, w in changes)


def watched(program: StagedPlan, held_to_ctis: bool = True) -> StagedPlan:
    """Return the program with kernels that forget, and rewrite, all they may in every micro-batch and merge ranges as if many.

    With ``held_to_ctis`` each is a :class:`Watched`, which raises where a CTI is broken.
    """

    every = [h for s in program.stages for h in s.hosted]
    axis = program.results[0].plan.schema.axis
    grids = {h.name: h.kernel.round_to for h in every if isinstance(h.kernel, InsertIngressKernel)}

    def watch(hosted: HostedKernel) -> Kernel:
        kernel = hosted.kernel
        match kernel:
            case RecomputeKernel():
                kernel = replace(kernel, compact_at=0)
            case WindowAggregateKernel():
                kernel = replace(kernel, explode_rows=0)
        if not held_to_ctis:
            return Crowded(kernel)
        grid = next((grids[name] for name in (hosted.name, *hosted.inputs) if grids.get(name)), None)
        return Watched(kernel, name=hosted.name, grid=grid, judges=hosted.name in grids, axis=axis)

    stages = [replace(s, hosted=tuple(replace(h, kernel=watch(h)) for h in s.hosted)) for s in program.stages]
    return replace(program, stages=stages)


__all__ = ["ProgressViolation", "Watched", "changes_before", "watched"]
