"""How far a stream has come: the greatest start and finite CTI that arrived, moved as operators move progress."""

from __future__ import annotations

from functools import singledispatch

from streamq.operators import Source
from streamq.plan.node import Node, nodes
from streamq.testing.oracle.run import Run
from streamq.testing.progress.room import leader_of
from streamq.testing.progress.room import room_of as room_of_progress
from streamq.testing.sources.room import room_of


def reach(node: Node, plan: Node, run: Run) -> int | None:
    """How far the output of an operator has come, whose inputs have come as far as ``run.reach``; None: nothing has arrived.

    What is taken back later counts, and what filters drop: time has come so far. All operators but those that move starts
    hand on how far the furthest of their inputs has come.
    """
    if isinstance(node, Source):
        start = _start(node, run)
        return _latest([start, _promise(node, start, run), _followed(node, plan, run)])
    return None if run.reach is None else moved(node, run.reach, run)


@singledispatch
def moved(node: Node, instant: int, run: Run) -> int | None:
    """How far an operator has come whose furthest input has come to an instant: unless a room says otherwise, as far."""
    return instant


def _latest(instants: list[int | None]) -> int | None:
    return max((t for t in instants if t is not None), default=None)


def _greatest(instants: str, run: Run) -> int | None:
    """The greatest instant ``t`` of a query; None if there is none."""
    greatest = run.value(f"SELECT max(t) FROM ({instants})")
    return None if greatest is None else int(greatest)


def _start(node: Source, run: Run) -> int | None:
    """The greatest start of a source's rows."""
    return _greatest(room_of(node).starts(node, run), run)


def _promise(node: Source, latest: int | None, run: Run) -> int | None:
    """The greatest finite CTI of a source: of its rows, made from their latest start, or promised by others."""
    ctis = room_of(node).ctis(node, run)
    cti = None if ctis is None else _greatest(ctis, run)
    own = room_of_progress(node).cti(node.policy.progress, latest, cti)
    return _latest([own, run.ctis.get(node.table)])


def _followed(node: Source, plan: Node, run: Run) -> int | None:
    """The greatest finite CTI of the source that makes its progress; of a chain the last."""
    sources = {n.table: n for n in nodes(plan) if isinstance(n, Source)}
    other = node
    while (leader := leader_of(other)) is not None:
        other = sources[leader]
    return None if other is node else _promise(other, _start(other, run), run)


__all__ = ["moved", "reach"]
