"""Kernel of windows with user modules: it calls only windows that are sent and have changed, and may set aside failing ones.

A window that fails is set aside once, when it is final: until then its members may change.

State: as of ``recompute``, and the calls of open windows: a digest of their members, the result, and the module's state, if any.
Cost: as of ``recompute``, a hash per member and window, and a call for each window that is sent and has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.errors import ModuleFailed, sentence
from streamq.runtime.active_groups import ActiveGroups
from streamq.runtime.columnar import ints, net_deltas, with_column
from streamq.runtime.evaluators.window_evaluator import WindowEvaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernels.recompute import RecomputeKernel
from streamq.runtime.lateness import QuarantineRows
from streamq.runtime.rendering import python_rows
from streamq.runtime.tick_arithmetic import saturating
from streamq.runtime.user_code.code_values import LASTS, START
from streamq.runtime.user_code.member_changes import CallMemory, latest_calls
from streamq.time import INFINITY, MINUS_INFINITY

CALLS = "calls"
"""The basket of remembered calls."""


@dataclass(frozen=True)
class CallModulesKernel(RecomputeKernel[WindowEvaluator]):
    """A kernel of windows of which at least one reduction is a user's module."""

    sets_aside: bool = False
    """True if windows whose calls fail are set aside; a late output exists then."""

    time_bound_by: str = ""
    """The name of the user's time_bound operator, whose rows are final by their own lifetimes, not by windows; "": none."""

    def _evaluated(self, groups: ActiveGroups) -> pa.Table:
        """Return the evaluator's rows, calling modules only for windows whose members have changed since the last call.

        The calls of now replace those remembered of the active groups. The row of a window that fails has NULL as its result;
        once it is final, the window is set aside and counted in the totals. Failures that are not set aside raise ModuleFailed.
        """
        (events,), bins, clock = groups.inputs, groups.bins, groups.clock
        deltas = net_deltas(events.fresh) if events.fresh.num_rows else None
        memory = CallMemory.from_table(bins.read(CALLS), deltas)
        is_asked = partial(self._is_sent, clock=clock)
        aside = QuarantineRows(lambda rows: ~self._is_open(rows, clock.c)) if self.sets_aside else None
        rows = self.evaluator.rows(groups.histories, groups.open_since, groups.upto, memory, is_asked, aside)
        if clock.c != INFINITY:
            bins.append(CALLS, memory.changes, latest_calls)
        if aside is not None:
            aside.count(groups.totals)
        return rows

    @property
    def _looks_at_final_rows(self) -> bool:
        """True if windows whose calls have failed are set aside once they are final."""
        return self.sets_aside

    def _difference(self, before: pa.Table | None, sent: pa.Table, c_before: int) -> pa.Table:
        """Return the difference that ``recompute`` sends; raise ModuleFailed if a time_bound operator breaks its promise."""
        delta = super()._difference(before, sent, c_before)
        if self.time_bound_by and c_before != MINUS_INFINITY:
            self._check_promise(delta, c_before)
        return delta

    def _check_promise(self, delta: pa.Table, c: int) -> None:
        """Raise ModuleFailed if rows of a time_bound operator have changed before c, against its promise."""
        rows = self.own_rows(delta)
        rows = with_column(rows, RE, np.minimum(ints(rows, RE), c))
        changed = net_deltas(rows.filter(pa.array(ints(rows, LE) < c)))
        if changed.num_rows:
            row = python_rows(changed.slice(0, 1))[0]
            shown = ", ".join(f"{n} = {v!r}" for n, v in row.items() if not n.startswith("__"))
            what = f"after CTI {c} the row ({shown}) at {row[LE]} has {'come' if row[WEIGHT] > 0 else 'gone'}"
            raise ModuleFailed(sentence(self.time_bound_by, "it breaks its promise to be time_bound", what))

    def own_rows(self, delta: pa.Table) -> pa.Table:
        """Return the rows within a delta's lists of rows, each with its own lifetime and the list's weight.

        Their columns are those of the lists, LE, RE, the group's and the weight; the window's number of members is left out. A
        row that says nothing about how long it lasts is endless.
        """
        (name,) = [r.column.name for r in self.evaluator.reductions]
        lists = delta.column(name).combine_chunks()
        at = pc.list_parent_indices(lists)
        rows = pa.Table.from_struct_array(pc.list_flatten(lists))
        start, lasts = ints(rows, START), pc.fill_null(rows.column(LASTS), INFINITY).to_numpy()
        end = np.where(lasts == INFINITY, INFINITY, saturating(start, lasts))
        rows = with_column(with_column(rows.drop_columns([START, LASTS]), LE, start), RE, end)
        for column in (*self.evaluator.keys, WEIGHT):
            rows = with_column(rows, column, delta.column(column).take(at))
        return rows
