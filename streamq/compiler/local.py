"""The in-process host: runs the stages of a program over Arrow tables, without Spark; for tests, docs and tiny data."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
import pyarrow as pa

from streamq.compiler.results import Result
from streamq.compiler.staged_plan import Feed, Relation, StagedPlan
from streamq.operators.operator import NOBODY, Observer
from streamq.operators.step import ArrowRows
from streamq.plan.schema import Schema
from streamq.runtime.arrow.arrow_types import arrow_schema
from streamq.runtime.arrow.columnar import concat, decode, with_column
from streamq.runtime.deltas import NOW, with_weights
from streamq.runtime.envelope import LATE, PROGRESS, READINGS, SPOKEN, TOTALS, Envelope, relation_of
from streamq.runtime.hosts.hosted_kernel import TECHNICAL, StageWatcher, full_rows, normalize_keys
from streamq.runtime.hosts.identity import Identity, check_state
from streamq.runtime.hosts.packer import Packer
from streamq.runtime.hosts.readings import NO_READINGS, Reading, Readings, combine_readings
from streamq.runtime.hosts.result_rows import split_ctis
from streamq.runtime.state.baskets import Baskets, DictStore, TimeBinSizes
from streamq.runtime.time.progress import Message, clock_messages, decode_messages, merge_messages
from streamq.time import INFINITY, MINUS_INFINITY

_NOTHING_IDLE: Mapping[str, int] = {}


@dataclass
class LocalRun:
    """A program running in-process: it takes micro-batches and returns deltas.

    ``identity``: that of the queries, which may go on from the state of others; None: the state is known to be theirs.
    ``stores``: the state, by stage and bucket. ``late``: the late rows so far. ``totals``: the counts of late rows, by stage and
    bucket. ``static``: the static tables, by name. ``ctis``: the CTIs of results whose egress has CTIs, by result number;
    ``promises``: those of the last micro-batch, as lifetimes.
    ``deltas``: the deltas of each result in the last micro-batch. ``readings``: the stages' measurements in the last
    micro-batch that had input. ``observer`` receives the rows of every node. ``time_bins`` are the sizes of state's bins of time.
    """

    program: StagedPlan
    stores: dict[tuple[int, int], dict[str, bytes]] = field(default_factory=dict)
    late: list[pa.Table] = field(default_factory=list)
    totals: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    static: Mapping[str, pa.Table] = field(default_factory=dict)
    ctis: dict[int, int] = field(default_factory=dict)
    promises: dict[int, pa.Table] = field(default_factory=dict)
    deltas: list[pa.Table] = field(default_factory=list)
    readings: Readings = NO_READINGS
    observer: Observer = NOBODY
    identity: Identity | None = None
    time_bins: TimeBinSizes = field(default_factory=TimeBinSizes)

    def restart(self) -> LocalRun:
        """Return a copy as if restarted from a checkpoint: with state, late rows, counts and CTIs, but no deltas or readings."""
        stores = {k: dict(v) for k, v in self.stores.items()}
        late, totals, ctis = list(self.late), dict(self.totals), dict(self.ctis)
        return replace(self, stores=stores, late=late, totals=totals, ctis=ctis, deltas=[], readings=NO_READINGS)

    def go_on(self, program: StagedPlan) -> LocalRun:
        """Return a restarted run that goes on with another program from the same state."""
        return replace(self.restart(), program=program)

    @property
    def cti(self) -> int:
        """The CTI of the first result, if its egress has CTIs; else minus infinity."""
        return self.ctis.get(0, MINUS_INFINITY)

    def batch(
        self,
        rows: Mapping[str, pa.Table],
        ctis: Collection[tuple[str | None, int]] = (),
        until: int | None = None,
        now: int | None = None,
        idle_before: Mapping[str, int] = _NOTHING_IDLE,
    ) -> pa.Table:
        """Run one micro-batch and return the deltas of the first result; ``deltas`` then has those of all results, without CTIs.

        Adds late rows to ``late``, and changes state, totals, CTIs and, if a stage has run, the readings.

        ``rows``: the rows that sources bring, by table; other tables are ignored. ``ctis``: CTIs from outside, each for
        a table, or for all sources (None). ``until`` bounds windows of endless lifetimes. ``now`` is the micro-batch's time, in
        microseconds since 1970; None: there is no clock that a source could go by. ``idle_before``: by table the round before
        which its idle parts were last heard of.
        """
        from_clock = [] if now is None else clock_messages(self.program.clock_policies, now)
        envelopes: list[Envelope] = []
        columns: list[dict[str, Reading]] = []
        result: dict[int, list[pa.Table]] = {r.number: [] for r in self.program.results}
        for relation in self.program.sources:
            assert relation.source is not None
            table = rows.get(relation.source.table)
            messages = [
                Message(relation.name, c=c, until=until) for name, c in ctis if name in (None, relation.source.table)
            ]
            if relation.source.table in idle_before:
                messages.append(Message(relation.name, idle_before=idle_before[relation.source.table]))
            messages += [message for message in from_clock if message.relation == relation.name]
            if table is None and not messages:
                continue
            packer = self.program.packer([relation])
            read = [] if table is None else [relation.source.rows_in_arrow(table, self.program.options.streaming)]
            if now is not None:
                read = [with_column(items, NOW, np.full(items.num_rows, now)) for items in read]
            good, message, refused = packer.read_source(read)
            self._late(refused)
            if message is not None:
                messages.append(message)
            for table in good:
                self.observer.rows_out(relation.source, table)
            merged = reduce(merge_messages, messages) if messages else None
            deltas = [(relation, relation.source.items.deltas_of(items)) for items in good]
            envelopes += self._send(packer, deltas, [], merged, result)
        for stage in self.program.stages:
            out: list[Envelope] = []
            for bucket in range(stage.buckets):
                mine = [e for e in envelopes if e[0] == bucket]
                if mine:
                    store = DictStore(self.stores.setdefault((stage.number, bucket), {}))
                    baskets = Baskets(store, self.time_bins)
                    if self.identity is not None:
                        check_state(baskets, self.identity)
                    out += stage.run(bucket, baskets, mine, 0 if now is None else now // 1_000, _Watcher(self))
            columns += [json.loads(body) for _, number, body in out if number == READINGS]
            envelopes = self._envelopes(stage.number, out, result)
        self.readings = combine_readings(columns) or self.readings
        self.deltas = [self._without_ctis(r, _deltas(result[r.number], r.plan.schema)) for r in self.program.results]
        return self.deltas[0]

    def _without_ctis(self, result: Result, deltas: pa.Table) -> pa.Table:
        """Return the deltas of a result without CTIs; with such an egress its entry in ``ctis`` is then the greatest."""
        if result.egress.ctis:
            deltas, self.promises[result.number] = split_ctis(deltas)
            for cti in self.promises[result.number].column(0).to_pylist()[-1:]:
                self.ctis[result.number] = cti
        return deltas

    def finish(self, until: int | None = None) -> pa.Table:
        """End every input by ``cti(inf)``; return the deltas of the first result. ``until``: see :meth:`batch`."""
        return self.batch({}, [(None, INFINITY)], until)

    def _late(self, envelopes: Iterable[Envelope]) -> None:
        """Add the late rows that some envelopes hold to ``late``."""
        self.late += [decode(body) for _, number, body in envelopes if number == LATE]

    def _envelopes(self, number: int, out: list[Envelope], result: dict[int, list[pa.Table]]) -> list[Envelope]:
        """Return the envelopes for the next stage, from the output ``out`` of stage ``number``.

        Outputs of kernels go through their paths, progress goes to every bucket, and envelopes for later stages are passed on.
        Rows of results are added to ``result``, late rows to ``late``; the buckets' totals replace theirs in ``totals``.
        """
        passing = [e for e in out if e[1] == PROGRESS or (e[1] >= 0)]
        self._late(out)
        for bucket, channel, body in out:
            if channel == TOTALS:
                self.totals[(number, bucket)] = json.loads(body)
        stage_messages = [m for _, number, body in out if number == SPOKEN for m in decode_messages(body)]
        relations = self.program.made_at(number + 1)
        by_number = {r.number: r for r in relations}
        payloads = {n: arrow_schema(relation.schema) for n, relation in by_number.items()}
        parts: dict[int, list[pa.Table]] = {}
        for _, channel, body in out:
            if (n := relation_of(channel)) is not None:
                parts.setdefault(n, []).append(full_rows(decode(body), payloads[n]))
        tables = [(by_number[n], concat(of_buckets)) for n, of_buckets in parts.items()]
        packer = self.program.packer(relations)
        done = {f.channel.number: f.result for f in self.program.feeds if f.result is not None}
        for _, number, body in passing:
            if number in done:
                result[done[number]].append(decode(body))
        return [e for e in passing if e[1] not in done] + self._send(packer, tables, stage_messages, None, result)

    def _send(
        self,
        packer: Packer,
        tables: Sequence[tuple[Relation, pa.Table]],
        stage_messages: Sequence[Message],
        source_message: Message | None,
        result: dict[int, list[pa.Table]],
    ) -> list[Envelope]:
        """Apply the paths of relations to their rows and pack them into envelopes; rows of results go to ``result``.

        The messages are those of the kernels of a stage, and that of a source; both are sent along.
        """
        tables_by_channel: dict[int, list[pa.Table]] = {}
        for relation, table in tables:
            for feed in self.program.feeds_of(relation):
                rows = apply_steps_in_arrow(feed, relation.schema, table, self.static, self.observer)
                if feed.channel.reader in self.program.nodes:
                    self.observer.rows_in(self.program.nodes[feed.channel.reader], feed.channel.port, rows)
                if feed.result is not None:
                    result[feed.result].append(rows)
                elif rows.num_rows:
                    tables_by_channel.setdefault(feed.channel.number, []).append(rows)
        return list(packer.pack(tables_by_channel, stage_messages, source_message))


@dataclass(frozen=True)
class _Watcher(StageWatcher):
    """A watcher of stages that passes the rows on to the observer of a run, as rows of its nodes."""

    run: LocalRun

    def kernel_sends(self, number: int, deltas: pa.Table) -> None:
        """Pass on the rows of a kernel's node, if it has one."""
        if number in self.run.program.nodes:
            self.run.observer.rows_out(self.run.program.nodes[number], deltas)

    def rows_move(self, channel: int, tables: Sequence[pa.Table]) -> None:
        """Pass on the rows that go into and out of the steps of a path, and into the node of its reader."""
        feed = self.run.program.feeds[channel]
        for step, before, after in zip(feed.path.steps, tables, tables[1:], strict=False):
            self.run.observer.rows_in(step, 0, before)
            self.run.observer.rows_out(step, after)
        if feed.channel.reader in self.run.program.nodes:
            self.run.observer.rows_in(self.run.program.nodes[feed.channel.reader], feed.channel.port, tables[-1])


