"""The stream that ``per_window()`` returns: events grouped by their lifetime, so results of windows by their window.

``per_window() => group_by(start, end).snapshot_window()``: the events of one lifetime have two endpoints, and so one snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, TypeVar

from streamq.choices import ClipInput
from streamq.errors import warn
from streamq.operators.join_arguments import Pairs
from streamq.operators.member_operator import BOUNDS
from streamq.operators.select import Select
from streamq.operators.windowed_stream import WindowedStream
from streamq.plan.expr import Col, Lifetime
from streamq.plan.node import Node
from streamq.plan.resolve import ExprArgument
from streamq.plan.verbs import Verbs, named_after
from streamq.time import TIMESTAMP
from streamq.windows import Snapshot

S = TypeVar("S", bound=Verbs)


@dataclass(frozen=True)
class PerWindow(WindowedStream[S]):
    """A stream in windows where each distinct lifetime is a window, whose members are the events with that lifetime.

    The columns BOUNDS group by lifetime; results are returned without them.
    """

    @classmethod
    def from_stream(cls, stream: S, keys: tuple[str, ...]) -> Self:
        """Return a stream's events grouped by ``keys`` and lifetime."""
        plan = stream.plan
        payload = [(name, Col(name)) for name in plan.schema.names]
        timed = stream._derive(Select(plan, (*payload, *BOUNDS.items())))
        return cls(timed, (*keys, *BOUNDS), Snapshot(), ClipInput.FULL, None)

    def select(self, *given_columns: ExprArgument, **named_columns: ExprArgument) -> S:
        """Compute one row per lifetime: the group's keys, then a column per keyword; see :meth:`WindowedStream.select`."""
        return self._without_bounds(super().select(*given_columns, **named_columns))

    def top_k(self, k: int, by: ExprArgument, *, desc: bool = True, ties: str = "keep", row_number: bool = False) -> S:
        """Keep the ``k`` events of each lifetime with the greatest ``by``; see :meth:`WindowedStream.top_k`."""
        return self._without_bounds(super().top_k(k, by, desc=desc, ties=ties, row_number=row_number))

    agg = select

    def _without_bounds(self, rows: S) -> S:
        names = [name for name in rows.plan.schema.names if name not in BOUNDS]
        return rows._derive(Select(rows.plan, tuple((name, Col(name)) for name in names)))

    def __repr__(self) -> str:
        keys = [key for key in self.keys if key not in BOUNDS]
        by = f" by {', '.join(keys)}" if keys else ""
        return f"{self._without_bounds(self.stream)!r} per window{by}"


named_after(PerWindow, "window")


def warn_of_neighbours(plan: Node, verb: str) -> None:
    """Warn if windows are put over the results of overlapping windows: each would contain results of several of those."""
    if plan.traits.mixes_windows:
        warn(
            f"{verb}: windows over the results of overlapping windows; each holds the results of several neighbouring windows. "
            f"For the results of each window by itself write .per_window(), {_advice_to_have_each_once(plan)}"
        )


def warn_of_paired_neighbours(left: Node, right: Node, on: Pairs, verb: str) -> None:
    """Warn if results of overlapping windows are joined, and no pair of ``on`` tells a window from its neighbours.

    A column does that if it holds the start or the end that a row had at some step.
    """
    is_told = any(_holds_lifetime(left, ours) and _holds_lifetime(right, theirs) for ours, theirs in on)
    if left.traits.mixes_windows and right.traits.mixes_windows and not is_told:
        warn(
            f"{verb}: both streams are results of overlapping windows; each meets those of several neighbouring windows. "
            "For pairs of one window write .with_columns(window=sq.start()) on both and add 'window' to on, "
            f"{_advice_to_have_each_once(left)} on both"
        )


def _advice_to_have_each_once(plan: Node) -> str:
    """Return the advice for results that are to meet one window each."""
    tick = '"-1 microsecond"' if plan.schema.axis == TIMESTAMP else "-1"
    return f"to have each once, at the last instant of its window, .to_points_at_end().shift({tick})"


def _holds_lifetime(plan: Node, name: str) -> bool:
    """Return True if a column copies the start or the end of a row."""
    node: Node | None = plan
    copied: str | None = name
    while node is not None and copied is not None:
        if isinstance(node, Select) and isinstance(node.exprs[copied], Lifetime):
            return True
        copied = node.copied_column(copied)
        node = next((child for child in node.children if copied in child.schema.names), None)
    return False
