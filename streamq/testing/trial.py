"""Run a case in several ways, and compare its answers with those of the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession

from streamq.choices import OutputForm
from streamq.errors import InvalidEvent, LateEvent, ModuleFailed, NeedsSpark, QueryFailed, StreamqError
from streamq.operators import WindowAggregate
from streamq.operators.step import Step
from streamq.plan.node import Node, expanded, nodes
from streamq.runtime.deltas import INSERT, RETRACT
from streamq.testing.arrival import OPEN, Item, count_contradictions
from streamq.testing.backends import answer_before_end, execute, execute_on_spark, session_of
from streamq.testing.case import Case, VerificationFailed
from streamq.testing.execution import BATCH, CONTROLLED, LITERAL, RUN, SPARK, STREAM, WRITTEN, Execution
from streamq.testing.expectation import Expectation, expectation, heard_ctis
from streamq.testing.history import WrongOutput, result_of, same_history
from streamq.testing.oracle import JUDGES, FalseClaim, SumOverflow, TooMuch
from streamq.testing.oracle.python_functions import sets_aside
from streamq.testing.profiles import FAILS, QUARANTINED, REFUSED
from streamq.testing.query_scale import scale
from streamq.testing.sources.room import is_plain
from streamq.user_code.repository import called_modules


class Answers:
    """The oracle's answers to a case; executions that admit the same items share one."""

    def __init__(self, case: Case):
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


Trial = tuple[Case, tuple[Execution, ...]]
"""A case and the executions by which it is run."""


def adapt(trial: Trial) -> Trial:
    """Adapt a drawn trial: scale the durations of its executions to the query, and drop options that the oracle does not cover.

    ``until`` is dropped if the first execution is literal; else, if the model of late items does not cover one of the sources, no
    execution forgets history. Most executions of a query with modules that quarantine have a late output.
    """
    # all at once, the greatest endpoint bounds the windows of endless lifetimes, as in show() and to_df()
    case, ways = trial
    if ways[0].backend == LITERAL:
        return replace(case, until=None), ways
    unit = scale(case.plan).units[0]
    ways = tuple(how.in_units(unit) for how in ways)
    if any(map(sets_aside, called_modules(case.plan))):
        # few of other queries have one
        ways = tuple(replace(how, late_output=not how.late_output) for how in ways)
    modelled = all(
        is_plain(source, items := case.arrived(name)) and not count_contradictions(source, items)
        for name, source in case.sources.items()
    )
    return case, ways if modelled else tuple(replace(how, remember=(None,)) for how in ways)


def with_late_sinks(trial: Trial) -> Trial:
    """Return the trial with a late output for exactly those executions by ``run`` that set an item aside, or may do so."""
    case, ways = trial
    fails = any(map(sets_aside, called_modules(case.plan)))

    def has_late_output(how: Execution) -> bool:
        return how.started == RUN and (fails or bool(expectation(case, how).seen))

    return case, tuple(replace(how, late_output=has_late_output(how)) for how in ways)


def check(case: Case, ways: Sequence[Execution], spark: SparkSession | None = None) -> bool:
    """Run a case in several ways; return True if every answer is the oracle's, False if the query fails by Spark's rules.

    With False nothing has been run, as the oracle has no answer. A run without an answer to compare passes. Raises
    VerificationFailed if an answer differs or a run fails, also by Spark's rules unless the case ``may_fail``.
    """
    answers = Answers(case)
    try:
        for how in ways:
            answers.answer(how)
    except QueryFailed as error:
        if not case.may_fail:
            raise VerificationFailed(case, ways[0], None, error, is_legal=True) from error
        return False
    check_answers(case, ways, answers, spark)
    return True


