"""The oracle's answers to a case, computed once for each set of items that an execution admits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.expectation import Expectation, expectation
from streamq.testing.failure import VerificationFailed
from streamq.testing.oracle import JUDGES, FalseClaim


class Answers:
    """The oracle's answers to a case; executions that admit the same items share one."""

    def __init__(self, case: Case):
        """Begin without answers."""
        self.case = case
        self.tables: dict[str, pa.Table] = {}
        self.failed_calls: dict[str, Counter[str]] = {}
        self.expectations: dict[Execution, Expectation] = {}

    def expectation(self, how: Execution) -> Expectation:
        """Return the expected outcome of running the case in some way."""
        if how not in self.expectations:
            self.expectations[how] = expectation(self.case, how)
        return self.expectations[how]

    def answer(self, how: Execution) -> pa.Table:
        """Return the answer that running the case in some way must give.

        Raises QueryFailed if the query fails by Spark's rules, VerificationFailed if the plan makes a false claim about its rows
        or expressions, TooMuch if they do not fit into memory, or if there are too many windows.
        """
        for judge in JUDGES:
            if (claim := judge.false_claim(self.case.plan)) is not None:
                raise VerificationFailed(self.case, how, None, FalseClaim(claim))
        expected, key = self.expectation(how), self._key(how)
        if key not in self.tables:
            failed_calls = Counter[str]()
            try:
                self.tables[key] = expected.case.answer(self._ctis(expected), failed_calls)
            except FalseClaim as error:
                raise VerificationFailed(self.case, how, None, error) from error
            self.failed_calls[key] = failed_calls
        return self.tables[key]

    def outcome(self, how: Execution) -> Expectation:
        """Return the expected outcome of running the case in some way, with its failed calls; raises as ``answer``."""
        self.answer(how)
        return replace(self.expectation(how), failed_calls=self.failed_calls[self._key(how)])

    def _ctis(self, expected: Expectation) -> Mapping[str, int]:
        return expected.ctis if self.case.until is None else {}

    def _key(self, how: Execution) -> str:
        """Return a text that differs for other answers.

        They depend on the admitted items and, if ``until`` does not bound windows, on the CTIs from outside.
        """
        expected = self.expectation(how)
        return repr((self._ctis(expected), () if expected.case is self.case else expected.case.arrival))
