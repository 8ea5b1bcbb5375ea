"""A stage: the kernels of one level of the chain, hosted bucket by bucket. The same code runs in Spark and in-process.

What travels between stages are envelopes ``(bucket, channel, body)``: deltas of a channel as an Arrow IPC stream, or
progress, late rows and totals under the channel numbers below. What is meant for a later level passes through.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import Invalid
from streamq.policies import MIDDLE, Level
from streamq.runtime.basket import Baskets, Scope
from streamq.runtime.bucket import buckets_of
from streamq.runtime.carried import Carrier, carry
from streamq.runtime.columnar import concat, decode, encode, split_by, unit_weights, with_column
from streamq.runtime.consistency import CLOSED, OPENED, aligned, backlog, paced
from streamq.runtime.event import BAD, CTI, KEEP, KIND, LAST_POINT, LE, NEW_END, OPENS, WEIGHT, start_reasons
from streamq.runtime.kernel import Arrival, Clock, Judge, Kernel, Output, Totals, refuse_invalid
from streamq.runtime.lateness import late_rows, weighted_events
from streamq.runtime.progress import NOTES_ONLY, Message, Pace, RelationClock, decode_messages, encode_messages
from streamq.runtime.readings import both, looked_at, of_kernel, of_source
from streamq.runtime.rendering import python_rows
from streamq.time import INFINITY, MINUS_INFINITY

PROGRESS, LATE, TOTALS, SPOKEN, READINGS = -1, -2, -3, -4, -5
"""Channels of envelopes that hold no deltas; SPOKEN is a stage's progress before it is sent to every bucket, READINGS what
those who watch the query are told."""

IN, OUT = "in", "out"
"""Where a hosted kernel's events are aligned."""

BEHIND = (OUT, OPENED, CLOSED)
"""Where they are aligned behind it."""

Envelope = tuple[int, int, bytes]


@dataclass(frozen=True)
class Channel:
    """A path of deltas from a relation (a source, or a kernel's output) to a port of a kernel, or to the result.

    level: the stage that consumes it; kernel: that kernel's number (-1: the result); columns: what the port takes;
    hashed: those whose values decide on the bucket; carried: what its
    steps make of progress.
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

    aligns: where the level decides what goes on: IN, for the events it takes from sources, OUT, for those it makes of items,
    OPENED or CLOSED (``runtime.consistency``), if those are edges, whose key decides on the bucket.
    """

    number: int
    name: str
    kernel: Kernel
    inputs: tuple[str, ...]
    channels: tuple[Channel, ...]
    aligns: str = ""


