"""Answers: what the oracle gives for a case, once for each way to see what arrives."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.expectation import Expectation, expectation
from streamq.testing.failure import VerificationFailed
from streamq.testing.oracle import EVALUATED, TRANSLATED, FalseClaim, Untranslated


class Answers:
    """The oracle's answers to a case: one for each way to see what arrives, computed once."""

    def __init__(self, case: Case, expressions: str = TRANSLATED):
        self.case, self.expressions = case, expressions
        self.tables: dict[str, pa.Table] = {}
        self.expectations: dict[Execution, Expectation] = {}

    def expectation(self, how: Execution) -> Expectation:
        """What a way of running it is held against."""
        if how not in self.expectations:
            self.expectations[how] = expectation(self.case, how)
        return self.expectations[how]

    def of(self, how: Execution) -> pa.Table:
        """What a way of running it is to give.

        Raises QueryFailed where it fails by Spark's rules, VerificationFailed where the plan says of its rows what is not so.
        """
        expected = self.expectation(how)
        # seen otherwise, another arrival has the answer; how far it has come bounds windows only where nothing else does
        ctis = expected.ctis if self.case.until is None else {}
        key = repr((ctis, () if expected.case is self.case else expected.case.arrival))
        if key not in self.tables:
            try:
                self.tables[key] = answer_of(expected.case, self.expressions, ctis)
            except FalseClaim as error:
                raise VerificationFailed(self.case, how, None, error) from error
        return self.tables[key]


def answer_of(case: Case, expressions: str = TRANSLATED, ctis: Mapping[str, int] | None = None) -> pa.Table:
    """The oracle's answer; expressions that it has no definition of are evaluated as themselves.

    ``ctis``: how far sources come beside what their rows say.
    """
    try:
        return case.answer(expressions, ctis)
    except Untranslated:
        return case.answer(EVALUATED, ctis)


__all__ = ["Answers", "answer_of"]
