"""A stage: the kernels of one level of the chain, hosted bucket by bucket. The same code runs in Spark and in-process.

Envelopes (``runtime.envelope``) come in and go out; what is meant for a later level passes through.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa

from streamq.policies import MIDDLE, Level
from streamq.runtime.basket import Baskets, Scope
from streamq.runtime.carried import Carrier, carry
from streamq.runtime.columnar import concat, decode, encode, unit_weights
from streamq.runtime.consistency import AlignAt, aligned, backlog, paced
from streamq.runtime.envelope import LATE, PROGRESS, READINGS, SPOKEN, TOTALS, Envelope, output_number
from streamq.runtime.kernel import Arrival, Clock, Judge, Kernel, Note, Output, Totals
from streamq.runtime.lateness import weighted_events
from streamq.runtime.progress import Message, Pace, RelationClock, decode_messages, encode_messages
from streamq.runtime.readings import LATEST, TALLIES, kernel_columns, source_columns
from streamq.runtime.starts import joined
from streamq.time import INFINITY


@dataclass(frozen=True)
class Channel:
    """A path of deltas from a relation (a source, or a kernel's output) to a port of a kernel, or to the result.

    level: the stage that consumes it; kernel: that kernel's number (-1: the result); columns: what the port takes;
    hashed: those whose values decide on the bucket; carried: what its steps make of progress.
    """

    number: int
    relation: str
    level: int
    kernel: int
    port: int
    columns: tuple[str, ...]
    hashed: tuple[str, ...] = ()
    judge: Judge | None = None
    carried: tuple[Carrier, ...] = ()


@dataclass(frozen=True)
class Hosted:
    """A kernel in its stage; ``name`` is the relation it makes and names its state.

    aligns: where the level of consistency holds rows back; None: nowhere at this kernel.
    """

    number: int
    name: str
    kernel: Kernel
    inputs: tuple[str, ...]
    channels: tuple[Channel, ...]
    aligns: AlignAt | None = None

    @property
    def aligns_behind(self) -> bool:
        """Whether rows are held back behind the kernel."""
        return self.aligns is not None and self.aligns != AlignAt.INPUT

    @property
    def places(self) -> list[str]:
        """The scopes of the rows that the level of consistency holds back, before its ports or behind it."""
        if self.aligns_behind:
            return [f"align:{self.name}"]
        return [self.place(channel) for channel in self.channels if self.aligns_before(channel)]

    def aligns_before(self, channel: Channel) -> bool:
        """Whether a channel's rows are judged and held back before they come to the kernel."""
        return channel.judge is not None and self.aligns == AlignAt.INPUT

    def place(self, channel: Channel) -> str:
        """The scope of the rows that are held back before a channel's port."""
        return f"align:{self.name}.{channel.number}"


@dataclass(eq=False, repr=False)
class _Turn:
    """One micro-batch of one bucket.

    tables: deltas by channel; clocks: the progress of relations, ``before`` and ``now`` what it counts as; notes: what the map
    side announced, by channel; outputs: what each kernel took and gave; late: rows for the late output.
    """

    bucket: int
    baskets: Baskets
    tables: dict[int, list[pa.Table]]
    messages: list[Message]
    clocks: dict[str, RelationClock]
    before: dict[str, Pace]
    now: dict[str, Pace]
    totals: dict[str, int]
    notes: dict[int, list[Any]] = field(default_factory=dict)
    outputs: list[tuple[Hosted, list[Arrival], Output]] = field(default_factory=list)
    late: list[pa.Table] = field(default_factory=list)

    def count(self, totals: Totals) -> None:
        """Add what became of items that were not taken as they came."""
        for key, n in totals.counts.items():
            self.totals[key] = self.totals.get(key, 0) + n
        self.late += totals.rows


@dataclass(frozen=True)
class Stage:
    """The kernels of one level; ``sources`` are relations whose c is the greatest heard, the others come from buckets.

    later: relations that kernels of later levels read; consistency: the query's level; follows: sources that have another's
    progress.
    """

    level: int
    hosted: tuple[Hosted, ...]
    channels: tuple[Channel, ...]
    sources: frozenset[str]
    later: frozenset[str]
    buckets: int
    late_output: bool = False
    consistency: Level = MIDDLE
    follows: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> set[str]:
        """The relations that its kernels read."""
        return {r for h in self.hosted for r in h.inputs}

    def run(self, bucket: int, baskets: Baskets, envelopes: Iterable[Envelope], wall: int = 0) -> list[Envelope]:
        """One micro-batch of one bucket, at ``wall`` in milliseconds since 1970: every hosted kernel advances once."""
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
        passed = [replace(m, invalid={}) if m.relation in inputs else m for m in messages if m.relation in self.later]
        if passed:
            out.append((bucket, PROGRESS, encode_messages(passed)))
        turn = self._turn(bucket, baskets, tables, messages)
        for hosted in self.hosted:
            out += self._advance(hosted, turn)
        if turn.late and self.late_output:
            out.append((bucket, LATE, encode(concat(turn.late))))
        if turn.totals:
            out.append((bucket, TOTALS, json.dumps(turn.totals).encode()))
        readings = self._readings(turn, wall)
        # a run that has not had a micro-batch of its own finds them here
        baskets.values[f"{LATEST}{self.level}"] = readings
        out.append((bucket, READINGS, json.dumps(readings, separators=(",", ":")).encode()))
        baskets.flush()
        return out

    # progress

    def _turn(self, bucket: int, baskets: Baskets, tables: dict[int, list[pa.Table]], messages: list[Message]) -> _Turn:
        """The progress of this micro-batch, once its messages have been heard."""
        inputs = self.inputs
        # what counts as a source's progress can depend on the others'
        relations = inputs | self.sources if inputs & self.sources else inputs
        state = baskets.values.setdefault(f"clocks{self.level}", {})
        clocks = {r: RelationClock(state, r, None if r in self.sources else self.buckets) for r in sorted(relations)}
        before = {r: clock.pace for r, clock in clocks.items()}
        totals: dict[str, int] = baskets.values.setdefault(f"totals{self.level}", {})
        turn = _Turn(bucket, baskets, tables, messages, clocks, before=before, now={}, totals=totals)
        for message in messages:
            if message.relation not in clocks:
                continue
            clocks[message.relation].hear(message)
            for number, note in message.notes.items():
                turn.notes.setdefault(number, []).extend(note)
            # every bucket hears it, one counts it
            if bucket == 0 and message.relation in inputs:
                turn.count(Totals(message.invalid))
        if inputs & self.sources:
            self._pace(clocks)
        turn.now = {r: clock.pace for r, clock in clocks.items()}
        return turn

    def _pace(self, clocks: Mapping[str, RelationClock]) -> None:
        """Set what the progress of each source counts as at the level of consistency."""
        spoken = {r: (clocks[r].c, clocks[r].w) for r in self.sources}
        for r, pace in paced(self.consistency, spoken, self.follows).items():
            clocks[r].set_pace(pace)
        for r, other in self.follows.items():
            # another's CTIs are its own, but for the one that ends it
            clocks[r].reach_at_least(clocks[other].promise)

    # kernels

    def _advance(self, hosted: Hosted, turn: _Turn) -> list[Envelope]:
        """Have one kernel take in its arrivals; its deltas and its progress, as envelopes."""
        totals = Totals()
        arrivals = [a for channel in hosted.channels if (a := self._arrival(hosted, channel, turn, totals)) is not None]
        notes = [
            Note(
                channel.judge, turn.before[channel.relation].counted, turn.before[channel.relation].promised, endpoints
            )
            for channel in hosted.channels
            for endpoints in turn.notes.get(channel.number, ())
        ]
        clock = _clock(hosted, turn, tuple(notes))
        output = hosted.kernel.advance(turn.baskets.scoped(hosted.name), arrivals, clock)
        w = max(carry(turn.now[ch.relation].w, ch.carried) for ch in hosted.channels)
        if hosted.aligns is not None and hosted.aligns_behind:
            (place,), key = hosted.places, hosted.channels[0].hashed
            scope = turn.baskets.scoped(place)
            output.table = self._aligned(scope, output.table, (clock.c, w), hosted.aligns, key)
        turn.outputs.append((hosted, arrivals, output))
        turn.count(totals)
        turn.count(output.totals)
        out: list[Envelope] = []
        if output.table is not None and output.table.num_rows:
            out.append((turn.bucket, output_number(hosted.number), encode(unit_weights(output.table))))
        spoken = Message(hosted.name, output.c, w, turn.bucket, until=clock.until, reach=clock.reach)
        return [*out, (turn.bucket, SPOKEN, encode_messages([spoken]))]

    def _arrival(self, hosted: Hosted, channel: Channel, turn: _Turn, totals: Totals) -> Arrival | None:
        """What a channel brings: judged and held back here, if the level of consistency does so before the kernel."""
        before, now = turn.before[channel.relation], turn.now[channel.relation]
        table = concat(turn.tables[channel.number]) if channel.number in turn.tables else None
        judge = channel.judge
        if hosted.aligns_before(channel):
            if table is not None:
                arrival = Arrival(channel.port, table, judge, before.counted, before.promised)
                table = weighted_events(arrival, totals)
            table = self._aligned(turn.baskets.scoped(hosted.place(channel)), table, (now.c, now.w), AlignAt.INPUT)
            judge = None
        if table is None:
            return None
        return Arrival(channel.port, table, judge, before.counted, before.promised)

    def _aligned(
        self,
        scope: Scope,
        table: pa.Table | None,
        progress: tuple[int, int],
        at: AlignAt,
        key: Sequence[str] = (),
    ) -> pa.Table | None:
        """Of a source's events, once they are judged, those that the level lets through at this CTI and watermark."""
        c, w = progress
        if self.consistency.block == 0:
            # another level may have held some
            return aligned(scope, table, INFINITY, w, at, key) if scope.bins("held") else table
        return aligned(scope, table, c, w, at, key)

    # readings

    def _readings(self, turn: _Turn, wall: int) -> dict[str, int]:
        """The readings of this micro-batch; every bucket knows the same of the sources, the first one tells it."""
        tallies: dict[str, dict[str, int]] = turn.baskets.values.setdefault(f"{TALLIES}{self.level}", {})
        columns: dict[str, int] = {}
        for source in sorted(self.sources & self.inputs) if turn.bucket == 0 else ():
            spoken = [message for message in turn.messages if message.relation == source]
            columns |= source_columns(
                source,
                tallies.setdefault(source, {}),
                cti=turn.clocks[source].pace.promised,
                watermark=turn.clocks[source].w,
                has_moved=turn.clocks[source].pace.promised != turn.before[source].promised,
                starts=reduce(joined, (message.starts for message in spoken), None),
                refused=sum(sum(message.invalid.values()) for message in spoken),
                now=wall,
            )
        for hosted, arrivals, output in turn.outputs:
            scopes = [turn.baskets.scoped(place) for place in (hosted.name, *hosted.places)]
            sizes, backlogs = [s.size() for s in scopes], [backlog(s) for s in scopes]
            tally = tallies.setdefault(hosted.name, {})
            columns |= kernel_columns(hosted.name, tally, arrivals, output, sizes=sizes, backlogs=backlogs)
        return columns


def _clock(hosted: Hosted, turn: _Turn, notes: tuple[Note, ...]) -> Clock:
    """A kernel's progress before and after a micro-batch, carried along the paths to it."""
    before, now, clocks = turn.before, turn.now, turn.clocks
    ways = [(channel.relation, channel.carried) for channel in hosted.channels]
    c_before = min(carry(before[r].c, steps) for r, steps in ways)
    w_before = max(carry(before[r].w, steps) for r, steps in ways)
    c = min(carry(now[r].c, steps) for r, steps in ways)
    w = max(carry(now[r].w, steps) for r, steps in ways)
    return Clock(
        c_before=c_before,
        c=c,
        m_before=max(c_before, w_before),
        m=max(c, w),
        notes=notes,
        until=next((clocks[r].until for r in hosted.inputs if clocks[r].until is not None), None),
        promised=min(now[r].promised for r, _ in ways),
        reach=max(carry(clocks[r].reach, steps) for r, steps in ways),
    )
