"""Kernel factories: an operator chooses the kernel that runs it on a stream, the compiler describes the site to run it at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from streamq.plan.footprint import Expected
from streamq.plan.node import Node
from streamq.runtime.consistency import AlignAt
from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.recompute import RecomputeKernel

if TYPE_CHECKING:
    from streamq.operators.evaluation import Evaluation, PortColumns
    from streamq.operators.operator import Operator


@dataclass(frozen=True, kw_only=True)
class KernelSite:
    """The compiler's choices for a kernel.

    ``inputs``: the payload columns of each port. ``result``: the payload columns of the rows that the kernel sends. ``final``:
    rows wait until they are final. ``early``: a row is sent as soon as it exists, before it is final. ``late_output``: the run
    has a late output. ``ends_move``: ends of the first input's events may still move; ``retracts``: they may be taken back;
    ``points``: they are declared points. ``blocks``: the level of consistency holds events back one by one.
    """

    inputs: tuple[pa.Schema, ...]
    result: tuple[str, ...]
    final: bool = False
    early: bool = False
    late_output: bool = False
    ends_move: bool = False
    retracts: bool = False
    points: bool = False
    blocks: bool = False


class KernelFactory(ABC):
    """A factory of the kernel that runs an operator on a stream, from the operator's :class:`Evaluation` and a site."""

    run_by: ClassVar[str]
    """The way to run an operator with state, in the words of explain."""

    kind: ClassVar[str] = ""
    """The kind with which the names of its kernels begin; "": the operator's title."""

    corrects: ClassVar[bool]
    """True if the kernel retracts rows that it has sent, if they change."""

    also_keeps: ClassVar[str] = ""
    """The rows that the kernel keeps beside what the operator states."""

    condenses: ClassVar[bool] = False
    """True if the kernel replaces settled events by partial results of several."""

    always_holds: ClassVar[bool] = False
    """True if the kernel waits for final rows wherever only these are read; else only where a result reads it, if it can hold."""

    aligns: ClassVar[AlignAt | None] = AlignAt.INPUT
    """The point at which a level of consistency holds rows back; None: the kernel reports at the watermark by itself."""

    @abstractmethod
    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        """Return a new kernel for the operator of ``evaluation``."""

    @property
    def can_hold(self) -> bool:
        """True if the kernel can hold its rows back until they are final, as ``site.final`` asks."""
        return self.corrects

    def state(self, node: Node, evaluation: Evaluation, kernel: Kernel) -> Any:
        """Return, as values that plans hold, what makes the kernel's state beside its input, for the state's name."""
        return [node, evaluation.waits]

    def columns_of_state(self, columns: PortColumns) -> PortColumns:
        """Return the columns of an input by which the state is named."""
        return columns

    def partials_of_state(self) -> tuple[tuple[str, str], ...]:
        """Return the columns of the state of which a query may have fewer to go on, each with its text for people."""
        return ()

    def lines(self, node: Operator, kernel: Kernel) -> tuple[str, ...]:
        """Return explain's lines on the kernel: the operator, what runs it, its state and its cost, and when rows are final."""
        footprint = node.footprint
        if self.also_keeps:
            footprint = replace(footprint, keeps=f"{footprint.keeps}; {self.also_keeps}")
        cti = kernel.progress_rule.cti.shown(len(node.children))
        return node.line, f"run by: {self.run_by}", *footprint.lines(cti)

    def expected_rows(self, rows: float | None, expected: Expected) -> float | None:
        """Return the rows a tick of the result, at most, over ``rows`` a tick of the first input; None if unknown."""
        return None


class OwnKernelFactory(KernelFactory):
    """A factory for an operator with a kernel of its own instead of its evaluator; ``kernel`` makes it."""

    run_by = "a kernel of its own"
    corrects = False

    def __init__(self, kernel: Callable[[KernelSite], Kernel]):
        self._kernel = kernel

    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        return self._kernel(site)


class CorrectingKernelFactory(OwnKernelFactory):
    """A factory of a kernel of an operator's own that sends rows which it may have to take back, and can hold them back."""

    corrects = True


class RecomputeFactory(KernelFactory):
    """A factory of the kernel ``recompute`` over the operator's evaluator; subclasses make kernels that keep more than events."""

    run_by = "its evaluator"
    corrects = True
    also_keeps = "rows reported that may change"

    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        return RecomputeKernel(**self.parameters(evaluation, site))

    def parameters(self, evaluation: Evaluation, site: KernelSite) -> dict[str, Any]:
        """Return the keyword arguments that every kernel over an evaluator takes."""
        return {
            "evaluator": evaluation.evaluator,
            "inputs": site.inputs,
            "result": site.result,
            "final": site.final,
            "early": site.early,
            "bound": evaluation.bound,
            "pointwise": evaluation.pointwise,
        }


__all__ = [
    "CorrectingKernelFactory",
    "KernelFactory",
    "KernelSite",
    "OwnKernelFactory",
    "RecomputeFactory",
]
