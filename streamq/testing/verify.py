"""Verification: compare a query's answers, in every backend and over sampled streams, with the oracle's.

Test framework, section 6: the history of the output must be what SQL computes from the histories of the inputs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
from hypothesis import strategies as st

from streamq.compiler.results import Results, without_policies
from streamq.errors import NeedsSpark, PlanError, kind_of
from streamq.keywords import check_keywords
from streamq.operators import JoinTable
from streamq.plan.node import Node, nodes, number_sources
from streamq.runtime.kernel import FAIL
from streamq.screens import ProgressBar
from streamq.stream import Stream
from streamq.testing.case import Case, VerificationFailed
from streamq.testing.drawn_scenarios import concrete
from streamq.testing.execution import BATCH, SPARK, in_process, on_spark
from streamq.testing.generate import cases_of
from streamq.testing.intent import ANYTHING, MOSTLY, Intent
from streamq.testing.lateness import ON_TIME
from streamq.testing.on_spark import session_of
from streamq.testing.profiles import REPORTS, Profile, Verification, loaded_profile, profile
from streamq.testing.program import statements
from streamq.testing.replay import save
from streamq.testing.scenario import Scenario
from streamq.testing.search import Search
from streamq.testing.trial import adapt, with_late_sinks


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
        return number_sources(queries[0].plan)
    root = Results.from_plans([query.plan for query in queries], "verify")
    # raises the error for two sources with one name
    without_policies(root)
    return number_sources(root)


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
    return table if isinstance(table, pa.Table) else table.toArrow()
