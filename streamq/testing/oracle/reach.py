"""The reach of a stream: the greatest start or finite CTI that arrived, moved as operators move progress."""

from __future__ import annotations

from functools import singledispatch

from streamq.operators import Source
from streamq.plan.node import Node, nodes
from streamq.testing.oracle.run import Run
from streamq.testing.progress_policies import leader_of
from streamq.testing.progress_policies import room_of as room_of_progress
from streamq.testing.sources.room import room_of


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
    return _greatest(room_of(node).starts(node, run), run)


def _promise(node: Source, latest: int | None, run: Run) -> int | None:
    """Return the greatest finite CTI of a source: in its rows, generated from their latest start, or from outside.

    ``latest`` is that start, None if there is none; None is returned if the source has no such CTI.
    """
    ctis = room_of(node).ctis(node, run)
    cti = None if ctis is None else _greatest(ctis, run)
    own = room_of_progress(node).cti(node.policy.progress, latest, cti)
    return _latest([own, run.ctis.get(node.table)])


def _followed(node: Source, plan: Node, run: Run) -> int | None:
    """Return the greatest finite CTI of the source at the end of a source's chain of ``follow``; None if it follows none."""
    sources = {n.table: n for n in nodes(plan) if isinstance(n, Source)}
    other = node
    while (leader := leader_of(other)) is not None:
        other = sources[leader]
    return None if other is node else _promise(other, _start(other, run), run)