def check_answers(
    case: Case, ways: Sequence[Execution], answers: Answers, spark: SparkSession | None = None
) -> list[str]:
    """Run a case in several ways; raise VerificationFailed at an answer that is not the oracle's, or a run that must not fail.

    Returns for each execution the reason why it gave no answer to compare, "" if its answer is the oracle's. NeedsSpark
    is raised as it is.
    """
    reasons = []
    for how in ways:
        outcome = answers.outcome(how)
        refused, fails = outcome.refused, bool(outcome.failed_calls) and not (how.whole or how.late_output)
        if fails and how.backend == SPARK:
            reasons.append(QUARANTINED)
            continue
        try:
            how, expected = _ended(case, how, answers)
            answer = _run(case, how, answers.outcome(how), spark)
            if fails:
                raise WrongOutput("a module fails, and the query goes on, though nothing takes what is set aside")
            if refused and not answers.expectation(how).spared:
                raise WrongOutput('an item is late, but late="fail" did not fail the query')
        except NeedsSpark:
            raise
        except LateEvent as error:
            if refused:
                reasons.append(REFUSED)
                continue
            raise VerificationFailed(case, how, None, error) from error
        except Exception as error:
            is_unheld = isinstance(error, ModuleFailed) and not (how.whole or how.late_output)
            if is_unheld and (fails or sets_aside_on_the_way(case)):
                reasons.append(QUARANTINED)
                continue
            is_answer = isinstance(error, WrongOutput)
            if not is_answer and (
                fails_in_another_order(case) if how.backend == BATCH else fails_on_the_way(case, how)
            ):
                # Spark added values in another order, or rows are taken back
                if not case.may_fail:
                    raise VerificationFailed(case, how, None, error, is_legal=True) from error
                reasons.append(FAILS)
                continue
            raise VerificationFailed(case, how, None, error) from error
        if same_history(answer, expected) is not None:
            failed = _different(case, how, answer, expected)
            failed.is_steady = _is_steady(case, how, answers, expected)
            raise failed
        reasons.append("")
    return reasons


def _different(case: Case, how: Execution, answer: pa.Table, expected: pa.Table) -> VerificationFailed:
    """Return the failure for an answer that is not the expected one; of several queries it names the first that is wrong."""
    number: int | None = None
    difference = same_history(answer, expected)
    if len(case.plans) > 1:
        numbers = range(1, len(case.plans) + 1)
        differences = ((n, same_history(result_of(answer, n), result_of(expected, n))) for n in numbers)
        number, difference = next((n, one) for n, one in differences if one is not None)
    assert difference is not None
    return VerificationFailed(case, how, replace(difference, axis=case.axis), result=number)


def _is_steady(case: Case, how: Execution, answers: Answers, expected: pa.Table) -> bool:
    """True unless the oracle's answer differs when it is computed again, as it may if user modules are not deterministic.

    Also False if it cannot be computed again because a module fails.
    """
    if not called_modules(case.plan):
        return True
    try:
        return same_history(_ended(case, how, Answers(case))[1], expected) is None
    except QueryFailed:
        return False


ALL_AT_ONCE = Execution(LITERAL, rules=())
"""The execution in-process without rewrite rules, which evaluates every expression of a query as it was written."""


def check_failure(case: Case, answers: Answers, failure: QueryFailed) -> None:
    """Raise VerificationFailed if the oracle fails by Spark's rules over all rows of a case at once, but the query does not.

    ``failure`` is the oracle's, which the error quotes.
    """
    try:
        answers.answer(ALL_AT_ONCE)
    except QueryFailed:
        pass
    else:
        # all at once the oracle has an answer: the failure depends on which items are late
        return
    try:
        execute(case, ALL_AT_ONCE)
    except StreamqError:
        return
    wrong = WrongOutput(f"the query gives an answer, but must fail: {failure}")
    raise VerificationFailed(case, ALL_AT_ONCE, None, wrong)


def _ended(case: Case, how: Execution, answers: Answers) -> tuple[Execution, pa.Table]:
    """Return the execution and its expected answer; for a query that is never ended, the answer of an in-process run.

    If that needs Spark, the execution is replaced by one that ends the query.
    """
    if how.started != WRITTEN:
        return how, answers.answer(how)
    try:
        return how, answer_before_end(case, how)
    except NeedsSpark:
        how = replace(how, started=CONTROLLED)
        return how, answers.answer(how)


