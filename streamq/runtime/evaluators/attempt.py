"""Evaluator of expressions that may fail: computes them for each event, and separates the events whose user function fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.expr import Expr
from streamq.plan.function import Fault
from streamq.plan.schema import Schema
from streamq.runtime.arrow_expr import attempt, lifetime_part
from streamq.runtime.evaluator import SettledProgress
from streamq.runtime.event import LE, RE
from streamq.runtime.user_code.calls import NOBODY_TAKES
from streamq.runtime.values import Mask

if TYPE_CHECKING:
    from streamq.runtime.lateness import QuarantineRows
    from streamq.runtime.progress_rule import ProgressRule

MODULE, REASON = "__module", "__reason"
"""The columns of a failed event for the module and the reason."""


@dataclass(frozen=True)
class AttemptEvaluator(SettledProgress):
    """Adds ``columns`` to each event; ``schema`` types the payload that they read; axis: the type of instants."""

    schema: Schema
    columns: tuple[tuple[str, Expr], ...]
    axis: pa.DataType

    @property
    def group_columns(self) -> tuple[tuple[str, ...], ...]:
        """No columns: each event is evaluated by itself, so any grouping will do."""
        return ((),)

    @property
    def progress_rule(self) -> ProgressRule:
        """Events are sent as they come."""
        from streamq.runtime.progress_rule import AT_ONCE

        return AT_ONCE

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Mask]:
        """Return no event."""
        return [np.zeros(inputs[0].num_rows, bool)]

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int, aside: QuarantineRows | None = None) -> pa.Table:
        """Return the events with their columns; ``aside`` takes those whose module fails. Without it, they raise ModuleFailed.

        Errors of expressions are raised in either case. ``since`` and ``upto`` leave nothing out.
        """
        rows, failed = self.attempted(inputs[0], is_taken=aside is not None)
        if aside is not None:
            set_events_aside(aside, failed)
        return rows

    def attempted(self, events: pa.Table, *, is_taken: bool) -> tuple[pa.Table, pa.Table]:
        """Return the events that do not fail, with their columns, and the others, with ``MODULE`` and ``REASON`` instead.

        If several modules fail on an event, the first is named. Raises the errors of expressions, and ModuleFailed unless
        ``is_taken``: something takes the events that fail.
        """
        payload = {name: events.column(name).combine_chunks() for name in self.schema.names}
        starts, ends = (events.column(name).combine_chunks() for name in (LE, RE))
        lifetime = partial(lifetime_part, starts=starts, ends=ends, axis=self.axis)
        rows, faults = events, list[Fault]()
        for name, expr in self.columns:
            value = attempt(expr, self.schema, payload, lifetime, events.num_rows)
            rows = rows.append_column(name, value.array)
            faults += value.faults
        for fault in faults:
            if not (fault.module and is_taken):
                text = f"{fault.text} {NOBODY_TAKES}" if fault.module else fault.text
                raise fault.kind(text) from fault.cause
        modules = np.full(events.num_rows, None, object)
        reasons = np.full(events.num_rows, None, object)
        for fault in reversed(faults):
            # late rows have the name of the module in a column of its own
            reason = fault.text.removeprefix(f"{fault.module}: it failed; ").removesuffix(".")
            modules[fault.rows], reasons[fault.rows] = fault.module, reason
        is_failed = pa.array(modules, pa.string()).is_valid()
        with_reasons = events.append_column(MODULE, pa.array(modules, pa.string()))
        with_reasons = with_reasons.append_column(REASON, pa.array(reasons, pa.string()))
        return rows.filter(pc.invert(is_failed)), with_reasons.filter(is_failed)


def set_events_aside(aside: QuarantineRows, failed: pa.Table) -> None:
    """Add events that have failed to ``aside``, each as a failure of its own, without a window or group."""
    modules, reasons = failed.column(MODULE).to_pylist(), failed.column(REASON).to_pylist()
    events = failed.drop_columns([MODULE, REASON])
    for i, (module, reason) in enumerate(zip(modules, reasons, strict=True)):
        aside.add(module, reason, events.slice(i, 1), group={})


__all__ = ["AttemptEvaluator", "set_events_aside"]
