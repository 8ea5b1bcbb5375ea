"""The partitions of a source, each with its greatest start: a table with a row per partition, encoded as text.

It is processed in Arrow, because there may be tens of thousands of partitions, and every bucket keeps them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arrow.columnar import concat, decode_small, encode_small, group, ints, with_column
from streamq.runtime.arrow.rendering import python_rows
from streamq.runtime.event import LE
from streamq.runtime.time.progress_policy import CtiSteps, SourceParts
from streamq.time import MINUS_INFINITY

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


_NO_PARTITIONS: Mapping[str, Any] = {"starts": None, "least": None, "quiet_round": None, "straggler": None}


@dataclass(frozen=True)
class PartitionStarts(SourceParts):
    """The partitions of a source, the rows of equal ``columns``; the CTI is that of the least of their greatest starts.

    Idle partitions are forgotten; once all are, the CTI is that of the source's greatest start. The state has the number of
    rounds and the greatest start, and, of the partitions that are not idle, their table, the least start, the partition that
    has it, and the round of the longest silence.
    """

    columns: tuple[str, ...]
    steps: CtiSteps

    def summary(self, items: pa.Table) -> str:
        """Return the greatest start of each partition among the items, encoded as text."""
        return encode_starts(greatest_starts(items, self.columns))

    def keep(self, state: dict[str, Any], summaries: Sequence[str], idle_before: int) -> None:
        """Begin a round if there are summaries, and forget partitions last heard before the round ``idle_before``.

        A state of other columns, which an earlier run has left, is cleared first.
        """
        if state.get("per") != [*self.columns]:
            # an earlier run may have had other partitions, or none
            state.clear()
            state |= {"per": [*self.columns], "round": 0, "greatest": None, **_NO_PARTITIONS}
        if summaries:
            stored = [] if state["starts"] is None else [decode_starts(state["starts"])]
            state["round"] += 1
            starts = heard_in(state["round"], [decode_starts(text) for text in summaries], stored, self.columns)
            latest = pc.max(starts.column(LE)).as_py()
            state["greatest"] = latest if state["greatest"] is None else max(latest, state["greatest"])
        elif state["starts"] is None or idle_before <= state["quiet_round"]:
            return
        else:
            starts = decode_starts(state["starts"])
        state |= _NO_PARTITIONS
        starts = without_idle(starts, idle_before)
        if starts.num_rows:
            state |= {
                "starts": encode_starts(starts),
                "least": pc.min(starts.column(LE)).as_py(),
                "quiet_round": pc.min(starts.column(ROUND)).as_py(),
                "straggler": furthest_behind(starts, self.columns),
            }

    def cti(self, state: Mapping[str, Any]) -> int:
        return self.greatest_cti(state) if state["least"] is None else int(self.steps.cti(state["least"]))

    def greatest_cti(self, state: Mapping[str, Any]) -> int:
        return MINUS_INFINITY if state["greatest"] is None else int(self.steps.cti(state["greatest"]))

    def cti_at_rest(self, start: int) -> int:
        return int(self.steps.cti(start))

    def readings(self, state: Mapping[str, Any]) -> dict[str, int | str]:
        """Return the round and, unless all partitions are idle, the one furthest behind, its CTI, and the longest silence."""
        if not state:
            return {}
        readings = {"round": state["round"]}
        if state["least"] is not None:
            readings |= {name: state[name] for name in ("quiet_round", "straggler")}
            readings["straggler_cti"] = int(self.steps.cti(state["least"]))
        return readings
