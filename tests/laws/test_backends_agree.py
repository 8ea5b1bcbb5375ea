"""The law of laws: in-process = oracle, for any query, arrival order, cut, restart, number of buckets and set of rules.

Differential test against SQL over the history; Spark samples the same law in tests/spark.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from streamq.choices import OutputForm
from streamq.testing.case import Case
from streamq.testing.execution import LITERAL, Execution, subsets
from streamq.testing.oracle import TooMuch
from streamq.testing.trial import check
from tests.drawn.queries import cases

# random compositions of operators are verified in test_operators as well
some = settings(max_examples=max(1, settings().max_examples // 3))


def with_bounds(case: Case) -> st.SearchStrategy[Case]:
    """The case without a bound on windows of lifetimes without an end, or with one that no watermark goes beyond."""
    # two shifts at most, by at most six ticks each
    return st.sampled_from([replace(case, until=None), replace(case, until=case.latest + 13)])


def ways(output: str) -> st.SearchStrategy[Execution]:
    """With any rules, one bucket or three, with restarts or not."""
    buckets, restarts = st.sampled_from([1, 3]), st.booleans()
    return st.builds(
        lambda rules, n, again: Execution(output=output, rules=rules, buckets=n, restart=again),
        *(subsets(), buckets, restarts),
    )


@pytest.mark.slow
@some
@given(case=cases().flatmap(with_bounds), how=ways(OutputForm.FINAL))
def test_final_output_is_the_oracles_history(case: Case, how: Execution) -> None:
    """Final rows are given once each, are never taken back, and are the whole answer."""
    check(case, [how])


@pytest.mark.slow
@some
@given(case=cases().flatmap(with_bounds), how=ways(OutputForm.CHANGELOG))
def test_changelog_folds_into_the_oracles_history(case: Case, how: Execution) -> None:
    """Speculative rows and their retractions add up to the answer."""
    check(case, [how])


@some
@given(case=cases(), rules=subsets())
def test_literal_answer_is_the_oracles_history(case: Case, rules: tuple[str, ...] | None) -> None:
    """All input at once and its end, as ``show()`` does: windows stop where the input's greatest finite endpoint is."""
    try:
        check(case, [Execution(LITERAL, rules=rules)])
    except TooMuch:
        reject()
