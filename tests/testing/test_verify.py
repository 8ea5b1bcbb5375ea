"""Verification tells a right query from a wrong one, shows the smallest input that does, and says what it has run."""

from __future__ import annotations

import importlib
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.errors import NeedsSpark, PlanError, QueryFailed
from streamq.runtime.kernels.settle import SettleKernel
from streamq.testing.backends import execute
from streamq.testing.history import WrongOutput, net, same_history
from streamq.testing.profiles import FAILS, REFUSED, loaded_profile
from streamq.testing.replay import replay
from tests.mutation.faults import FAULTS

TRIPS = sq.events([(1, 5, {"zone": "a", "fare": 3.0})], name="trips")
WINDOWS = TRIPS.group_by("zone").hopping_window(6, 2).select(n=sq.count(), most=sq.max("fare"))
EDGES = sq.edges(t.table("at bigint, e string, k string", []), time="at", edge="e", key=["k"], name="edges")
FAST = t.Profile(examples=5, batch=0, streams=0, shrinking=1)


@pytest.mark.slow
def test_functions_without_an_arrow_form_are_left_to_spark() -> None:
    odd = TRIPS.where(sq.functions.soundex("zone") == "A000")
    with pytest.raises(NeedsSpark, match=r"verify: nothing could be run; .*soundex.* Use a profile that runs cases"):
        t.verify(odd, profile=FAST)


@pytest.mark.slow
def test_cases_without_an_answer_are_set_aside_and_others_drawn_in_their_place() -> None:
    report = t.verify(TRIPS.select(x=sq.lit(1) / sq.col("fare")), profile=FAST, may_fail=True)
    assert report.cases == 5 and report.missing == 0
    assert report.set_aside[FAILS] > 0
    assert f"set aside, not counted: {report.set_aside[FAILS]} where the query fails over it (" in str(report)
    many = t.verify(TRIPS, t.Intent(late="fail"), profile=FAST)
    assert many.cases == 5 and many.set_aside[REFUSED] > 0


@pytest.mark.slow
def test_a_query_that_fails_over_some_case_is_wrong_unless_it_may(tmp_path: Path) -> None:
    """A module that forgets NULLs is seen by the first windows that have nothing else; the file shows it again."""

    @sq.uda("double", name="first_known")
    def first_known(fares: Any) -> float:
        return float(fares.dropna().iloc[0])

    query = TRIPS.tumbling_window(6).select(x=first_known("fare"))
    profile = replace(FAST, examples=50, failures=str(tmp_path))
    with pytest.raises(t.VerificationFailed, match="the query fails by its own rules") as caught:
        t.verify(query, profile=profile, name="nulls")
    failed = caught.value
    assert failed.is_legal and failed.first.number <= 4
    assert "say so: may_fail=True" in str(failed) and "t.check_module(first_known)" in str(failed)
    report = t.verify(query, profile=FAST, examples=8, may_fail=True)
    assert report.cases == 8 and report.set_aside[FAILS] > 0
    with pytest.raises(PlanError, match="verify: may_fail is neither True nor False; found 'yes'"):
        t.verify(query, profile=FAST, may_fail="yes")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_failure_of_a_query_is_replayed(tmp_path: Path) -> None:
    inverse = TRIPS.select(x=sq.lit(1) / (sq.col("fare") - 7))
    with pytest.raises(t.VerificationFailed) as caught:
        t.verify(inverse, profile=replace(FAST, examples=50, failures=str(tmp_path)), name="inverse")
    assert caught.value.is_legal and caught.value.saved is not None
    with pytest.raises(t.VerificationFailed, match="the query fails by its own rules"):
        replay(caught.value.saved)


