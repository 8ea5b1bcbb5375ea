"""A rehearsal of a query as a stream, in-process: the caller lets literal rows arrive, and the query answers as a run would."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamq.choices import OutputForm, RunState
from streamq.compiler.local import LocalRun
from streamq.compiler.stages import compile_stages
from streamq.errors import PlanError
from streamq.plan.node import Verbs, number_sources
from streamq.plan.schema import Schema
from streamq.policies import Consistency
from streamq.run.batch.answers import in_user_form, is_literal, read_connectors
from streamq.run.run_options import ResultRequest, RunOptions
from streamq.run.status.diagnosis import why
from streamq.run.status.run_status import MicroBatch, RunHistory, RunStatus
from streamq.run.status.watcher import Listener
from streamq.run.status.why import Why
from streamq.run.storage.checkpoint import END_OF_INPUT, OutsideCti, outside_cti
from streamq.runtime.arrow.columnar import concat
from streamq.runtime.hosts.readings import NO_READINGS, count_weights
from streamq.runtime.hosts.result_rows import changelog_rows, upsert_rows
from streamq.runtime.time.lateness import LATE_SCHEMA
from streamq.time import MINUS_INFINITY, TIMESTAMP, instant_ticks


class Rehearsal:
    """A query over literal or Arrow tables, fed micro-batch by micro-batch, without Spark.

    ``output``, ``key``, ``consistency`` and ``early`` are those of ``run``. ``clock`` returns the time of day, which sources may
    follow, and which ``why`` and ``metrics`` report. ``late_output``: there is a late sink, whose rows are ``late_rows``. Raises
    PlanError if a source is a DataFrame.

    >>> import streamq as sq
    >>> cars = sq.events([(1, 3, {"v": 1}), (7, 9, {"v": 2})], name="cars", progress=sq.generate())
    >>> run = Rehearsal(cars.tumbling_window(5).select(n=sq.count()))
    >>> run.arrive(cars=1).num_rows
    0
    >>> print(run.why().summary)
    Rows are held back, waiting for a row of cars at or after 5.
    >>> run.arrive().to_pylist()
    [{'n': 1, 'start': 0, 'end': 5}]
    """

    def __init__(
        self,
        query: Verbs,
        output: str = "final",
        clock: Callable[[], dt.datetime] | None = None,
        consistency: str | Consistency = "middle",
        *,
        early: bool = False,
        late_output: bool = False,
        key: str | Sequence[str] = (),
    ):
        if not is_literal(query.tables):
            raise PlanError("rehearsal", "a source is a DataFrame", "", "Give its rows as sq.events(...).")
        tables = read_connectors(query.tables, "rehearsal")
        result = ResultRequest(query=query, output=output, key=key)
        written, options = RunOptions(
            verb="rehearsal", results=(result,), consistency=consistency, early=early
        ).compiled_with()
        options = replace(options, buckets=4, late_output=late_output)
        root, names = number_sources(written)
        self._tables = {names[name]: table for name, table in tables.items() if name in names}
        self._local = LocalRun(compile_stages(root, options), static=self._tables)
        self.program = self._local.program
        self._arrived = {r.source.table: 0 for r in self.program.sources if r.source}
        self._named = {r.source.shown_name(): r.source.table for r in self.program.sources if r.source}
        self._clock = clock or (lambda: dt.datetime.now(dt.UTC))
        self._listener: Listener | None = None
        self.history = RunHistory()
        self._state = RunState.RUNNING

    def arrive(self, **rows: int) -> pa.Table:
        """Run one micro-batch over the given number of next rows of each named source; without arguments, over all rows left.

        Returns the output rows: payload, ``start``, ``end``; for a changelog also ``kind`` and ``new_end``, for upserts ``op``.
        Raises PlanError for a source that does not exist, and for more rows than it has left.
        """
        unknown = [name for name in rows if name not in self._named]
        if unknown:
            raise PlanError("arrive", f"no source {unknown[0]!r}", f"there are: {', '.join(self._named)}")
        counts = {self._named[name]: count for name, count in rows.items()} or dict.fromkeys(self._arrived)
        for name, count in rows.items():
            left = self._tables[self._named[name]].num_rows - self._arrived[self._named[name]]
            if not 0 <= count <= left:
                raise PlanError("arrive", f"source {name!r} has {left} row(s) left", f"found {count!r}")
        batch = {}
        for table, most in counts.items():
            next_rows = self._tables[table].slice(self._arrived[table], most)
            self._arrived[table] += next_rows.num_rows
            if next_rows.num_rows:
                batch[table] = next_rows
        return self._batch(batch)

    def advance(self, to: int | dt.datetime, source: str | None = None) -> pa.Table:
        """Send a CTI from outside, as ``run.advance`` does, and return the output rows."""
        return self._batch({}, [outside_cti(self.program, to, source)])

    def finish(self) -> pa.Table:
        """End the input, as ``run.finish`` does, and return the output rows."""
        rows = self._batch({}, [END_OF_INPUT])
        self._state = RunState.FINISHED
        return rows

    @property
    def late_rows(self) -> pa.Table:
        """The rows that a late sink would hold: dropped, adjusted and invalid rows, and events that modules failed for.

        There are none without ``late_output``.
        """
        return concat([LATE_SCHEMA.empty_table(), *self._local.late])

    @property
    def late(self) -> dict[str, int]:
        """The counts of late and other odd rows so far, as in ``run.late``."""
        return self.history.late_counts(self.program.late_reasons)

    @property
    def status(self) -> RunStatus:
        """How the run stands, by its clock."""
        reason = "its input has ended" if self._state == RunState.FINISHED else ""
        return RunStatus(
            program=self.program, history=self.history, state=self._state, reason=reason, now=self._clock()
        )

    def why(self) -> Why:
        """Return why there is no output, as ``run.why`` does."""
        return why(self.status)

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics, as in ``run.metrics``; values that only Spark has are None."""
        return self.status.metrics()

    @property
    def progress(self) -> dict[str, Any]:
        """The last micro-batch, as in ``run.progress``; ``spark`` is empty."""
        return self.status.progress()

    def _for_silent(self, now: int) -> list[OutsideCti]:
        """Return what is said on behalf of sources that are silent by their ``idle_after``, counted from the first call on."""
        if self._listener is None:
            self._listener = Listener(self.program, now)
        return self._listener.messages(self.history, now)

    def _batch(self, rows: Mapping[str, pa.Table], ctis: Sequence[OutsideCti] = ()) -> pa.Table:
        """Run one micro-batch, add it to the history, and return its output in the user's form.

        Besides ``ctis`` it gets those of sources that have been silent for their ``idle_after``.
        """
        now = self._clock()
        ticks = instant_ticks(now, TIMESTAMP)
        assert ticks is not None
        ctis = [*ctis, *self._for_silent(ticks // 1_000)]
        sent = [(message.table, message.cti) for message in ctis if message.cti != MINUS_INFINITY]
        idle_before = {message.table: message.idle_before for message in ctis if message.table and message.idle_before}
        deltas = self._local.batch(rows, sent, now=ticks, idle_before=idle_before)
        inserted, retracted = count_weights(deltas)
        late = dict(sum((Counter(totals) for totals in self._local.totals.values()), Counter[str]()))
        micro_batch = MicroBatch(
            number=self.history.number + 1,
            began_at=now,
            rows=sum(table.num_rows for table in rows.values()),
            inserted=inserted,
            retracted=retracted,
            readings=self._local.readings if rows or ctis or self.program.clock_policies else NO_READINGS,
            late=late,
        )
        self.history = self.history.with_micro_batch(micro_batch)
        (result,) = self.program.results
        schema = result.plan.schema
        match self.program.results[0].egress.output:
            case OutputForm.CHANGELOG:
                return _on_axis(changelog_rows(deltas), schema)
            case OutputForm.UPSERT | OutputForm.LATEST as output:
                rows = upsert_rows(deltas, result.egress.columns, by_start=output == OutputForm.UPSERT)
                return _on_axis(rows, schema)
        return in_user_form(deltas, schema)


def _on_axis(rows: pa.Table, schema: Schema) -> pa.Table:
    """Return rows with ticks converted to instants of the axis; on the integer axis they stay ticks."""
    if schema.axis != TIMESTAMP:
        return rows
    at = pa.timestamp("us", tz="UTC")
    times = {n: rows.column(n).cast(at) for n in ("start", "end", "new_end") if n in rows.column_names}
    return pa.table({n: times.get(n, rows.column(n)) for n in rows.column_names})
