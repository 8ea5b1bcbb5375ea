"""Verification: compare a query's answers, in every backend and over sampled streams, with the oracle's.

Test framework, section 6: the history of the output must be what SQL computes from the histories of the inputs.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
from hypothesis import strategies as st

from streamq.errors import NeedsSpark, PlanError, kind_of, sentence
from streamq.keywords import check_keywords
from streamq.operators import JoinTable
from streamq.plan.node import nodes, number_sources
from streamq.progress_bar import ProgressBar
from streamq.stream import Stream
from streamq.testing.case import Case
from streamq.testing.drawn_executions import in_process, on_spark
from streamq.testing.drawn_scenarios import concrete
from streamq.testing.execution import BATCH, SPARK
from streamq.testing.failure import VerificationFailed
from streamq.testing.generate import cases_of
from streamq.testing.intent import ANYTHING, Intent
from streamq.testing.late_policies import fails
from streamq.testing.lateness import ON_TIME
from streamq.testing.on_spark import session_of
from streamq.testing.oracle import EVALUATED, TRANSLATED
from streamq.testing.oracle.tables import wrong_table
from streamq.testing.profiles import Profile, loaded_profile, profile
from streamq.testing.replay import save
from streamq.testing.report import REPORTS, Verified
from streamq.testing.scenario import Scenario
from streamq.testing.search import Search
from streamq.testing.trial import adapt, with_late_sinks, with_possible_forms


@check_keywords
def verify(
    query: Stream | Scenario,
    intent: Intent = ANYTHING,
    *,
    profile: str | Profile | None = None,
    examples: int | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> Verified:
    """Compare a query's answers with the oracle's: in-process, in batch and as a stream, over sampled data.

    The sources get random data as ``intent`` describes them, with times and values near those in the query; the query's own
    rows are not read. For a :class:`Scenario` each case is another concrete query. Each case runs in-process, all at once or in
    micro-batches, as final rows and as a changelog, with random restarts, buckets and sets of rewrite rules; for changelogs in
    one bucket every CTI is checked. Some cases run on Spark, as DataFrames and as Structured Streaming queries (in the query's
    session, the active one, or a new one). ``profile`` sets the number of cases, by name or as a :class:`Profile`; ``examples``
    and ``seed`` override its values. The same seed gives the same cases. ``name`` names the file into which a failing case is
    saved, if the profile, or the one loaded, has a folder for them.

    A case without an answer to compare (the query fails over it, ``late="fail"`` refuses an item, a window is quarantined) is set
    aside and not counted; others are drawn in its place, up to three for each case asked for.

    Raises :class:`VerificationFailed` with the smallest case found, the difference drawn as a timeline, the case as a
    program, and the file it is saved in; :class:`streamq.errors.PlanError` for a query that cannot be generated or
    translated, and if all cases are set aside; NeedsSpark if only Spark can run the query and the profile has no
    cases there.

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
    # a user's query may have expressions that the oracle does not define
    expressions = TRANSLATED if isinstance(query, Scenario) else EVALUATED
    misread = wrong_table(query) if isinstance(query, Scenario) else None
    bar, planned = ProgressBar("verify"), chosen.examples + chosen.batch + chosen.streams

    def show_cases() -> None:
        smaller = ", one fails: looking for a smaller one" if search.failures else ""
        bar.update(report.cases, planned, f"{report.cases:,} of {planned:,} cases{smaller}")

    search = Search(chosen, report, begun, expressions, misread, show_cases)
    # a job on Spark takes as long over many rows as over few, so cases there have more events
    words = [word for word in intent.choices("late") if not fails(word)]
    many = intent.but(events=intent.events * CROWD, late=tuple(words) or ON_TIME)
    if isinstance(query, Scenario):
        cases, crowded = concrete(query, intent), concrete(query, many)
    else:
        plan, names = number_sources(query.plan)
        tables = {names[n]: _arrow(t) for n, t in query.tables.items() if n in names and _static(plan, names[n])}
        cases, crowded = cases_of(plan, intent, tables), cases_of(plan, many, tables)
    local = [st.tuples(cases, ways).map(adapt) for ways in in_process()]

    def without_spark(examples: int) -> None:
        """Run cases in-process; if they need Spark, empty the report, and note that in-process cases are left out."""
        if "in-process" in report.left_out:
            return
        try:
            search.run(local, examples)
        except NeedsSpark as error:
            # earlier cases ran only because they had no rows to compute
            left_out = {**report.left_out, "in-process": str(error)}
            vars(report).update(vars(Verified(left_out=left_out)))

    try:
        with bar:
            without_spark(min(chosen.examples, FIRST))
            if chosen.batch or chosen.streams:
                spark = session_of({} if isinstance(query, Scenario) else query.tables)
                several = st.lists(crowded, min_size=CANDIDATES, max_size=CANDIDATES)
                richest = several.map(lambda candidates: max(candidates, key=Case.variety))
                # a DataFrame is mostly computed without ``until``
                open_ended = richest.map(lambda case: replace(case, until=None))
                whole = [st.tuples(one, on_spark(BATCH)).map(with_possible_forms) for one in (open_ended, richest)]
                search.run(whole, chosen.batch, spark)
                streams = st.tuples(richest.map(Case.coarser), on_spark(SPARK)).map(with_late_sinks)
                search.run([streams], chosen.streams, spark)
            without_spark(chosen.examples - min(chosen.examples, FIRST))
    except VerificationFailed as failed:
        failed.first, failed.number = next(iter(search.failures.values())), search.number
        folder = chosen.failures or loaded_profile().failures
        if folder is not None:
            test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
            called = name or test or f"case-{failed.case.plan.digest}"
            failed.saved = save(failed.case, failed.how, failed.says, folder, called, search.expressions)
        # drop the frames of the search
        raise failed.with_traceback(None) from failed.error
    if not report.executions:
        _refuse(report)
    report.seconds = time.monotonic() - begun
    REPORTS.append(report)
    return report


def _check_arguments(query: Any, intent: Any) -> None:
    """Raise PlanError unless the arguments are a query or a scenario, and an intent."""
    if not isinstance(query, Stream | Scenario):
        hint = "Call it: t.verify(f(stream))." if callable(query) else "Give a query, or a scenario: t.stream(...)."
        raise PlanError(sentence("verify", "not a query", f"found {kind_of(query)}", hint))
    if not isinstance(intent, Intent):
        raise PlanError(sentence("verify", "not an intent", f"found {intent!r}", 'Write t.Intent(disorder="high").'))


def _refuse(report: Verified) -> NoReturn:
    """Raise the error for a verification that compared nothing: PlanError, or NeedsSpark if only Spark could run the query."""
    if report.set_aside:
        instead = f"all {report.set_aside.total()} cases were set aside: {report.reasons}"
        raise PlanError(
            sentence("verify", "nothing could be judged", instead, "Give legal values: t.Intent(payload=...).")
        )
    if report.left_out:
        why = next(iter(report.left_out.values()))
        raise NeedsSpark(sentence("verify", "nothing could be run", why, "Use a profile that runs cases on Spark."))
    raise PlanError(sentence("verify", "nothing is tried", "the profile has no examples", "Give some: examples=50."))


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
    return table if isinstance(table, pa.Table) else table.toArrow()


__all__ = ["verify"]
