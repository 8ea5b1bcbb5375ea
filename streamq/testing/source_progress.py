"""A model of the sources' progress: CTI and watermark of each source before each micro-batch, and which items are held."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from streamq.operators import Source
from streamq.plan.node import Node
from streamq.plan.tree import fold
from streamq.testing.arrival import Item, brings_start, is_event, start_of
from streamq.testing.case import Case
from streamq.testing.progress_policies import leader_of, room_of
from streamq.testing.sources.model import Reach
from streamq.time import INFINITY, MINUS_INFINITY

Promises = Sequence[Sequence[tuple[str | None, int]]]
"""The CTIs that no row brings, after each micro-batch: pairs of a source (None: all sources) and the CTI."""


def micro_batches(case: Case) -> Iterator[list[tuple[str, Item]]]:
    """Yield the items of each micro-batch of a case, with the names of their sources."""
    items = iter(case.arrival)
    for n in case.cut:
        yield list(itertools.islice(items, n))


def clock_ctis(case: Case) -> list[list[tuple[str | None, int]]]:
    """Return, for each micro-batch, the CTIs that sources make of the time of day, with the sources' names."""
    policies = [(name, room_of(source), source.policy.progress) for name, source in case.sources.items()]
    return [
        [(n, c) for n, room, policy in policies if (c := room.cti_of_now(policy, now)) is not None]
        for now in case.times
    ]


def source_reaches(
    case: Case,
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


def timeless(case: Case) -> Case:
    """Return a case whose sources make progress as they do while no time passes by the clock."""

    def visit(node: Node, inputs: list[Node]) -> Node:
        if not isinstance(node, Source):
            return node.with_children(inputs)
        progress = room_of(node).timeless(node.policy.progress)
        return replace(node, policy=replace(node.policy, progress=progress))

    return replace(case, plan=fold(case.plan, visit))


def last_leader(sources: Mapping[str, Source], name: str) -> str:
    """Return the name of the source whose progress a source has: the end of its chain of ``follow``."""
    leader = leader_of(sources[name])
    return name if leader is None else last_leader(sources, leader)
