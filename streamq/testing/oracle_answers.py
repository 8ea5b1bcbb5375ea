"""The oracle's answers to a case, computed once for each set of items that an execution admits."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.expectation import Expectation, expectation
from streamq.testing.failure import VerificationFailed
from streamq.testing.oracle import EVALUATED, TRANSLATED, FalseClaim, Untranslated


class Answers:
    """The oracle's answers to a case; executions that admit the same items share one."""

    def __init__(self, case: Case, expressions: str = TRANSLATED):
        self.case, self.expressions = case, expressions
        self.tables: dict[str, pa.Table] = {}
        self.expectations: dict[Execution, Expectation] = {}

    def expectation(self, how: Execution) -> Expectation:
        """Return the expected outcome of running the case in some way."""
        if how not in self.expectations:
            self.expectations[how] = expectation(self.case, how)
        return self.expectations[how]

    def answer(self, how: Execution) -> pa.Table:
        """Return the answer that running the case in some way must give.

        Raises QueryFailed if the query fails by Spark's rules, VerificationFailed if the plan makes a false claim about its rows,
        TooMuch if they do not fit into memory, or if there are too many windows.
        """
        expected = self.expectation(how)
        # the answer depends on the admitted items and, if ``until`` does not bound windows, on the CTIs from outside
        ctis = expected.ctis if self.case.until is None else {}
        key = repr((ctis, () if expected.case is self.case else expected.case.arrival))
        if key not in self.tables:
            try:
                self.tables[key] = answer_of(expected.case, self.expressions, ctis)
            except FalseClaim as error:
                raise VerificationFailed(self.case, how, None, error) from error
        return self.tables[key]


def answer_of(case: Case, expressions: str = TRANSLATED, ctis: Mapping[str, int] | None = None) -> pa.Table:
    """Return the oracle's answer to a case; expressions that it cannot translate to SQL are evaluated by streamq.

    ``ctis``: by source, CTIs that its rows do not contain.
    """
    try:
        return case.answer(expressions, ctis)
    except Untranslated:
        return case.answer(EVALUATED, ctis)


__all__ = ["Answers", "answer_of"]
