"""Verification: a query's answers, in every backend and over sampled streams, held against the oracle's.

Test framework, section 6: the history of the output is what SQL makes of the histories of the inputs.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
from hypothesis import strategies as st

from streamq.errors import NeedsSpark, PlanError, kind_of, sentence
from streamq.operators import JoinTable
from streamq.plan.node import nodes, number_sources
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
from streamq.testing.profiles import Profile, loaded_profile, profile
from streamq.testing.replay import saved
from streamq.testing.report import REPORTS, Verified
from streamq.testing.scenario import Scenario
from streamq.testing.search import Search
from streamq.testing.trial import bounded, with_late_sinks


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

    A case of which no answer can be compared (the query fails over it, ``late="fail"`` refuses an item, a window is
    quarantined) is set aside and counts for nothing: others are drawn, up to three for each case asked for.

    Raises :class:`VerificationFailed` with the smallest case found, what differs drawn as a timeline, the case as a
    program, and where it is saved; :class:`streamq.errors.PlanError` for what cannot be generated or
    translated, and where all cases are set aside; NeedsSpark where only Spark can run the query and the profile has no
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
    # a scenario's own expressions are all translated, which is the harder test; a user's may not be
    search = Search(chosen, report, begun, TRANSLATED if isinstance(query, Scenario) else EVALUATED)
    # a job on Spark takes as long over many rows as over few
    words = [word for word in intent.choices("late") if not fails(word)]
    many = intent.but(events=intent.events * CROWD, late=tuple(words) or ON_TIME)
    if isinstance(query, Scenario):
        cases, crowded = concrete(query, intent), concrete(query, many)
    else:
        plan, names = number_sources(query.plan)
        tables = {names[n]: _arrow(t) for n, t in query.tables.items() if n in names and _static(plan, names[n])}
        cases, crowded = cases_of(plan, intent, tables), cases_of(plan, many, tables)
    local = [st.tuples(cases, ways).map(bounded) for ways in in_process()]

    def without_spark(examples: int) -> None:
        if "in-process" in report.left_out:
            return
        try:
            search.run(local, examples)
        except NeedsSpark as error:
            # those that ran had nothing in them that would have had to be computed
            left_out = {**report.left_out, "in-process": str(error)}
            vars(report).update(vars(Verified(left_out=left_out)))

    try:
        without_spark(min(chosen.examples, FIRST))
        if chosen.batch or chosen.streams:
            spark = session_of({} if isinstance(query, Scenario) else query.tables)
            richest = st.lists(crowded, min_size=OF, max_size=OF).map(lambda some: max(some, key=Case.variety))
            search.run([st.tuples(richest, on_spark(BATCH))], chosen.batch, spark)
            streams = st.tuples(richest.map(Case.coarser), on_spark(SPARK)).map(with_late_sinks)
            search.run([streams], chosen.streams, spark)
        without_spark(chosen.examples - min(chosen.examples, FIRST))
    except VerificationFailed as failed:
        failed.first, failed.number = next(iter(search.failures.values())), search.number
        folder = chosen.failures or loaded_profile().failures
        if folder is not None:
            test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
            called = name or test or f"case-{failed.case.plan.digest}"
            failed.saved = saved(failed.case, failed.how, failed.says, folder, called, search.expressions)
        # without the frames of the search: what failed is its cause
        raise failed.with_traceback(None) from failed.error
    if not report.executions:
        _refuse(report)
    report.seconds = time.monotonic() - begun
    REPORTS.append(report)
    return report


def _check_arguments(query: Any, intent: Any) -> None:
    if not isinstance(query, Stream | Scenario):
        hint = "Call it: t.verify(f(stream))." if callable(query) else "Give a query, or a scenario: t.stream(...)."
        raise PlanError(sentence("verify", "not a query", f"found {kind_of(query)}", hint))
    if not isinstance(intent, Intent):
        raise PlanError(sentence("verify", "not an intent", f"found {intent!r}", 'Write t.Intent(disorder="high").'))


def _refuse(report: Verified) -> NoReturn:
    """A verification of nothing is none."""
    if report.set_aside:
        instead = f"all {report.set_aside.total()} cases were set aside: {report.reasons}"
        raise PlanError(
            sentence("verify", "nothing could be judged", instead, "Say which values do: t.Intent(payload=...).")
        )
    if report.left_out:
        why = next(iter(report.left_out.values()))
        raise NeedsSpark(sentence("verify", "nothing could be run", why, "Use a profile that runs cases on Spark."))
    raise PlanError(sentence("verify", "nothing is tried", "the profile has no examples", "Give some: examples=50."))


CROWD = 3
"""How many times as many events a case on Spark has."""

OF = 6
"""Of so many cases the one of the greatest variety runs on Spark."""

FIRST = 30
"""So many cases run in-process before some run on Spark, which takes longer to say what it says."""


def _profile(name_or_profile: str | Profile | None) -> Profile:
    if name_or_profile is None:
        return loaded_profile()
    return profile(name_or_profile) if isinstance(name_or_profile, str) else name_or_profile


def _static(plan: Any, name: str) -> bool:
    return any(isinstance(n, JoinTable) and n.table == name for n in nodes(plan))


def _arrow(table: Any) -> pa.Table:
    return table if isinstance(table, pa.Table) else table.toArrow()


__all__ = ["verify"]