@dataclass(frozen=True)
class Stage:
    """The kernels of one level; ``sources`` are relations whose c is the greatest heard, the others come from buckets.

    consistency: the query's level; follows: sources that have another's progress.
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

    def run(self, bucket: int, baskets: Baskets, envelopes: Iterable[Envelope], wall: int = 0) -> list[Envelope]:
        """One micro-batch of one bucket, at ``wall`` in milliseconds since 1970: every hosted kernel advances once."""
        out: list[Envelope] = []
        tables: dict[int, list[pa.Table]] = {}
        messages: list[Message] = []
        mine = {c.number for c in self.channels}
        for envelope in envelopes:
            number, body = envelope[1], envelope[2]
            if number == PROGRESS:
                messages += decode_messages(body)
            elif number in mine:
                tables.setdefault(number, []).append(decode(body))
            else:
                out.append(envelope)
        here = {r for h in self.hosted for r in h.inputs}
        passed = [replace(m, invalid={}) if m.relation in here else m for m in messages if m.relation in self.later]
        if passed:
            out.append((bucket, PROGRESS, encode_messages(passed)))
        out += self._advance(bucket, baskets, tables, messages, wall)
        baskets.flush()
        return out

    def _advance(
        self, bucket: int, baskets: Baskets, tables: dict[int, list[pa.Table]], messages: list[Message], wall: int
    ) -> list[Envelope]:
        out: list[Envelope] = []
        made: list[tuple[Hosted, list[Arrival], Output]] = []
        clocks = baskets.values.setdefault(f"clocks{self.level}", {})
        totals: dict[str, int] = baskets.values.setdefault(f"totals{self.level}", {})
        late: list[pa.Table] = []
        relations = {r for h in self.hosted for r in h.inputs}
        # what counts as a source's progress can depend on the others'
        heard = relations | self.sources if relations & self.sources else relations
        known = {r: RelationClock(clocks, r, None if r in self.sources else self.buckets) for r in sorted(heard)}
        before = {r: clock.pace for r, clock in known.items()}
        notes: dict[int, list[Any]] = {}
        for message in messages:
            if message.relation in known:
                known[message.relation].hear(message)
                for number, note in message.notes.items():
                    notes.setdefault(number, []).extend(note)
                # every bucket hears it, one counts it
                for key, n in message.invalid.items() if bucket == 0 and message.relation in relations else ():
                    totals[key] = totals.get(key, 0) + n
        if relations & self.sources:
            said = {r: (known[r].c, known[r].w) for r in self.sources}
            for r, pace in paced(self.consistency, said, self.follows).items():
                known[r].set_pace(*pace)
            for r, other in self.follows.items():
                # another's CTIs are its own, but for the one that ends it
                known[r].reach_at_least(known[other].promise)
        now = {r: clock.pace for r, clock in known.items()}
        for hosted in self.hosted:
            arrivals = []
            announced: list[Any] = []
            counted = Totals()
            for channel in hosted.channels:
                c, _, promised = before[channel.relation]
                c = max(c, promised)
                table = concat(tables[channel.number]) if channel.number in tables else None
                judge = channel.judge
                if judge is not None and hosted.aligns == IN:
                    if table is not None:
                        table = weighted_events(Arrival(channel.port, table, judge, c, promised), counted)
                    place = _held_at(hosted, channel)
                    table = self._aligned(baskets.scoped(place), table, *now[channel.relation][:2])
                    judge = None
                if table is not None:
                    arrivals.append(Arrival(channel.port, table, judge, c, promised))
                announced += [(channel.judge, c, promised, note) for note in notes.get(channel.number, ())]
            clock = _clock(hosted, before, now, known, tuple(announced))
            output = hosted.kernel.advance(baskets.scoped(hosted.name), arrivals, clock)
            w = max(carry(now[ch.relation][1], ch.carried) for ch in hosted.channels)
            spoken = Message(hosted.name, output.c, w, bucket, until=clock.until, reach=clock.reach)
            if hosted.aligns in BEHIND:
                held, by = baskets.scoped(_held_at(hosted)), hosted.channels[0].hashed
                output.table = self._aligned(held, output.table, clock.c, w, hosted.aligns, by)
            made.append((hosted, arrivals, output))
            if output.table is not None and output.table.num_rows:
                out.append((bucket, _relation_number(hosted), encode(unit_weights(output.table))))
            out.append((bucket, SPOKEN, encode_messages([spoken])))
            for found in (counted, output.totals):
                for key, n in found.counts.items():
                    totals[key] = totals.get(key, 0) + n
                late += found.rows
        if late and self.late_output:
            out.append((bucket, LATE, encode(concat(late))))
        if totals:
            out.append((bucket, TOTALS, json.dumps(totals).encode()))
        out.append((bucket, READINGS, self._told(bucket, baskets, known, before, messages, made, wall)))
        return out

    def _aligned(
        self, scope: Scope, table: pa.Table | None, c: int, w: int, ends: str = IN, key: Sequence[str] = ()
    ) -> pa.Table | None:
        """Of a source's events, once they are judged, those that the level lets through."""
        if self.consistency.block == 0:
            # another level may have held some
            return aligned(scope, table, INFINITY, w, ends, key) if scope.bins("held") else table
        return aligned(scope, table, c, w, ends, key)

    def _told(
        self,
        bucket: int,
        baskets: Baskets,
        known: dict[str, RelationClock],
        before: dict[str, Pace],
        messages: list[Message],
        made: list[tuple[Hosted, list[Arrival], Output]],
        wall: int,
    ) -> bytes:
        """The readings of this micro-batch; every bucket knows the same of the sources, the first one tells it."""
        known_of: dict[str, dict[str, int]] = baskets.values.setdefault(f"readings{self.level}", {})
        told: dict[str, int] = {}
        here = self.sources.intersection(r for h in self.hosted for r in h.inputs)
        for source in sorted(here) if bucket == 0 else ():
            looked: list[int] = []
            refused = 0
            for message in messages:
                if message.relation == source:
                    looked = both(looked, message.looked)
                    refused += sum(message.invalid.values())
            c, w = known[source].pace[2], known[source].w
            moved = c != before[source][2]
            told |= of_source(known_of.setdefault(source, {}), source, c, w, moved, looked, refused, wall)
        for hosted, arrivals, output in made:
            places = [baskets.scoped(place) for place in (hosted.name, *_places(hosted))]
            sizes, backlogs = [p.size() for p in places], [backlog(p) for p in places]
            told |= of_kernel(known_of.setdefault(hosted.name, {}), hosted.name, arrivals, output, sizes, backlogs)
        # a run that has not had a micro-batch of its own finds them here
        baskets.values[f"told{self.level}"] = told
        return json.dumps(told, separators=(",", ":")).encode()


