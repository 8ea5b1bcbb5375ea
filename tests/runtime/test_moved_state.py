"""Chunks that come for a bucket replace its state; those for other stages, and other envelopes, go on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamq.runtime.envelope import MOVED, PROGRESS
from streamq.runtime.moved_state import EVERY_STAGE, moved_envelopes, take_moved
from streamq.runtime.processor import MapStateStore

Row = tuple[str, int, int, str | None, bytes | None]


class Map:
    """Spark's MapState, as far as a store of chunks needs it."""

    def __init__(self) -> None:
        self.held: dict[tuple[str], tuple[bytes]] = {("old",): (b"before",)}

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:
        self.held[key] = value

    def clear(self) -> None:
        self.held.clear()


def taken(*rows: Row, bucket: int = 0) -> tuple[dict[str, bytes], list[int]]:
    """Let a bucket of stage 1 of a query with two buckets take rows of the move "mine"; give its state, and what goes on."""
    kinds = [pa.string(), pa.int32(), pa.int32(), pa.string(), pa.binary()]
    columns = [pa.array(list(values), kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    batch = pa.record_batch(columns, names=["move", "stage", "bucket", "chunk", "body"])
    envelopes = [e for e in moved_envelopes(batch, "mine") if e[0] == bucket]
    state = Map()
    others = take_moved(1, 2, bucket, [(bucket, PROGRESS, b""), *envelopes], MapStateStore(state))
    return {key: chunk for (key,), (chunk,) in state.held.items()}, [channel for _, channel, _ in others]


@pytest.mark.parametrize(
    ("rows", "bucket", "state", "others"),
    [
        ([("mine", 1, 0, "a", b"x"), ("mine", 1, 0, "b", b"")], 0, {"a": b"x", "b": b""}, [PROGRESS]),
        ([("mine", 2, 0, "a", b"x")], 0, {"old": b"before"}, [PROGRESS, MOVED]),
        ([("mine", 1, 1, "a", b"x")], 0, {"old": b"before"}, [PROGRESS]),
        ([("given up", 1, 0, "a", b"x")], 0, {"old": b"before"}, [PROGRESS]),
        ([("mine", 1, 0, None, None)], 0, {}, [PROGRESS]),
        ([("mine", EVERY_STAGE, 2, None, None)], 2, {}, [PROGRESS, MOVED]),
    ],
)
def test_a_bucket_takes_what_has_come_for_it(
    rows: list[Row], bucket: int, state: dict[str, bytes], others: list[int]
) -> None:
    assert taken(*rows, bucket=bucket) == (state, others)
