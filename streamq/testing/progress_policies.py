"""Progress policies for tests: their CTIs once more, after docs/concepts.md, their draws and text.

And the progress of sources, and the reach of operators: the greatest start or finite CTI that has come.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, singledispatch
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from hypothesis import strategies as st

from streamq.operators import Source
from streamq.plan.expr import fold
from streamq.plan.node import Node, nodes
from streamq.plan.schema import has_equality
from streamq.progress_policies import ClockCtis, ExplicitCtis, GeneratedCtis, LeaderCtis, PartitionCtis
from streamq.runtime.deltas import CTI
from streamq.runtime.time.progress_policy import CtiSteps, ProgressPolicy
from streamq.testing.arrival import Item, brings_start, comparable, is_event, start_of
from streamq.testing.program_text import duration
from streamq.testing.sources.room import Reach
from streamq.testing.sources.room import room_of as room_of_source
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP

if TYPE_CHECKING:
    from streamq.testing.oracle.run import Run

P = TypeVar("P", bound=ProgressPolicy)

MINUTE = 60_000_000
"""The microseconds that pass with each micro-batch of a case whose sources do not follow the clock."""


class ProgressRoom(ABC, Generic[P]):
    """The definition of a progress policy, after docs/concepts.md. Defining a subclass registers it."""

    policy: ClassVar[type[ProgressPolicy]]

    weight: ClassVar[int] = 1
    """The relative weight with which its policies are drawn; failing cases shrink towards the most frequent ones."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        ROOMS[cls.policy] = cls()

    @abstractmethod
    def cti(self, policy: P, start: int | None, cti: int | None) -> int | None:
        """Return the CTI that follows from the greatest start and the greatest CTI so far, each None if there was none."""

    def cti_after(self, policy: P, micro_batches: Sequence[Sequence[Item]], times: Sequence[int]) -> int | None:
        """Return the CTI that a source makes of what it has brought so far, items that are events or CTIs.

        ``times`` are the times of day, in microseconds, in these micro-batches and perhaps in later ones. A CTI that it has made
        before may be greater, and stays.
        """
        items = [item for items in micro_batches for item in items]
        starts = [start_of(item) for item in items if brings_start(item)]
        ctis = [start_of(item) for item in items if item.kind == CTI]
        return self.cti(policy, max(starts, default=None), max(ctis, default=None))

    def delayed_policies(self, source: Source, delay: int, every: int) -> list[st.SearchStrategy[P]]:
        """Return strategies for its policies on a source whose CTIs stay ``delay`` ticks behind, in steps of ``every``.

        They are as likely as each other; empty: the policy is not drawn for such a source.
        """
        return []

    def written(self, policy: P, axis: str) -> str:
        """Return the policy as Python text; only for a policy that has no leader."""
        raise AssertionError(policy)


ROOMS: dict[type[ProgressPolicy], ProgressRoom[Any]] = {}
"""The rooms by the classes of policies."""


def room_of(source: Source) -> ProgressRoom[Any]:
    """Return the room of a source's progress policy."""
    return ROOMS[type(source.policy.progress)]


def policies_behind(source: Source, delay: int, every: int) -> st.SearchStrategy[ProgressPolicy]:
    """Draw a policy for a source whose CTIs stay ``delay`` ticks behind, in steps of ``every``, by the weights of the rooms."""
    by_weight = sorted(ROOMS.values(), key=lambda room: -room.weight)
    choices = [
        policies
        for room in by_weight
        for policies in room.delayed_policies(source, delay, every)
        for _ in range(room.weight)
    ]
    return st.sampled_from(choices).flatmap(lambda policies: policies)


def _by_clock(delay: int, every: int, source: Source) -> list[st.SearchStrategy[ClockCtis]]:
    """Return the strategy for a clock on a source of timestamps; none for one of integers."""
    return [st.just(ClockCtis(delay, every))] if source.schema.axis == TIMESTAMP else []


def _stepped(policy: ClockCtis | GeneratedCtis | CtiSteps, instant: int) -> int:
    return (instant - policy.delay) // policy.every * policy.every


class ClockRoom(ProgressRoom[ClockCtis]):
    policy = ClockCtis
    weight = 2

    def cti(self, policy: ClockCtis, start: int | None, cti: int | None) -> int | None:
        return None

    def delayed_policies(self, source: Source, delay: int, every: int) -> list[st.SearchStrategy[ClockCtis]]:
        return _by_clock(delay, every, source)

    def written(self, policy: ClockCtis, axis: str) -> str:
        steps = [f"every={duration(policy.every, axis)}"] if policy.every > 1 else []
        return f"sq.clock({', '.join([duration(policy.delay, axis) if policy.delay else '0', *steps])})"


