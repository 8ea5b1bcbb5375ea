"""Watch kernels: check that their inputs and outputs change nothing before the CTIs of the input and of the output.

The law of progress: once deltas are folded, no output breaches its CTI, and no CTI goes back.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa

from streamq.compiler.staged_plan import StagedPlan
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.hosts.hosted_kernel import HostedKernel
from streamq.runtime.kernel import Arrival, Clock, Kernel, Output, UncombinedKernel
from streamq.runtime.kernels.condensing import CallModulesKernel
from streamq.runtime.kernels.insert_ingress import InsertIngressKernel
from streamq.runtime.kernels.settle import CtisKernel
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.state.baskets import Basket, BinSizes, KernelBaskets, TimeBinSizes
from streamq.runtime.time.progress_rule import ProgressRule
from streamq.testing.backends import ProgressViolation, changes_before
from streamq.testing.history import shown
from streamq.time import INFINITY, INTEGER, MINUS_INFINITY, WindowEnds

SMALL_BINS = TimeBinSizes(most=6, few=2)
"""Sizes with which bins of time are divided at every opportunity."""


class CrowdedState(KernelBaskets):
    """A kernel's state in which every bin that gets rows, or is read, is rewritten, as is one of many chunks."""

    def __init__(self, state: KernelBaskets):
        super().__init__(state.baskets, state.prefix)

    def basket(self, name: str) -> Basket:
        return CrowdedBasket(self.baskets, f"{self.prefix}.{name}")


class CrowdedBasket(Basket):
    """A basket whose bins are rewritten at every opportunity."""

    def needs_rewrite(self, bin: str, rows: int = 0, live: int = 0) -> bool:
        return self.known(bin).chunks > 0


@dataclass(frozen=True)
class Crowded:
    """A kernel whose state is rewritten at every opportunity, as happens in a run of many micro-batches."""

    kernel: Kernel

    def combine(self, port: int, table: pa.Table) -> pa.Table:
        return self.kernel.combine(port, table)

    def announce(self, port: int, table: pa.Table) -> Any:
        return self.kernel.announce(port, table)

    @property
    def progress_rule(self) -> ProgressRule:
        """The kernel's progress rule."""
        return self.kernel.progress_rule

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        return self.kernel.advance(CrowdedState(state), arrivals, clock)


@dataclass(frozen=True, kw_only=True)
class Watched(Crowded):
    """A kernel whose input and output are checked in every micro-batch against the CTIs of its input and output.

    ``ends``: if hopping or landmark windows alone read a source, their ends, to which the source's CTIs are rounded
    down, for the window and for the kernel that judges lateness before it. ``judges``: the kernel is the latter. ``axis``: the
    time axis in which errors show instants. ``sent``: the last output CTI, by kernel.
    """

    name: str
    ends: WindowEnds | None = None
    judges: bool = False
    axis: str = INTEGER
    sent: dict[str, int] = field(default_factory=dict)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Advance the kernel and return its output; raise ProgressViolation if its input, output or CTI breaks the law.

        The CTI of the output is kept in ``sent``, for the next micro-batch.
        """
        for port, of_port in itertools.groupby(sorted(arrivals, key=lambda a: a.port), key=lambda a: a.port):
            # tables that the map side has combined hold partial results, not deltas
            tables = [a.table for a in of_port if a.judge is None and isinstance(self.kernel, UncombinedKernel)]
            if self.progress_rule.waits_for_members:
                # payload columns that read an end change with it, so leave them out
                tables = [table.select([n for n in (LE, RE, WEIGHT) if n in table.column_names]) for table in tables]
            promised = clock.c_before
            if isinstance(self.kernel, CtisKernel):
                # its input rows that read ends may change until these are final; the kernel's own CTI accounts for that
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
        """Return the rows to which the output CTI applies: for time-bound modules the rows within the lists of rows."""
        if isinstance(self.kernel, CallModulesKernel) and self.kernel.time_bound_by:
            return self.kernel.own_rows(table)
        return table

    def _counts(self, c: int) -> int:
        """Return a CTI as the kernel counts it: rounded down to a window's end if there are ``ends``."""
        return c if self.ends is None else self.ends.floor_to_end(c)

    def _refuse(self, why: str) -> None:
        raise ProgressViolation(f"{self.name}: {why}")


SMALLEST = BinSizes(
    split_above=2, whole_upto=0, slack=-1_000, awake_upto=0, slot_parts=-2, block_rank=1, blocks_above=0
)
"""Bins are split whenever they can be, and settled events forgotten; all events sleep that may.

There are blocks as soon as there are rows.
"""

CHANGING = replace(SMALLEST, blocks_above=4)
"""The same, but there are blocks above so few rows that a short run gets them, and gives them up."""


def with_sizes(kernel: Kernel, sizes: BinSizes) -> Kernel:
    """Return a kernel with these sizes of its bins; unchanged if it has none."""
    return replace(cast(Any, kernel), sizes=sizes) if hasattr(kernel, "sizes") else kernel


def watch_kernels(program: StagedPlan, held_to_ctis: bool = True) -> StagedPlan:
    """Return the program with kernels that rewrite their state, and merge ranges, at every opportunity, as in a long run.

    With ``held_to_ctis`` each kernel is :class:`Watched`, which raises ProgressViolation for a breach of a CTI.
    """

    every = [h for s in program.stages for h in s.hosted]
    axis = program.results[0].plan.schema.axis
    rounded = {h.name: h.kernel.round_to for h in every if isinstance(h.kernel, InsertIngressKernel)}

    def watch(hosted: HostedKernel) -> Kernel:
        """Return a kernel in its Crowded or Watched form, with the thresholds of its own merging at zero."""
        kernel = with_sizes(hosted.kernel, CHANGING if held_to_ctis else SMALLEST)
        if isinstance(kernel, WindowAggregateKernel):
            kernel = replace(kernel, explode_rows=0)
        if not held_to_ctis:
            return Crowded(kernel)
        judging = [channel.judge.ends for channel in hosted.channels if channel.judge is not None]
        before = [rounded[name] for name in (hosted.name, *hosted.inputs) if name in rounded]
        ends = next((ends for ends in (*judging, *before) if ends is not None), None)
        return Watched(kernel, name=hosted.name, ends=ends, judges=hosted.name in rounded, axis=axis)

    stages = [replace(s, hosted=tuple(replace(h, kernel=watch(h)) for h in s.hosted)) for s in program.stages]
    return replace(program, stages=stages)
