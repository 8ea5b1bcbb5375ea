"""What is remembered of calls of modules between micro-batches: the result of each open window, and the state behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Remembered:
    """A call: the digest of the members it was about, how many they were, its result and the state, both as pickles.

    A result of None is NULL, as that of a window in quarantine is; failure: why that is there.
    """

    digest: int
    count: int
    result: bytes | None
    state: bytes | None
    failure: str | None = None


@dataclass(eq=False)
class CallMemory:
    """The calls of the micro-batches before, by the name of the result and a number that tells windows apart; and those of now.

    fresh: the deltas that came in this micro-batch, with their weights; None: there are none.
    """

    before: dict[tuple[str, int], Remembered] = field(default_factory=dict)
    now: dict[tuple[str, int], Remembered] = field(default_factory=dict)
    fresh: pa.Table | None = None

    @property
    def table(self) -> pa.Table:
        """The calls of now as a table for keeping."""
        columns: dict[str, list[Any]] = {
            "name": [name for name, _ in self.now],
            "window": [window for _, window in self.now],
            "digest": [call.digest for call in self.now.values()],
            "count": [call.count for call in self.now.values()],
            "result": [call.result for call in self.now.values()],
            "state": [call.state for call in self.now.values()],
            "failure": [call.failure for call in self.now.values()],
        }
        return pa.table(columns, schema=_KEPT)

    @staticmethod
    def of(table: pa.Table | None, fresh: pa.Table | None) -> CallMemory:
        """The memory that a table keeps."""
        if table is None:
            return CallMemory(fresh=fresh)
        before = {(row.pop("name"), row.pop("window")): Remembered(**row) for row in table.to_pylist()}
        return CallMemory(before, fresh=fresh)


_KEPT = pa.schema(
    [
        ("name", pa.string()),
        ("window", pa.uint64()),
        ("digest", pa.uint64()),
        ("count", pa.int64()),
        ("result", pa.binary()),
        ("state", pa.binary()),
        ("failure", pa.string()),
    ]
)

__all__ = ["CallMemory", "Remembered"]
