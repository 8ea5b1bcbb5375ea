"""What the kinds of windows have in common with one another: what their rows may do later, their CTI rule, how they are shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from streamq.choices import Clip, Stamp
from streamq.operators.evaluation import Moves
from streamq.operators.select import Select
from streamq.plan.lifetime import Lifetime
from streamq.plan.node import Node, Traits
from streamq.plan.own_names import shown_name
from streamq.plan.schema import Schema
from streamq.runtime.endpoints import Bound
from streamq.runtime.evaluators.windows import TopKEvaluator, WindowEvaluator
from streamq.time import show_duration, show_ticks
from streamq.windows import Count, Hopping, Landmark, Rows, Session, Snapshot, Window, default_stamp


def window_traits(window: Window, stamp: str, source: Traits) -> Traits:
    """Rows of a grid are made once their window is there; the others' bounds move with the events that define them."""
    if stamp == Stamp.TIME_BOUND:
        return Traits(True, True, True)
    if isinstance(window, Hopping):
        return Traits()
    moves = stamp == Stamp.ALIGN and not isinstance(window, Rows)
    return Traits(False, False, moves and source.infinite and isinstance(window, Snapshot | Session))


def mixes_windows(source: Node, keys: tuple[str, ...], window: Window, stamp: str) -> bool:
    """Return whether results of several windows live at one instant; those of ``per_window()`` live where its events did."""
    if stamp != Stamp.ALIGN:
        return False
    exprs = [expr for name, expr in source.columns if name in keys] if isinstance(source, Select) else []
    parts = {expr.part for expr in exprs if isinstance(expr, Lifetime)}
    is_per_window = isinstance(window, Snapshot) and {"start", "end"} <= parts
    return source.mixes_windows if is_per_window else window.overlap


def show_window(window: Window, axis: str) -> str:
    """``size=1 hour, hop=5 minutes``."""
    match window:
        case Snapshot():
            return "every change"
        case Count(n=n, by=by):
            return f"{n} {by}s"
        case Rows(n=n, step=step, order_by=order_by):
            return f"{n} rows, step={step}" + (f", order_by={', '.join(order_by)}" if order_by else "")
        case Session(gap=gap):
            return f"gap={show_duration(gap, axis)}"
        case Landmark(hop=hop, start=start, period=period):
            shown = f"hop={show_duration(hop, axis)}, start={show_ticks(start, axis)}"
            return shown + (f", period={show_duration(period, axis)}" if period is not None else "")
    shown = f"size={show_duration(window.size, axis)}, hop={show_duration(window.hop, axis)}"
    return shown + (f", offset={show_duration(window.offset, axis)}" if window.offset else "")


def show_policies(window: Window, clip: str, stamp: str) -> str:
    """``, clip=left, stamp=align``: what is not the default."""
    shown = "" if clip == Clip.FULL else f", clip={clip}"
    return shown + ("" if stamp == default_stamp(window) else f", stamp={stamp}")


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
        by_starts = isinstance(window, Rows) or (isinstance(window, Count) and window.by == "start")
        bound = Bound.NONE
        if isinstance(window, Hopping | Landmark):
            bound = Bound.ENDLESS if isinstance(window, Hopping) else Bound.ALWAYS
        # the CTI of the others is at most the start of a window that is not final: what is before it has its last end
        has_moving_ends = isinstance(window, Snapshot) and stamp != Stamp.POINT_AT_END and not is_time_sensitive
        has_moving_ends |= stamp == Stamp.TIME_BOUND
        return WindowEvaluation(
            bound,
            pointwise=(0,) if by_starts and not is_time_sensitive else (),
            # a time-bound operator accepts moving ends of lifetimes, so nothing waits
            reads_ends=is_time_sensitive and stamp != Stamp.TIME_BOUND and not clip.cuts_ends,
            moves=Moves.ALWAYS if has_moving_ends else Moves.NEVER,
        )

    def waiting(self, evaluator: W) -> W | None:
        """Return the evaluator whose windows wait for their members to settle; None for a time-bound operator.

        Of values that are computed of moving ends a time-bound operator has promised nothing.
        """
        return None if evaluator.stamp is Stamp.TIME_BOUND else replace(evaluator, waits_for_members=True)


def window_order(window: Window) -> tuple[str, ...]:
    """Return the columns by which the events of one start are ordered, if a window goes by the places of events."""
    return window.order_by if isinstance(window, Rows) else ()


def totally_ordered(window: Window, source: Schema) -> Window:
    """A window of rows whose ties go by the rest of the payload."""
    if not isinstance(window, Rows):
        return window
    return replace(window, order_by=(*window.order_by, *(n for n in source.names if n not in window.order_by)))
