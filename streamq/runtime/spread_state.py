"""Spread the state of a stage over another number of buckets: each bucket's is divided, and the parts of a new one are united.

Every bucket knows the progress of the sources and of the stages before, which is copied. Counts of rows go to the first bucket.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamq.runtime.basket import Baskets, DictStore, KernelBaskets, TimeBinSizes
from streamq.runtime.hosted_kernel import HostedKernel, scope_owner
from streamq.runtime.identity import FORM_CHANGED, IDENTITY, Identity, read_identity
from streamq.runtime.lanes import Lane, Origin, lane_states, lanes_of, store_lanes
from streamq.runtime.progress import CLOCKS
from streamq.runtime.readings import LATE_COUNTS, LATEST, TALLIES, combine_columns
from streamq.runtime.spread import Spread
from streamq.runtime.stage import Stage
from streamq.runtime.state_layout import StatePart
from streamq.runtime.state_parts import SameValue, held_rows
from streamq.time import MINUS_INFINITY

Chunks = dict[str, bytes]
"""The state of a bucket: its chunks by name."""

USUAL = TimeBinSizes()
"""The sizes of bins of time of a run."""


@dataclass(frozen=True)
class MovingKernel:
    """A kernel whose state moves: the name of its scope, the parts of its state and those of the rows held back for it.

    hashed, result: the columns that choose the bucket (``Spread``). inner: the relations of its own stage that it reads.
    """

    name: str
    parts: tuple[StatePart, ...]
    held: tuple[StatePart, ...]
    hashed: tuple[tuple[str, ...], ...]
    result: tuple[str, ...] | None
    inner: tuple[str, ...]

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
        return MovingKernel(
            name=hosted.name,
            parts=(*layout.parts, SameValue(FORM_CHANGED)),
            held=held,
            hashed=tuple(by_port[port] for port in sorted(by_port)),
            result=hosted.bucket_columns,
            inner=tuple(sorted({c.relation for c in hosted.channels if c.inner is not None})),
        )

    def divide(self, old: Baskets, new: Sequence[Baskets]) -> None:
        """Move the state of a bucket into several, lane by lane; nothing happens if there is none."""
        if not self._is_in(old):
            return
        self._move(self.held, [old.scoped(self.name)], [baskets.scoped(self.name) for baskets in new])
        lanes = lanes_of(old, self.name)
        if not lanes:
            self._move(self.parts, [old.scoped(self.name)], [baskets.scoped(self.name) for baskets in new])
            return
        for baskets in new:
            store_lanes(baskets, self.name, lanes)
        targets = [lane_states(baskets, self.name) for baskets in new]
        for number, state in enumerate(lane_states(old, self.name)):
            self._move(self.parts, [state], [states[number] for states in targets])

    def unite(self, old: Mapping[Origin, Baskets], new: Baskets) -> None:
        """Move the parts of a bucket's state into it; they are lanes of it if they stand at different CTIs.

        If all rows are in the first bucket, only its CTI counts.
        """
        parts = {origin: baskets for origin, baskets in old.items() if self._is_in(baskets)}
        if not parts:
            return
        target = new.scoped(self.name)
        self._move(self.held, [baskets.scoped(self.name) for baskets in parts.values()], [target])
        if not any(self.hashed):
            parts = dict([*parts.items()][:1])
        lanes: list[Lane] = []
        states: list[KernelBaskets] = []
        for origin, baskets in parts.items():
            clocks = baskets.values.get(CLOCKS, {})
            whole = Lane((), {name: clocks[name]["c"] if name in clocks else MINUS_INFINITY for name in self.inner})
            own = lanes_of(baskets, self.name)
            lanes += [replace(lane, origins=(*lane.origins, origin)) for lane in own or [whole]]
            states += lane_states(baskets, self.name) if own else [baskets.scoped(self.name)]
        if all(lane.ctis == lanes[0].ctis for lane in lanes):
            self._move(self.parts, states, [target])
            return
        store_lanes(new, self.name, lanes)
        for state, lane_state in zip(states, lane_states(new, self.name), strict=True):
            self._move(self.parts, [state], [lane_state])

    def unite_lanes(self, baskets: Baskets) -> None:
        """Make the lanes of a bucket, which are at the same CTIs, one state."""
        states = lane_states(baskets, self.name)
        self._move(self.parts, states, [baskets.scoped(self.name)])
        store_lanes(baskets, self.name, ())
        for state in states:
            baskets.drop_scope(state.prefix)

    def _is_in(self, baskets: Baskets) -> bool:
        """Return True if a bucket has state of the kernel."""
        return self.name in map(scope_owner, baskets.scopes)

    def _move(self, parts: Sequence[StatePart], old: Sequence[KernelBaskets], new: Sequence[KernelBaskets]) -> None:
        """Move parts of the state from some buckets, or lanes, into others.

        Raises RuntimeError if something stays behind: a layout that lacks a part would lose rows.
        """
        spread = Spread(len(new), self.hashed, self.result)
        for part in parts:
            part.move(old, new, spread)
        left = [name for state in old if parts is self.parts for name in (*state.values, *state.names())]
        if left:
            raise RuntimeError(f"state of {self.name} stays behind: {', '.join(left)}")


@dataclass(frozen=True)
class MovingStage:
    """A stage whose state moves: its kernels. ``buckets``: the number of buckets that the query then has.

    The last stage may have fewer.
    """

    number: int
    buckets: int
    moving: tuple[MovingKernel, ...]

    @staticmethod
    def of(stage: Stage) -> MovingStage:
        """Return what a stage knows about its state, without the stage itself."""
        return MovingStage(stage.number, stage.buckets, tuple(map(MovingKernel.of, stage.hosted)))

    def uniting(self, stage: Stage) -> Stage:
        """Return the stage such that it unites lanes of its kernels as soon as it can."""
        return replace(stage, uniting={kernel.name: kernel for kernel in self.moving if kernel.inner})

    def divide(self, chunks: Chunks, buckets: int, sizes: TimeBinSizes = USUAL) -> list[Chunks]:
        """Return the parts of a bucket's state that go to each of the new buckets; ``chunks`` are used up.

        Counts of rows go to the first one.
        """
        old, new = Baskets(DictStore(chunks), sizes), [Baskets(DictStore(), sizes) for _ in range(buckets)]
        for kernel in self.moving:
            kernel.divide(old, new)
        for baskets in new:
            baskets.values[CLOCKS] = old.values.get(CLOCKS, {})
        for name in (LATE_COUNTS, LATEST, TALLIES):
            new[0].values[name] = old.values.get(name, {})
        return [self._written(baskets, old) for baskets in new]

    def unite(self, parts: Mapping[Origin, Chunks], sizes: TimeBinSizes = USUAL) -> Chunks:
        """Return the state of a bucket that has the parts of some others; these are used up."""
        new = Baskets(DictStore(), sizes)
        old = {origin: Baskets(DictStore(chunks), sizes) for origin, chunks in parts.items()}
        for kernel in self.moving:
            kernel.unite(old, new)
        values = [baskets.values for baskets in old.values()]
        new.values[CLOCKS] = self._clocks([one.get(CLOCKS, {}) for one in values])
        new.values[LATE_COUNTS] = sum_counts([one.get(LATE_COUNTS, {}) for one in values])
        new.values[LATEST] = combine_columns([one.get(LATEST, {}) for one in values])
        tallies = [one.get(TALLIES, {}) for one in values]
        relations = dict.fromkeys(relation for one in tallies for relation in one)
        new.values[TALLIES] = {r: combine_columns([one.get(r, {}) for one in tallies]) for r in relations}
        return self._written(new, next(iter(old.values())))

    def _written(self, new: Baskets, old: Baskets) -> Chunks:
        """Return the chunks of a new bucket, marked as those of the query in ``old``; a run in-process has no mark."""
        body = old.store.get(IDENTITY)
        if body is not None:
            stored = read_identity(body)
            assert isinstance(stored, Identity)
            own = replace(stored, buckets=self.buckets)
            new.values[IDENTITY] = own.mark
            new.store.put(IDENTITY, own.to_json().encode())
        new.flush()
        assert isinstance(new.store, DictStore)
        return new.store.held

    def _clocks(self, old: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the clocks of a new bucket, which no bucket of the stage before has been heard for.

        They are those that are furthest, but of a relation of the same stage that which is least so, or that of the first bucket
        if all its rows are there.
        """
        by_reader = {relation: any(kernel.hashed) for kernel in self.moving for relation in kernel.inner}
        clocks: dict[str, Any] = {}
        for relation in dict.fromkeys(name for one in old for name in one):
            own = [one[relation] for one in old if relation in one]
            if by_reader.get(relation, True):
                choose = min if relation in by_reader else max
                clock = choose(own, key=lambda clock: (clock["c"], clock["w"], clock["reach"]))
            else:
                clock = own[0]
            clocks[relation] = {**copy.deepcopy(clock), "by": {}}
        return clocks


def sum_counts(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counts by name."""
    names = dict.fromkeys(name for one in counts for name in one)
    return {name: sum(one.get(name, 0) for one in counts) for name in names}


__all__ = ["Chunks", "MovingKernel", "MovingStage", "sum_counts"]
