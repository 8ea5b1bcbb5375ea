"""How far a stream has come: the greatest start and finite CTI that arrived, moved as operators move progress."""

from __future__ import annotations

from functools import singledispatch

from streamq.operators import Edges, Intervals, Physical, Points, Source
from streamq.plan.node import Node, nodes
from streamq.runtime.event import CTI
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.sources import column
from streamq.testing.progress.room import leader_of, room_of


def reach(node: Node, plan: Node, run: Run) -> int | None:
    """How far the output of an operator has come, whose inputs have come as far as ``run.reach``; None: nothing has arrived.

    What is taken back later counts, and what filters drop: time has come so far. All operators but those that move starts
    hand on how far the furthest of their inputs has come.
    """
    match node:
        case Source():
            start = _start(node, run)
            return _latest([start, _promise(node, start, run), _followed(node, plan, run)])
    return None if run.reach is None else moved(node, run.reach, run)


@singledispatch
def moved(node: Node, instant: int, run: Run) -> int | None:
    """How far an operator has come whose furthest input has come to an instant: unless a room says otherwise, as far."""
    return instant


def _latest(instants: list[int | None]) -> int | None:
    return max((t for t in instants if t is not None), default=None)


def _start(node: Source, run: Run) -> int | None:
    """The greatest start of a source's rows; of edges, ends are none."""
    rows = run.source(node)
    match node:
        case Points() | Intervals():
            time = node.time if isinstance(node, Points) else node.start
            bad = "false" if isinstance(node, Points) else f"{column(node, node.end)} <= {column(node, time)}"
            starts = f"SELECT {column(node, time)} AS t FROM {rows} WHERE ({bad}) IS DISTINCT FROM true"
        case Edges():
            opens, timed = run.sql(node.open, node.schema), f"SELECT *, {column(node, node.time)} AS le FROM {rows}"
            starts = f"SELECT le AS t FROM ({timed}) WHERE {column(node, node.edge)} IS NOT DISTINCT FROM {opens}"
        case Physical():
            kind, start, end, new_end = (column(node, n) for n in (node.kind, node.start, node.end, node.new_end))
            starts = f"""
                SELECT {start} AS t FROM {rows}
                WHERE lower({kind}) IN ('insert', 'retract') AND ({end} <= {start}) IS DISTINCT FROM true
                AND (lower({kind}) = 'retract' AND {new_end} < {start}) IS DISTINCT FROM true"""
        case _:
            return None
    greatest = run.value(f"SELECT max(t) FROM ({starts})")
    return None if greatest is None else int(greatest)


def _promise(node: Source, latest: int | None, run: Run) -> int | None:
    """The greatest finite CTI of a source: of its rows, made from their latest start, or promised by others."""
    cti = None
    if isinstance(node, Physical):
        kind, start = column(node, node.kind), column(node, node.start)
        cti = run.value(f"SELECT max({start}) FROM {run.source(node)} WHERE lower({kind}) = '{CTI}'")
    return _latest([room_of(node).cti(node.policy.progress, latest, cti), run.ctis.get(node.table)])


def _followed(node: Source, plan: Node, run: Run) -> int | None:
    """The greatest finite CTI of the source that makes its progress; of a chain the last."""
    sources = {n.table: n for n in nodes(plan) if isinstance(n, Source)}
    other = node
    while (leader := leader_of(other)) is not None:
        other = sources[leader]
    return None if other is node else _promise(other, _start(other, run), run)


__all__ = ["moved", "reach"]
