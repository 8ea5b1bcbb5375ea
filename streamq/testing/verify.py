"""Verification: compare a query's answers, in every backend and over sampled streams, with the oracle's.

Test framework, section 6: the history of the output must be what SQL computes from the histories of the inputs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.choice import choice_constraints_key, choice_permitted
from pyspark.sql import SparkSession

from streamq.compiler.results import Results, without_policies
from streamq.connectors.connector import Connector
from streamq.errors import NeedsSpark, PlanError, QueryFailed, check_keywords, kind_of
from streamq.operators import JoinTable
from streamq.plan.node import Node, nodes, number_sources
from streamq.runtime.kernel import FAIL
from streamq.screens import ProgressBar
from streamq.stream import Stream
from streamq.testing.backends import session_of
from streamq.testing.case import Case, VerificationFailed
from streamq.testing.execution import BATCH, SPARK, in_process, on_spark
from streamq.testing.generate import cases_of, without_surroundings
from streamq.testing.intent import ANYTHING, MOSTLY, Intent
from streamq.testing.lateness import ON_TIME
from streamq.testing.oracle import JUDGES, TooMuch
from streamq.testing.profiles import FAILS, HUGE, REPORTS, Profile, Verification, loaded_profile, profile
from streamq.testing.program import statements
from streamq.testing.replay import save
from streamq.testing.scenario import Scenario, concrete
from streamq.testing.trial import Answers, Trial, adapt, check_answers, check_failure, with_late_sinks

BACKEND = "streamq"
"""The provider's name in ``hypothesis.settings``."""

providers.AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.Draws"

permitted: dict[Any, tuple[Any, ...]] = {}
"""Hypothesis' constants that often break programs, by type and constraints of the draw that permits them."""


class Draws(providers.HypothesisProvider):
    """Hypothesis' own provider without the literals of loaded modules."""

    def _maybe_draw_constant(self, choice_type: Any, constraints: Any, *, p: float = 0.05) -> Any:
        """Return, with probability ``p``, one of Hypothesis' constants that the constraints permit; else None."""
        random = self._random
        assert random is not None
        if random.random() > p:
            return None
        key = (choice_type, choice_constraints_key(choice_type, constraints))
        if key not in permitted:
            constants = providers.GLOBAL_CONSTANTS.set_for_type(choice_type)
            permitted[key] = tuple(value for value in constants if choice_permitted(value, constraints))
        return random.choice(permitted[key]) if permitted[key] else None


REDRAWS = 6
"""The number of times that a case with an empty answer is replaced by another; comparing empty answers shows little."""

SET_ASIDE = 3
"""The greatest number of cases that are set aside for each case to be judged."""

LEAST_SET_ASIDE = 60
"""The number of cases that may always be set aside, however few are to be judged."""

NOT_SIMPLEST = st.integers(0, 1 << 40).filter(bool)
"""A draw that rejects zero, and so the simplest example, with which Hypothesis begins."""

SEEDS = 1_000_003
"""The distance between the seeds of two searches."""


class _TimeIsOver(BaseException):
    """Raised to end a search; not an Exception, which Hypothesis would regard as a failing example."""


