"""Verification: a query's answers, in every backend and over sampled streams, held against the oracle's.

Test framework, section 6: the history of the output is what SQL makes of the histories of the inputs.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from streamq.choices import Late, OutputForm
from streamq.errors import LateEvent, NeedsSpark, PlanError, QueryFailed, kind_of, sentence
from streamq.operators import JoinTable
from streamq.plan.node import nodes, numbered
from streamq.stream import Stream
from streamq.testing.admission import is_plain
from streamq.testing.arrival import contradictions
from streamq.testing.case import Case
from streamq.testing.difference import Difference, same_history
from streamq.testing.draws import BACKEND
from streamq.testing.execution import (
    BATCH,
    CONTROLLED,
    LITERAL,
    SPARK,
    STARTS,
    STREAM,
    WRITTEN,
    Execution,
    Expectation,
    WrongOutput,
    executed,
    executions,
    expectation,
    subsets,
    unfinished,
)
from streamq.testing.generate import cases_of
from streamq.testing.intent import ANYTHING, Intent
from streamq.testing.lateness import ON_TIME
from streamq.testing.oracle import EVALUATED, TRANSLATED, FalseClaim, TooMuch, Untranslated
from streamq.testing.profiles import Profile, loaded_profile, profile
from streamq.testing.replay import saved
from streamq.testing.scenario import Scenario, concrete

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Trial = tuple[Case, tuple[Execution, ...]]
"""A case and the ways it is run."""


class VerificationFailed(AssertionError):
    """A query whose answer is not the oracle's.

    ``case`` is the smallest found, ``how`` the way it was run, ``difference`` what tells the histories apart or None if
    it failed with ``error``; ``saved`` is the file it was written to, if any. ``first`` is the failure that was found
    first, of which the search went on to smaller ones (itself, if none was smaller), ``number`` the number of that trial;
    ``shrinking`` is after how many seconds it stopped, None if it came to an end.
    """

    def __init__(self, case: Case, how: Execution, difference: Difference | None, error: Exception | None = None):
        super().__init__(case, how, difference, error)
        self.case, self.how, self.difference, self.error = case, how, difference, error
        self.saved: Path | None = None
        self.first, self.number = self, 0
        self.shrinking: float | None = None

    @property
    def says(self) -> str:
        """What is wrong, without the case."""
        wrong = str(self.difference) if self.difference is not None else f"{type(self.error).__name__}: {self.error}"
        return f"not the oracle's history ({self.how})\n{wrong}"

    def __str__(self) -> str:
        again = (
            [] if self.saved is None else [f"saved; again by: t.replay({str(self.saved)!r}), or pytest {self.saved}"]
        )
        if self.shrinking:
            more = "with more, profile=t.Profile(shrinking=...), it may be smaller"
            again.append(f"the smallest case found in {self.shrinking:g} s: {more}")
        return "\n\n".join([self.says, self.case.drawn(), self.case.program(), *again])


@dataclass
class Verified:
    """What a verification ran: executions by backend, cases, and the seconds it took.

    ``failing`` counts cases that fail by Spark's rules whatever computes them (an overflow, a division by zero), of which
    nothing is run; ``empty`` those whose answer has no row; ``left_out`` says which backends could not run, and why.
    """

    executions: Counter[str] = field(default_factory=Counter)
    cases: int = 0
    failing: int = 0
    empty: int = 0
    seconds: float = 0.0
    left_out: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        ran = ", ".join(f"{n} {name}" for name, n in self.executions.items())
        lines = [f"verified over {self.cases} cases ({ran}) in {self.seconds:.1f} s"]
        lines += [f"{self.failing} of them fail by Spark's rules and were not run"] * bool(self.failing)
        lines += [f"{self.empty} have an empty answer"] * bool(self.empty)
        lines += [f"not {name}: {why}" for name, why in self.left_out.items()]
        return "; ".join(lines)

    __repr__ = __str__


REPORTS: list[Verified] = []
"""What has been verified in this process."""


def verify(
    query: Stream | Scenario,
    intent: Intent = ANYTHING,
    *,
    profile: str | Profile | None = None,
    examples: int | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> Verified:
    """Hold a query's answers against the oracle's: in-process, in batch and as a stream, over sampled data.

    The query's sources are given what ``intent`` describes, their times and values chosen by what the query speaks of; its
    own rows are not read. Of a :class:`Scenario` each case is another concrete query. Each case runs in-process all at once
    or in micro-batches, as final rows and as a changelog, with restarts, buckets and sets of rewrite rules drawn at random;
    of changelogs in one bucket every CTI is watched. Some run on Spark, as DataFrames and as Structured Streaming queries
    (on the query's session, the active one, or a new one). ``profile`` says how much is tried, by name or as a
    :class:`Profile`; ``examples`` and ``seed`` override its own. The same seed tries the same. ``name`` is that of the file
    into which a failing case is saved, where the profile, or the one loaded, has a folder for them.

    Raises :class:`VerificationFailed` with the smallest case found, what differs drawn as a timeline, the case as a
    program, and where it is saved; :class:`streamq.errors.PlanError` for what cannot be generated or
    translated; NeedsSpark where only Spark can run the query and the profile has no cases there.

    >>> import streamq as sq
    >>> from streamq import testing as t
    >>> s = sq.events([(1, 5, {"k": "a", "v": 3})])
    >>> query = s.group_by("k").tumbling_window(4).select(n=sq.count(), most=sq.max("v"))
    >>> report = t.verify(query, t.Intent(disorder="high"), profile="fast", examples=5)
    >>> report.cases
    5
    """
    begun = time.monotonic()
    _check_arguments(query, intent)
    chosen = _profile(profile)
    chosen = replace(chosen, examples=chosen.examples if examples is None else examples)
    chosen = replace(chosen, seed=chosen.seed if seed is None else seed)
    report = Verified()
    # a scenario's own expressions are all translated, which is the harder test; a user's may not be
    search = Search(chosen, report, begun, TRANSLATED if isinstance(query, Scenario) else EVALUATED)
    # a job on Spark takes as long over many rows as over few
    words = [word for word in intent.choices("late") if word != Late.FAIL]
    many = intent.but(events=intent.events * CROWD, late=tuple(words) or ON_TIME)
    if isinstance(query, Scenario):
        cases, crowded = concrete(query, intent), concrete(query, many)
    else:
        plan, names = numbered(query.plan)
        tables = {names[n]: _arrow(t) for n, t in query.tables.items() if n in names and _static(plan, names[n])}
        cases, crowded = cases_of(plan, intent, tables), cases_of(plan, many, tables)
    local = [st.tuples(cases, ways).map(_bounded) for ways in in_process()]

    def without_spark(examples: int) -> None:
        if "in-process" in report.left_out:
            return
        try:
            search.run(local, examples)
        except NeedsSpark as error:
            # those that ran had nothing in them that would have had to be computed
            report.executions, report.cases, report.failing, report.empty = Counter(), 0, 0, 0
            report.left_out["in-process"] = str(error)

    try:
        without_spark(min(chosen.examples, FIRST))
        if chosen.batch or chosen.streams:
            spark = _session({} if isinstance(query, Scenario) else query.tables)
            search.run([st.tuples(crowded, on_spark(BATCH))], chosen.batch, spark)
            search.run([st.tuples(crowded.map(Case.coarser), on_spark(SPARK))], chosen.streams, spark)
        without_spark(chosen.examples - min(chosen.examples, FIRST))
    except VerificationFailed as failed:
        failed.first, failed.number = next(iter(search.found.values())), search.number
        folder = chosen.failures or loaded_profile().failures
        if folder is not None:
            test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
            called = name or test or f"case-{failed.case.plan.digest}"
            failed.saved = saved(failed.case, failed.how, failed.says, folder, called, search.expressions)
        # without the frames of the search: what failed is its cause
        raise failed.with_traceback(None) from failed.error
    if not report.executions:
        _refuse(report, search.refused)
    report.seconds = time.monotonic() - begun
    REPORTS.append(report)
    return report


def _check_arguments(query: Any, intent: Any) -> None:
    if not isinstance(query, Stream | Scenario):
        hint = "Call it: t.verify(f(stream))." if callable(query) else "Give a query, or a scenario: t.stream(...)."
        raise PlanError(sentence("verify", "not a query", f"found {kind_of(query)}", hint))
    if not isinstance(intent, Intent):
        raise PlanError(sentence("verify", "not an intent", f"found {intent!r}", 'Write t.Intent(disorder="high").'))


def _refuse(report: Verified, refused: str) -> NoReturn:
    """A verification of nothing is none."""
    if report.left_out:
        why = next(iter(report.left_out.values()))
        raise NeedsSpark(sentence("verify", "nothing could be run", why, "Use a profile that runs cases on Spark."))
    if report.failing:
        instead = f"all {report.failing} cases fail by Spark's rules, the first with: {refused}"
        raise PlanError(
            sentence("verify", "nothing could be run", instead, "Say which values do: t.Intent(payload=...).")
        )
    raise PlanError(sentence("verify", "nothing is tried", "the profile has no examples", "Give some: examples=50."))


def in_process() -> list[st.SearchStrategy[tuple[Execution, ...]]]:
    """In turn: in micro-batches, as final rows and as a changelog; or, every fourth time, all at once."""
    cut = st.tuples(executions(OutputForm.FINAL), executions(OutputForm.CHANGELOG))
    whole = st.tuples(subsets().map(lambda rules: Execution(LITERAL, rules=rules)))
    return [cut, cut, whole, cut]


ZONES = ("", "", "Asia/Tokyo", "America/New_York")
"""Half the cases on Spark run in a session that streamq did not make."""


def on_spark(backend: str) -> st.SearchStrategy[tuple[Execution, ...]]:
    """One execution on Spark; mostly with all rules, as users have it."""
    if backend == BATCH:
        rules = st.one_of(st.none(), subsets())
        return st.tuples(
            st.builds(lambda rules, zone: Execution(BATCH, rules=rules, zone=zone), rules, st.sampled_from(ZONES))
        )
    return st.tuples(
        st.builds(
            lambda output, restart, started, zone, silent: Execution(
                SPARK, output, None, 2, restart, started=started, zone=zone, silent=silent
            ),
            st.sampled_from([OutputForm.FINAL, OutputForm.CHANGELOG]),
            st.booleans(),
            st.sampled_from(STARTS),
            st.sampled_from(ZONES),
            st.booleans(),
        )
    )


def _bounded(trial: Trial) -> Trial:
    # all at once, windows of lifetimes without an end go by the greatest endpoint, as show() and to_df() have it
    case, ways = trial
    if ways[0].backend == LITERAL:
        return replace(case, until=None), ways
    # what is late by a level is told of what the model of late items holds for
    modelled = all(
        is_plain(source, items := case.arrived(name)) and not contradictions(source, items)
        for name, source in case.sources.items()
    )
    return case, ways if modelled else tuple(replace(how, remember=(None,)) for how in ways)


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
            answers.of(how)
    except QueryFailed:
        return False
    hold(case, ways, answers, spark)
    return True


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
    """The oracle's answer, as :func:`check` takes it; ``ctis``: how far sources come beside what their rows say."""
    try:
        return case.answer(expressions, ctis)
    except Untranslated:
        return case.answer(EVALUATED, ctis)


def hold(case: Case, ways: Sequence[Execution], answers: Answers, spark: SparkSession | None = None) -> None:
    """Run a case; raises VerificationFailed where an answer is not the oracle's, and where a way fails that must not."""
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
                continue
            raise VerificationFailed(case, how, None, error) from error
        except Exception as error:
            raise VerificationFailed(case, how, None, error) from error
        difference = same_history(answer, expected)
        if difference is not None:
            raise VerificationFailed(case, how, replace(difference, axis=case.plan.schema.axis))


def _ended(case: Case, how: Execution, answers: Answers) -> tuple[Execution, pa.Table]:
    """A way of running a case, and what it gives: of what nobody ends, as much as in-process.

    Where that takes Spark, the query is ended after all.
    """
    if how.started != WRITTEN:
        return how, answers.of(how)
    try:
        return how, unfinished(case, how.output)
    except NeedsSpark:
        how = replace(how, started=CONTROLLED)
        return how, answers.of(how)


def _run(case: Case, how: Execution, expected: Expectation, spark: SparkSession | None) -> pa.Table:
    if how.backend in (LITERAL, STREAM):
        return executed(case, how, expected)
    from streamq.testing.on_spark import executed_on_spark

    return executed_on_spark(case, how, spark or _session({}))


CROWD = 3
"""How many times as many events a case on Spark has."""

FIRST = 30
"""So many cases run in-process before some run on Spark, which takes longer to say what it says."""

REDRAWS = 3
"""How often a case is drawn again because its answer is empty: of two empty answers little is told."""

MOST_HUGE = 1_000
"""So many cases whose answers do not fit into memory are drawn again."""

NOT_SIMPLEST = st.integers(0, 1 << 40).filter(bool)
"""Costs a draw and nothing else where Hypothesis begins with the simplest example."""

SEEDS = 1_000_003
"""How far the seeds of two searches lie apart."""


class _TimeIsOver(BaseException):
    """Ends a search: no Exception, which Hypothesis would take for a failing example."""


class Search:
    """A search for a failing trial, and for a smaller one once one is found, within the time of a profile."""

    def __init__(self, profile: Profile, report: Verified, begun: float, expressions: str = TRANSLATED):
        self.profile, self.report = profile, report
        self.begun, self.expressions = begun, expressions
        self.found: dict[str, VerificationFailed] = {}
        self.number = self.searches = self.redraws = 0
        self.refused = ""
        self.huge = 0
        self.give_up = float("inf")

    def run(self, trials: Sequence[st.SearchStrategy[Trial]], examples: int, spark: SparkSession | None = None) -> None:
        """Try so many, of each kind in turn; raises VerificationFailed with the smallest that fails."""
        for i in range(examples):
            tried, self.redraws = self.report.cases, REDRAWS
            while self.report.cases == tried:
                over = self.profile.seconds is not None and time.monotonic() - self.begun > self.profile.seconds
                if over and self.report.cases:
                    return
                self._search(trials[i % len(trials)], spark)

    def _search(self, trials: st.SearchStrategy[Trial], spark: SparkSession | None) -> None:
        """One fresh trial, and smaller ones if it fails.

        A longer search of Hypothesis begins with small examples and goes on with changes of those it had: of a hundred not
        thirty were independent. The first of any search is the simplest there is, which is turned down.
        """

        @settings(
            max_examples=1,
            backend=BACKEND,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            verbosity=Verbosity.quiet,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        @given(NOT_SIMPLEST.flatmap(lambda _: trials))
        def tried(trial: Trial) -> None:
            self.tried(trial, spark)

        search: Callable[[], None] = tried
        if self.profile.seed is not None:
            search = seeded(self.profile.seed * SEEDS + self.searches)(tried)
        self.searches += 1
        try:
            search()
        except _TimeIsOver:
            smallest = min(self.found.values(), key=lambda failed: failed.case.size)
            smallest.shrinking = self.profile.shrinking
            raise smallest from None
        except Exception as failed:
            # what Hypothesis notes about an example is in the message
            failed.__notes__ = []
            raise

    def tried(self, trial: Trial, spark: SparkSession | None) -> None:
        """One trial. Once time is over no more is tried: the smallest found so far is what remains."""
        now = time.monotonic()
        if now > self.give_up:
            raise _TimeIsOver
        key = repr(trial)
        if key in self.found:
            raise self.found[key]
        case, ways = trial
        try:
            answers = Answers(case, self.expressions)
            expected, *_ = [answers.of(how) for how in ways]
        except TooMuch:
            # a query can multiply what it is given: another is drawn
            self.huge += 1
            if self.huge > MOST_HUGE:
                raise
            return
        except VerificationFailed as failed:
            self.number += not self.found
            self._note(key, failed)
            raise
        except QueryFailed as error:
            if not self.found:
                self.number += 1
                self.report.cases += 1
                self.report.failing += 1
                self.refused = self.refused or str(error)
            return
        if not self.found and not expected.num_rows and self.redraws:
            self.redraws -= 1
            return
        self.number += not self.found
        try:
            hold(case, ways, answers, spark)
        except VerificationFailed as failed:
            self._note(key, failed)
            raise
        if self.found:
            return
        self.report.cases += 1
        self.report.empty += not expected.num_rows
        self.report.executions.update(how.backend for how in ways)

    def _note(self, key: str, failed: VerificationFailed) -> None:
        if not self.found:
            self.give_up = time.monotonic() + self.profile.shrinking
        self.found[key] = failed


def _profile(given_as: str | Profile | None) -> Profile:
    if given_as is None:
        return loaded_profile()
    return profile(given_as) if isinstance(given_as, str) else given_as


def _static(plan: Any, name: str) -> bool:
    return any(isinstance(n, JoinTable) and n.table == name for n in nodes(plan))


def _arrow(table: Any) -> pa.Table:
    return table if isinstance(table, pa.Table) else table.toArrow()


def _session(tables: Mapping[str, Any]) -> SparkSession:
    from pyspark.sql import SparkSession

    for table in tables.values():
        if hasattr(table, "sparkSession"):
            return table.sparkSession
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    from streamq.run.session import session

    return session("streamq testing")


__all__ = ["Search", "VerificationFailed", "Verified", "check", "verify"]
