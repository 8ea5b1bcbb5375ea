"""Buckets: which group a row's state lives in, ``hash(keys) mod B`` (DESIGN, D4). Spark and the in-process host share it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import ints


def buckets_of(table: pa.Table, hashed: Sequence[str], buckets: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The bucket of each row; equal values of the columns ``hashed`` (NULL, NaN and both zeros too) share one."""
    if not hashed or buckets == 1:
        return np.zeros(table.num_rows, np.int64)
    found = np.zeros(table.num_rows, np.uint64)
    for name in hashed:
        found = _mixed(found * np.uint64(31) + _numbers(table, name).view(np.uint64))
    return (found % np.uint64(buckets)).astype(np.int64)


def _numbers(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """An int64 a row: the value itself where it is one, else a checksum of it."""
    column = table.column(name)
    kind = column.type
    if pa.types.is_integer(kind) and not column.null_count:
        return ints(table, name)
    if (pa.types.is_timestamp(kind) or pa.types.is_time64(kind)) and not column.null_count:
        return ints(pa.table({name: column.cast(pa.int64())}), name)
    array = column.combine_chunks()
    if pa.types.is_nested(kind):
        return np.array([_checksum(v) for v in array.to_pylist()], np.int64)
    parts = array.dictionary_encode(null_encoding="encode")
    sums = np.array([_checksum(v) for v in parts.dictionary.to_pylist()], np.int64)
    return sums[parts.indices.to_numpy(zero_copy_only=False)] if len(array) else np.zeros(0, np.int64)


def _checksum(value: Any) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value == 0:
        value = 0.0
    return zlib.crc32(repr(value).encode())


def _mixed(x: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    # the finalizer of MurmurHash3: every bit of the input moves every bit of the result
    for by in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> np.uint64(33))) * np.uint64(by)
    return x ^ (x >> np.uint64(33))
