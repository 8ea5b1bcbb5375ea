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
from streamq.testing.oracle import EVALUATED, TRANSLATED, FalseClaim, SumOverflow, Untranslated
from streamq.testing.oracle.claims import Claims


class Answers:
    """The oracle's answers to a case; executions that admit the same items share one."""

    def __init__(self, case: Case, expressions: str = TRANSLATED, claims: Claims | None = None):
        """Begin without answers; ``claims`` are those tried before (None: none)."""
        self.case, self.expressions, self.claims = case, expressions, claims or Claims()
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
        if (false := self.claims.false_one(self.case.plan)) is not None:
            raise VerificationFailed(self.case, how, None, FalseClaim(false))
        expected, key = self.expectation(how), self._key(how)
        if key not in self.tables:
            failed_calls = Counter[str]()
            try:
                self.tables[key] = answer_of(expected.case, self.expressions, self._ctis(expected), failed_calls)
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


def answer_of(
    case: Case,
    expressions: str = TRANSLATED,
    ctis: Mapping[str, int] | None = None,
    failed_calls: Counter[str] | None = None,
    overflow: SumOverflow = SumOverflow.TOTAL,
) -> pa.Table:
    """Return the oracle's answer to a case; expressions that it cannot translate to SQL are evaluated by streamq.

    ``ctis``: by source, CTIs that its rows do not contain. ``failed_calls`` is updated by the number of calls that fail and are
    set aside, by module. ``overflow``: the sums for which the query fails.
    """
    counts = Counter[str]()
    try:
        answer = case.answer(expressions, ctis, counts, overflow)
    except Untranslated:
        counts = Counter[str]()
        answer = case.answer(EVALUATED, ctis, counts, overflow)
    if failed_calls is not None:
        failed_calls.update(counts)
    return answer


__all__ = ["Answers", "answer_of"]