class Search:
    """A search for the smallest failing trial within the time of a profile; it counts the trials in a report.

    ``each`` is called before each trial. ``failures`` holds the failures by their trials' texts, the first one first; ``number``
    counts the trials until it, and ``searches`` the runs of Hypothesis. ``redraws``: how often an empty answer may still be
    replaced. ``give_up``: the monotonic time after which no smaller trial is run, which the first failure sets.
    """

    def __init__(self, profile: Profile, report: Verification, begun: float, each: Callable[[], None] = lambda: None):
        """Begin with no failure; ``begun`` is the monotonic time at which it all began."""
        self.profile, self.report = profile, report
        self.begun, self.each = begun, each
        self.failures: dict[str, VerificationFailed] = {}
        self.number = self.searches = self.redraws = 0
        self.give_up = float("inf")
        for judge in JUDGES:
            judge.begin()

    def run(self, trials: Sequence[st.SearchStrategy[Trial]], examples: int, spark: SparkSession | None = None) -> None:
        """Judge ``examples`` trials, drawn from the strategies in turn; raise VerificationFailed with the smallest that fails.

        A case without an answer to compare is set aside and replaced by another, up to a bound; the cases that are then missing
        are counted in the report. The search also ends when the profile's seconds are over, once a case has been judged.
        """
        report, judged, set_aside = self.report, self.report.cases, self.report.set_aside.total()
        most = max(LEAST_SET_ASIDE, SET_ASIDE * examples)
        turn = 0
        while (missing := examples - (report.cases - judged)) > 0:
            if report.set_aside.total() - set_aside >= most:
                report.missing += missing
                return
            before, self.redraws = (report.cases, report.set_aside.total()), REDRAWS
            while (report.cases, report.set_aside.total()) == before:
                over = self.profile.seconds is not None and time.monotonic() - self.begun > self.profile.seconds
                if over and report.cases:
                    return
                self._search(trials[turn % len(trials)], spark)
            turn += 1

    def _search(self, trials: st.SearchStrategy[Trial], spark: SparkSession | None) -> None:
        """Run one fresh trial and, if it fails, smaller ones; raise the failure of the smallest that was tried in time.

        Each trial is a search of its own, because Hypothesis starts a longer search with small examples and then varies those: of
        a hundred fewer than thirty were independent. The first example of a search, the simplest, is rejected.
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
        def attempt(trial: Trial) -> None:
            self.attempt(trial, spark)

        search: Callable[[], None] = attempt
        if self.profile.seed is not None:
            search = seeded(self.profile.seed * SEEDS + self.searches)(attempt)
        self.searches += 1
        try:
            search()
        except _TimeIsOver:
            smallest = min(self.failures.values(), key=lambda failed: failed.case.size)
            smallest.shrinking = self.profile.shrinking
            raise smallest from None
        except Exception as failed:
            # the message has what Hypothesis notes about the example
            failed.__notes__ = []
            raise

    def attempt(self, trial: Trial, spark: SparkSession | None) -> None:
        """Run one trial, and record it if it fails; raise _TimeIsOver if the time for shrinking is over.

        A trial that has failed before is not run again; its failure is raised. That time begins with the first failure. An error
        other than VerificationFailed is raised and not recorded.
        """
        self.each()
        if time.monotonic() > self.give_up:
            raise _TimeIsOver
        key = repr(trial)
        if key in self.failures:
            raise self.failures[key]
        try:
            self._hold(trial, spark)
        except VerificationFailed as failed:
            if not self.failures:
                self.give_up = time.monotonic() + self.profile.shrinking
            self.failures[key] = failed
            raise

    def _hold(self, trial: Trial, spark: SparkSession | None) -> None:
        """Run a trial if the oracle can compute its answer; until one has failed, count it in the report.

        One that gives no answer to compare is counted there as set aside, by the reason. One with an empty answer is skipped, and
        not counted, while there are redraws left. Raises VerificationFailed if the trial fails.
        """
        case, ways = trial
        is_counted = not self.failures
        self.number += is_counted
        reason = ""
        try:
            answers = Answers(case)
            expected = answers.answer(ways[0])
            if is_counted and not expected.num_rows and self.redraws:
                self.number -= 1
                self.redraws -= 1
                return
            for how in ways[1:]:
                answers.answer(how)
        except TooMuch:
            reason = HUGE
        except QueryFailed as error:
            reason = FAILS
            check_failure(case, answers, error)
            if not case.may_fail:
                raise VerificationFailed(case, ways[0], None, error, is_legal=True) from error
            self.report.first_failure = self.report.first_failure or str(error).splitlines()[0]
        if reason:
            self.report.set_aside[reason] += is_counted
            return
        reasons = check_answers(case, ways, answers, spark)
        compared = [how for how, reason in zip(ways, reasons, strict=True) if not reason]
        if not is_counted:
            return
        if not compared:
            self.report.set_aside[reasons[0]] += 1
            return
        self.report.cases += 1
        self.report.empty += not expected.num_rows
        self.report.executions.update(how.backend for how in compared)


@check_keywords
def verify(
    query: Stream | Scenario | Sequence[Stream],
    intent: Intent = ANYTHING,
    *,
    profile: str | Profile | None = None,
    examples: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    may_fail: bool | None = None,
) -> Verification:
    """Compare a query's answers with the oracle's: in-process, in batch and as a stream, over sampled data.

    The sources get random data as ``intent`` describes them, with times and values near those in the query; the query's own
    rows are not read. For a :class:`Scenario` each case is another concrete query. Each case runs in-process, all at once or in
    micro-batches, as final rows and as a changelog, with random restarts, buckets and sets of rewrite rules; for changelogs in
    one bucket every CTI is checked. Some cases run on Spark, as DataFrames and as Structured Streaming queries (in the query's
    session, the active one, or a new one). ``profile`` sets the number of cases, by name or as a :class:`Profile`; ``examples``
    and ``seed`` override its values. The same seed gives the same cases. ``name`` names the file into which a failing case is
    saved, if the profile, or the one loaded, has a folder for them.

    A list of queries is run as :func:`streamq.run_all` runs them: side by side, as one stream, in some cases with an output of
    their own. Each answer is compared with the oracle's for that query alone. On Spark they are DataFrames each by itself.

    A query that fails over some case by its own rules (an overflow, a division by zero, a module that raises) is wrong, unless
    it ``may_fail``; by default only a scenario may, whose arguments and types are random. Such a case is then set aside, as is
    one in which ``late="fail"`` refuses an item or a window is quarantined: it is not counted, and others are drawn in its place,
    up to three for each case asked for. Only with ``may_fail`` do some sums overflow because their values are extreme.

    Raises :class:`VerificationFailed` with the smallest case found, the difference drawn as a timeline, the case as a
    program, and the file it is saved in; :class:`streamq.errors.PlanError` for a query that cannot be generated or
    translated, for queries that cannot run as one stream, and if all cases are set aside; NeedsSpark if only Spark can run the
    query and the profile has no cases there.

    >>> import streamq as sq
    >>> from streamq import testing as t
    >>> s = sq.events([(1, 5, {"k": "a", "v": 3})])
    >>> query = s.group_by("k").tumbling_window(4).select(n=sq.count(), most=sq.max("v"))
    >>> report = t.verify(query, t.Intent(disorder="high"), profile="fast", examples=5)
    >>> report.cases
    5
    >>> t.verify([query, s.where(sq.col("v") > 1)], profile="fast", examples=2).cases
    2
    """
    begun = time.monotonic()
    queries = _checked_queries(query)
    _check_arguments(intent, may_fail)
    may_fail = isinstance(query, Scenario) if may_fail is None else may_fail
    chosen = _profile(profile)
    chosen = replace(chosen, examples=chosen.examples if examples is None else examples)
    chosen = replace(chosen, seed=chosen.seed if seed is None else seed)
    report = Verification()
    bar, planned = ProgressBar("verify"), chosen.examples + chosen.batch + chosen.streams

    def show_cases() -> None:
        smaller = ", one fails: looking for a smaller one" if search.failures else ""
        bar.update(report.cases, planned, f"{report.cases:,} of {planned:,} cases{smaller}")

    search = Search(chosen, report, begun, show_cases)
    # a job on Spark takes as long over many rows as over few, so cases there have more events
    words = [word for word in intent.choices("late") if word != FAIL.name]
    many = intent.but(events=intent.events * CROWD, late=tuple(words) or ON_TIME)
    # modules often forget that a window may have nothing but NULLs
    empty = intent.but(nulls=MOSTLY) if intent.nulls is None else intent
    if isinstance(query, Scenario):
        cases, nulls, crowded = (concrete(query, one, may_fail=may_fail) for one in (intent, empty, many))
    else:
        plan, names = _numbered(queries)
        tables = {names[n]: _arrow(t) for q in queries for n, t in q.tables.items() if _static(plan, names.get(n, n))}
        named = {"q": queries[0]} if len(queries) == 1 else {f"q{i}": one for i, one in enumerate(queries, start=1)}
        calls = statements(named)
        cases, nulls, crowded = (
            cases_of(plan, one, tables, calls=calls, may_fail=may_fail) for one in (intent, empty, many)
        )
    cases, nulls, crowded = (
        drawn.map(lambda case: replace(case, may_fail=may_fail)) for drawn in (cases, nulls, crowded)
    )
    several = len(queries) > 1
    ways_in_turn = in_process(several=several)
    # every eighth case has columns of NULLs, the second one first
    kinds = [cases, nulls, *[cases] * (2 * len(ways_in_turn) - 2)]
    local = [st.tuples(kind, ways).map(adapt) for kind, ways in zip(kinds, ways_in_turn * 2, strict=True)]

    def without_spark(examples: int) -> None:
        """Run cases in-process; if they need Spark, empty the report, and note that in-process cases are left out."""
        if "in-process" in report.left_out:
            return
        try:
            search.run(local, examples)
        except NeedsSpark as error:
            # earlier cases ran only because they had no rows to compute
            left_out = {**report.left_out, "in-process": str(error)}
            vars(report).update(vars(Verification(left_out=left_out)))

    try:
        with bar:
            without_spark(min(chosen.examples, FIRST))
            if chosen.batch or chosen.streams:
                spark = session_of({name: table for one in queries for name, table in one.tables.items()})
                candidates = st.lists(crowded, min_size=CANDIDATES, max_size=CANDIDATES)
                richest = candidates.map(lambda drawn: max(drawn, key=Case.variety))
                # a DataFrame is mostly computed without ``until``
                open_ended = richest.map(lambda case: replace(case, until=None))
                whole = [st.tuples(one, on_spark(BATCH)) for one in (open_ended, richest)]
                search.run(whole, chosen.batch, spark)
                streamed = richest.map(Case.coarser)
                if several:
                    # run_all would wait for the next tick of the clock, which stands still at the end of a test
                    streamed = streamed.filter(lambda case: not case.follows_clock)
                streams = st.tuples(streamed, on_spark(SPARK, several=several)).map(with_late_sinks)
                search.run([streams], chosen.streams, spark)
            without_spark(chosen.examples - min(chosen.examples, FIRST))
    except VerificationFailed as failed:
        failed.first, failed.number = next(iter(search.failures.values())), search.number
        folder = chosen.failures or loaded_profile().failures
        if folder is not None:
            test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
            called = name or test or f"case-{failed.case.plan.digest}"
            failed.saved = save(failed.case, failed.how, failed.says, folder, called)
        # drop the frames of the search
        raise failed.with_traceback(None) from failed.error
    if not report.executions:
        _refuse(report)
    report.seconds = time.monotonic() - begun
    REPORTS.append(report)
    return report


def _checked_queries(query: Any) -> list[Stream]:
    """Return the queries to verify, none for a scenario; raise PlanError for what is neither, nor a list of queries."""
    if isinstance(query, Scenario):
        return []
    queries = list(query) if isinstance(query, list | tuple) else [query]
    if not queries:
        raise PlanError("verify", "no queries", "the list is empty", "Give some: t.verify([one, another]).")
    for one in queries:
        if isinstance(one, Scenario):
            raise PlanError("verify", "a scenario in a list of queries", "", "Give it by itself: t.verify(it).")
        if not isinstance(one, Stream):
            hint = "Call it: t.verify(f(stream))." if callable(one) else "Give a query, or a scenario: t.stream(...)."
            raise PlanError("verify", "not a query", f"found {kind_of(one)}", hint)
    return queries


def _check_arguments(intent: Any, may_fail: Any) -> None:
    """Raise PlanError unless the arguments are an intent, and True, False or None."""
    if not isinstance(intent, Intent):
        raise PlanError("verify", "not an intent", f"found {intent!r}", 'Write t.Intent(disorder="high").')
    if may_fail is not None and not isinstance(may_fail, bool):
        raise PlanError("verify", "may_fail is neither True nor False", f"found {may_fail!r}")


def _numbered(queries: Sequence[Stream]) -> tuple[Node, dict[str, str]]:
    """Return the plan of a query, or the root over several, with its sources numbered, and the new names of tables.

    Raises PlanError for queries on different time axes, and for two sources with one name.
    """
    if len(queries) == 1:
        return number_sources(without_surroundings(queries[0].plan))
    root = Results.from_plans([query.plan for query in queries], "verify")
    # raises the error for two sources with one name
    without_policies(root)
    return number_sources(without_surroundings(root))


def _refuse(report: Verification) -> NoReturn:
    """Raise the error for a verification that compared nothing: PlanError, or NeedsSpark if only Spark could run the query."""
    if report.set_aside:
        instead = f"all {report.set_aside.total()} cases were set aside: {report.reasons}"
        raise PlanError("verify", "nothing could be judged", instead, "Give legal values: t.Intent(payload=...).")
    if report.left_out:
        why = next(iter(report.left_out.values()))
        raise NeedsSpark("verify", "nothing could be run", why, "Use a profile that runs cases on Spark.")
    raise PlanError("verify", "nothing is tried", "the profile has no examples", "Give some: examples=50.")


CROWD = 3
"""The factor by which a case on Spark has more events."""

CANDIDATES = 6
"""The number of cases drawn for each one on Spark; the one of the greatest variety is run."""

FIRST = 30
"""The number of cases that run in-process before the slower ones on Spark."""


def _profile(name_or_profile: str | Profile | None) -> Profile:
    if name_or_profile is None:
        return loaded_profile()
    return profile(name_or_profile) if isinstance(name_or_profile, str) else name_or_profile


def _static(plan: Any, name: str) -> bool:
    return any(isinstance(n, JoinTable) and n.table == name for n in nodes(plan))


def _arrow(table: Any) -> pa.Table:
    if isinstance(table, Connector):
        return table.in_memory("verify")
    return table if isinstance(table, pa.Table) else table.toArrow()
