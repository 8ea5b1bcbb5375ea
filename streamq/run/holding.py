"""How the kinds of kernels hold rows back: by windows or one by one, by starts or ends, for progress or for more rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamq.runtime.evaluators.joins import ANTI, ClipEvaluator, ExceptEvaluator, JoinEvaluator, WindowedJoinEvaluator
from streamq.runtime.evaluators.spans import SignalEvaluator
from streamq.runtime.evaluators.windows import TopKEvaluator, WindowEvaluator
from streamq.runtime.kernels.ctis import CtisKernel
from streamq.runtime.kernels.edges import EdgesKernel
from streamq.runtime.kernels.recompute import RecomputeKernel
from streamq.runtime.kernels.settle import SettleKernel
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.windows import POINT_AT_END, Count, Hopping, Rows, Snapshot

if TYPE_CHECKING:
    from streamq.runtime.kernel import Kernel


def holds(kernel: Kernel) -> bool:
    """Whether a kernel holds rows back until time has passed something; the others pass on at once what they make."""
    if isinstance(kernel, CtisKernel):
        return kernel.in_order
    return isinstance(kernel, WindowAggregateKernel | RecomputeKernel | SettleKernel)


def grid_of(kernel: Kernel) -> Hopping | None:
    """The windows of a grid, which a kernel reports one by one."""
    match kernel:
        case WindowAggregateKernel(window=grid) | RecomputeKernel(evaluator=WindowedJoinEvaluator(window=grid)):
            return grid
        case RecomputeKernel(evaluator=(WindowEvaluator() | TopKEvaluator()) as over):
            return over.window if isinstance(over.window, Hopping) else None
    return None


def starts_window(kernel: Kernel) -> bool:
    """Whether the CTI of a kernel with windows is the start of one."""
    match kernel:
        case RecomputeKernel(evaluator=(WindowEvaluator() | TopKEvaluator()) as over):
            return over.stamp != POINT_AT_END
    return True


def hands_on(kernel: Kernel) -> bool:
    """Whether a kernel's CTI is its input's, or the start of a window of a grid; else it goes by its rows, too."""
    match kernel:
        case WindowAggregateKernel(reads_end=reads_end):
            return not reads_end
        case EdgesKernel(from_end=from_end):
            return not from_end
        case SettleKernel():
            return False
        case RecomputeKernel(evaluator=(WindowEvaluator() | TopKEvaluator()) as over) if over.stamp != POINT_AT_END:
            return isinstance(over.window, Hopping) or (isinstance(over.window, Snapshot) and not over.sensitive)
    return True


def goes_by(kernel: Kernel, early: bool) -> tuple[bool, bool]:
    """Whether a kernel's rows go by their starts, not by their ends; and whether once progress is past those, not at them."""
    match kernel:
        case CtisKernel():
            return True, True
        case WindowAggregateKernel() | RecomputeKernel(evaluator=WindowedJoinEvaluator()):
            return False, False
        case RecomputeKernel(evaluator=(WindowEvaluator() | TopKEvaluator()) as over):
            if not isinstance(over.window, Snapshot):
                return False, False
            if early and (over.sensitive or over.stamp == POINT_AT_END):
                return False, False
    return early, True


def subtracts(kernel: Kernel) -> bool:
    """Whether what comes on the second port takes away from what comes on the first."""
    match kernel:
        case RecomputeKernel(evaluator=ExceptEvaluator()):
            return True
        case RecomputeKernel(evaluator=JoinEvaluator(how=how)):
            return how == ANTI
    return False


def wanted(kernel: Kernel) -> str:
    """The rows, not the progress, that windows of so many wait for; "" for a kernel without such."""
    match kernel:
        case RecomputeKernel(evaluator=(WindowEvaluator() | TopKEvaluator()) as over):
            of = " of one group" if over.keys else ""
            match over.window:
                case Count(n=n, by=by):
                    return f"more rows: a window takes {n:,} different {by}s{of}"
                case Rows(n=n):
                    return f"more rows: a window takes {n:,}{of}"
    return ""


def ending(kernel: Kernel) -> str:
    """What lets rows go that no progress releases, for they have no end."""
    match kernel:
        case RecomputeKernel(evaluator=ClipEvaluator()):
            return "a row that cuts one of those that have no end"
        case RecomputeKernel(evaluator=SignalEvaluator()):
            return "the next row of a key: until then its last one has no end"
    return "an end of what has none: a row that never ends is held, and so is what it is part of"