class ExplicitRoom(ProgressRoom[ExplicitCtis]):
    policy = ExplicitCtis

    def cti(self, policy: ExplicitCtis, start: int | None, cti: int | None) -> int | None:
        return cti

    def written(self, policy: ExplicitCtis, axis: str) -> str:
        return "sq.explicit()"


class FollowRoom(ProgressRoom[LeaderCtis]):
    """The room of :class:`LeaderCtis`. A follower's own CTIs are its reach, but do not move its progress."""

    policy = LeaderCtis

    def cti(self, policy: LeaderCtis, start: int | None, cti: int | None) -> int | None:
        return cti


class GenerateRoom(ProgressRoom[GeneratedCtis]):
    policy = GeneratedCtis
    weight = 4

    def cti(self, policy: GeneratedCtis, start: int | None, cti: int | None) -> int | None:
        return None if start is None else _stepped(policy, start)

    def delayed_policies(self, source: Source, delay: int, every: int) -> list[st.SearchStrategy[GeneratedCtis]]:
        clocks = [st.none(), *_by_clock(delay, every, source)]
        return [st.builds(GeneratedCtis, st.just(delay), st.just(every), clock=clock) for clock in clocks]

    def written(self, policy: GeneratedCtis, axis: str) -> str:
        """Return the call of ``sq.generate`` with the arguments that do not have their defaults."""
        arguments = [duration(policy.delay, axis)] if policy.delay else []
        arguments += [f"every={duration(policy.every, axis)}"] if policy.every > 1 else []
        arguments += [] if policy.idle_after is None else [f"idle_after={duration(policy.idle_after, TIMESTAMP)}"]
        arguments += [] if policy.max_ahead is None else [f"max_ahead={duration(policy.max_ahead, axis)}"]
        arguments += [] if policy.clock is None else [f"clock={ROOMS[ClockCtis].written(policy.clock, axis)}"]
        arguments += [f"per={[*policy.per]!r}"] if isinstance(policy, PartitionCtis) else []
        return f"sq.generate({', '.join(arguments)})"


MILLISECOND = 1_000
"""Microseconds in a millisecond."""


class PartitionRoom(GenerateRoom):
    """The room of :class:`PartitionCtis`; a partition is idle that has brought nothing for ``idle_after`` by the clock."""

    policy = PartitionCtis
    weight = 1

    def cti_after(
        self, policy: GeneratedCtis, micro_batches: Sequence[Sequence[Item]], times: Sequence[int]
    ) -> int | None:
        """Return the CTI by the least of the greatest starts of partitions; if all are idle, by the greatest start of all.

        ``times``: the times of day in the micro-batches, in microseconds. None without starts.
        """
        assert isinstance(policy, PartitionCtis)
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

    def delayed_policies(self, source: Source, delay: int, every: int) -> list[st.SearchStrategy[GeneratedCtis]]:
        """Return strategies for policies per one or two columns, without a clock and, on timestamps, with one.

        Empty if no column can be compared.
        """
        columns = [f.name for f in source.columns if f.name not in source.roles and has_equality(f.type)]
        if not columns:
            return []
        per = st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique=True).map(tuple)
        idle_after = st.sampled_from([None, MINUTE, 2 * MINUTE, 3 * MINUTE])
        clocks = [st.none(), *_by_clock(delay, every, source)]
        policies = partial(st.builds, PartitionCtis, st.just(delay), st.just(every), per=per, idle_after=idle_after)
        return [policies(clock=clock) for clock in clocks]


# sources


Promises = Sequence[Sequence[tuple[str | None, int]]]
"""The CTIs that no row brings, after each micro-batch: pairs of a source (None: all sources) and the CTI."""


def micro_batches(case: Any) -> Iterator[list[tuple[str, Item]]]:
    """Yield the items of each micro-batch of a case, with the names of their sources."""
    items = iter(case.arrival)
    for n in case.cut:
        yield list(itertools.islice(items, n))


def clock_ctis(case: Any) -> list[list[tuple[str | None, int]]]:
    """Return, for each micro-batch, the CTIs that sources make of the time of day, with the sources' names."""
    clocks = {
        name: clock for name, source in case.sources.items() if (clock := source.policy.progress.clock) is not None
    }
    return [[(name, _stepped(clock, now)) for name, clock in clocks.items()] for now in case.times]