def _held_at(hosted: Hosted, channel: Channel | None = None) -> str:
    """The scope of what the level holds back before a channel's port, or behind the kernel."""
    return f"align:{hosted.name}" + ("" if channel is None else f".{channel.number}")


def _places(hosted: Hosted) -> list[str]:
    if hosted.aligns in BEHIND:
        return [_held_at(hosted)]
    return [
        _held_at(hosted, channel) for channel in hosted.channels if channel.judge is not None and hosted.aligns == IN
    ]


def _clock(
    hosted: Hosted,
    before: dict[str, Pace],
    now: dict[str, Pace],
    known: dict[str, RelationClock],
    notes: tuple[Any, ...],
) -> Clock:
    ways = [(channel.relation, channel.carried) for channel in hosted.channels]
    c_before = min(carry(before[r][0], steps) for r, steps in ways)
    w_before = max(carry(before[r][1], steps) for r, steps in ways)
    c = min(carry(now[r][0], steps) for r, steps in ways)
    w = max(carry(now[r][1], steps) for r, steps in ways)
    until = next((known[r].until for r in hosted.inputs if known[r].until is not None), None)
    promised = min(now[r][2] for r, _ in ways)
    reach = max(carry(known[r].reach, steps) for r, steps in ways)
    return Clock(c_before, c, max(c_before, w_before), max(c, w), notes, until, promised, reach)


def _relation_number(hosted: Hosted) -> int:
    """The channel number under which a kernel's raw output travels to the next opening: below all others."""
    return -100 - hosted.number


def relation_of(number: int) -> int | None:
    """The kernel number behind an envelope of raw output, None for other envelopes."""
    return -100 - number if number <= -100 else None


# the map side


@dataclass(frozen=True)
class SourceInfo:
    """How a source's rows speak of progress: ``delay`` in ticks, or None where CTI rows do, or another source.

    every: the grid of its CTIs; ahead: how far beyond the wall clock a start may lie, in ticks.
    """

    relation: str
    name: str
    delay: int | None
    invalid: Invalid
    every: int = 1
    ahead: int | None = None


@dataclass(frozen=True)
class Lane:
    """A channel on the map side: the kernel that combines its deltas before the shuffle (None: pass them on as they are)."""

    channel: Channel
    kernel: Kernel | None


