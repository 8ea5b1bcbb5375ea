"""The quarantine of a query: the events that its modules failed for, with the reasons, for reading and for replay."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamq.errors import PlanError, nearest, unknown_column
from streamq.operators.operator import QuarantineEvents, set_aside
from streamq.plan.node import Verbs, expanded, named_after
from streamq.plan.schema import POINT
from streamq.run.batch.answers import (
    as_frames,
    as_text,
    batch_frames,
    events_set_aside,
    is_dataframe,
    is_literal,
    to_pandas,
)
from streamq.run.failure import spark_errors
from streamq.run.session.findings import session_of
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.rendering import from_json_value
from streamq.runtime.time.lateness import GROUP, LATE_SCHEMA
from streamq.time import TIMESTAMP

if TYPE_CHECKING:
    import pandas as pd


S = TypeVar("S")


class Quarantine(Generic[S]):
    """The events that modules of a query failed for; ``rows`` is a late output, or None for those of the batch answer.

    A row is an event and a call that failed: ``source`` is the module, ``reason`` the error, ``start`` and ``end`` the event's
    lifetime in ticks (NULL: without end), ``payload`` all columns of the operator's input as JSON, ``window_start`` and
    ``window_end`` the window in ticks (NULL without a window), ``group`` the group's keys as JSON. ``until`` bounds the windows
    of the batch answer, as in :meth:`Stream.to_df`.
    """

    def __init__(
        self, query: Verbs, read: Callable[[pa.Table], S], rows: Any = None, until: int | dt.datetime | None = None
    ):
        """``read`` returns the stream of a table of events; they have one tick if it has no column ``end``."""
        self._query, self._read, self._rows, self._until = query, read, rows, until
        self._aside = set_aside(expanded(query.plan))

    @property
    def modules(self) -> list[str]:
        """The names of the modules that set aside events that they fail for, sorted."""
        return sorted({aside.module for aside in self._aside})

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table, ordered by source, group, window, lifetime, payload and reason.

        Late and invalid rows of a late output are left out.
        """
        table = self._table()
        table = table.filter(table.column(GROUP).is_valid())
        order = ("source", GROUP, "window_start", "window_end", "start", "end", "payload", "reason")
        return table.take(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in order]))

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame, in the order of :meth:`to_arrow`."""
        return to_pandas(self.to_arrow())

    def to_df(self) -> DataFrame:
        """Return the rows as a Spark DataFrame, computed when it is read, independently of the query's own ``to_df``.

        Late and invalid rows of a late output are left out.
        """
        if is_dataframe(self._rows):
            return self._rows.where(F.col("group").isNotNull())
        if self._rows is None and not is_literal(self._query.tables):
            aside = batch_frames(self._query.plan, self._query.tables, self._until, verb="quarantine").aside
            if aside is not None:
                return aside
        session_of(self._query.tables.values(), "quarantine")
        return as_frames({"rows": self.to_arrow()}, "quarantine")["rows"]

    def show(self, n: int = 20) -> None:
        """Print the first ``n`` rows as a table."""
        print(as_text(self.to_arrow(), n))

    def events(self, module: str, *, on_windows: bool = False) -> S:
        """Return the events that a module failed for as a stream with the columns of the operator's input, for replay.

        If the module is one over windows, each event occurs once for each window, with ``window_start`` and ``window_end``
        (instants of the axis; NULL: without end). ``on_windows``: events have the lifetimes of their windows and not their own,
        so that ``per_window()``, grouped as in the query, gets the members of each window together. The events are held in this
        process. Raises PlanError for a module that sets nothing aside, and with ``on_windows`` for one that is not over
        windows; also for a column of the input that has the name of a window's bound.
        """
        aside = self._aside_of(module)
        table = self._events(aside)
        if on_windows:
            if not aside.in_windows:
                raise PlanError("quarantine", f"{module} fails for events, not for windows", "on_windows=True")
            times = {"start": table.column("window_start"), "end": table.column("window_end")}
            table = pa.table({name: times.get(name, table.column(name)) for name in table.column_names})
        elif aside.schema.shape == POINT:
            table = table.drop_columns(["end"])
        return self._read(table)

    def __repr__(self) -> str:
        return f"Quarantine({', '.join(self.modules) or 'no module sets anything aside'})"

    def _table(self) -> pa.Table:
        """Return all rows of the late output, or those set aside in batch; raise UnknownColumn for a missing column."""
        if self._rows is None:
            return events_set_aside(self._query.plan, self._query.tables, self._until)
        rows: Any = self._rows
        with spark_errors("quarantine"):
            table = rows.toArrow() if is_dataframe(rows) else rows
        table = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
        for name in LATE_SCHEMA.names:
            if name not in table.column_names:
                unknown_column("quarantine", name, table.column_names, lifetime=False)
        return table.select(LATE_SCHEMA.names).cast(LATE_SCHEMA)

    def _aside_of(self, module: str) -> QuarantineEvents:
        """Return the events that a module sets aside; raise PlanError if there are none, or of inputs with different columns."""
        candidates = list(dict.fromkeys(aside for aside in self._aside if aside.module == module))
        if not candidates:
            wrong, shown = (
                f"no module {module!r} that sets anything aside",
                f"there are: {', '.join(self.modules) or 'none'}",
            )
            raise PlanError("quarantine", wrong, shown, nearest(module, self.modules))
        if len(candidates) > 1:
            shown = "; ".join(", ".join(aside.schema.names) for aside in candidates)
            hint = "Give it another name for each: sq.uda(..., name=...)."
            raise PlanError("quarantine", f"{module} is called over different inputs", f"they have {shown}", hint)
        (aside,) = candidates
        return aside

    def _events(self, aside: QuarantineEvents) -> pa.Table:
        """Return the events as they were in the operator's input, with the windows of modules over windows."""
        rows = self.to_arrow()
        rows = rows.filter(pc.equal(rows.column("source"), aside.module))
        payloads = [json.loads(text) for text in rows.column("payload").to_pylist()]
        columns: dict[str, Any] = {}
        for field in aside.schema.fields:
            kind = arrow_type(field.type)
            columns[field.name] = pa.array([from_json_value(p.get(field.name), kind) for p in payloads], kind)
        axis = pa.timestamp("us", "UTC") if aside.schema.axis == TIMESTAMP else pa.int64()
        windows = ("window_start", "window_end") if aside.in_windows else ()
        for name in (bound for bound in windows if bound in aside.schema.names):
            hint = "Rename it before the window: .rename({...})."
            raise PlanError("quarantine", "a column that the events get", f"the input has {name!r}", hint)
        columns |= {name: rows.column(name).cast(axis) for name in (*windows, "start", "end")}
        return pa.table(columns)


named_after(Quarantine, "quarantine()")