def source_reaches(
    case: Any,
    batches: Sequence[Sequence[tuple[str, Item]]],
    promises: Sequence[Sequence[tuple[str | None, int]]],
    remember: Sequence[int | None],
) -> list[dict[str, Reach]]:
    """Return the progress of each source before each micro-batch and, last, after all of them.

    ``promises`` are CTIs that no row brings, ``remember`` the times for which history is remembered, by micro-batch, and then
    from its first entry again. In an empty micro-batch in which no source's CTI rises, nothing is forgotten.
    """
    sources, times = case.sources, case.times
    w = dict.fromkeys(sources, MINUS_INFINITY)
    own = dict.fromkeys(sources, MINUS_INFINITY)
    brought: dict[str, list[list[Item]]] = {name: [] for name in sources}
    counts = dict.fromkeys(sources, MINUS_INFINITY)
    reaches = [{name: Reach() for name in sources}]
    for batch, ctis, most in zip(batches, promises, itertools.cycle(remember), strict=False):
        for name, source in sources.items():
            items = [item for source_name, item in batch if source_name == name and is_event(item)]
            brought[name].append(items)
            w[name] = max([w[name], *(start_of(item) for item in items if brings_start(item))])
            derived = room_of(source).cti_after(source.policy.progress, brought[name], times)
            sent = [c for addressee, c in ctis if addressee in (None, name)]
            own[name] = max([own[name], *sent, *([] if derived is None else [derived])])
        promised = {name: own[last_leader(sources, name)] for name in sources}
        if not batch and not ctis and all(promised[name] == at.promised for name, at in reaches[-1].items()):
            # no kernel is called in an empty micro-batch, so nothing is forgotten
            reaches.append(reaches[-1])
            continue
        leaders = [name for name in sources if last_leader(sources, name) == name]
        least = min(max(own[name], w[name]) for name in leaders)
        for name in sources:
            counts[name] = max(counts[name], promised[name])
            if most is not None and least not in (INFINITY, MINUS_INFINITY):
                counts[name] = max(counts[name], least - most)
        reaches.append({name: Reach(counts[name], promised[name], w[name]) for name in sources})
    return reaches


def timeless(case: Any) -> Any:
    """Return a case whose sources make progress as they do while no time passes by the clock."""

    def visit(node: Node, inputs: list[Node]) -> Node:
        if not isinstance(node, Source):
            return node.with_children(inputs)
        progress = node.policy.progress
        progress = replace(progress, idle_after=None) if isinstance(progress, PartitionCtis) else progress
        return replace(node, policy=replace(node.policy, progress=progress))

    return replace(case, plan=fold(case.plan, visit))


def last_leader(sources: Mapping[str, Source], name: str) -> str:
    """Return the name of the source whose progress a source has: the end of its chain of ``follow``."""
    leader = sources[name].policy.progress.leader
    return name if leader is None else last_leader(sources, leader)


def reach(node: Node, plan: Node, run: Run) -> int | None:
    """Return the reach of an operator's output, if that of its inputs is ``run.reach``; None if nothing has arrived.

    Events that are taken back later, and those that filters drop, count too, because time has come that far. The caller sets
    ``run.reach`` to the greatest reach of the inputs before; a source does not read it. An operator hands it on, unless it moves
    starts.
    """
    if isinstance(node, Source):
        start = _start(node, run)
        return _latest([start, _promise(node, start, run), _followed(node, plan, run)])
    return None if run.reach is None else moved(node, run.reach, run)


@singledispatch
def moved(node: Node, instant: int, run: Run) -> int | None:
    """Return the reach of an operator whose input has the reach ``instant``; the same unless its room registers another.

    None: the operator makes no instant of it.
    """
    return instant


def _latest(instants: list[int | None]) -> int | None:
    return max((t for t in instants if t is not None), default=None)


def _greatest(instants: str, run: Run) -> int | None:
    """Return the greatest instant ``t`` of a query; None if there is none."""
    greatest = run.value(f"SELECT max(t) FROM ({instants})")
    return None if greatest is None else int(greatest)


def _start(node: Source, run: Run) -> int | None:
    return _greatest(room_of_source(node).starts(node, run), run)


def _promise(node: Source, latest: int | None, run: Run) -> int | None:
    """Return the greatest finite CTI of a source: in its rows, generated from their latest start, or from outside.

    ``latest`` is that start, None if there is none; None is returned if the source has no such CTI.
    """
    ctis = room_of_source(node).ctis(node, run)
    cti = None if ctis is None else _greatest(ctis, run)
    own = room_of(node).cti(node.policy.progress, latest, cti)
    return _latest([own, run.ctis.get(node.table)])


def _followed(node: Source, plan: Node, run: Run) -> int | None:
    """Return the greatest finite CTI of the source at the end of a source's chain of ``follow``; None if it follows none."""
    sources = {n.table: n for n in nodes(plan) if isinstance(n, Source)}
    other = node
    while (leader := other.policy.progress.leader) is not None:
        other = sources[leader]
    return None if other is node else _promise(other, _start(other, run), run)
