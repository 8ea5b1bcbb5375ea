"""Operators defined entirely by an evaluator; batch and streaming forms follow from it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamq.operators.batch_host import evaluate_in_buckets
from streamq.operators.evaluation import Evaluation
from streamq.operators.operator import BatchRun, Operator
from streamq.plan.footprint import Expected
from streamq.plan.tree import lazy
from streamq.runtime.endpoints import Bound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class EvaluatedOperator(Operator):
    """An operator defined by an evaluator, from which its batch and streaming forms follow."""

    @abstractmethod
    def _evaluation(self) -> Evaluation:
        """Return the operator's evaluator, with the columns that it reads from each input."""

    @lazy
    def evaluation(self) -> Evaluation:
        """The result of ``_evaluation``, computed once."""
        return self._evaluation()

    @property
    def keeps_state(self) -> bool:
        return True

    @property
    def bounds_windows(self) -> bool:
        return self.hears_endpoints and not self.evaluation.factory.always_holds

    @property
    def hears_endpoints(self) -> bool:
        """True if each bucket must hear the endpoints of all events, as these bound its windows once the input has ended."""
        if self.evaluation.bound is Bound.ENDLESS:
            return any(child.traits.infinite for child in self.children)
        return self.evaluation.bound is Bound.ALWAYS

    @property
    def progress(self) -> str:
        return self.evaluation.evaluator.progress_rule.cti.shown(len(self.children))

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        return self.evaluation.factory.expected_rows(inputs[0], expected)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Run the evaluator over the whole histories, bucket by bucket; an operator may override this by a faster form."""
        return evaluate_in_buckets(self.evaluation, self.children, inputs, run)


__all__ = ["EvaluatedOperator"]
