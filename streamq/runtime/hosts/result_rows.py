"""The deltas of a result as the rows that a user reads, folded within one task and micro-batch.

A retraction and an insert that change an event's end become one retraction; deltas that cancel out disappear. Such pairs come
from one kernel in one bucket, so a task has both halves. A CTI travels as an empty lifetime: it adds nothing to a history.

Cost: rows whose start no retraction has are passed on unchanged, the others are sorted by payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arrow.columnar import concat, decode, encode, ints
from streamq.runtime.arrow.values import Ints, Mask, Numbered, combine_numbers, dense_numbers, number_values
from streamq.runtime.deltas import CTI, END, INSERT, LE, RE, RETRACT, WEIGHT
from streamq.runtime.envelope import PACKED
from streamq.runtime.hosts.shipping import packed
from streamq.time import INFINITY


def replacement_masks(of_retractions: Ints, of_inserts: Ints) -> tuple[Mask, Mask]:
    """Return two masks: retractions followed by a re-insert of the same event, and those re-inserts.

    The arguments are the event numbers of retractions and of inserts, in ascending order, a row per copy. The i-th retraction
    of an event is paired with its i-th insert; the two masks select paired rows in the same order.
    """
    return _rank(of_retractions) < _count(of_inserts, of_retractions), _rank(of_inserts) < _count(
        of_retractions, of_inserts
    )


def _rank(sorted_of: Ints) -> Ints:
    """Return the place of each row among those of equal number."""
    return np.arange(len(sorted_of)) - np.searchsorted(sorted_of, sorted_of, "left")


def _count(sorted_of: Ints, wanted: Ints) -> Ints:
    """Return how often each wanted number occurs."""
    return np.searchsorted(sorted_of, wanted, "right") - np.searchsorted(sorted_of, wanted, "left")


UPSERT, DELETE, PREIMAGE = "upsert", "delete", "preimage"
"""The values of ``op``; DELETE is a tombstone, PREIMAGE the row that the next one replaces or deletes."""

CHANGELOG_ADDS, UPSERT_ADDS = ("kind", "new_end"), ("op",)
"""The columns of a changelog and of an upsert beside payload, start and end."""

SENT, STAMP = "__sent", "sent"
"""The column of a micro-batch's instant beside deltas, and in a changelog that is stamped."""

BATCH_ROWS = 1 << 16
"""The number of rows of an Arrow batch that is sent on."""

RESULT, ROWS, INSERTED, RETRACTED = "__result", "__packed", "__inserted", "__retracted"
"""The columns of packed rows: the number of a result, some of its deltas as an Arrow IPC stream, and how many rows they insert
and retract."""

PACKED_COLUMNS = ((RESULT, pa.int32()), (ROWS, pa.binary()), (INSERTED, pa.int64()), (RETRACTED, pa.int64()))
"""These columns and their types."""


def packed_rows(number: int, deltas: pa.Table, body: bytes | None = None) -> list[dict[str, Any]]:
    """Return the one row that packs deltas of result ``number``; none if there are no deltas.

    ``body``: the deltas as an Arrow IPC stream, if they are there already. CTIs count neither as inserted nor as retracted.
    """
    if not deltas.num_rows:
        return []
    weights = ints(deltas, WEIGHT)[ints(deltas, RE) > ints(deltas, LE)]
    counts = {INSERTED: int(weights[weights > 0].sum()), RETRACTED: -int(weights[weights < 0].sum())}
    return [{"__channel": PACKED, RESULT: number, ROWS: body or encode(deltas), **counts}]


@dataclass(frozen=True)
class PackedResult:
    """A result whose rows come packed: the names and types of its payload, and what makes rows of its deltas.

    A type is None if only Spark has it; it is then that of the deltas. ``division``: the value by which a folder of several
    results is divided; None: the result is written by itself.
    """

    payload: tuple[tuple[str, pa.DataType | None], ...]
    rows: Callable[[pa.Table], pa.Table]
    division: str | None = None

    def deltas(self, body: bytes, beside: Mapping[str, pa.Scalar]) -> pa.Table:
        """Return the deltas of a body, with the values ``beside`` in each row."""
        packed = decode(body)
        payload = {n: packed.column(n) if kind is None else packed.column(n).cast(kind) for n, kind in self.payload}
        same = {name: pa.repeat(value, packed.num_rows) for name, value in beside.items()}
        return pa.table({**payload, **same, **{name: packed.column(name) for name in (LE, RE, WEIGHT)}})


