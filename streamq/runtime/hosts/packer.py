"""The map side of a stage: reads a source's rows, combines deltas, sorts them into buckets and sends progress to each.

A source says of its items which of them start events, which carry CTIs, and which are deltas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import Invalid
from streamq.runtime.arrow.columnar import concat, encode, split_by, with_column
from streamq.runtime.arrow.values import python_rows
from streamq.runtime.deltas import BAD, LAST_POINT, LE, NOW, beside_names, start_reasons
from streamq.runtime.envelope import LATE, PROGRESS, Envelope
from streamq.runtime.groups import buckets_of
from streamq.runtime.hosts.hosted_kernel import Channel
from streamq.runtime.kernel import Kernel, refuse_invalid
from streamq.runtime.time.endpoints import Endpoint
from streamq.runtime.time.lateness import late_rows
from streamq.runtime.time.progress import NOTES_ONLY, Message, encode_messages, merge_summaries, summarize_starts
from streamq.runtime.time.progress_policy import ProgressPolicy
from streamq.time import INFINITY

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Mark:
    """The items with a value in a column; if ``negated``, all other items."""

    column: str
    value: str | bool
    negated: bool = False

    def __invert__(self) -> Mark:
        return replace(self, negated=not self.negated)

    def in_arrow(self, items: pa.Table) -> Any:
        """Return the mask of these items in a table; the column has no NULLs."""
        is_equal = pc.equal(items.column(self.column), pa.scalar(self.value))
        return pc.invert(is_equal) if self.negated else is_equal

    def on_spark(self) -> Column:
        """Return the same mask as a column."""
        from pyspark.sql import functions as F

        is_equal = F.col(self.column) == F.lit(self.value)
        return ~is_equal if self.negated else is_equal


@dataclass(frozen=True)
class Items:
    """A source's description of its items, each of which has its instant in ``__le``; by default each inserts an event.

    ``starts`` marks the items that start an event and move the watermark (None: all); ``ctis`` marks those that carry a CTI and
    are no deltas (None: none); ``mover`` is a user's word for an item that moves the watermark. ``until``: the column that has
    the bound on windows of endless lifetimes, where a CTI ends the input.
    """

    starts: Mark | None = None
    ctis: Mark | None = None
    mover: str = "row"
    until: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that determine progress."""
        marked = (mark.column for mark in (self.starts, self.ctis) if mark is not None)
        return tuple(dict.fromkeys((LE, *marked, *(() if self.until is None else (self.until,)))))

    def starting(self, items: pa.Table) -> pa.Table:
        """Return the items that start an event."""
        return items if self.starts is None else items.filter(self.starts.in_arrow(items))

    def starts_of(self, items: pa.Table) -> Any:
        """Return the instants of the items that start an event."""
        return _filtered(items, self.starts)

    def ctis_of(self, items: pa.Table) -> Any:
        """Return the CTIs that items carry."""
        return items.column(LE).slice(0, 0) if self.ctis is None else _filtered(items, self.ctis)

    def bound_of(self, items: pa.Table) -> int | None:
        """Return the bound on windows of endless lifetimes that the CTI which ends the input has; None if there is none."""
        assert self.ctis is not None
        if self.until is None:
            return None
        is_end = pc.and_(self.ctis.in_arrow(items), pc.equal(items.column(LE), INFINITY))
        until = pc.min(items.column(self.until).filter(is_end)).as_py()
        return None if until == INFINITY else until

    def deltas_of(self, items: pa.Table) -> pa.Table:
        """Return the items that change the history: all but CTIs."""
        return items if self.ctis is None else items.filter((~self.ctis).in_arrow(items))


def _filtered(items: pa.Table, mark: Mark | None) -> Any:
    """Return the instants of marked items; of all, if there is no mark."""
    return items.column(LE) if mark is None else items.column(LE).filter(mark.in_arrow(items))


