"""The greatest start of each partition of a source: a table with a row per partition, encoded as text.

It is processed in Arrow, because there may be tens of thousands of partitions, and every bucket keeps them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arrow.columnar import concat, decode_small, encode_small, group, ints, with_column
from streamq.runtime.arrow.rendering import python_rows
from streamq.runtime.event import LE

ROUND = "__round"
"""The column of the last round in which a partition had rows."""


def greatest_starts(items: pa.Table, per: Sequence[str]) -> pa.Table:
    """Return the greatest start of each partition among some items: the columns ``per`` and ``__le``."""
    # rebuilt, because tables of several tasks are concatenated and must have fields of equal nullability
    columns = pa.table({name: items.column(name) for name in (*per, LE)})
    return group(columns, per, {LE: (LE, "max")})


def heard_in(round: int, starts: Sequence[pa.Table], kept: Sequence[pa.Table], per: Sequence[str]) -> pa.Table:
    """Return the partitions kept so far together with those in ``starts``, which had rows in the round.

    Each has its greatest start and, in ``__round``, its last round. ``starts`` is not empty; ``kept`` may be.
    """
    heard = [with_column(table, ROUND, pa.array([round] * table.num_rows, pa.int64())) for table in starts]
    # a session of another time zone has other types of instants
    together = concat([*heard, *(table.cast(heard[0].schema) for table in kept)])
    return group(together, per, {LE: (LE, "max"), ROUND: (ROUND, "max")})


def without_idle(starts: pa.Table, idle_before: int) -> pa.Table:
    """Return the partitions that had rows in the round ``idle_before`` or later."""
    return starts.filter(pc.greater_equal(starts.column(ROUND), idle_before))


def furthest_behind(starts: pa.Table, per: Sequence[str]) -> str:
    """Return the partition with the least start as text for users: ``device='d7'``."""
    at = int(ints(starts, LE).argmin())
    (row,) = python_rows(starts.select(per).slice(at, 1))
    return ", ".join(f"{name}={value!r}" for name, value in row.items())


def encode_starts(starts: pa.Table) -> str:
    """Return a table of partitions as text, for messages and state."""
    return b64encode(encode_small(starts)).decode("ascii")


def decode_starts(text: str) -> pa.Table:
    """Return the table encoded by :func:`encode_starts`."""
    return decode_small(b64decode(text))
