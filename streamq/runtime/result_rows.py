"""The deltas of a result as the rows that a user reads, folded within what one task has of one micro-batch.

A pair that takes a row back and gives it another end is one retraction; what cancels out is gone. Pairs come from one
kernel in one bucket, so a task has both halves. A CTI travels as an empty lifetime: it adds nothing to a history.
Cost: rows whose start nobody takes back are passed on as they are, the others are sorted by what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.columnar import concat, ints
from streamq.runtime.event import CTI, INSERT, LE, RE, RETRACT, WEIGHT
from streamq.runtime.replacements import replacement_masks
from streamq.runtime.shipping import packed
from streamq.runtime.values import Ints, Numbered, combine_numbers, dense_numbers, number_values
from streamq.time import INFINITY, MINUS_INFINITY

UPSERT, DELETE = "upsert", "delete"
"""What an upsert's row can be; the last is a tombstone."""

CHANGELOG_ADDS, UPSERT_ADDS = ("kind", "new_end"), ("op",)
"""Columns beside payload, start and end."""

BATCH_ROWS = 1 << 16
"""Rows of an Arrow batch that is handed on."""


def split_ctis(deltas: pa.Table) -> tuple[pa.Table, int]:
    """The deltas without CTIs, and the greatest of those (MINUS_INFINITY: there is none)."""
    promise = pc.less_equal(deltas.column(RE), deltas.column(LE))
    if not pc.any(promise).as_py():
        return deltas, MINUS_INFINITY
    return deltas.filter(pc.invert(promise)), pc.max(deltas.column(LE).filter(promise)).as_py()


def changelog_rows(deltas: pa.Table) -> pa.Table:
    """``kind``, payload, ``start``, ``end``, ``new_end`` in ticks, infinity as NULL: by sync time, then the CTI.

    An insert comes before what takes one back; the end of the stream, ``cti(inf)``, is not said.
    """
    deltas, c = split_ctis(deltas)
    row, end, new_end, is_taken_back = _folded(deltas)
    start = ints(deltas, LE)[row]
    sync = np.where(is_taken_back, np.minimum(end, new_end), start)
    order = np.lexsort((is_taken_back, sync))
    row, start, end, new_end, is_taken_back = (values[order] for values in (row, start, end, new_end, is_taken_back))
    kind = pa.array([INSERT, RETRACT]).take(pa.array(is_taken_back.astype(np.int8)))
    times = {
        "start": pa.array(start),
        "end": _finite(end),
        "new_end": pa.array(new_end, mask=_open(new_end, is_taken_back)),
    }
    payload = deltas.drop_columns([LE, RE, WEIGHT]).take(pa.array(row))
    rows = pa.table({"kind": kind, **{n: payload.column(n) for n in payload.column_names}, **times})
    if c in (INFINITY, MINUS_INFINITY):
        return rows
    promise = {"kind": pa.array([CTI]), "start": pa.array([c])}
    last = [promise.get(f.name, pa.nulls(1, f.type)) for f in rows.schema]
    return pa.concat_tables([rows, pa.table(last, schema=rows.schema)])


def upsert_rows(deltas: pa.Table, key: Sequence[str]) -> pa.Table:
    """``op``, payload, ``start``, ``end`` in ticks, infinity as NULL: of each ``key`` and start the last state, if it changed.

    A key that has no row any more has a tombstone: beside key and start it is NULL. Rows stand in order of their starts.
    """
    payload = [n for n in deltas.column_names if n not in (LE, RE, WEIGHT)]
    whose, _ = keyed = combine_numbers([_times(ints(deltas, LE)), *(number_values(deltas.column(n)) for n in key)])
    rest = [number_values(deltas.column(n)) for n in payload if n not in key]
    row, net = _net(deltas, combine_numbers([keyed, *rest, _times(ints(deltas, RE))]))
    is_put_in = net > 0
    alive = np.repeat(whose[row[is_put_in]], net[is_put_in])
    if len(_firsts(alive)) < len(alive):
        raise RuntimeError("upsert: two rows of one key and start")
    gone = row[~is_put_in & ~_among(whose[row], alive)]
    deleted = gone[_firsts(whose[gone])]
    row = np.concatenate([row[is_put_in], deleted])
    dead = np.repeat([False, True], [len(row) - len(deleted), len(deleted)])
    start = ints(deltas, LE)[row]
    order = np.argsort(start, kind="stable")
    row, dead, start = row[order], dead[order], start[order]
    whole, event = pa.array(row), pa.array(row, mask=dead)
    end = ints(deltas, RE)[row]
    return pa.table(
        {
            "op": pa.array([UPSERT, DELETE]).take(pa.array(dead.astype(np.int8))),
            **{n: deltas.column(n).take(whole if n in key else event) for n in payload},
            "start": pa.array(start),
            "end": pa.array(end, mask=dead | (end == INFINITY)),
        }
    )


def folding(
    rows: Callable[[pa.Table], pa.Table],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """``rows`` over all that a task has, for ``mapInArrow``."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = [pa.Table.from_batches([batch]) for batch in batches if batch.num_rows]
        if tables:
            yield from rows(concat(tables)).combine_chunks().to_batches(BATCH_ROWS)

    return packed(run)


# folding


def _folded(deltas: pa.Table) -> tuple[Ints, Ints, Ints, Any]:
    """A row of the deltas for each item, its end, its new end, and whether it is a retraction."""
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
    (taken_back, of_taken_back, ends), (put_in, of_put_in, new_ends) = halves
    # in both halves rows stand by event and end: the i-th taken of an event goes with the i-th given
    before, after = replacement_masks(of_taken_back, of_put_in)
    row = np.concatenate([alone, put_in[~after], taken_back[before], taken_back[~before]])
    end = np.concatenate([re[alone], new_ends[~after], ends[before], ends[~before]])
    new_end = np.concatenate([re[alone], new_ends[~after], new_ends[after], le[taken_back[~before]]])
    inserted = len(alone) + int((~after).sum())
    return row, end, new_end, np.arange(len(row)) >= inserted


def _net(deltas: pa.Table, places: Numbered) -> tuple[Ints, Ints]:
    """A row of each place whose weights do not cancel out, in order of the places, and their sum."""
    place, _ = places
    order = np.argsort(place, kind="stable")
    first = np.flatnonzero(np.diff(place[order], prepend=-1))
    net = np.add.reduceat(ints(deltas, WEIGHT)[order], first) if len(first) else first
    return order[first][net != 0], net[net != 0]


def _among(values: Ints, some: Ints) -> Any:
    return pc.is_in(pa.array(values), value_set=pa.array(some)).to_numpy(zero_copy_only=False)


def _open(new_end: Ints, is_taken_back: Any) -> Any:
    return ~is_taken_back | (new_end == INFINITY)


def _finite(end: Ints) -> pa.Array:
    return pa.array(end, mask=end == INFINITY)


# ticks as numbers


def _times(ticks: Ints) -> Numbered:
    """Numbers in the order of time."""
    finite = ticks != INFINITY
    low, high = (
        int(bound) for bound in (ticks.min(where=finite, initial=INFINITY), ticks.max(where=finite, initial=0))
    )
    if 0 <= high - low < 1 << 40:
        return np.where(finite, ticks - low, high - low + 1), high - low + 2
    return dense_numbers(ticks)


def _firsts(numbers: Ints) -> Ints:
    """Where each number stands for the first time."""
    return np.unique(numbers, return_index=True)[1]