def _run(case: Case, how: Execution, expected: Expectation, spark: SparkSession | None) -> pa.Table:
    """Return the history that a case gives in-process or, in ``spark`` or else the active session, on Spark."""
    if how.backend in (LITERAL, STREAM):
        return execute(case, how, expected)
    return execute_on_spark(case, how, spark or session_of({}), expected)


# failures over some of the rows


def fails_on_the_way(case: Case, how: Execution) -> bool:
    """True if the query fails by Spark's rules over rows that are taken back later, or are late: over a prefix or one event.

    Expressions are computed when an event arrives (docs/concepts.md), before it is judged, and before the other rows of its
    micro-batch change it or delete it. If all rows are read at once, only single events count. The whole case is one of the
    prefixes; those over which the oracle raises InvalidEvent do not count. Sums that wait until they are final overflow over
    no prefix.
    """
    return _fails_over_one_event(case) or (not how.whole and _fails_over_a_prefix(case, how))


def _fails_over_one_event(case: Case) -> bool:
    """True if the query fails by Spark's rules over one of its events alone, with one of the lifetimes that the event has."""
    for name, item in {repr(pair): pair for pair in _events(case)}.values():
        alone = replace(case, arrival=((name, item),), cut=(1,), until=None)
        try:
            alone.answer()
        except QueryFailed:
            return True
        except (InvalidEvent, TooMuch):
            continue
    return False


def _events(case: Case) -> Iterator[tuple[str, Item]]:
    """Yield the events of each source as inserts, also with the ends that retractions replace and set; of edges the starts."""
    for name, item in case.arrival:
        if item.kind == RETRACT:
            inserted = replace(item, kind=INSERT, new_end=None)
            yield name, inserted
            yield name, replace(inserted, end=item.new_end)
        elif item.kind in (INSERT, OPEN):
            yield name, item


def _fails_over_a_prefix(case: Case, how: Execution) -> bool:
    """True if the query fails by Spark's rules over some of the first micro-batches of a case, late rows counted or not."""
    promised = heard_ctis(case, how)
    all_final = set(how.outputs(len(case.plans))) == {OutputForm.FINAL}
    waits = all_final and all(_holds_sums_back(expanded(plan)) for plan in case.plans)
    overflow = SumOverflow.NONE if waits else SumOverflow.TOTAL
    for number in range(1, len(case.cut) + 1):
        arrived = first_micro_batches(case, number)
        expected = expectation(arrived, how, promised[:number])
        for seen in (arrived,) if expected.case is arrived else (expected.case, arrived):
            try:
                seen.answer(ctis=expected.ctis, overflow=overflow)
            except QueryFailed:
                return True
            except InvalidEvent:
                continue
    return False


def _holds_sums_back(plan: Node) -> bool:
    """True if only steps read the results of windows with sums, so that these come out once they are final, and not before."""
    if isinstance(plan, Step):
        return all(map(_holds_sums_back, plan.children))
    below = (node for child in plan.children for node in nodes(child))
    return not any(isinstance(node, WindowAggregate) for node in below)


def fails_in_another_order(case: Case) -> bool:
    """True if a sum of the query overflows when its values are added in some order, as Spark's sum may do in a batch."""
    try:
        case.answer(overflow=SumOverflow.ON_THE_WAY)
    except QueryFailed:
        return True
    return False


def sets_aside_on_the_way(case: Case) -> bool:
    """True if a module with quarantine fails over the items of some of the first micro-batches of a case.

    A run without a late output may then fail, even if the events are taken back later, or are late.
    """
    for number in range(1, len(case.cut) + 1):
        failed_calls = Counter[str]()
        arrived = first_micro_batches(case, number)
        with suppress(InvalidEvent, QueryFailed, TooMuch):
            arrived.answer(set_aside=failed_calls)
        if failed_calls:
            return True
    return False


def first_micro_batches(case: Case, number: int) -> Case:
    """Return a case of which only the first micro-batches have come."""
    return replace(case, arrival=case.arrival[: sum(case.cut[:number])], cut=case.cut[:number], until=None)