@dataclass(frozen=True)
class SourceInfo:
    """A source as the map side knows it: its items, its progress policy, and its policy for invalid rows."""

    relation: str
    name: str
    items: Items
    progress: ProgressPolicy
    invalid: Invalid


@dataclass(frozen=True)
class Packer:
    """The map side of a stage: it combines deltas, sorts them into buckets, and sends progress to every bucket.

    ``kernels`` maps the number of a kernel to the kernel that combines its channels' deltas; other channels' deltas go unchanged.
    """

    channels: tuple[Channel, ...]
    kernels: Mapping[int, Kernel]
    buckets: int
    source: SourceInfo | None = None
    late_output: bool = False

    def pack(
        self, tables: dict[int, list[pa.Table]], stage_messages: Sequence[Message], source_message: Message | None
    ) -> list[Envelope]:
        """Return the envelopes of one task for its tables, by channel number, and its messages, which go to every bucket.

        The kernel that reads a channel combines its rows here, and adds the endpoints that it announces to the messages.
        ``stage_messages`` are those of kernels of an earlier stage, ``source_message`` is that of source rows. A bucket without
        rows of a channel has no envelope for it; without messages there are no envelopes of progress.
        """
        envelopes: list[Envelope] = []
        messages: dict[tuple[str, int | None], Message] = {(m.relation, m.sender): m for m in stage_messages}
        if source_message is not None:
            messages[(source_message.relation, None)] = source_message
        for channel in self.channels:
            table = concat(tables[channel.number]) if tables.get(channel.number) else None
            if table is None or table.num_rows == 0:
                continue
            kernel = self.kernels.get(channel.reader)
            if kernel is not None:
                _announce(channel, kernel.announce(channel.port, table), messages)
                table = kernel.combine(channel.port, table)
            for bucket, rows in split_by(table, buckets_of(table, channel.hashed, self.buckets)):
                envelopes.append((bucket, channel.number, encode(rows)))
        if messages:
            body = encode_messages(messages.values())
            envelopes += [(bucket, PROGRESS, body) for bucket in range(self.buckets)]
        return envelopes

    def read_source(self, batches: Iterable[pa.Table]) -> tuple[list[pa.Table], Message | None, list[Envelope]]:
        """Return a source's valid rows, a message about its progress, and envelopes for its invalid rows.

        The valid rows include items that carry a CTI, and rows that filters drop. Without rows there is no message; if all are
        invalid, there is one. Without a late output there are no envelopes, and invalid rows are only counted in the message.
        Raises InvalidEvent if the source's policy is ``fail``.
        """
        assert self.source is not None
        events: list[pa.Table] = []
        late: list[pa.Table] = []
        message = Message(self.source.relation)
        any_rows = False
        for batch in batches:
            if not batch.num_rows:
                continue
            any_rows = True
            batch, is_bad = self._checked(batch)
            if pc.any(is_bad).as_py():
                late += self._refused(batch.filter(is_bad), message)
                batch = batch.filter(pc.invert(is_bad))
            batch = batch.drop_columns([n for n in batch.column_names if n in (BAD, NOW)])
            if batch.num_rows:
                self._read_progress(batch, message)
                message.starts = merge_summaries(
                    message.starts, summarize_starts(self.source.items.deltas_of(batch).column(LE))
                )
                events.append(batch)
        envelopes = [(0, LATE, encode(concat(late)))] if late and self.late_output else []
        return events, message if any_rows else None, envelopes

    def _checked(self, batch: pa.Table) -> tuple[pa.Table, Any]:
        """Return source rows with the reasons ``__bad``, and the mask of those that are no events.

        A start too far ahead of the micro-batch's time, if rows have that and the source's progress bounds it, is a reason, too.
        """
        assert self.source is not None
        if BAD not in batch.column_names:
            batch = with_column(batch, BAD, start_reasons(batch.column(LE), LAST_POINT))
        is_bad = pc.is_valid(batch.column(BAD))
        ahead = self.source.progress.max_ahead if NOW in batch.column_names else None
        return (batch, is_bad) if ahead is None else _too_far(batch, is_bad, batch.column(NOW)[0].as_py() + ahead)

    def _refused(self, rows: pa.Table, message: Message) -> list[pa.Table]:
        """Count invalid rows in ``message``, under ``source|invalid`` whatever the reason; return them for the late output.

        They are rows of the late output, a table per reason; without one, none are returned. Raises InvalidEvent if the source's
        policy is ``fail``.
        """
        assert self.source is not None
        if self.source.invalid == Invalid.FAIL:
            first = rows.drop_columns([n for n in rows.column_names if n.startswith("__")]).slice(0, 1)
            # the reason shows the row's lifetime in the form of the axis
            beside = {name: rows.column(column)[0].as_py() for column, name in beside_names(rows).items()}
            reason = rows.column(BAD)[0].as_py()
            more = {name: value for name, value in beside.items() if value is not None}
            refuse_invalid(self.source.name, reason, (python_rows(first) or [{}])[0] | more)
        key = f"{self.source.name}|invalid"
        message.invalid[key] = message.invalid.get(key, 0) + rows.num_rows
        if not self.late_output:
            return []
        reasons = sorted(set(rows.column(BAD).to_pylist()))
        refused = [(reason, rows.filter(pc.equal(rows.column(BAD), reason))) for reason in reasons]
        return [late_rows(self.source.name, reason, table, None) for reason, table in refused]

    def _read_progress(self, batch: pa.Table, message: Message) -> None:
        """Add a batch's greatest start to ``message``, and the CTI by its starts and by the CTIs among its items.

        If the policy keeps parts of the source apart, their summary is added instead of a CTI by starts.
        """
        assert self.source is not None
        items, progress = self.source.items, self.source.progress
        ctis, starts = items.ctis_of(batch), items.starts_of(batch)
        promises: list[int] = []
        if progress.takes_ctis and len(ctis):
            promises.append(pc.max(ctis).as_py())
            if promises == [INFINITY]:
                furthest = pc.max(ctis.filter(pc.less(ctis, INFINITY))).as_py()
                message.reach = message.reach if furthest is None else max(message.reach, furthest)
                message.until = items.bound_of(batch)
        if len(starts):
            message.w = max(message.w, pc.max(starts).as_py())
            if progress.parts is not None:
                carried = progress.parts.carried_columns.items()
                columns = {name: batch.column(name) for name in items.columns}
                columns |= {name: batch.column(column) for name, column in carried}
                message.parts.append(progress.parts.summary(items.starting(pa.table(columns))))
            elif progress.steps is not None:
                promises.append(progress.steps.cti(message.w))
        message.c = max([message.c, *promises])


