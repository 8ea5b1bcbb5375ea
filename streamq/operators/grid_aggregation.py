"""Windows of a grid that are combined from partial results, and the kernel that runs them."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.choices import Stamp
from streamq.plan.expr import Expr
from streamq.plan.node import Node
from streamq.plan.partial import Partial
from streamq.plan.reduction import Reduction
from streamq.plan.schema import Field
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.windows import Window


@dataclass(frozen=True, kw_only=True)
class GridAggregation:
    """An aggregation of the events of ``input``, by ``keys`` and windows on a grid, to ``partials`` of the columns ``arguments``.

    ``combined``: partial results are made before the shuffle. ``outputs``: the result columns computed from the partial results;
    empty: the partial results are the result. ``reductions`` are computed from values of the members, as columns ``reduced``.
    Rows live on their windows, or are points at their ends, as the ``stamp`` says.
    """

    input: Node
    keys: tuple[str, ...]
    window: Window
    arguments: tuple[tuple[str, Expr], ...]
    partials: tuple[Partial, ...]
    combined: bool
    outputs: tuple[tuple[str, Expr], ...] = ()
    reductions: tuple[Reduction, ...] = ()
    reduced: tuple[Field, ...] = ()
    stamp: Stamp = Stamp.ALIGN

    def kernel(
        self, *, points: bool, retracts: bool, ends_move: bool, final: bool, early: bool
    ) -> WindowAggregateKernel:
        """Make the kernel that runs the windows on a stream.

        ``points``: every event is a point. ``retracts``: events may be retracted. ``ends_move``: an argument reads ends that may
        still move. ``final``: windows wait until they are final. ``early``: windows are reported once they have a member,
        unless ``final``.
        """
        return WindowAggregateKernel(
            self.keys,
            self.window.basic_grid(),
            self.partials,
            points,
            merges=not retracts and self.combined,
            combines=self.combined,
            infinite=self.input.traits.infinite,
            reads_end=ends_move,
            final=final,
            early=early and not final,
            reductions=self.reductions,
            at_ends=self.stamp == Stamp.POINT_AT_END,
        )


__all__ = ["GridAggregation"]
