"""Operators that their evaluator says whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamq.operators.batch_host import evaluate_in_buckets
from streamq.operators.evaluation import Evaluation
from streamq.operators.operator import BatchRun, Operator
from streamq.plan.lazy import lazy
from streamq.runtime.endpoints import Bound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class EvaluatedOperator(Operator):
    """An operator that its evaluator says whole: right in batch and as a stream once it has one."""

    @abstractmethod
    def _evaluation(self) -> Evaluation:
        """Return its evaluator, and what that takes of each input."""

    @lazy
    def evaluation(self) -> Evaluation:
        """The result of ``_evaluation``, kept."""
        return self._evaluation()

    @property
    def keeps_state(self) -> bool:
        return True

    @property
    def bounds_windows(self) -> bool:
        return self.evaluation.bound is not Bound.NONE

    @property
    def progress(self) -> str:
        return self.evaluation.evaluator.progress_rule.cti.shown(len(self.children))

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """The evaluator over the whole histories, bucket by bucket; an operator may have a faster form of its own."""
        return evaluate_in_buckets(self.evaluation, self.children, inputs, run)


__all__ = ["EvaluatedOperator"]
