"""CTIs made of the greatest start of the partition that is furthest behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import strategies as st

from streamq.operators import Source
from streamq.plan.schema import has_equality
from streamq.progress.generate import PartitionCtis
from streamq.testing.arrival import Item, brings_start, start_of
from streamq.testing.progress.generate import CLOCK, GenerateRoom
from streamq.testing.progress.room import MINUTE, ProgressRoom
from streamq.testing.python_values import comparable
from streamq.time import MINUS_INFINITY

MILLISECOND = 1_000
"""Microseconds in a millisecond."""


class PartitionRoom(ProgressRoom[PartitionCtis]):
    """The room of :class:`PartitionCtis`; a partition is idle that has brought nothing for ``idle_after`` by the clock."""

    policy = PartitionCtis

    def cti(self, policy: PartitionCtis, start: int | None, cti: int | None) -> int | None:
        return GenerateRoom().cti(policy, start, cti)

    def cti_after(
        self, policy: PartitionCtis, micro_batches: Sequence[Sequence[Item]], times: Sequence[int]
    ) -> int | None:
        """Return the CTI by the least of the greatest starts of partitions; if all are idle, by the greatest start of all.

        ``times``: the times of day in the micro-batches, in microseconds. None without starts.
        """
        greatest: dict[Any, int] = {}
        heard: dict[Any, int] = {}
        clock, latest = MINUS_INFINITY, None
        # whoever listens counts milliseconds
        for items, now in zip(micro_batches, (time // MILLISECOND for time in times), strict=False):
            for item in (item for item in items if brings_start(item)):
                partition, start = tuple(comparable(item.columns[name]) for name in policy.per), start_of(item)
                # a clock that has been set back stands still
                heard[partition] = clock = max(clock, now)
                greatest[partition] = max(start, greatest.get(partition, start))
                latest = start if latest is None else max(start, latest)
            for partition, last in list(heard.items()):
                if policy.idle_after is not None and (now - last) * MILLISECOND >= policy.idle_after:
                    del heard[partition], greatest[partition]
        return self.cti(policy, min(greatest.values(), default=latest), None)

    def cti_of_now(self, policy: PartitionCtis, now: int) -> int | None:
        return GenerateRoom().cti_of_now(policy, now)

    def clock_delay(self, policy: PartitionCtis) -> int | None:
        return GenerateRoom().clock_delay(policy)

    def timeless(self, policy: PartitionCtis) -> PartitionCtis:
        return replace(policy, idle_after=None)

    def behind(self, source: Source, delay: int, every: int) -> list[st.SearchStrategy[PartitionCtis]]:
        """Return strategies for policies per one or two columns, without a clock and, on timestamps, with one.

        Empty if no column can be compared.
        """
        columns = [f.name for f in source.columns if f.name not in source.roles and has_equality(f.type)]
        if not columns:
            return []
        per = st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique=True).map(tuple)
        idle_after = st.sampled_from([None, MINUTE, 2 * MINUTE, 3 * MINUTE])
        clocks = [st.none(), *CLOCK.behind(source, delay, every)]
        policies = partial(st.builds, PartitionCtis, st.just(delay), st.just(every), per=per, idle_after=idle_after)
        return [policies(clock=clock) for clock in clocks]

    def written(self, policy: PartitionCtis, axis: str) -> str:
        return f"sq.generate({', '.join([*GenerateRoom().arguments(policy, axis), f'per={[*policy.per]!r}'])})"
