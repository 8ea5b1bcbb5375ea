"""Lanes: parts of a kernel's state in one bucket that came from several buckets, while these parts stand at different CTIs.

A kernel that reads another one of its stage goes by that one's CTI in its own bucket, which may be further than in other buckets.
If several such buckets become one, what they hold cannot be one state until the CTI in the new bucket has passed all of theirs.
Until then each lane advances by itself, with the rows that would have come into its old bucket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.basket import Baskets, KernelBaskets
from streamq.runtime.bucket import buckets_of
from streamq.runtime.columnar import concat
from streamq.runtime.hosted_kernel import LANE
from streamq.runtime.kernel import Output, Totals
from streamq.runtime.progress import LevelProgress
from streamq.runtime.track import TrackedRelation
from streamq.time import INFINITY

LANES = "lanes"
"""The name under which a bucket's state has the lanes of its kernels."""

Origin = tuple[int, int]
"""A number of buckets, and the number of one of them."""


@dataclass(frozen=True)
class Lane:
    """A lane: ``origins`` are the buckets in which its rows would have been; ``ctis`` those of the kernels that it reads."""

    origins: tuple[Origin, ...]
    ctis: Mapping[str, int]

    def rows(self, table: pa.Table, hashed: Sequence[str]) -> pa.Table:
        """Return the rows that belong to the lane; the columns ``hashed`` choose their buckets."""
        is_mine = np.ones(table.num_rows, bool)
        for buckets, number in self.origins:
            is_mine &= buckets_of(table, hashed, buckets) == number
        return table.filter(pa.array(is_mine))

    def at(self, paces: Mapping[TrackedRelation, LevelProgress]) -> Lane:
        """Return the lane once the kernels that it reads have come as far as in ``paces``; no CTI goes back."""
        return replace(self, ctis={name: max(cti, paces[name, 0].c) for name, cti in self.ctis.items()})

    def paces(self, paces: Mapping[TrackedRelation, LevelProgress]) -> dict[TrackedRelation, LevelProgress]:
        """Return the progress of all relations, with this lane's CTIs."""
        own = {(name, 0): replace(paces[name, 0], c=cti) for name, cti in self.ctis.items()}
        return {**paces, **own}


def lanes_of(baskets: Baskets, name: str) -> list[Lane]:
    """Return the lanes of a kernel in a bucket; none if its state is one."""
    stored: list[Any] = baskets.values.get(LANES, {}).get(name, [])
    return [Lane(tuple((many, number) for many, number in origins), ctis) for origins, ctis in stored]


def store_lanes(baskets: Baskets, name: str, lanes: Sequence[Lane]) -> None:
    """Store the lanes of a kernel; without lanes its state is one."""
    stored = baskets.values.setdefault(LANES, {})
    stored[name] = [[lane.origins, lane.ctis] for lane in lanes]
    if not lanes:
        del stored[name]
    if not stored:
        del baskets.values[LANES]


def lane_states(baskets: Baskets, name: str) -> list[KernelBaskets]:
    """Return the states of a kernel's lanes."""
    return [baskets.scoped(f"{name}{LANE}{number}") for number in range(len(lanes_of(baskets, name)))]


def joined(outputs: Sequence[Output]) -> Output:
    """Return the output of all lanes as that of one kernel."""
    tables = [output.table for output in outputs if output.table is not None and output.table.num_rows]
    totals = Totals()
    for output in outputs:
        totals.rows += output.totals.rows
        for name, count in output.totals.counts.items():
            totals.counts[name] = totals.counts.get(name, 0) + count
    evaluated = [output.evaluated for output in outputs if output.evaluated is not None]
    return Output(
        concat(tables) if tables else None,
        min(output.c for output in outputs),
        totals,
        m=min(output.m for output in outputs),
        due=min((output.due for output in outputs if output.due is not None), default=None),
        backlog=(sum(o.backlog[0] for o in outputs), min((o.backlog[1] for o in outputs), default=INFINITY)),
        evaluated=sum(evaluated) if evaluated else None,
    )


__all__ = ["LANES", "Lane", "Origin", "joined", "lane_states", "lanes_of", "store_lanes"]
