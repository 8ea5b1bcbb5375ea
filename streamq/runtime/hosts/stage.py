"""A stage: the kernels of one link of the chain, run bucket by bucket. The same code runs in Spark and in-process.

Envelopes (``runtime.envelope``) come in and go out; an envelope for a later stage passes through unchanged.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa

from streamq.policies import MIDDLE, Level
from streamq.runtime.arrow.columnar import concat, decode, encode, encode_small, ints
from streamq.runtime.deltas import WEIGHT, net_deltas, unit_weights, with_weights
from streamq.runtime.envelope import LATE, PROGRESS, READINGS, SPOKEN, TAP, TAPPED, TOTALS, Envelope, output_number
from streamq.runtime.hosts.hosted_kernel import UNWATCHED, Channel, HostedKernel, StageWatcher
from streamq.runtime.hosts.identity import FORM_CHANGED
from streamq.runtime.hosts.readings import LATE_COUNTS, LATEST, TALLIES, Reading, kernel_columns, source_columns
from streamq.runtime.kernel import Announcement, Arrival, Clock, Kernel, Output, Totals
from streamq.runtime.state.baskets import Baskets, KernelBaskets, Work
from streamq.runtime.time.consistency import HeldRows, progress_at_level
from streamq.runtime.time.lateness import weighted_events
from streamq.runtime.time.progress import (
    CLOCKS,
    LevelProgress,
    Message,
    RelationClock,
    decode_messages,
    encode_messages,
    forget_pace,
    map_progress,
    merge_summaries,
)
from streamq.runtime.time.progress_policy import ProgressPolicy
from streamq.time import INFINITY

OUT = -1
"""What stands for the output of an operator in the place of a port."""

TAPS = "taps"
"""The name under which a bucket's state has the taps that are on, by their ids: their commands, and what is left of them."""


@dataclass(eq=False, repr=False)
class BucketRun:
    """One micro-batch of one bucket, while its stage runs it."""

    bucket: int
    baskets: Baskets

    tables: dict[int, list[pa.Table]]
    """The deltas that came, by channel number."""

    messages: list[Message]

    clocks: dict[str, RelationClock]
    """The CTI and watermark that each relation has sent."""

    before: dict[str, LevelProgress]
    """The progress of each relation before this micro-batch; that of a source as it counts at the level of consistency."""

    now: dict[str, LevelProgress]
    """The same, after the messages of this micro-batch."""

    totals: dict[str, int]
    """Running counts of late, invalid and repeated items, by ``source|reason``."""

    notes: dict[int, list[Any]] = field(default_factory=dict)
    """The endpoints that the map side announced, by channel number."""

    outputs: list[tuple[HostedKernel, list[Arrival], Output, Work]] = field(default_factory=list)
    """The kernels that have advanced, each with what came, what it sent, and what it read of its state."""

    late: list[pa.Table] = field(default_factory=list)
    """Rows for the late output."""

    def count(self, totals: Totals) -> None:
        """Add the counts of late, invalid and repeated items, and their rows for the late output."""
        for key, n in totals.counts.items():
            self.totals[key] = self.totals.get(key, 0) + n
        self.late += totals.rows


