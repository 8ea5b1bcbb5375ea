"""What is remembered of calls of modules between micro-batches: the result of each open window, and the state behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamq.runtime.module_calls import Calling, Failure


@dataclass(frozen=True, eq=False)
class Remembered:
    """A call: the digest of the members it was about, how many they were, its result and the state, both as pickles.

    A result of None is NULL, as that of a window in quarantine is.
    """

    digest: int
    count: int
    result: bytes | None
    state: bytes | None


@dataclass(eq=False)
class CallMemory:
    """The calls of the micro-batches before, by the name of the result and a number that tells windows apart; and those of now.

    fresh: the deltas that came in this micro-batch, with their weights; None: there are none. failures: the windows that failed
    now, with how they were called; sets_aside: whether there is an output for them.
    """

    before: dict[tuple[str, int], Remembered] = field(default_factory=dict)
    now: dict[tuple[str, int], Remembered] = field(default_factory=dict)
    fresh: pa.Table | None = None
    sets_aside: bool = False
    failures: list[tuple[Calling, Failure]] = field(default_factory=list)

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
        }
        return pa.table(columns, schema=_KEPT)

    @staticmethod
    def of(table: pa.Table | None, fresh: pa.Table | None, sets_aside: bool) -> CallMemory:
        """The memory that a table keeps."""
        if table is None:
            return CallMemory(fresh=fresh, sets_aside=sets_aside)
        rows = table.to_pylist()
        before = {
            (row["name"], row["window"]): Remembered(row["digest"], row["count"], row["result"], row["state"])
            for row in rows
        }
        return CallMemory(before, fresh=fresh, sets_aside=sets_aside)


_KEPT = pa.schema(
    [
        ("name", pa.string()),
        ("window", pa.uint64()),
        ("digest", pa.uint64()),
        ("count", pa.int64()),
        ("result", pa.binary()),
        ("state", pa.binary()),
    ]
)

__all__ = ["CallMemory", "Remembered"]
