"""The quarantine: whole events of failed module calls, with the window or instant, the group and the reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.choices import CountReason
from streamq.plan.own_names import shown_group
from streamq.runtime.columnar import concat, with_column
from streamq.runtime.kernel import Totals
from streamq.runtime.lateness import GROUP, LATE_SCHEMA, WINDOW_END, WINDOW_START, late_rows
from streamq.runtime.values import Mask
from streamq.time import INFINITY


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
        """Set aside the events of a call that failed: payload columns, and ``__le`` and ``__re``."""
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
        """The rows of all failures."""
        return concat([LATE_SCHEMA.empty_table(), *self.tables])

    def count(self, totals: Totals) -> None:
        """Add the failures to a kernel's counts, and their rows to its late rows."""
        for module in self.modules:
            totals.add(module, CountReason.QUARANTINED, 1)
        totals.rows += self.tables


__all__ = ["QuarantineRows"]
