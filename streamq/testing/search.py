"""Search a failing trial: draw trials until one fails, and then smaller ones, within the time of a profile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.choice import choice_constraints_key, choice_permitted
from pyspark.sql import SparkSession

from streamq.errors import QueryFailed
from streamq.testing.case import VerificationFailed
from streamq.testing.oracle import JUDGES, TooMuch
from streamq.testing.profiles import FAILS, HUGE, Profile, Verification
from streamq.testing.trial import Answers, Trial, check_answers, check_failure

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

    def __init__(
        self,
        profile: Profile,
        report: Verification,
        begun: float,
        each: Callable[[], None] = lambda: None,
    ):
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
