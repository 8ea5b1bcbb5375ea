"""Trials: a case is run in several ways, and each answer is held against the oracle's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from streamq.errors import LateEvent, NeedsSpark, QueryFailed, StreamqError
from streamq.testing.arrival import contradictions
from streamq.testing.case import Case
from streamq.testing.deltas import WrongOutput
from streamq.testing.difference import same_history
from streamq.testing.execution import CONTROLLED, LITERAL, RUN, STREAM, WRITTEN, Execution
from streamq.testing.expectation import Expectation, expectation
from streamq.testing.failure import VerificationFailed
from streamq.testing.in_process import executed, unfinished
from streamq.testing.late_output import WindowQuarantined
from streamq.testing.on_spark import executed_on_spark, session_of
from streamq.testing.oracle import TRANSLATED
from streamq.testing.oracle_answers import Answers
from streamq.testing.report import FAILS, QUARANTINED, REFUSED
from streamq.testing.scale import scale
from streamq.testing.so_far import fails_on_the_way
from streamq.testing.sources.room import is_plain
from streamq.user_code.repository import called_modules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Trial = tuple[Case, tuple[Execution, ...]]
"""A case and the ways it is run."""


def bounded(trial: Trial) -> Trial:
    """A trial whose windows end where its ways of running say, and whose history is forgotten only where the oracle can.

    Its durations are at the scale of the query.
    """
    # all at once, windows of lifetimes without an end go by the greatest endpoint, as show() and to_df() have it
    case, ways = trial
    ways = tuple(how.in_units(scale(case.plan).units[0]) for how in ways)
    if ways[0].backend == LITERAL:
        return replace(case, until=None), ways
    # what is late by a level is told of what the model of late items holds for
    modelled = all(
        is_plain(source, items := case.arrived(name)) and not contradictions(source, items)
        for name, source in case.sources.items()
    )
    return case, ways if modelled else tuple(replace(how, remember=(None,)) for how in ways)


def with_late_sinks(trial: Trial) -> Trial:
    """A trial in which ``run`` on Spark has a late sink where what arrives is not all taken as it comes."""
    case, ways = trial
    return case, tuple(
        replace(how, late_output=how.started == RUN and bool(expectation(case, how).set_aside)) for how in ways
    )


def check(
    case: Case,
    ways: Sequence[Execution],
    spark: SparkSession | None = None,
    expressions: str = TRANSLATED,
) -> bool:
    """Whether a case has an answer, which every way of running it has given; False if it fails by Spark's rules.

    ``expressions`` says how the oracle takes them; those that it has no definition of are evaluated as themselves. Raises
    VerificationFailed where an answer is another one, and where a way fails.
    """
    answers = Answers(case, expressions)
    try:
        for how in ways:
            answers.answer(how)
    except QueryFailed:
        return False
    hold(case, ways, answers, spark)
    return True


def hold(case: Case, ways: Sequence[Execution], answers: Answers, spark: SparkSession | None = None) -> list[str]:
    """Run a case; raises VerificationFailed where an answer is not the oracle's, and where a way fails that must not.

    Returns for each way why it gave no answer to compare, "" where its answer is the oracle's.
    """
    reasons = []
    for how in ways:
        refused = answers.expectation(how).refused
        try:
            how, expected = _ended(case, how, answers)
            answer = _run(case, how, answers.expectation(how), spark)
            if refused and not answers.expectation(how).spared:
                raise WrongOutput('an item is late, which late="fail" has let pass')
        except NeedsSpark:
            raise
        except LateEvent as error:
            if refused:
                reasons.append(REFUSED)
                continue
            raise VerificationFailed(case, how, None, error) from error
        except WindowQuarantined:
            reasons.append(QUARANTINED)
            continue
        except Exception as error:
            if not how.whole and fails_on_the_way(case, how):
                # rows that are taken back later have been computed
                reasons.append(FAILS)
                continue
            raise VerificationFailed(case, how, None, error) from error
        difference = same_history(answer, expected)
        if difference is not None:
            failed = VerificationFailed(case, how, replace(difference, axis=case.axis))
            failed.is_steady = _is_steady(case, how, answers, expected)
            raise failed
        reasons.append("")
    return reasons


def _is_steady(case: Case, how: Execution, answers: Answers, expected: pa.Table) -> bool:
    """Return False where modules give the oracle another answer when it asks again."""
    if not called_modules(case.plan):
        return True
    try:
        return same_history(_ended(case, how, Answers(case, answers.expressions))[1], expected) is None
    except QueryFailed:
        return False


ALL_AT_ONCE = Execution(LITERAL, rules=())
"""In-process, without rewrite rules: every expression of a query is evaluated as it was written."""


def check_failure(case: Case, answers: Answers, failure: QueryFailed) -> None:
    """Raise VerificationFailed where the oracle fails over a case by Spark's rules, and the query all at once does not."""
    try:
        answers.answer(ALL_AT_ONCE)
    except QueryFailed:
        pass
    else:
        # what fails is late in some other way of running it
        return
    try:
        executed(case, ALL_AT_ONCE)
    except StreamqError:
        return
    wrong = WrongOutput(f"the query gives an answer, and must fail: {failure}")
    raise VerificationFailed(case, ALL_AT_ONCE, None, wrong)


def _ended(case: Case, how: Execution, answers: Answers) -> tuple[Execution, pa.Table]:
    """A way of running a case, and what it gives: of what nobody ends, as much as in-process.

    Where that takes Spark, the query is ended after all.
    """
    if how.started != WRITTEN:
        return how, answers.answer(how)
    try:
        return how, unfinished(case, how)
    except NeedsSpark:
        how = replace(how, started=CONTROLLED)
        return how, answers.answer(how)


def _run(case: Case, how: Execution, expected: Expectation, spark: SparkSession | None) -> pa.Table:
    if how.backend in (LITERAL, STREAM):
        return executed(case, how, expected)
    return executed_on_spark(case, how, spark or session_of({}), expected)


__all__ = ["Trial", "bounded", "check", "check_failure", "hold", "with_late_sinks"]