def _deltas(tables: Iterable[pa.Table], schema: Schema) -> pa.Table:
    """Return the rows of a result as one table with the columns of its schema, lifetime and weight."""
    columns = pa.schema([*arrow_schema(schema), *((name, pa.int64()) for name in TECHNICAL)])
    full = [with_weights(table).select(columns.names).cast(columns) for table in tables]
    return concat([columns.empty_table(), *full])


def apply_steps_in_arrow(
    feed: Feed, schema: Schema, table: pa.Table, tables: Mapping[str, pa.Table], observer: Observer = NOBODY
) -> pa.Table:
    """Apply the steps of a feed's path to a relation's rows; return the columns that the feed's port takes.

    Floats that choose a row's bucket are normalized. ``tables`` are the static tables by name.
    """
    rows = ArrowRows.from_table(table, schema, tables)
    for step in feed.path.steps:
        observer.rows_in(step, 0, rows.table)
        rows = step.in_arrow(rows)
        observer.rows_out(step, rows.table)
    columns = {name: rows.evaluate(expr) for name, expr in feed.columns}
    lifetimes = rows.lifetimes
    at_port = pa.table({n: columns[n] if n in columns else lifetimes.column(n) for n in feed.channel.columns})
    return normalize_keys(at_port, feed.hashed)
