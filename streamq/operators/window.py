"""Tell of any operator over windows how it is hosted, and whether results of several windows live at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from streamq.choices import Clip, Stamp
from streamq.operators.evaluation import Moves
from streamq.operators.select import Select
from streamq.plan.lifetime import Lifetime
from streamq.plan.node import Node
from streamq.plan.own_names import shown_name
from streamq.runtime.endpoints import Bound
from streamq.runtime.evaluators.windows import TopKEvaluator, WindowEvaluator
from streamq.windows import Window


def mixes_windows(source: Node, keys: tuple[str, ...], window: Window, stamp: str) -> bool:
    """Return whether results of several windows live at one instant; those of ``per_window()`` live where its events did."""
    if stamp != Stamp.ALIGN:
        return False
    exprs = [expr for name, expr in source.columns if name in keys] if isinstance(source, Select) else []
    parts = {expr.part for expr in exprs if isinstance(expr, Lifetime)}
    is_per_window = window.is_piecewise and {"start", "end"} <= parts
    return source.mixes_windows if is_per_window else window.overlap


def show_keys(keys: tuple[str, ...]) -> str:
    """`` by zone, kind`` or nothing."""
    return f" by {', '.join(map(shown_name, keys))}" if keys else ""


W = TypeVar("W", WindowEvaluator, TopKEvaluator)


@dataclass(frozen=True)
class WindowEvaluation:
    """What the kind of window says of an :class:`Evaluation`: its bound, pointwise, reads_ends, moves and waiting."""

    bound: Bound
    pointwise: tuple[int, ...]
    reads_ends: bool
    moves: Moves

    @staticmethod
    def of(window: Window, clip: Clip, stamp: Stamp, is_time_sensitive: bool) -> WindowEvaluation:
        """Those of a window whose results read the lifetimes of members, or do not."""
        # the CTI of the others is at most the start of a window that is not final: what is before it has its last end
        has_moving_ends = window.is_piecewise and stamp != Stamp.POINT_AT_END and not is_time_sensitive
        has_moving_ends |= stamp == Stamp.TIME_BOUND
        return WindowEvaluation(
            window.bound,
            pointwise=(0,) if window.by_starts and not is_time_sensitive else (),
            # a time-bound operator accepts moving ends of lifetimes, so nothing waits
            reads_ends=is_time_sensitive and stamp != Stamp.TIME_BOUND and not clip.cuts_ends,
            moves=Moves.ALWAYS if has_moving_ends else Moves.NEVER,
        )

    def waiting(self, evaluator: W) -> W | None:
        """Return the evaluator whose windows wait for their members to settle; None for a time-bound operator.

        Of values that are computed of moving ends a time-bound operator has promised nothing.
        """
        return None if evaluator.stamp is Stamp.TIME_BOUND else replace(evaluator, waits_for_members=True)
