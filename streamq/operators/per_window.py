"""The stream that ``per_window()`` returns: events grouped by their lifetime, so results of windows by their window.

``per_window() => group_by(start, end).snapshot_window()``: the events of one lifetime have two endpoints, and so one snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, TypeVar

from streamq.choices import ClipInput
from streamq.errors import warn
from streamq.operators.member_operator import BOUNDS
from streamq.operators.select import Select
from streamq.operators.windowed_stream import WindowedStream
from streamq.plan.expr import Col
from streamq.plan.node import Node
from streamq.plan.resolve import ExprArgument
from streamq.plan.verbs import Verbs
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


def warn_of_neighbours(plan: Node, verb: str) -> None:
    """Warn if windows are put over the results of overlapping windows: each would contain results of several of those."""
    if plan.mixes_windows:
        tick = '"-1 microsecond"' if plan.schema.axis == TIMESTAMP else "-1"
        warn(
            f"{verb}: windows over the results of overlapping windows; each holds the results of several neighbouring windows. "
            "For the results of each window by itself write .per_window(), to have each once, at the last instant of its window, "
            f".to_points_at_end().shift({tick})"
        )


__all__ = ["PerWindow", "warn_of_neighbours"]