@dataclass(frozen=True)
class Packer:
    """The map side of a stage: combines deltas, sorts them into buckets, speaks of progress to every bucket."""

    lanes: tuple[Lane, ...]
    buckets: int
    source: SourceInfo | None = None
    late_output: bool = False

    def pack(
        self, tables: dict[int, list[pa.Table]], spoken: Sequence[Message], told: Message | None
    ) -> list[Envelope]:
        """Envelopes of one task: ``tables`` by channel number, progress heard from a stage or told by source rows."""
        out: list[Envelope] = []
        messages: dict[tuple[str, int | None], Message] = {(m.relation, m.sender): m for m in spoken}
        if told is not None:
            messages[(told.relation, None)] = told
        for lane in self.lanes:
            found = tables.get(lane.channel.number)
            if not found:
                continue
            table = concat(found)
            if table.num_rows == 0:
                continue
            if lane.kernel is not None:
                note = lane.kernel.announce(lane.channel.port, table)
                if note is not None:
                    relation = lane.channel.relation
                    message = next((m for (r, _), m in messages.items() if r == relation), None)
                    if message is None:
                        # a stage's own words are in another task: only the note travels, its c and W add nothing
                        message = messages.setdefault((relation, NOTES_ONLY), Message(relation, sender=NOTES_ONLY))
                    message.notes.setdefault(lane.channel.number, []).append(note)
                table = lane.kernel.combine(lane.channel.port, table)
            for bucket, rows in split_by(table, buckets_of(table, lane.channel.hashed, self.buckets)):
                out.append((bucket, lane.channel.number, encode(rows)))
        if messages:
            body = encode_messages(messages.values())
            out += [(bucket, PROGRESS, body) for bucket in range(self.buckets)]
        return out

    def read_source(self, batches: Iterable[pa.Table]) -> tuple[list[pa.Table], Message | None, list[Envelope]]:
        """Rows of a source that are events, what they tell of progress, and envelopes for those that are none."""
        assert self.source is not None
        good: list[pa.Table] = []
        late: list[pa.Table] = []
        message = Message(self.source.relation)
        seen = False
        for batch in batches:
            if not batch.num_rows:
                continue
            seen = True
            if BAD not in batch.column_names:
                batch = with_column(batch, BAD, start_reasons(batch.column(LE), LAST_POINT))
            bad = pc.is_valid(batch.column(BAD))
            if self.source.ahead is not None:
                batch, bad = _too_far(batch, bad, time.time_ns() // 1_000 + self.source.ahead)
            if pc.any(bad).as_py():
                late += self._refused(batch.filter(bad), message)
                batch = batch.filter(pc.invert(bad))
            batch = batch.drop_columns([n for n in batch.column_names if n == BAD])
            if batch.num_rows:
                self._tell(batch, message)
                message.looked = both(message.looked, looked_at(_starts(batch)))
                good.append(batch)
        envelopes = [(0, LATE, encode(concat(late)))] if late and self.late_output else []
        return good, message if seen else None, envelopes

    def _refused(self, rows: pa.Table, message: Message) -> list[pa.Table]:
        assert self.source is not None
        if self.source.invalid == Invalid.FAIL:
            first = rows.drop_columns([n for n in rows.column_names if n.startswith("__")]).slice(0, 1)
            # what refuses a row at its source tells its lifetime in the reason, as the axis shows it
            refuse_invalid(self.source.name, rows.column(BAD)[0].as_py(), (python_rows(first) or [{}])[0])
        key = f"{self.source.name}|invalid"
        message.invalid[key] = message.invalid.get(key, 0) + rows.num_rows
        if not self.late_output:
            return []
        made = []
        for reason in sorted(set(rows.column(BAD).to_pylist())):
            part = rows.filter(pc.equal(rows.column(BAD), reason))
            hidden = (KEEP, BAD, KIND, NEW_END, OPENS, WEIGHT)
            made.append(
                late_rows(
                    self.source.name, reason, part.drop_columns([n for n in hidden if n in part.column_names]), None
                )
            )
        return made

    def _tell(self, batch: pa.Table, message: Message) -> None:
        assert self.source is not None
        le = batch.column(LE)
        if KIND in batch.column_names:
            promise = pc.equal(batch.column(KIND), CTI)
            if self.source.delay is None and pc.any(promise).as_py():
                message.c = max(message.c, pc.max(le.filter(promise)).as_py())
            le = le.filter(pc.invert(promise))
        elif OPENS in batch.column_names:
            le = le.filter(batch.column(OPENS))
        if len(le):
            message.w = max(message.w, pc.max(le).as_py())
            if self.source.delay is not None:
                c = (message.w - self.source.delay) // self.source.every * self.source.every
                message.c = max(message.c, MINUS_INFINITY + 1, c)


def _too_far(batch: pa.Table, bad: Any, most: int) -> tuple[pa.Table, Any]:
    """Rows that start after ``most`` are no events either."""
    far = pc.and_(pc.invert(bad), pc.fill_null(pc.greater(batch.column(LE), most), False))
    if not pc.any(far).as_py():
        return batch, bad
    reason = pc.if_else(far, "a start too far ahead of the clock", batch.column(BAD))
    return with_column(batch, BAD, reason), pc.or_(bad, far)


def _starts(batch: pa.Table) -> pa.ChunkedArray:
    """Where the events of a source's rows start, ends of edge events too; CTIs are none."""
    le = batch.column(LE)
    return le.filter(pc.not_equal(batch.column(KIND), CTI)) if KIND in batch.column_names else le


def kept_rows(batch: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows that passed the filters, in the columns a port takes."""
    if KEEP in batch.column_names and pc.min(batch.column(KEEP)).as_py() is not True:
        batch = batch.filter(batch.column(KEEP))
    # rebuilt, for tables of several sources are put together and must agree in what they say of NULLs
    return pa.table({n: batch.column(n) for n in columns})
