"""Groups of events: their buckets, numbers in an evaluation, hashes, and the instants by which they hold back a CTI.

A bucket is ``hash(keys) mod B``, the part of a stage in which a row's state lies. Spark and the in-process host share it. A
hash depends on the value alone, not on other columns, Arrow's layout, the process or the machine. State lies in the bucket
that it gives, so another hash needs another version of checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arrow.columnar import codes, concat, ints, with_column
from streamq.runtime.arrow.values import Ints, Mask, distinct, list_members, plain_array, sortable

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

NOTHING = np.uint64(0x9E3779B97F4A7C15)
"""The hash of NULL, and the factor that distinguishes a list's places."""


def buckets_of(table: pa.Table, hashed: Sequence[str], buckets: int) -> Ints:
    """Return the bucket of each row; equal values of the columns ``hashed`` (NULL, NaN and both zeros too) share one.

    Without columns every row is in bucket 0.
    """
    if not hashed or buckets == 1:
        return np.zeros(table.num_rows, np.int64)
    row_hashes = combine_hashes([hashes(table.column(name)) for name in hashed])
    return (row_hashes % np.uint64(buckets)).astype(np.int64)


def hashes(column: pa.Array | pa.ChunkedArray) -> Hashes:
    """Return a number for each value, equal for equal values (:mod:`streamq.runtime.arrow.values`); not yet mixed."""
    array = plain_array(column)
    value_hashes = _hashes(array)
    if array.null_count:
        value_hashes = np.where(array.is_null().to_numpy(zero_copy_only=False), NOTHING, value_hashes)
    return value_hashes


def _hashes(array: pa.Array) -> Hashes:
    """Return the hashes of an array; those of NULLs are arbitrary."""
    kind = array.type
    if pa.types.is_struct(kind):
        return combine_hashes([np.ones(len(array), np.uint64), *(hashes(part) for part in array.flatten())])
    if pa.types.is_map(kind):
        offsets, keys, items = list_members(array)
        # a sum, whatever the order of the entries
        return _summed(combine_hashes([hashes(keys), hashes(items)]), offsets)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets, items = list_members(array)
        return _in_places(hashes(items), offsets)
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        width = kind.bit_width // 8
        body = array.buffers()[1][array.offset * width :]
        return _bytes_hashes(body, np.arange(len(array) + 1, dtype=np.int64) * width)
    if kind in _OFFSETS:
        # keys occur often: each is hashed once
        encoded = array.dictionary_encode(null_encoding="encode")
        distinct = encoded.dictionary
        offsets = np.frombuffer(distinct.buffers()[1], _OFFSETS[kind])[distinct.offset :][: len(distinct) + 1]
        distinct_hashes = _bytes_hashes(distinct.buffers()[2], offsets.astype(np.int64))
        return distinct_hashes[encoded.indices.to_numpy(zero_copy_only=False)]
    if pa.types.is_floating(kind):
        array = sortable(array, zeros_equal=True)
    elif pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    values = array.fill_null(0) if array.null_count else array
    return values.to_numpy(zero_copy_only=False).astype(np.int64, copy=False).view(np.uint64)


_OFFSETS = {pa.string(): np.int32, pa.binary(): np.int32, pa.large_string(): np.int64, pa.large_binary(): np.int64}


def _bytes_hashes(body: Any, offsets: Ints) -> Hashes:
    """Return the hashes of runs of bytes, read eight at a time in little-endian order on every machine.

    Run ``i`` is the bytes from ``offsets[i]`` to ``offsets[i + 1]`` of ``body``.
    """
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    if first == last:
        return np.zeros(max(len(offsets) - 1, 0), np.uint64)
    padded = np.frombuffer(body, np.uint8)[first:last].tobytes() + bytes(8)
    start, length = offsets[:-1] - first, np.diff(offsets)
    words = np.ndarray(last - first, "<u8", padded, strides=(1,))
    count = (length + 7) >> 3
    place, owner = _places(count)
    start = start[owner] + 8 * place
    # the last eight bytes may reach into the next run: mask those off
    beyond = np.maximum(8 - (length[owner] - 8 * place), 0).astype(np.uint64) * np.uint64(8)
    low = np.uint64(0xFFFFFFFFFFFFFFFF) >> beyond
    return _summed(_placed(words[start] & low, place), np.concatenate([[0], np.cumsum(count)])) + length.view(np.uint64)


def _in_places(items: Hashes, offsets: Ints) -> Hashes:
    """Return the hashes of lists, from the hashes of their items and the offset of each list; the order of items counts."""
    place, _ = _places(np.diff(offsets))
    return _summed(_placed(items, place), offsets)


def _places(count: Ints) -> tuple[Ints, Ints]:
    """Return, for each member of runs of these lengths, its place in its run and the run's number."""
    owner = np.repeat(np.arange(len(count)), count)
    return np.arange(len(owner)) - (np.cumsum(count) - count)[owner], owner


def _placed(items: Hashes, place: Ints) -> Hashes:
    """Return the hashes of items mixed with their places, so that the order of items counts."""
    return _mixed(items + (place + 1).view(np.uint64) * NOTHING)