def _announce(
    channel: Channel, endpoints: list[Endpoint] | None, messages: dict[tuple[str, int | None], Message]
) -> None:
    """Add the endpoints that a kernel announces for a channel's deltas to a message about the channel's relation.

    If ``messages`` has none, a message that carries only these is added to it. ``endpoints`` None: there is nothing to add.
    """
    if endpoints is None:
        return
    message = next((m for (relation, _), m in messages.items() if relation == channel.relation), None)
    if message is None:
        # another task has the stage's progress: this message carries only the note
        message = Message(channel.relation, sender=NOTES_ONLY)
        messages[(channel.relation, NOTES_ONLY)] = message
    message.notes.setdefault(channel.number, []).append(endpoints)


def _too_far(batch: pa.Table, is_bad: Any, last: int) -> tuple[pa.Table, Any]:
    """Return source rows and the mask of invalid ones, with starts after ``last`` invalid as well; a reason stays as it is."""
    is_far = pc.and_(pc.invert(is_bad), pc.fill_null(pc.greater(batch.column(LE), last), False))
    if not pc.any(is_far).as_py():
        return batch, is_bad
    reason = pc.if_else(is_far, "a start too far ahead of the clock", batch.column(BAD))
    return with_column(batch, BAD, reason), pc.or_(is_bad, is_far)
