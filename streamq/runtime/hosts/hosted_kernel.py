"""A kernel as its stage hosts it, and the channels by which rows reach it, from outside or from a kernel in the same bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arrow.columnar import concat, split_by, with_column
from streamq.runtime.deltas import LE, RE, WEIGHT, with_ends, with_weights
from streamq.runtime.kernel import Judge, Kernel
from streamq.runtime.time.consistency import AlignAt
from streamq.runtime.time.progress import ProgressMap, map_progress

TECHNICAL = (LE, RE, WEIGHT)
"""The columns of deltas beside their payload."""


class TableStep(Protocol):
    """A step without state, as a worker applies it to a table of deltas with start, end and weight."""

    def applied_to(self, rows: pa.Table) -> pa.Table:
        """Return the deltas after the step."""


@dataclass(frozen=True)
class RenamedColumns:
    """A new payload of plain columns: ``columns`` are pairs of a new name and the column that it copies."""

    columns: tuple[tuple[str, str], ...]

    def applied_to(self, rows: pa.Table) -> pa.Table:
        """Return the deltas with the new payload."""
        technical = {name: rows.column(name) for name in TECHNICAL}
        return pa.table({**technical, **{name: rows.column(copied) for name, copied in self.columns}})


@dataclass(frozen=True)
class InnerPath:
    """A path inside a stage. ``payload``: the columns at which it begins; ``steps``: the path's, then that of the port's columns.

    ``columns`` are those that the port takes, and ``hashed`` those of them that choose a row's bucket. ``only``: a column at the
    beginning, of texts or integers, and the value without which no row comes to the end; None if no filter says so.
    """

    payload: pa.Schema
    steps: tuple[TableStep, ...]
    columns: tuple[str, ...]
    hashed: tuple[str, ...]
    only: tuple[str, str | int] | None = None

    def tables(self, deltas: pa.Table) -> list[pa.Table]:
        """Return a kernel's deltas at the beginning of the path and after each step; the last ones are the port's."""
        tables = [full_rows(deltas, self.payload)]
        for step in self.steps:
            tables.append(step.applied_to(tables[-1]))
        tables[-1] = normalize_keys(tables[-1].select(self.columns), self.hashed)
        return tables


class OutputPaths:
    """The paths of a kernel's output to the channels of the next stage, by channel number.

    Of paths that only a value of a column passes, those of the values that occur are looked up; so many filters of one column
    against constants cost a search, and not a pass each.
    """

    def __init__(self, paths: Sequence[tuple[int, InnerPath]]):
        self._payload = paths[0][1].payload
        self._of_all = [(number, path) for number, path in paths if path.only is None]
        self._by_value: dict[str, dict[str | int, list[tuple[int, InnerPath]]]] = {}
        for number, path in paths:
            if path.only is not None:
                column, value = path.only
                self._by_value.setdefault(column, {}).setdefault(value, []).append((number, path))

    def tables(self, parts: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of a kernel's deltas that come to a channel, in the columns of its port, with the channel's number.

        ``parts`` are the deltas of several buckets; there is at least one.
        """
        deltas = concat([full_rows(part, self._payload) for part in parts])
        chosen = [(deltas, self._of_all)]
        for column, by_value in self._by_value.items():
            values = deltas.column(column).combine_chunks()
            values = values.cast(pa.int64()) if pa.types.is_integer(values.type) else values
            places = pc.index_in(values, value_set=pa.array([*by_value], values.type))
            matching = deltas.filter(pc.is_valid(places))
            paths = [*by_value.values()]
            chosen += [
                (rows, paths[at]) for at, rows in split_by(matching, places.drop_null().to_numpy().astype(np.int64))
            ]
        for rows, paths_of_rows in chosen:
            for number, path in paths_of_rows:
                if (table := path.tables(rows)[-1]).num_rows:
                    yield number, table


