"""State on its way into other buckets: chunks that come through the control stream, in the micro-batch after the number changed.

The rows of a move are part of that micro-batch's input, so a micro-batch that is repeated gets the same state again, and the old
state is there until it is committed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.envelope import MOVED, Envelope

if TYPE_CHECKING:
    from streamq.runtime.processor import MapStateStore

MOVE_COLUMNS = ("move", "stage", "bucket", "chunk", "body")
"""The columns of the control stream's rows that hold chunks."""

EVERY_STAGE = -1
"""The stage of a row that empties a bucket that there is no more, in all stages."""


@dataclass(frozen=True)
class BucketMove:
    """A move of the state into other ``buckets``: ``token`` distinguishes its rows from those of moves that were given up.

    retired: the keys of the buckets that there are no more; their numbers follow those of the others.
    """

    token: str
    buckets: int
    retired: tuple[int, ...]


def moved_envelopes(batch: pa.RecordBatch, token: str) -> Iterator[Envelope]:
    """Yield the envelopes with the chunks of a move, each for its bucket, from rows of the control stream."""
    rows = pa.Table.from_batches([batch]).filter(pc.equal(batch.column("move"), token))
    for row in rows.select(MOVE_COLUMNS).to_pylist():
        name = (row["chunk"] or "").encode()
        yield row["bucket"], MOVED, struct.pack("<ii", row["stage"], len(name)) + name + (row["body"] or b"")


def take_moved(
    stage: int, buckets: int, bucket: int, envelopes: Iterable[Envelope], store: MapStateStore
) -> list[Envelope]:
    """Replace a bucket's state by the chunks that have come for it; return the other envelopes.

    A row without a chunk empties the bucket, as does any row that comes for one beyond the number of ``buckets``.
    """
    chunks: dict[str, bytes] | None = {} if bucket >= buckets else None
    others: list[Envelope] = []
    for envelope in envelopes:
        _, channel, body = envelope
        if channel != MOVED:
            others.append(envelope)
            continue
        number, length = struct.unpack_from("<ii", body)
        if number == stage:
            chunks = {} if chunks is None else chunks
            if length:
                chunks[body[8 : 8 + length].decode()] = body[8 + length :]
        else:
            others.append(envelope)
    if chunks is not None:
        store.clear()
        for name, chunk in chunks.items():
            store.put(name, chunk)
    return others


__all__ = ["EVERY_STAGE", "MOVE_COLUMNS", "BucketMove", "moved_envelopes", "take_moved"]