@dataclass(frozen=True)
class Stage:
    """The kernels whose inputs come from sources and from earlier stages."""

    number: int
    """Its place in the chain, from 0 on."""

    hosted: tuple[HostedKernel, ...]
    channels: tuple[Channel, ...]

    sources: Mapping[str, ProgressPolicy]
    """The source relations of the whole query, and how each makes progress.

    A source's CTI is the greatest that one of its tasks has sent, or the one its policy derives from all tasks; the CTI of a
    kernel's relation is the least over the buckets of its stage."""

    later: frozenset[str]
    """The relations whose progress later stages need."""

    buckets: int
    late_output: bool = False

    level: Level = MIDDLE
    """The level of consistency as it counts for the whole query."""

    follows: Mapping[str, str] = field(default_factory=dict)
    """The leader of each source that has another source's progress, by relation."""

    buckets_behind: int | None = None
    """The number of buckets of the next stage; None: as many as this one."""

    inputs: frozenset[str] = field(init=False)
    """The relations that the stage's kernels read."""

    inner_channels: Mapping[str, Sequence[Channel]] = field(init=False)
    """The channels between two of the stage's kernels, by the relation at which they begin."""

    kernels: Mapping[int, Kernel] = field(init=False)
    """The stage's kernels, by number."""

    def __post_init__(self) -> None:
        inner: dict[str, list[Channel]] = {}
        for channel in self.channels:
            if channel.inner is not None:
                inner.setdefault(channel.relation, []).append(channel)
        derived = {
            "inputs": frozenset(r for h in self.hosted for r in h.inputs),
            "inner_channels": inner,
            "kernels": {hosted.number: hosted.kernel for hosted in self.hosted},
        }
        # the instance is frozen, and a cached property has a lock, which does not go to workers
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def run(
        self,
        bucket: int,
        baskets: Baskets,
        envelopes: Iterable[Envelope],
        wall: int = 0,
        watcher: StageWatcher = UNWATCHED,
    ) -> list[Envelope]:
        """Run one micro-batch of one bucket, in which every kernel advances once; return the envelopes that go on.

        These are the kernels' deltas and progress, envelopes for later stages, late rows if there is a late output, totals since
        the checkpoint began (none if all are 0), readings, and the rows of tapped operators. The readings are also stored in
        ``baskets``, and its state is written. ``wall`` is the micro-batch's time in milliseconds since 1970. ``watcher`` receives
        the rows inside the stage.
        """
        out: list[Envelope] = []
        tables: dict[int, list[pa.Table]] = {}
        messages: list[Message] = []
        commands: list[dict[str, Any]] = []
        # every bucket gets the same messages, and passes them on to the bucket of its number in the next stage
        has_next = self.buckets_behind is None or bucket < self.buckets_behind
        numbers = {c.number for c in self.channels}
        for envelope in envelopes:
            _, number, body = envelope
            if number == PROGRESS:
                messages += decode_messages(body)
            elif number == TAP:
                commands.append(json.loads(body))
                out += [envelope] if has_next else []
            elif number in numbers:
                tables.setdefault(number, []).append(decode(body))
            else:
                out.append(envelope)
        inputs = self.inputs
        for_later = [
            replace(m, invalid={}) if m.relation in inputs else m for m in messages if m.relation in self.later
        ]
        if for_later and has_next:
            out.append((bucket, PROGRESS, encode_messages(for_later)))
        run = self._begin_run(bucket, baskets, tables, messages)
        for hosted in self.hosted:
            out += self._advance(hosted, run, watcher)
        if run.late and self.late_output:
            out.append((bucket, LATE, encode(concat(run.late))))
        if run.totals:
            out.append((bucket, TOTALS, json.dumps(run.totals).encode()))
        out += self._tapped(run, commands)
        readings = self._readings(run, wall)
        # a restarted run reads them here before its first micro-batch
        baskets.values[LATEST] = readings
        out.append((bucket, READINGS, json.dumps(readings, separators=(",", ":")).encode()))
        baskets.flush()
        return out

    # progress

    def _begin_run(
        self, bucket: int, baskets: Baskets, tables: dict[int, list[pa.Table]], messages: list[Message]
    ) -> BucketRun:
        """Update the clocks by a micro-batch's messages; return the bucket's run with the progress before and after them.

        The invalid rows that messages report are counted in bucket 0 only, because every bucket gets the same messages.
        """
        inputs = self.inputs
        # a source's progress at a level can depend on the other sources
        reads_sources = not inputs.isdisjoint(self.sources)
        relations = inputs.union(self.sources) if reads_sources else inputs
        state = baskets.values.setdefault(CLOCKS, {})
        # a stage that does not read the sources now may do so later, at another level
        for r in self.sources.keys() & state.keys() if not reads_sources else ():
            forget_pace(state[r])
        # rows inside a stage stay in their bucket, so the bucket's own CTI is theirs
        senders = {r: 1 if r in self.inner_channels else self.buckets for r in relations}
        clocks = {r: RelationClock(state, r, senders[r], self.sources.get(r)) for r in sorted(relations)}
        if reads_sources and not all(clocks[r].has_pace for r in self.sources):
            # a result that begins where the checkpoint stands may be the first that reads them
            self._pace(clocks)
        before = {r: clock.pace for r, clock in clocks.items()}
        totals: dict[str, int] = baskets.values.setdefault(LATE_COUNTS, {})
        run = BucketRun(bucket, baskets, tables, messages, clocks, before=before, now={}, totals=totals)
        for message in messages:
            if message.relation not in clocks:
                continue
            clocks[message.relation].hear(message)
            for number, note in message.notes.items():
                run.notes.setdefault(number, []).extend(note)
            # every bucket gets the message, only bucket 0 counts its rows
            if bucket == 0 and message.relation in inputs:
                run.count(Totals(message.invalid))
        if reads_sources:
            for r in self.sources:
                clocks[r].take_promise()
            self._pace(clocks)
            for r, other in self.follows.items():
                # it shares the leader's CTIs, except the CTI that ends the leader
                clocks[r].reach_at_least(clocks[other].promise)
        run.now = {r: clock.pace for r, clock in clocks.items()}
        return run

    def _pace(self, clocks: Mapping[str, RelationClock]) -> None:
        """Set the CTI and watermark of the sources as they count at the level of consistency."""
        own_progress = {r: (clocks[r].c, clocks[r].w) for r in self.sources}
        for r, pace in progress_at_level(self.level, own_progress, self.follows).items():
            clocks[r].set_pace(pace)

    # kernels

    def _advance(self, hosted: HostedKernel, run: BucketRun, watcher: StageWatcher) -> list[Envelope]:
        """Have one kernel process what its channels brought; return its deltas and progress as envelopes, if it sends any.

        Its output and counts are added to ``run``; kernels of the stage that read its rows find them there. If the level of
        consistency holds rows back behind this kernel, only the due ones go on.
        """
        totals, work, begun = Totals(), Work(), time.thread_time_ns()
        run.baskets.work = work
        arrivals = [a for channel in hosted.channels if (a := self._arrival(hosted, channel, run, totals)) is not None]
        notes = [
            Announcement(channel.judge, *_progress_along(channel, run.before[channel.relation]), endpoints)
            for channel in hosted.channels
            for endpoints in run.notes.get(channel.number, ())
        ]
        rows_released = work.rows
        clock = _clock(hosted, run, tuple(notes))
        output = _advance_state(hosted, run.baskets.scoped(hosted.name), arrivals, clock)
        rows_read = work.rows
        w = max(map_progress(run.now[ch.relation].w, ch.progress_maps) for ch in hosted.channels)
        if hosted.aligns is not None and hosted.aligns_behind:
            (held_scope,), key = hosted.held_scopes, hosted.channels[0].hashed
            held = hosted.aligns.held_rows(run.baskets.scoped(held_scope), key)
            output.table = self._hold_back(hosted, held, output.table, clock.c, w)
        if output.evaluated is not None:
            # the rows that were read to hold others back
            output.evaluated += rows_released + work.rows - rows_read
        work.cpu_us = (time.thread_time_ns() - begun) // 1_000
        run.outputs.append((hosted, arrivals, output, work))
        run.count(totals)
        if not hosted.repeats:
            run.count(output.totals)
        deltas = unit_weights(output.table) if output.table is not None and output.table.num_rows else None
        message = Message(hosted.name, output.c, max(w, output.m), run.bucket, until=clock.until, reach=clock.reach)
        if deltas is not None:
            watcher.kernel_sends(hosted.number, deltas)
        self._hand_on(message, deltas, run, watcher)
        if not hosted.sends:
            return []
        out = [] if deltas is None else [(run.bucket, output_number(hosted.number), encode(deltas))]
        return [*out, (run.bucket, SPOKEN, encode_messages([message]))]

    def _hand_on(self, message: Message, deltas: pa.Table | None, run: BucketRun, watcher: StageWatcher) -> None:
        """Add a kernel's progress and its deltas, if any, to ``run`` for the kernels of this stage that read them."""
        for channel in self.inner_channels.get(message.relation, ()):
            run.clocks[channel.relation].hear(message)
            run.now[channel.relation] = run.clocks[channel.relation].pace
            if deltas is None:
                continue
            assert channel.inner is not None
            tables = channel.inner.tables(deltas)
            watcher.rows_move(channel.number, tables)
            if tables[-1].num_rows:
                run.tables[channel.number] = [self.kernels[channel.reader].combine(channel.port, tables[-1])]

    def _arrival(self, hosted: HostedKernel, channel: Channel, run: BucketRun, totals: Totals) -> Arrival | None:
        """Return the rows that a kernel gets from a channel, judged and held back if that happens before the kernel.

        None if there are none; if all have been dropped, the table is empty. The counts of late rows go into ``totals``.
        """
        before, now = run.before[channel.relation], run.now[channel.relation]
        table = concat(run.tables[channel.number]) if channel.number in run.tables else None
        judge = channel.judge
        if hosted.aligns is not None and hosted.aligns_before(channel):
            if table is not None:
                arrival = Arrival(channel.port, table, judge, *_progress_along(channel, before))
                table = weighted_events(arrival, totals)
            held = hosted.aligns.held_rows(run.baskets.scoped(hosted.held_scope(channel)))
            c, w = (map_progress(progress, channel.progress_maps) for progress in (now.c, now.w))
            table = self._hold_back(hosted, held, table, c, w, channel.port)
            judge = None
        if table is None:
            return None
        return Arrival(channel.port, table, judge, *_progress_along(channel, before))

    def _hold_back(
        self, hosted: HostedKernel, held: HeldRows, table: pa.Table | None, c: int, w: int, port: int | None = None
    ) -> pa.Table | None:
        """Hold back judged events that are not due at a kernel's level; return the due ones, earlier ones included.

        ``c`` and ``w`` are the CTI and the watermark at that level. ``port``: the port of the kernel to which the events go; None
        if they are the kernel's output. If the level does not block, nothing is held back, and what an earlier run has held back
        is returned, too. None, or an empty table, if no event is due.
        """
        if self.level.block != 0:
            return held.release(table, c, w)
        released = held.release(None, INFINITY, w)
        if released is None:
            return table
        if port is not None:
            # rows are held back one by one; at a level that does not block, the map side has combined those that came
            released = with_weights(hosted.kernel.combine(port, unit_weights(released)))
        # at a level that blocks, rows have all columns of the source
        rows = released if table is None else concat([released.select(table.column_names), table])
        return net_deltas(rows) if (ints(rows, WEIGHT) < 0).any() else rows

    # taps

    def _tapped(self, run: BucketRun, commands: Sequence[Mapping[str, Any]]) -> list[Envelope]:
        """Begin and end taps as commanded; return a report for each tap that is on and whose operator had rows.

        A report has the newest rows of each port, as they came: combined before the shuffle, held back if the level does so, and
        late ones included. It also has those of the output. The taps that are on afterwards are stored in the bucket's state.
        """
        values = run.baskets.values
        names = {hosted.name for hosted in self.hosted}
        taps = values.pop(TAPS, {}) | {c["tap"]: c for c in commands if c["operator"] in names}
        # envelopes come in any order, so the end of a tap may be before its beginning
        for ended in [command["tap"] for command in commands if not command["micro_batches"]]:
            taps.pop(ended, None)
        reports = []
        for tap, command in taps.items():
            for hosted, arrivals, output, _ in run.outputs:
                if hosted.name != command["operator"]:
                    continue
                tables = [(arrival.port, arrival.table) for arrival in arrivals]
                tables += [] if output.table is None else [(OUT, output.table)]
                newest = [(port, table[max(0, len(table) - command["rows"]) :]) for port, table in tables if len(table)]
                rows = [(port, base64.b64encode(encode_small(table)).decode()) for port, table in newest]
                if rows:
                    reports.append((run.bucket, TAPPED, json.dumps({"tap": tap, "rows": rows}).encode()))
        left = {tap: {**command, "micro_batches": command["micro_batches"] - 1} for tap, command in taps.items()}
        left = {tap: command for tap, command in left.items() if command["micro_batches"]}
        if left:
            values[TAPS] = left
        return reports

    # readings

    def _readings(self, run: BucketRun, wall: int) -> dict[str, Reading]:
        """Return the readings of this micro-batch: of the kernels in this bucket and, in bucket 0 only, of the sources.

        The tallies in the bucket's state are updated.
        """
        # every bucket gets the same messages of sources, so one bucket reports them
        tallies: dict[str, dict[str, int]] = run.baskets.values.setdefault(TALLIES, {})
        columns: dict[str, Reading] = {}
        for source in sorted(self.inputs.intersection(self.sources)) if run.bucket == 0 else ():
            messages = [message for message in run.messages if message.relation == source]
            parts = self.sources[source].parts
            columns |= source_columns(
                source,
                tallies.setdefault(source, {}),
                cti=run.now[source].promised,
                watermark=run.clocks[source].w,
                has_moved=run.now[source].promised != run.before[source].promised,
                starts=reduce(merge_summaries, (message.starts for message in messages), None),
                refused=sum(sum(message.invalid.values()) for message in messages),
                now=wall,
                of_parts={} if parts is None else parts.readings(run.clocks[source].held.get("parts", {})),
            )
        for hosted, arrivals, output, work in run.outputs:
            scopes = [(run.baskets.scoped(name), moved) for name, moved in hosted.held_scopes.items()]
            own = run.baskets.scoped(hosted.name)
            sizes = [s.size() for s in (own, *(scope for scope, _ in scopes))]
            backlogs = [output.backlog]
            if hosted.aligns is not None:
                backlogs += [hosted.aligns.held_rows(scope).backlog(moved) for scope, moved in scopes]
            tally = tallies.setdefault(hosted.name, {})
            columns |= kernel_columns(hosted.name, tally, arrivals, output, work, sizes=sizes, backlogs=backlogs)
        return columns