def unpacking(
    results: Mapping[int, PackedResult], carried: Sequence[str], schema: pa.Schema | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that unpacks the rows of results, by their numbers, for ``mapInArrow``: those of a task together.

    A row of the input has the number of a result, its packed rows, and the values ``carried``, which stand beside each of them.
    ``schema``: the columns of rows of several results, in which a row has NULL for those that its result lacks; None: the rows
    of a result stay as they are.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deltas: dict[int, list[pa.Table]] = {}
        for batch in batches:
            for number, body, *beside in zip(batch.column(0).to_pylist(), *batch.columns[1:], strict=True):
                values = dict(zip(carried, beside, strict=True))
                deltas.setdefault(number, []).append(results[number].deltas(body.as_py(), values))
        for number, tables in deltas.items():
            rows = results[number].rows(concat(tables))
            if schema is not None:
                own = {RESULT: pa.repeat(results[number].division, rows.num_rows)}
                own |= {name: rows.column(name).cast(schema.field(name).type) for name in rows.column_names}
                rows = pa.table([own.get(f.name, pa.nulls(rows.num_rows, f.type)) for f in schema], schema=schema)
            yield from rows.combine_chunks().to_batches(BATCH_ROWS)

    return packed(run)


def final_rows(deltas: pa.Table) -> pa.Table:
    """Return payload, ``start`` and ``end`` in ticks, infinity as NULL, of deltas that are all final."""
    end = {"start": deltas.column(LE), "end": _finite(ints(deltas, RE))}
    return pa.table({n: deltas.column(n) for n in deltas.column_names if n not in (LE, RE, WEIGHT)} | end)


def split_ctis(deltas: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the deltas without CTIs, and the CTIs in order, as lifetimes: that of the end of the stream is at INFINITY.

    Its end is then the bound on windows of endless lifetimes, INFINITY if there is none.
    """
    is_promise = pc.less_equal(deltas.column(RE), deltas.column(LE))
    return deltas.filter(pc.invert(is_promise)), deltas.select([LE, RE]).filter(is_promise).sort_by(LE)


def changelog_rows(deltas: pa.Table) -> pa.Table:
    """Return ``kind``, payload, ``start``, ``end``, ``new_end`` in ticks, infinity as NULL: by sync time, then the CTIs.

    At one sync time inserts come before retractions. The end of the stream is a row of kind END without a start; its end is the
    bound on windows of endless lifetimes, if there is one. The instant at which deltas are sent, if they have one, is the same
    for all; it stays beside the payload.
    """
    stamp = {SENT: deltas.column(SENT).slice(0, 1).combine_chunks()} if SENT in deltas.column_names else {}
    deltas, ctis = split_ctis(deltas)
    row, end, new_end, is_retraction = _folded(deltas)
    start = ints(deltas, LE)[row]
    sync = np.where(is_retraction, np.minimum(end, new_end), start)
    order = np.lexsort((is_retraction, sync))
    row, start, end, new_end, is_retraction = (values[order] for values in (row, start, end, new_end, is_retraction))
    kind = pa.array([INSERT, RETRACT]).take(pa.array(is_retraction.astype(np.int8)))
    times = {
        "start": pa.array(start),
        "end": _finite(end),
        "new_end": pa.array(new_end, mask=_open(new_end, is_retraction)),
    }
    payload = deltas.drop_columns([LE, RE, WEIGHT]).take(pa.array(row))
    rows = pa.table({"kind": kind, **{n: payload.column(n) for n in payload.column_names}, **times})
    if not ctis.num_rows:
        return rows
    at, until = ints(ctis, LE), ints(ctis, RE)
    is_end = at == INFINITY
    promises = {
        "kind": pa.array([CTI, END]).take(pa.array(is_end.astype(np.int8))),
        "start": _finite(at),
        "end": pa.array(until, mask=~is_end | (until == INFINITY)),
        **{name: pa.repeat(sent[0], len(at)) for name, sent in stamp.items()},
    }
    last = [promises.get(f.name, pa.nulls(len(at), f.type)) for f in rows.schema]
    return pa.concat_tables([rows, pa.table(last, schema=rows.schema)])


def upsert_rows(deltas: pa.Table, key: Sequence[str], *, by_start: bool = True, preimages: bool = False) -> pa.Table:
    """Return ``op``, payload, ``start``, ``end`` in ticks, infinity as NULL: the last state of each key and start that changed.

    A key and start without a row any more has a tombstone, which is NULL except for these. Rows are in order of their starts.
    ``by_start`` False: the start is no part of the key. ``preimages``: the row that was there stands before what replaces or
    deletes it. Raises RuntimeError if two rows of one key and start are left.
    """
    payload = [n for n in deltas.column_names if n not in (LE, RE, WEIGHT)]
    starts = [_times(ints(deltas, LE))]
    whose, _ = keyed = combine_numbers([*starts * by_start, *(number_values(deltas.column(n)) for n in key)])
    rest = [*starts, *(number_values(deltas.column(n)) for n in payload if n not in key)]
    row, net = _net(deltas, combine_numbers([keyed, *rest, _times(ints(deltas, RE))]))
    is_inserted = net > 0
    alive = np.repeat(whose[row[is_inserted]], net[is_inserted])
    if len(_firsts(alive)) < len(alive):
        raise RuntimeError("upsert: two rows of one key and start")
    gone = row[~is_inserted & ~_among(whose[row], alive)]
    deleted = gone[_firsts(whose[gone])]
    before = row[~is_inserted]
    row = np.concatenate([row[is_inserted], deleted])
    op = np.repeat([0, 1], [len(row) - len(deleted), len(deleted)])
    order = np.argsort(ints(deltas, LE)[row], kind="stable")
    row, op = row[order], op[order]
    if preimages:
        before = before[_firsts(whose[before])]
        by_key = np.argsort(whose[row])
        places = by_key[np.searchsorted(whose[row], whose[before], sorter=by_key)]
        row, op = np.insert(row, places, before), np.insert(op, places, 2)
    dead = op == 1
    whole, event = pa.array(row), pa.array(row, mask=dead)
    start, end = ints(deltas, LE)[row], ints(deltas, RE)[row]
    return pa.table(
        {
            "op": pa.array([UPSERT, DELETE, PREIMAGE]).take(pa.array(op)),
            **{n: deltas.column(n).take(whole if n in key else event) for n in payload},
            "start": pa.array(start) if by_start else pa.array(start, mask=dead),
            "end": pa.array(end, mask=dead | (end == INFINITY)),
        }
    )


def folding(
    rows: Callable[[pa.Table], pa.Table], names: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that applies ``rows`` to all rows of a task together, for ``mapInArrow``; no rows give no batch.

    ``names``: those of the columns that come, in their order.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = [pa.Table.from_batches([batch.rename_columns(list(names))]) for batch in batches if batch.num_rows]
        if tables:
            yield from rows(concat(tables)).combine_chunks().to_batches(BATCH_ROWS)

    return packed(run)


# folding


def _folded(deltas: pa.Table) -> tuple[Ints, Ints, Ints, Any]:
    """Return, for each insert or retraction that is left, a row of the deltas, its end, its new end, and a mask of retractions.

    The new end of an insert is its end, that of a retraction of the whole event its start. Inserts come first.
    """
    le, re, weight = ints(deltas, LE), ints(deltas, RE), ints(deltas, WEIGHT)
    near = _among(le, le[weight < 0])
    alone = np.repeat(np.flatnonzero(~near), weight[~near])
    some = deltas.filter(pa.array(near))
    payload = [n for n in some.column_names if n not in (LE, RE, WEIGHT)]
    event, _ = whole = combine_numbers([_times(le[near]), *(number_values(some.column(n)) for n in payload)])
    at, net = _net(some, combine_numbers([whole, _times(re[near])]))
    event, end = event[at], ints(some, RE)[at]
    rows = np.flatnonzero(near)[at]
    halves = []
    for sign in (-1, 1):
        mine = sign * net > 0
        copies = np.repeat(np.flatnonzero(mine), sign * net[mine])
        halves.append((rows[copies], event[copies], end[copies]))
    (retracted, of_retracted, ends), (inserted_rows, of_inserted, new_ends) = halves
    # both halves are ordered by event and end: the i-th retraction of an event is paired with its i-th insert
    before, after = replacement_masks(of_retracted, of_inserted)
    row = np.concatenate([alone, inserted_rows[~after], retracted[before], retracted[~before]])
    end = np.concatenate([re[alone], new_ends[~after], ends[before], ends[~before]])
    new_end = np.concatenate([re[alone], new_ends[~after], new_ends[after], le[retracted[~before]]])
    inserted = len(alone) + int((~after).sum())
    return row, end, new_end, np.arange(len(row)) >= inserted


def _net(deltas: pa.Table, places: Numbered) -> tuple[Ints, Ints]:
    """Return a row of each place whose weights do not cancel out, in order of the places, and the sums of weights."""
    place, _ = places
    order = np.argsort(place, kind="stable")
    first = np.flatnonzero(np.diff(place[order], prepend=-1))
    net = np.add.reduceat(ints(deltas, WEIGHT)[order], first) if len(first) else first
    return order[first][net != 0], net[net != 0]


def _among(values: Ints, some: Ints) -> Any:
    """Mark the values that occur among others."""
    return pc.is_in(pa.array(values), value_set=pa.array(some)).to_numpy(zero_copy_only=False)


def _open(new_end: Ints, is_retraction: Any) -> Any:
    """Mark the new ends that are NULL for users: those of inserts, and infinite ones."""
    return ~is_retraction | (new_end == INFINITY)


def _finite(end: Ints) -> pa.Array:
    """Return ends with NULL for infinite ones."""
    return pa.array(end, mask=end == INFINITY)


# ticks as numbers


def _times(ticks: Ints) -> Numbered:
    """Return numbers in the order of time, INFINITY last, and a bound above them all."""
    finite = ticks != INFINITY
    low, high = (
        int(bound) for bound in (ticks.min(where=finite, initial=INFINITY), ticks.max(where=finite, initial=0))
    )
    if 0 <= high - low < 1 << 40:
        return np.where(finite, ticks - low, high - low + 1), high - low + 2
    return dense_numbers(ticks)


def _firsts(numbers: Ints) -> Ints:
    """Return the position at which each number first occurs."""
    return np.unique(numbers, return_index=True)[1]
