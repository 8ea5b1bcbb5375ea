"""The registries of the oracle: the definitions of operators, by the class of their node, and other judges beside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from streamq.compiler.staged_plan import StagedPlan
from streamq.plan.expr import Expr
from streamq.plan.node import Node
from streamq.plan.schema import Schema
from streamq.runtime.state.baskets import TimeBinSizes

if TYPE_CHECKING:
    from streamq.compiler.local import LocalRun
    from streamq.testing.oracle.python_functions import PythonFunctions
    from streamq.testing.oracle.run import Run

Definition = Callable[[Any, Sequence[str], "Run"], str]
"""``(node, names of the input histories, Run)``: return a query with the columns ``le``, ``re`` and ``c0, c1, ...``."""

D = TypeVar("D", bound=Definition)

ORACLE: dict[type[Node], Definition] = {}
"""The definition of every operator that users write."""


class FalseClaim(AssertionError):
    """Raised for a false claim of a plan: that rows are points, that none lives for ever, or what a judge knows better."""


def defines(kind: type[Node]) -> Callable[[D], D]:
    """Make a function the oracle's definition of a node: ``@defines(Where)``."""

    def register(definition: D) -> D:
        ORACLE[kind] = definition
        return definition

    return register


class Judge(ABC):
    """A judge of streamq itself, which sees what every verification tries; a user's verifications need none.

    ``case``, ``how`` and ``expected`` are a Case, its Execution and the Expectation of this.
    """

    @abstractmethod
    def begin(self) -> None:
        """Forget earlier verifications."""

    @abstractmethod
    def false_claim(self, plan: Node) -> str | None:
        """Return something false that a plan says or is built of; None if there is nothing."""

    @abstractmethod
    def sql(self, expr: Expr, schema: Schema, functions: PythonFunctions) -> str | None:
        """Return the SQL of an expression over a history by a definition of its own; None if there is none."""

    @abstractmethod
    def watch(self, programs: list[StagedPlan], how: Any) -> tuple[list[StagedPlan], TimeBinSizes]:
        """Return the programs, of an execution, with kernels that are watched, and the sizes of bins with which to run them."""

    @abstractmethod
    def after_step(
        self,
        case: Any,
        how: Any,
        run: LocalRun,
        ctis: Sequence[tuple[str | None, int]],
        until: int | None,
        number: int | None,
    ) -> None:
        """Judge a run in-process after micro-batch ``number``, or (None) its end, with the CTIs that came from outside then."""

    @abstractmethod
    def after_run(
        self, case: Any, how: Any, program: StagedPlan, out: Sequence[Sequence[pa.Table]], expected: Any
    ) -> None:
        """Judge the deltas of each query in each micro-batch of a run in-process, and at its end."""

    @abstractmethod
    def set_aside(self, case: Any, counted: Mapping[str, int], late: Sequence[pa.Table] | None, expected: Any) -> None:
        """Judge the counts of a run, and the rows of its late output (None: it has none)."""


JUDGES: list[Judge] = []
"""The judges of streamq itself: that of its own tests, which registers itself when they are loaded."""
