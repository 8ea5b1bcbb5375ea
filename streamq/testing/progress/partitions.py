"""CTIs made of the greatest start of the partition that is furthest behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from streamq.progress.generate import PartitionCtis
from streamq.testing.arrival import Item, brings_start, start_of
from streamq.testing.progress.generate import GenerateRoom
from streamq.testing.progress.room import MINUTE, ProgressRoom
from streamq.testing.python_values import comparable


class PartitionRoom(ProgressRoom[PartitionCtis]):
    """The room of :class:`PartitionCtis`; a partition is idle that has brought nothing for some micro-batches."""

    policy = PartitionCtis

    def cti(self, policy: PartitionCtis, start: int | None, cti: int | None) -> int | None:
        return GenerateRoom().cti(policy, start, cti)

    def cti_after(self, policy: PartitionCtis, micro_batches: Sequence[Sequence[Item]]) -> int | None:
        greatest: dict[Any, int] = {}
        heard: dict[Any, int] = {}
        latest: int | None = None
        for number, items in enumerate(micro_batches):
            for item in (item for item in items if brings_start(item)):
                partition, start = tuple(comparable(item.payload[name]) for name in policy.per), start_of(item)
                heard[partition] = number
                greatest[partition] = max(start, greatest.get(partition, start))
                latest = start if latest is None else max(start, latest)
            for partition, last in list(heard.items()):
                if policy.idle_after is not None and (number - last) * MINUTE >= policy.idle_after:
                    del heard[partition], greatest[partition]
        return self.cti(policy, min(greatest.values(), default=latest), None)

    def timeless(self, policy: PartitionCtis) -> PartitionCtis:
        return replace(policy, idle_after=None)

    def written(self, policy: PartitionCtis, axis: str) -> str:
        return f"sq.generate({', '.join([*GenerateRoom().arguments(policy, axis), f'per={[*policy.per]!r}'])})"