@pytest.mark.parametrize(
    ("may_fail", "least", "most"), [(False, 0, 0), pytest.param(True, 1, 20, marks=pytest.mark.slow)]
)
def test_sums_of_great_values_fit_unless_the_query_may_fail(may_fail: bool, least: int, most: int) -> None:
    """Of 30 cases of long windows: none overflows, or few do."""
    readings = sq.points(t.table("at bigint, k string, v bigint", []), time="at", name="readings")
    sums = readings.group_by("k").hopping_window(60, 5).select(x=sq.sum("v")).to_points().tumbling_window(90)
    sums = sums.select(y=sq.sum("x"))
    fails: list[bool] = []

    @settings(max_examples=30, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
    @given(t.concrete(sums, t.Intent(duplicates=True), may_fail=may_fail))
    def answer(case: t.Case) -> None:
        try:
            case.answer()
        except QueryFailed:
            fails.append(True)

    answer()
    assert least <= len(fails) <= most


@pytest.mark.slow
def test_what_is_set_aside_is_bounded() -> None:
    """Hardly any case has an answer: the report says how many are missing."""

    @sq.uda("bigint", name="picky")
    def picky(fares: Any) -> int:
        if len(fares) > 1:
            raise ValueError("too many")
        return 1

    report = t.verify(
        TRIPS.tumbling_window(40).select(x=picky("fare")),
        t.Intent(late="none", invalid=False),
        profile=FAST,
        examples=7,
        may_fail=True,
    )
    assert report.cases + report.missing == 7 and report.missing > 0
    assert report.set_aside.total() == 60 and "fewer than asked for" in str(report)


def lost(kernel: object, state: object, arrivals: object, clock: object) -> object:
    """SettleKernel.advance, but what ends after instant 20 is lost."""
    made = RIGHT(kernel, state, arrivals, clock)
    if made.table is not None:
        made.table = made.table.filter(pc.less_equal(made.table.column("__re"), 20))
    return made


RIGHT = SettleKernel.advance


def test_a_case_that_may_not_be_the_smallest_says_so() -> None:
    with mock.patch.object(SettleKernel, "advance", lost):
        for seconds, told in ((1e-9, True), (0.0, False)):
            profile = t.Profile(examples=100, batch=0, streams=0, shrinking=seconds, failures=None)
            with pytest.raises(t.VerificationFailed) as caught:
                t.verify(EDGES, profile=profile)
            assert ("the smallest case found in 1e-09 s; for a smaller one" in str(caught.value)) == told


@pytest.mark.slow
def test_a_failure_names_the_modules_of_the_query_and_how_to_check_them() -> None:
    @sq.uda("bigint", name="rising")
    def rising(values: Any) -> int:
        return time.perf_counter_ns()

    with pytest.raises(
        t.VerificationFailed, match="not the oracle's history .*\nthe query calls rising: their results differ"
    ) as caught:
        t.verify(TRIPS.tumbling_window(5).select(n=rising("fare")), profile=replace(FAST, failures=None))
    assert "run t.check_module(rising)\n" in str(caught.value)
    with mock.patch.object(SettleKernel, "advance", lost), pytest.raises(t.VerificationFailed) as caught:
        t.verify(EDGES, profile=replace(FAST, failures=None))
    assert "the query calls" not in str(caught.value)


@pytest.mark.slow
def test_a_wrong_answer_is_shown_by_the_smallest_case(tmp_path: Path) -> None:
    """An operator is made wrong for once: that what is wrong is told is what this is about."""
    with mock.patch.object(SettleKernel, "advance", lost):
        with pytest.raises(t.VerificationFailed) as caught:
            t.verify(EDGES, profile=t.Profile(examples=100, batch=0, streams=0, failures=str(tmp_path)), name="lost")
        failed = caught.value
        assert len(failed.case.arrival) <= 2
        assert failed.difference is not None and failed.difference.missing and not failed.difference.extra
        text = str(failed)
        for part in (
            "not the oracle's history (",
            "missing (only in the expected history): 1 row",
            "micro-batch 1\n  edges  ",
            " = sq.edges(",
            f"to run it again: t.replay('{failed.saved}')",
        ):
            assert part in text
        page = failed._repr_html_()
        assert "1 missing" in page and 'class="streamq trace"' in page
        assert failed.saved is not None
        with pytest.raises(t.VerificationFailed):
            replay(failed.saved)
    replay(failed.saved)
    assert execute(failed.case, failed.how).num_rows


@pytest.mark.slow
def test_what_a_plan_says_of_its_rows_must_be_so() -> None:
    """A union of points and intervals that takes itself for one of points, and intervals for such as end."""
    points = sq.points(t.table("at bigint, k string", []), time="at", name="points")
    spans = sq.intervals(t.table("start bigint, end bigint, k string", []), start="start", end="end", name="spans")
    both = points.union(spans)
    with_ends = replace(points.plan.traits, longest=None)
    for part, instead, wrong in (
        ("_schema", lambda node: points.schema, r"union claims to return points, but returns \(-?\d+, -?\d+\)"),
        ("_traits", lambda node: with_ends, "union claims to return lifetimes that end, but returns"),
    ):
        with mock.patch.object(type(both.plan), part, instead), pytest.raises(t.VerificationFailed, match=wrong):
            t.verify(points.union(spans), profile=FAST)
    t.verify(both, profile=FAST)


@pytest.mark.slow
def test_what_a_query_raises_is_told_with_the_case() -> None:
    def broken(*_: object) -> object:
        raise ZeroDivisionError("oh")

    with mock.patch.object(SettleKernel, "advance", broken):
        with pytest.raises(t.VerificationFailed, match="ZeroDivisionError: oh") as caught:
            t.verify(EDGES, profile=FAST)
    assert isinstance(caught.value.error, ZeroDivisionError) and caught.value.difference is None


@pytest.mark.slow
def test_the_same_seed_tries_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever modules are loaded: Hypothesis by itself draws literals that it finds in them."""
    (tmp_path / "constants_of_mine.py").write_text(f"A = {list(range(101, 500))}")
    monkeypatch.syspath_prepend(tmp_path)
    anything = t.Intent(payload={"fare": st.integers(0, 1_000).map(float)})
    seen: list[list[str]] = []
    for seed in (1, 1, 2):
        if len(seen) == 1:
            importlib.import_module("constants_of_mine")
        cases: list[str] = []

        def answer(case: t.Case, *args: Any, cases: list[str] = cases, right: Any = t.Case.answer, **how: Any) -> Any:
            cases.append(repr(case))
            return right(case, *args, **how)

        with mock.patch.object(t.Case, "answer", answer):
            t.verify(WINDOWS, anything, profile=FAST, seed=seed, examples=3)
        seen.append(cases)
    assert seen[0] == seen[1] != seen[2]


WRONG = ("offset subtracted", "CTI at the last closed end", "extension lost")
"""Mutants that show in different ways: by a history, by CTIs, by counts."""


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["integer", "timestamp"])
@pytest.mark.parametrize("mutant", WRONG)
def test_a_failure_speaks_of_time_as_the_querys_axis_does(mutant: str, axis: str) -> None:
    """On an axis of timestamps there are no ticks, and on one of integers no instants by the clock."""
    stream = t.stream(columns="k string, v boolean", axis=axis, shape="physical")
    size, hop, offset = (6, 2, 1) if axis == "integer" else ("90 minutes", "30 minutes", "10 minutes")
    query: Any = stream.group_by("k").hopping_window(size, hop, offset).select(n=sq.count())
    query = stream if mutant == "extension lost" else query
    with FAULTS[mutant].in_place(), pytest.raises(t.VerificationFailed) as caught:
        t.verify(query, t.Intent(events=6), profile=t.Profile(examples=60, batch=0, streams=0, shrinking=0, seed=1))
    for text in (str(caught.value), repr(caught.value.case)):
        shown = re.findall(r"\d{4}-\d\d-\d\dT|[Tt]imestamp|dt\.datetime", text)
        assert bool(shown) == (axis == "timestamp"), text
        if axis == "timestamp":
            # parts of a second have six digits
            assert re.findall(r"\b\d{7,}\b", text) == [], text


def test_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROFILE", "EXAMPLES", "SEED"):
        monkeypatch.delenv(f"STREAMQ_{name}", raising=False)
    assert loaded_profile().examples == t.PROFILES["default"].examples
    monkeypatch.setenv("STREAMQ_PROFILE", "fast")
    monkeypatch.setenv("STREAMQ_EXAMPLES", "7")
    monkeypatch.setenv("STREAMQ_SEED", "3")
    found = loaded_profile()
    assert (found.examples, found.seed, found.batch) == (7, 3, 0)
    try:
        assert t.load_profile("thorough", seconds=1.5).seconds == 1.5
        assert loaded_profile().examples == 1_000
    finally:
        t.load_profile(None)
    with pytest.raises(
        PlanError, match="a profile's name is 'fast', .* or 'nightly'; found 'fats'. Did you mean 'fast'"
    ):
        t.verify(WINDOWS, profile="fats")
    for variable in ("STREAMQ_SEED", "STREAMQ_EXAMPLES"):
        monkeypatch.setenv(variable, "seven")
        with pytest.raises(PlanError, match=f"{variable}: no whole number; found 'seven'"):
            loaded_profile()
        monkeypatch.setenv(variable, "7")


@pytest.mark.slow
def test_time_is_bounded() -> None:
    report = t.verify(WINDOWS, profile=t.Profile(examples=10_000, batch=0, streams=0, seconds=0.5))
    assert 0 < report.cases < 10_000


@pytest.mark.slow
def test_a_verification_of_nothing_is_none() -> None:
    sums = sq.points(t.table("at bigint, v bigint", []), time="at").tumbling_window(10).select(x=sq.sum("v"))
    great = t.Intent(payload={"v": [2**63 - 1]}, events=3, duplicates=True, ctis="eager", disorder="in_order")
    over = sums.where(sq.col("x") / 0 > 1)
    with pytest.raises(
        PlanError, match="all 60 cases were set aside: 60 where the query fails over it .*Give legal values"
    ):
        t.verify(over, great, profile=FAST, examples=3, may_fail=True)
    with pytest.raises(PlanError, match="nothing is tried; the profile has no examples"):
        t.verify(TRIPS, profile=FAST, examples=0)
    with pytest.raises(PlanError, match="examples is not a number of cases; found -1"):
        t.verify(TRIPS, profile=FAST, examples=-1)
    with pytest.raises(PlanError, match=r"not a query; found function. Call it: t.verify\(f\(stream\)\)"):
        t.verify(lambda s: s, profile=FAST)
    with pytest.raises(PlanError, match="not an intent; found 'high'"):
        t.verify(TRIPS, "high", profile=FAST)


@pytest.mark.slow
def test_few_answers_are_empty_and_those_are_counted() -> None:
    rare = TRIPS.where(sq.col("zone") == "a").tumbling_window(3).select(n=sq.count()).where(sq.col("n") > 1)
    report = t.verify(rare, profile=FAST)
    assert report.empty < report.cases / 3
    nothing = t.verify(TRIPS.where(sq.lit(False)), profile=FAST, examples=4)
    assert nothing.empty == nothing.cases == 4 and "4 have an empty answer" in str(nothing)


def test_what_is_taken_back_must_have_been_there() -> None:
    def deltas(*rows: tuple[int, int, int]) -> pa.Table:
        le, re, w = zip(*rows, strict=True)
        return pa.table({"__le": le, "__re": re, "__w": w})

    assert net([deltas((1, 2, -1), (1, 2, 1)), deltas((1, 3, 1))]).num_rows == 1
    with pytest.raises(WrongOutput, match="was not there"):
        net([deltas((1, 2, -1)), deltas((1, 2, 1))])


def test_differences_on_timestamps_are_told_as_such() -> None:
    found = t.table("start bigint, end bigint, v int", [(0, 60_000_000, 1)])
    difference = same_history(found, found.slice(0, 0))
    assert difference is not None
    assert "[1970-01-01T00:00:00Z, 1970-01-01T00:01:00Z)" in str(replace(difference, axis="timestamp"))
