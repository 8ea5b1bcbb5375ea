"""Kernel factories: an operator says which kernel runs it on a stream, the compiler says where that kernel runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.recompute import RecomputeKernel

if TYPE_CHECKING:
    from streamq.operators.evaluation import Evaluation


class ExecutionMethod(StrEnum):
    """The ways in which an operator with state is run, in the words of explain."""

    MERGED_WINDOWS = "partial results of ranges of windows, merged"
    OWN_KERNEL = "a kernel of its own"
    EVALUATOR = "its evaluator, over the events that it still needs"


@dataclass(frozen=True, kw_only=True)
class KernelSite:
    """The place where a kernel runs, as far as the compiler decides it.

    inputs: the payload columns of each port; result: those of the rows that the kernel sends. final: rows wait until they are
    final; early: a row that is not final is sent as soon as it is there. late_output: the run has a late output. ends_move:
    ends of the first input's events may still move.
    """

    inputs: tuple[pa.Schema, ...]
    result: tuple[str, ...]
    final: bool = False
    early: bool = False
    late_output: bool = False
    ends_move: bool = False


class KernelFactory(ABC):
    """Makes the kernel that runs an operator on a stream from the operator's :class:`Evaluation` and the kernel's site."""

    run_by: ClassVar[ExecutionMethod]

    corrects: ClassVar[bool]
    """True if the kernel keeps the rows that it has sent, and takes them back where they change."""

    @abstractmethod
    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        """Make the kernel."""

    @property
    def can_hold(self) -> bool:
        """True if the kernel can hold its rows back until they are final, where ``site.final`` says so."""
        return self.corrects


class OwnKernelFactory(KernelFactory):
    """The kernel of an operator that is not run by its evaluator; ``kernel`` makes it."""

    run_by = ExecutionMethod.OWN_KERNEL
    corrects = False

    def __init__(self, kernel: Callable[[KernelSite], Kernel]):
        self._kernel = kernel

    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        return self._kernel(site)


class RecomputeFactory(KernelFactory):
    """The kernel ``recompute``, over the operator's evaluator; subclasses make a kernel that keeps more than events."""

    run_by = ExecutionMethod.EVALUATOR
    corrects = True

    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        return RecomputeKernel(**self.parameters(evaluation, site))

    def parameters(self, evaluation: Evaluation, site: KernelSite) -> dict[str, Any]:
        """Return the parameters that every kernel over an evaluator has."""
        unmoved = None if site.ends_move else evaluation.unmoved
        return {
            "evaluator": evaluation.evaluator if unmoved is None else unmoved,
            "inputs": site.inputs,
            "result": site.result,
            "final": site.final,
            "early": site.early,
            "bound": evaluation.bound,
            "pointwise": evaluation.pointwise,
        }


__all__ = ["KernelFactory", "KernelSite", "OwnKernelFactory", "RecomputeFactory", "ExecutionMethod"]