@dataclass(frozen=True)
class ItemPaths:
    """The paths of a source's items to the channels that read it, as workers follow them.

    ``direct``: channels that take items as they are, by number, each with its columns and those that choose a bucket.
    ``others``: None if there are none.
    """

    direct: Mapping[int, tuple[tuple[str, ...], tuple[str, ...]]]
    others: OutputPaths | None

    def tables(self, items: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of items, none of them a CTI, that come to a channel, with the channel's number."""
        for number, (columns, hashed) in self.direct.items():
            yield number, normalize_keys(items.select(columns), hashed)
        if self.others is not None:
            yield from self.others.tables([items])


def normalize_keys(rows: pa.Table, hashed: Sequence[str]) -> pa.Table:
    """Return the rows with floats in the columns ``hashed`` as keys: -0.0 becomes 0.0, and all NaNs are equal."""
    for name in hashed:
        if name in rows.column_names and pa.types.is_floating(rows.column(name).type):
            column = rows.column(name)
            zero, nan = pa.scalar(0.0, column.type), pa.scalar(float("nan"), column.type)
            plain = pc.if_else(pc.is_nan(column), nan, column)
            rows = with_column(rows, name, pc.if_else(pc.equal(column, zero), zero, plain))
    return rows


def full_rows(deltas: pa.Table, payload: pa.Schema) -> pa.Table:
    """Return deltas with lifetimes, weights and the columns of ``payload`` in their types, whichever they have left out."""
    rows = with_weights(with_ends(deltas))
    columns = {field.name: _as_type(rows.column(field.name), field.type) for field in payload}
    return pa.table({**{name: rows.column(name) for name in TECHNICAL}, **columns})


def _as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column in the one Arrow type for its Spark type."""
    return column if column.type == kind else column.cast(kind, safe=False)


class StageWatcher:
    """A listener to the rows inside a stage, which no envelope holds; this one ignores them."""

    def kernel_sends(self, number: int, deltas: pa.Table) -> None:
        """Receive the deltas that the kernel of that number has made."""

    def rows_move(self, channel: int, tables: Sequence[pa.Table]) -> None:
        """Receive the deltas on the inner path of the channel of that number: at its beginning and after each step."""


UNWATCHED = StageWatcher()


HELD = "/held "
"""The text between the name of a kernel and the key of a channel, in the name of a scope that holds rows back."""


@dataclass(frozen=True)
class Channel:
    """A path of deltas from a relation (a source, or a kernel's output) to a port of a kernel, or to the result."""

    number: int
    relation: str

    stage: int
    """The number of the stage that reads it."""

    reader: int
    """The number of the kernel that reads it; -1 for a result."""

    port: int

    columns: tuple[str, ...]
    """The columns that the port reads, with those of lifetimes and weights."""

    hashed: tuple[str, ...] = ()
    """The columns whose values decide on the bucket."""

    judge: Judge | None = None
    """The source's policies on late and invalid items, if the path begins at a source."""

    progress_maps: tuple[ProgressMap, ...] = ()
    """The changes that the path's steps make to the relation's CTI and watermark, in order."""

    inner: InnerPath | None = None
    """The path's steps, if the relation is made by a kernel of the stage that reads it; None: its rows come in envelopes."""

    key: str = ""
    """The channel's name among those of the kernel that reads it, which names the state that holds its rows back."""


@dataclass(frozen=True)
class HostedKernel:
    """A kernel in its stage."""

    number: int

    name: str
    """The name of the kernel's output relation, and of its state."""

    kernel: Kernel

    inputs: tuple[str, ...]
    """The relations that the kernel reads."""

    channels: tuple[Channel, ...]

    sends: bool = True
    """True if rows are read outside the stage: by a later stage, or by a result."""

    aligns: AlignAt | None = None
    """The place where the level of consistency holds rows back; None: nowhere at this kernel."""

    bucket_columns: tuple[str, ...] | None = None
    """The columns of its rows whose values choose the bucket, None if no columns do."""

    repeats: bool = False
    """True if another kernel sets the same events aside, and counts them."""

    @property
    def aligns_behind(self) -> bool:
        """True if the level of consistency holds back the kernel's output, not its input."""
        return self.aligns is not None and self.aligns.is_behind

    @property
    def held_scopes(self) -> dict[str, int]:
        """The scopes of state that hold rows back, before the kernel or behind it, each with the ticks its rows were moved since
        the source.
        """
        if self.aligns_behind:
            return {f"{self.name}{HELD}": 0}
        return {self.held_scope(c): map_progress(0, c.progress_maps) for c in self.channels if self.aligns_before(c)}

    def aligns_before(self, channel: Channel) -> bool:
        """Return True if a channel's rows are judged, and held back, before the kernel sees them."""
        return channel.judge is not None and self.aligns is not None and not self.aligns.is_behind

    def held_scope(self, channel: Channel) -> str:
        """Return the scope of state that holds back a channel's rows before the kernel."""
        return f"{self.name}{HELD}{channel.key}"


def scope_owner(scope: str) -> str:
    """Return the name of the kernel that a scope of state belongs to: its own, or one that holds its rows back."""
    return scope.partition(HELD)[0]
