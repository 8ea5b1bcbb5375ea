"""The judge of streamq itself: it is there in every verification of these tests, and in none of a user's.

A verification takes a plan and its expressions as they were built, and lets streamq evaluate the expressions. So a mistake in
these would make both sides of the comparison wrong. Spark judges functions, operators and casts, in ``tests/spark``. This judge
calls users' functions as they are documented, tries whether expressions never fail that claim so, compares parts of a plan by
what they hold, and the words of a pattern's text with those of its normal form, watches kernels, and judges runs on the way:
CTIs that come twice, the rows so far, upserts, counts and late outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.staged_plan import StagedPlan
from streamq.patterns.definitions import Detect
from streamq.plan.expr import Expr
from streamq.plan.node import Node, nodes
from streamq.plan.schema import Schema
from streamq.runtime.state.baskets import TimeBinSizes
from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.expectation import Expectation
from streamq.testing.oracle.python_functions import PythonFunctions
from streamq.testing.oracle.run import JUDGES, Judge
from streamq.time import INFINITY
from tests.judges.by_value import called_by_value
from tests.judges.claims import Claims
from tests.judges.identities import one_digest_for_two
from tests.judges.kernels import SMALL_BINS, watch_kernels
from tests.judges.late_output import check_set_aside
from tests.judges.runs import check_repeated, check_run, check_sources
from tests.judges.wording import misread


class OwnJudge(Judge):
    """The judge of these tests; it keeps what it has found true of plans until a verification begins."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.claims, self.sound = Claims(), set[str]()

    def false_claim(self, plan: Node) -> str | None:
        if plan.digest in self.sound:
            return None
        alike = one_digest_for_two(plan)
        wrong = None if alike is None else f"{alike[0]!r} and {alike[1]!r} have one digest"
        wrong = wrong or _misread(plan) or self.claims.false_one(plan)
        if wrong is None:
            self.sound.add(plan.digest)
        return wrong

    def sql(self, expr: Expr, schema: Schema, functions: PythonFunctions) -> str | None:
        return called_by_value(expr, schema, functions)

    def watch(self, programs: list[StagedPlan], how: Execution) -> tuple[list[StagedPlan], TimeBinSizes]:
        """Watch changelogs of one bucket, as only one kernel is watched; with CTIs from outside others are crowded alone."""
        held_to_ctis = how.output == OutputForm.CHANGELOG and how.buckets == 1
        if not held_to_ctis and not how.slack:
            return programs, TimeBinSizes()
        return [watch_kernels(program, held_to_ctis) for program in programs], SMALL_BINS

    def after_step(
        self,
        case: Case,
        how: Execution,
        run: LocalRun,
        ctis: Sequence[tuple[str | None, int]],
        until: int | None,
        number: int | None,
    ) -> None:
        check_repeated(run, ctis, until)
        if number is not None and (None, INFINITY) not in ctis:
            check_sources(case, how, run, number)

    def after_run(
        self, case: Case, how: Execution, program: StagedPlan, out: Sequence[Sequence[pa.Table]], expected: Expectation
    ) -> None:
        check_run(case, how, program, out, expected)

    def set_aside(
        self, case: Case, counted: Mapping[str, int], late: Sequence[pa.Table] | None, expected: Expectation
    ) -> None:
        check_set_aside(case, counted, late, expected)


def _misread(plan: Node) -> str | None:
    """Return how the text of a pattern in a plan differs from its normal form; None if none does."""
    for node in nodes(plan):
        if not isinstance(node, Detect) or (source := node.definitions.source) is None:
            continue
        if (wrong := misread(source, node.definitions.text)) is not None:
            return f"a pattern's text in normal form differs from the user's: {wrong}"
    return None


JUDGES.append(OwnJudge())
