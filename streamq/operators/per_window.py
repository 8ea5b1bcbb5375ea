"""The stream that ``per_window()`` returns: events grouped by their lifetime, so results of windows by their window.

``per_window() => group_by(start, end).snapshot_window()``: the events of one lifetime have two endpoints, and so one
snapshot. WindowSpan replaces lifetimes by ranges of windows, so that an ordinary join pairs the members of common windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, TypeVar

import pyarrow as pa

from streamq.choices import ClipInput
from streamq.errors import warn
from streamq.operators.join_arguments import Pairs
from streamq.operators.member_operator import BOUNDS
from streamq.operators.select import Select
from streamq.operators.step import ArrowRows, SparkRows, Step, StepEffect
from streamq.operators.windowed_stream import WindowedStream
from streamq.plan.expr import Col, Lifetime
from streamq.plan.footprint import Footprint
from streamq.plan.node import Node, Traits, Verbs, named_after, node
from streamq.plan.resolve import ExprArgument
from streamq.plan.schema import INTERVAL, POINT, Schema
from streamq.runtime.deltas import LE, RE
from streamq.runtime.grid_ranges import WindowSpans
from streamq.runtime.time.progress_rule import ARRAYS
from streamq.time import TIMESTAMP
from streamq.windows import Hopping, Snapshot
from streamq.windows.batch_events import SQL, TickSql

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


@node
class WindowSpan(Step):
    """Gives an event the span of its windows: from the start of the first to a hop after the start of the last.

    Windows overlap or touch, and lifetimes end. The hop at the start of a window stands for the window, so tumbling windows of
    one hop over spans have the members of the ``window``.
    """

    input: Node
    window: Hopping

    title = "window span"

    footprint = Footprint(cti="start of the first window that ends after c", cost="a projection")

    def _schema(self) -> Schema:
        return self.input.schema.with_shape(INTERVAL)

    def _traits(self) -> Traits:
        """Return the input's traits; a lifetime's length bounds the number of its windows, hence its span."""
        traits = self.input.traits
        longest = self.input.traits.longest
        grid = self.window.grid
        span = None if longest is None else ((longest + grid.size - 2) // grid.hop + 1) * grid.hop
        return Traits(traits.retracts, traits.moves_ends, traits.infinite, span)

    @property
    def event_windows(self) -> Hopping:
        return self.window

    def detail(self) -> str:
        return self.window.shown(self.schema.axis)

    @property
    def effect(self) -> StepEffect:
        # an event is late by the end of its last window before c exactly if its span begins before the CTI sent
        return StepEffect(progress_map=WindowSpans(self.window.grid), moves_start=True)

    def on_spark(self, rows: SparkRows) -> SparkRows:
        spans = WindowSpans(self.window.grid)
        re = TickSql(LE) + 1 if self.input.schema.shape == POINT else TickSql(RE)
        start, end = spans.start(TickSql(LE), SQL).column, spans.end(re, SQL).column
        return rows.with_lifetimes(start, end, None, self.schema)

    def in_arrow(self, rows: ArrowRows) -> ArrowRows:
        import numpy as np

        spans = WindowSpans(self.window.grid)
        starts = spans.start(rows.starts.to_numpy(), ARRAYS)
        ends = spans.end(rows.ends.to_numpy(), ARRAYS)
        return rows.with_lifetimes(pa.array(starts), pa.array(ends), pa.array(np.ones(rows.count, bool)), self.schema)
