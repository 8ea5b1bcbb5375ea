"""A stage: the kernels of one link of the chain, hosted bucket by bucket. The same code runs in Spark and in-process.

Envelopes (``runtime.envelope``) come in and go out; an envelope for a later stage passes through unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa

from streamq.policies import MIDDLE, Level
from streamq.runtime.basket import Baskets, KernelBaskets
from streamq.runtime.columnar import concat, decode, encode
from streamq.runtime.consistency import AlignAt, align, backlog, progress_at_level
from streamq.runtime.deltas import unit_weights
from streamq.runtime.envelope import LATE, PROGRESS, READINGS, SPOKEN, TOTALS, Envelope, output_number
from streamq.runtime.hosted_kernel import Channel, HostedKernel
from streamq.runtime.kernel import Announcement, Arrival, Clock, Output, Totals
from streamq.runtime.lateness import weighted_events
from streamq.runtime.progress import LevelProgress, Message, RelationClock, decode_messages, encode_messages
from streamq.runtime.progress_map import map_progress
from streamq.runtime.progress_policy import ProgressPolicy
from streamq.runtime.readings import LATEST, TALLIES, Reading, kernel_columns, source_columns
from streamq.runtime.starts import merge_summaries
from streamq.time import INFINITY


@dataclass(eq=False, repr=False)
class _BucketRun:
    """One micro-batch of one bucket, while the stage runs it."""

    bucket: int
    baskets: Baskets

    tables: dict[int, list[pa.Table]]
    """The deltas that came, by channel number."""

    messages: list[Message]

    clocks: dict[str, RelationClock]
    """The CTI and watermark that each relation has sent."""

    before: dict[str, LevelProgress]
    """Those as they count at the level of consistency, before this micro-batch."""

    now: dict[str, LevelProgress]
    """The same, after the messages of this micro-batch."""

    totals: dict[str, int]
    """Running counts of late, invalid and repeated items, by ``source|reason``."""

    notes: dict[int, list[Any]] = field(default_factory=dict)
    """The endpoints that the map side announced, by channel number."""

    outputs: list[tuple[HostedKernel, list[Arrival], Output]] = field(default_factory=list)
    """The kernels that have advanced, each with what it read and wrote."""

    late: list[pa.Table] = field(default_factory=list)
    """Rows for the late output."""

    def count(self, totals: Totals) -> None:
        """Add the counts, and the rows for the late output, of items that were late, invalid or delivered again."""
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
    """The source relations of the whole query, and how each makes progress. A source's CTI is the greatest that any of its tasks
    has sent, or that its policy makes of what all have said; that of any other relation is the least over the buckets of the
    stage that writes it."""

    later: frozenset[str]
    """The relations whose progress later stages need."""

    buckets: int
    late_output: bool = False

    consistency: Level = MIDDLE
    """The query's level of consistency."""

    follows: Mapping[str, str] = field(default_factory=dict)
    """The source that a source has its progress from, where that is another, by relation."""

    buckets_behind: int | None = None
    """How many buckets the next stage has; None: as many."""

    @property
    def inputs(self) -> set[str]:
        """The relations that the stage's kernels read."""
        return {r for h in self.hosted for r in h.inputs}

    def run(self, bucket: int, baskets: Baskets, envelopes: Iterable[Envelope], wall: int = 0) -> list[Envelope]:
        """Run one micro-batch of one bucket: every kernel advances once. Returns the envelopes that go on.

        ``wall`` is the time of day in milliseconds since 1970.
        """
        out: list[Envelope] = []
        tables: dict[int, list[pa.Table]] = {}
        messages: list[Message] = []
        numbers = {c.number for c in self.channels}
        for envelope in envelopes:
            _, number, body = envelope
            if number == PROGRESS:
                messages += decode_messages(body)
            elif number in numbers:
                tables.setdefault(number, []).append(decode(body))
            else:
                out.append(envelope)
        inputs = self.inputs
        for_later = [
            replace(m, invalid={}) if m.relation in inputs else m for m in messages if m.relation in self.later
        ]
        # every bucket hears the same, and hands it on to the one behind it
        if for_later and (self.buckets_behind is None or bucket < self.buckets_behind):
            out.append((bucket, PROGRESS, encode_messages(for_later)))
        turn = self._begin_turn(bucket, baskets, tables, messages)
        for hosted in self.hosted:
            out += self._advance(hosted, turn)
        if turn.late and self.late_output:
            out.append((bucket, LATE, encode(concat(turn.late))))
        if turn.totals:
            out.append((bucket, TOTALS, json.dumps(turn.totals).encode()))
        readings = self._readings(turn, wall)
        # a run that has not had a micro-batch of its own finds them here
        baskets.values[f"{LATEST}{self.number}"] = readings
        out.append((bucket, READINGS, json.dumps(readings, separators=(",", ":")).encode()))
        baskets.flush()
        return out

    # progress

    def _begin_turn(
        self, bucket: int, baskets: Baskets, tables: dict[int, list[pa.Table]], messages: list[Message]
    ) -> _BucketRun:
        """Update the clocks by a micro-batch's messages; return the turn with the progress before and after them."""
        inputs = self.inputs
        # what counts as a source's progress can depend on the others'
        reads_sources = not inputs.isdisjoint(self.sources)
        relations = inputs.union(self.sources) if reads_sources else inputs
        state = baskets.values.setdefault(f"clocks{self.number}", {})
        clocks = {r: RelationClock(state, r, self.buckets, self.sources.get(r)) for r in sorted(relations)}
        before = {r: clock.pace for r, clock in clocks.items()}
        totals: dict[str, int] = baskets.values.setdefault(f"totals{self.number}", {})
        turn = _BucketRun(bucket, baskets, tables, messages, clocks, before=before, now={}, totals=totals)
        for message in messages:
            if message.relation not in clocks:
                continue
            clocks[message.relation].hear(message)
            for number, note in message.notes.items():
                turn.notes.setdefault(number, []).extend(note)
            # every bucket hears it, one counts it
            if bucket == 0 and message.relation in inputs:
                turn.count(Totals(message.invalid))
        if reads_sources:
            self._pace(clocks)
        turn.now = {r: clock.pace for r, clock in clocks.items()}
        return turn

    def _pace(self, clocks: Mapping[str, RelationClock]) -> None:
        """Set the CTI and watermark that each source counts as having at the level of consistency."""
        for r in self.sources:
            clocks[r].take_promise()
        own_progress = {r: (clocks[r].c, clocks[r].w) for r in self.sources}
        for r, pace in progress_at_level(self.consistency, own_progress, self.follows).items():
            clocks[r].set_pace(pace)
        for r, other in self.follows.items():
            # another's CTIs are its own, but for the one that ends it
            clocks[r].reach_at_least(clocks[other].promise)

    # kernels

    def _advance(self, hosted: HostedKernel, turn: _BucketRun) -> list[Envelope]:
        """Have one kernel process what its channels brought; return its deltas and its progress as envelopes."""
        totals = Totals()
        arrivals = [a for channel in hosted.channels if (a := self._arrival(hosted, channel, turn, totals)) is not None]
        notes = [
            Announcement(channel.judge, *_progress_along(channel, turn.before[channel.relation]), endpoints)
            for channel in hosted.channels
            for endpoints in turn.notes.get(channel.number, ())
        ]
        clock = _clock(hosted, turn, tuple(notes))
        output = hosted.kernel.advance(turn.baskets.scoped(hosted.name), arrivals, clock)
        w = max(map_progress(turn.now[ch.relation].w, ch.progress_maps) for ch in hosted.channels)
        if hosted.aligns is not None and hosted.aligns_behind:
            (held_scope,), key = hosted.held_scopes, hosted.channels[0].hashed
            scope = turn.baskets.scoped(held_scope)
            output.table = self._hold_back(scope, output.table, (clock.c, w), hosted.aligns, key)
        turn.outputs.append((hosted, arrivals, output))
        turn.count(totals)
        turn.count(output.totals)
        out: list[Envelope] = []
        if output.table is not None and output.table.num_rows:
            out.append((turn.bucket, output_number(hosted.number), encode(unit_weights(output.table))))
        message = Message(hosted.name, output.c, w, turn.bucket, until=clock.until, reach=clock.reach)
        return [*out, (turn.bucket, SPOKEN, encode_messages([message]))]

    def _arrival(self, hosted: HostedKernel, channel: Channel, turn: _BucketRun, totals: Totals) -> Arrival | None:
        """Return the rows that a kernel gets from a channel, judged and held back if that happens before the kernel."""
        before, now = turn.before[channel.relation], turn.now[channel.relation]
        table = concat(turn.tables[channel.number]) if channel.number in turn.tables else None
        judge = channel.judge
        if hosted.aligns_before(channel):
            if table is not None:
                arrival = Arrival(channel.port, table, judge, *_progress_along(channel, before))
                table = weighted_events(arrival, totals)
            progress = (map_progress(now.c, channel.progress_maps), map_progress(now.w, channel.progress_maps))
            table = self._hold_back(turn.baskets.scoped(hosted.held_scope(channel)), table, progress, AlignAt.INPUT)
            judge = None
        if table is None:
            return None
        return Arrival(channel.port, table, judge, *_progress_along(channel, before))

    def _hold_back(
        self,
        scope: KernelBaskets,
        table: pa.Table | None,
        progress: tuple[int, int],
        at: AlignAt,
        key: Sequence[str] = (),
    ) -> pa.Table | None:
        """Hold back judged events that are not due at the level of consistency; return those that are, earlier ones included.

        ``progress`` is the CTI and the watermark at that level.
        """
        c, w = progress
        if self.consistency.block == 0:
            # a run before this one, at another level, may have held some back
            return align(scope, table, INFINITY, w, at, key) if scope.bins("held") else table
        return align(scope, table, c, w, at, key)

    # readings

    def _readings(self, turn: _BucketRun, wall: int) -> dict[str, Reading]:
        """Return the readings of this micro-batch: of the kernels in this bucket and, in bucket 0 only, of the sources."""
        # every bucket hears the same of the sources, so one of them reports it
        tallies: dict[str, dict[str, int]] = turn.baskets.values.setdefault(f"{TALLIES}{self.number}", {})
        columns: dict[str, Reading] = {}
        for source in sorted(self.inputs.intersection(self.sources)) if turn.bucket == 0 else ():
            messages = [message for message in turn.messages if message.relation == source]
            columns |= source_columns(
                source,
                tallies.setdefault(source, {}),
                cti=turn.clocks[source].pace.promised,
                watermark=turn.clocks[source].w,
                has_moved=turn.clocks[source].pace.promised != turn.before[source].promised,
                starts=reduce(merge_summaries, (message.starts for message in messages), None),
                refused=sum(sum(message.invalid.values()) for message in messages),
                now=wall,
                of_parts=self.sources[source].readings(turn.clocks[source].held.get("parts", {})),
            )
        for hosted, arrivals, output in turn.outputs:
            scopes = [turn.baskets.scoped(name) for name in (hosted.name, *hosted.held_scopes)]
            sizes = [s.size() for s in scopes]
            moved = (0, *hosted.held_scopes.values())
            backlogs = [backlog(s, by) for s, by in zip(scopes, moved, strict=True)]
            tally = tallies.setdefault(hosted.name, {})
            columns |= kernel_columns(hosted.name, tally, arrivals, output, sizes=sizes, backlogs=backlogs)
        return columns


def _progress_along(channel: Channel, pace: LevelProgress) -> tuple[int, int]:
    """Return the CTI by which a channel's rows are late, and the one that its source has sent, both moved as the rows are."""
    return map_progress(pace.counted, channel.progress_maps), map_progress(pace.promised, channel.progress_maps)


def _clock(hosted: HostedKernel, turn: _BucketRun, notes: tuple[Announcement, ...]) -> Clock:
    """Return a kernel's progress before and after a micro-batch: the least CTI and the greatest watermark of its channels."""
    before, now, clocks = turn.before, turn.now, turn.clocks
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
        reach=max(map_progress(clocks[r].reach, steps) for r, steps in channels),
    )


def _by_port(hosted: HostedKernel, paces: Mapping[str, LevelProgress]) -> tuple[int, ...]:
    """Return the least CTI of each port's channels."""
    least: dict[int, int] = {}
    for channel in hosted.channels:
        c = map_progress(paces[channel.relation].c, channel.progress_maps)
        least[channel.port] = min(c, least.get(channel.port, c))
    return tuple(least[port] for port in sorted(least))