def _advance_state(hosted: HostedKernel, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
    """Advance a kernel on its state in one micro-batch."""
    if state.values.pop(FORM_CHANGED, False):
        clock = replace(clock, form_changed=True)
    return hosted.kernel.advance(state, arrivals, clock)


def _progress_along(channel: Channel, pace: LevelProgress) -> tuple[int, int]:
    """Return the CTI by which a channel's rows are late, and the one its source has sent, both moved as the rows are."""
    return map_progress(pace.counted, channel.progress_maps), map_progress(pace.promised, channel.progress_maps)


def _clock(hosted: HostedKernel, run: BucketRun, notes: tuple[Announcement, ...]) -> Clock:
    """Return a kernel's progress before and after a micro-batch: the least CTI and the greatest watermark of its channels."""
    before, now, clocks = run.before, run.now, run.clocks
    channels = [(channel.relation, channel.progress_maps) for channel in hosted.channels]
    by_port_before, by_port = (_by_port(hosted, paces) for paces in (before, now))
    c_before, c = min(by_port_before), min(by_port)
    w_before = max(map_progress(before[r].w, steps) for r, steps in channels)
    w = max(map_progress(now[r].w, steps) for r, steps in channels)
    return Clock(
        c_before=c_before,
        c=c,
        m_before=max(c_before, w_before),
        m=max(c, w),
        notes=notes,
        until=next((clocks[r].until for r in hosted.inputs if clocks[r].until is not None), None),
        by_port_before=by_port_before,
        by_port=by_port,
        promised=min(now[r].promised for r, _ in channels),
        counted_before=min(before[r].counted for r, _ in channels),
        counted=min(now[r].counted for r, _ in channels),
        reach=max(map_progress(clocks[ch.relation].reach, ch.progress_maps) for ch in hosted.channels),
    )


def _by_port(hosted: HostedKernel, paces: Mapping[str, LevelProgress]) -> tuple[int, ...]:
    """Return the least CTI of each port's channels, in the order of the ports."""
    least: dict[int, int] = {}
    for channel in hosted.channels:
        c = map_progress(paces[channel.relation].c, channel.progress_maps)
        least[channel.port] = min(c, least.get(channel.port, c))
    return tuple(least[port] for port in sorted(least))
