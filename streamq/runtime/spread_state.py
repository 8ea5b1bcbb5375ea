"""Spread the state of a stage over another number of buckets: each bucket's is divided, and the parts of a new one are united.

Every bucket knows the progress of the sources and of the stages before, which is copied. Counts of rows go to the first bucket.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamq.runtime.basket import Baskets, DictStore, TimeBinSizes
from streamq.runtime.hosted_kernel import HostedKernel, scope_owner
from streamq.runtime.identity import IDENTITY, REOPENED, Identity, read_identity
from streamq.runtime.progress import CLOCKS
from streamq.runtime.readings import LATE_COUNTS, LATEST, TALLIES, combine_columns
from streamq.runtime.spread import Spread
from streamq.runtime.stage import Stage
from streamq.runtime.state_parts import SameValue, StatePart, held_rows

Chunks = dict[str, bytes]
"""The state of a bucket: its chunks by name."""

USUAL = TimeBinSizes()
"""The sizes of bins of time of a run."""


@dataclass(frozen=True)
class MovingKernel:
    """A kernel whose state moves: the name of its scope, all parts, and the columns that choose the bucket (``Spread``)."""

    name: str
    parts: tuple[StatePart, ...]
    hashed: tuple[tuple[str, ...], ...]
    result: tuple[str, ...] | None

    @staticmethod
    def of(hosted: HostedKernel) -> MovingKernel:
        """Return the parts of a hosted kernel's state, with the rows that a level of consistency holds back."""
        layout = hosted.kernel.state_layout
        held: tuple[StatePart, ...] = ()
        if hosted.aligns_behind:
            (scope,) = hosted.held_scopes
            held = held_rows(scope, events=layout.sent_by)
        else:
            before = (channel for channel in hosted.channels if hosted.aligns_before(channel))
            held = tuple(part for c in before for part in held_rows(hosted.held_scope(c), port=c.port))
        by_port = {channel.port: channel.hashed for channel in hosted.channels}
        hashed = tuple(by_port[port] for port in sorted(by_port))
        return MovingKernel(hosted.name, (*held, *layout.parts, SameValue(REOPENED)), hashed, hosted.bucket_columns)

    def move(self, old: Sequence[Baskets], new: Sequence[Baskets]) -> None:
        """Move the state from some buckets into others; nothing happens if there is none.

        Raises RuntimeError if something stays behind: a layout that lacks a part would lose rows.
        """
        if not any(self.name in baskets.scopes for baskets in old):
            return
        states, targets = ([baskets.scoped(self.name) for baskets in some] for some in (old, new))
        spread = Spread(len(new), self.hashed, self.result)
        for part in self.parts:
            part.move(states, targets, spread)
        for baskets in old:
            mine = [scope for scope in baskets.scopes if scope_owner(scope) == self.name]
            left = [name for scope in mine for name in (*baskets.scopes[scope], *baskets.scoped(scope).names())]
            if left:
                raise RuntimeError(f"state of {self.name} stays behind: {', '.join(left)}")


@dataclass(frozen=True)
class MovingStage:
    """A stage whose state moves: its kernels, and the relations that are made in it and read there, too.

    ``buckets``: the number of buckets that the query then has; the last stage may have fewer.
    """

    number: int
    buckets: int
    kernels: tuple[MovingKernel, ...]
    inner: frozenset[str]

    @staticmethod
    def of(stage: Stage) -> MovingStage:
        """Return what a stage knows about its state, without the stage itself."""
        inner = frozenset(channel.relation for channel in stage.inner_channels)
        return MovingStage(stage.number, stage.buckets, tuple(map(MovingKernel.of, stage.hosted)), inner)

    def divide(self, chunks: Chunks, buckets: int, sizes: TimeBinSizes = USUAL) -> list[Chunks]:
        """Return the parts of a bucket's state that go to each of the new buckets; ``chunks`` are used up."""
        old, new = Baskets(DictStore(chunks), sizes), [Baskets(DictStore(), sizes) for _ in range(buckets)]
        self._move([old], new)
        return [_written(baskets) for baskets in new]

    def unite(self, parts: Sequence[Chunks], sizes: TimeBinSizes = USUAL) -> Chunks:
        """Return the state of a bucket that has the parts of some others; these are used up."""
        new = Baskets(DictStore(), sizes)
        self._move([Baskets(DictStore(chunks), sizes) for chunks in parts], [new])
        return _written(new)

    def _move(self, old: Sequence[Baskets], new: Sequence[Baskets]) -> None:
        """Move the state of all kernels, the clocks, the counts and the mark of the query."""
        for kernel in self.kernels:
            kernel.move(old, new)
        for baskets in new:
            baskets.values[CLOCKS] = self._clocks([one.values.get(CLOCKS, {}) for one in old])
            self._mark(old[0], baskets)
        counts = new[0].values
        counts[LATE_COUNTS] = sum_counts([baskets.values.get(LATE_COUNTS, {}) for baskets in old])
        counts[LATEST] = combine_columns([baskets.values.get(LATEST, {}) for baskets in old])
        tallies = [baskets.values.get(TALLIES, {}) for baskets in old]
        relations = dict.fromkeys(relation for one in tallies for relation in one)
        counts[TALLIES] = {r: combine_columns([one.get(r, {}) for one in tallies]) for r in relations}

    def _mark(self, old: Baskets, new: Baskets) -> None:
        """Mark a new bucket's state as that of the same query in another number of buckets; a run in-process has no mark."""
        body = old.store.get(IDENTITY)
        if body is not None:
            stored = read_identity(body)
            assert isinstance(stored, Identity)
            own = replace(stored, buckets=self.buckets)
            new.values[IDENTITY] = own.mark
            new.store.put(IDENTITY, own.to_json().encode())

    def _clocks(self, old: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the clocks of a new bucket: of each relation the one that is furthest, which no bucket has been heard for."""
        clocks: dict[str, Any] = {}
        for relation in dict.fromkeys(name for one in old for name in one):
            own = [one[relation] for one in old if relation in one]
            if relation in self.inner and len({clock["c"] for clock in own}) > 1:
                raise RuntimeError(f"clocks of {relation} differ")
            furthest = max(own, key=lambda clock: (clock["c"], clock["w"], clock["reach"]))
            clocks[relation] = {**copy.deepcopy(furthest), "by": {}}
        return clocks


def sum_counts(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counts by name."""
    names = dict.fromkeys(name for one in counts for name in one)
    return {name: sum(one.get(name, 0) for one in counts) for name in names}


def _written(baskets: Baskets) -> Chunks:
    """Return the chunks of baskets, with their manifest."""
    baskets.flush()
    assert isinstance(baskets.store, DictStore)
    return baskets.store.held


__all__ = ["Chunks", "MovingKernel", "MovingStage", "sum_counts"]