def _summed(items: Hashes, offsets: Ints) -> Hashes:
    """Return, for each run of items, the sum of their hashes plus their number, modulo 2^64.

    Run ``i`` is the items from ``offsets[i]`` to ``offsets[i + 1]``.
    """
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(items)])
    return total[offsets[1:]] - total[offsets[:-1]] + np.diff(offsets).view(np.uint64)


def combine_hashes(parts: Sequence[Hashes]) -> Hashes:
    """Return the hashes of tuples of values from the hashes of their parts, an array a place of the tuple."""
    combined = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        combined = _mixed(combined * np.uint64(31) + part)
    return combined


def _mixed(x: Hashes) -> Hashes:
    """Return hashes whose every bit depends on every bit of the input, by MurmurHash3's finalizer."""
    for by in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> np.uint64(33))) * np.uint64(by)
    return x ^ (x >> np.uint64(33))


GROUP_NUMBER = "__group"
"""The column of group numbers, from 0 on: the same for equal groups of all inputs; rows of a result have it, too."""


HASH = "__hash"
"""The column of the upper 32 bits of the hash of each row's group. Groups that share them are evaluated together."""

BITS = 32

GroupHashes = np.ndarray[Any, np.dtype[np.uint32]]


def number_groups(inputs: Sequence[pa.Table], columns: Sequence[Sequence[str]]) -> list[pa.Table]:
    """Return an operator's inputs with the column GROUP_NUMBER; ``columns`` separate the groups of each input, in matching order.

    NULL equals NULL, and NaN NaN; without columns all events are in group 0.
    """
    if not columns[0]:
        return [with_column(table, GROUP_NUMBER, np.zeros(table.num_rows, np.int64)) for table in inputs]
    names = [f"k{i}" for i in range(len(columns[0]))]
    keys = [pa.table([t.column(c) for c in by], names=names) for t, by in zip(inputs, columns, strict=True)]
    number, _ = codes(concat([keys[0], *(k.cast(keys[0].schema) for k in keys[1:])]), names)
    ends = np.cumsum([table.num_rows for table in inputs])[:-1]
    return [with_column(t, GROUP_NUMBER, mine) for t, mine in zip(inputs, np.split(number, ends), strict=True)]


def matching_groups(table: pa.Table, keys: Sequence[str]) -> Ints:
    """Return the group number of each row of an input, -1 for a row with NULL in one of its ``keys``, which matches no other."""
    number = ints(table, GROUP_NUMBER)
    for key in keys:
        if table.column(key).null_count:
            number = np.where(pc.is_null(table.column(key)).to_numpy(), -1, number)
    return number


def group_hashes(table: pa.Table, columns: Sequence[str]) -> Hashes:
    """Return a number for each row, the same for rows of one group, whatever the other columns."""
    return combine_hashes([np.ones(table.num_rows, np.uint64), *(hashes(table.column(name)) for name in columns)])


def with_hashes(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows with the hashes of their groups, which the columns separate."""
    upper = (group_hashes(table, columns) >> np.uint64(BITS)).astype(np.uint32)
    return with_column(table, HASH, upper)


def distinct_hashes(tables: Sequence[pa.Table]) -> GroupHashes:
    """Return the hashes of the groups in some tables, each once."""
    return distinct(np.concatenate([np.zeros(0, np.uint32), *(table.column(HASH).to_numpy() for table in tables)]))


def hashes_with(hashes: GroupHashes, bits: int, prefix: int) -> GroupHashes:
    """Return the hashes that begin with a ``prefix`` of so many bits, of hashes in order."""
    ends = np.array([prefix, prefix + 1], np.uint64) << np.uint64(BITS - bits)
    first, last = np.searchsorted(hashes.astype(np.uint64), ends)
    return hashes[first:last]


def is_among(hashes: Any, some: GroupHashes) -> Mask:
    """Mark the hashes, in a column or an array, that occur among some others."""
    values = pa.array(hashes) if isinstance(hashes, np.ndarray) else hashes
    among: Mask = pc.is_in(values, value_set=pa.array(some)).to_numpy(zero_copy_only=False)
    return among


@dataclass(frozen=True, eq=False)
class Holds:
    """Instants by which groups hold back the CTI of an operator.

    The group of number ``group[i]`` holds it back to ``at[i]``, until the input's CTI reaches ``until[i]``; then it may hold it
    back to another instant. ``at`` may be INFINITY, which holds back nothing.
    """

    group: Ints
    at: Ints
    until: Ints


def no_holds() -> Holds:
    """Return the holds of an operator whose groups hold back nothing."""
    nothing = np.zeros(0, np.int64)
    return Holds(nothing, nothing, nothing)


@dataclass(frozen=True, eq=False)
class ToCome:
    """Groups with rows that start later than those evaluated, by number, each with an instant before which none of them starts.

    ``first`` has the lifetime of the first such row of each of these groups, if it is known; None: for no group.
    """

    group: Ints
    start: Ints
    first: pa.Table | None = None


def least_by_group(groups: int, *parts: tuple[Ints, Ints], otherwise: int) -> Ints:
    """Return the least value of each group among parts ``(group, value)``; ``otherwise`` for a group without one."""
    least = np.full(groups, otherwise, np.int64)
    for group, value in parts:
        np.minimum.at(least, group, value)
    return least
