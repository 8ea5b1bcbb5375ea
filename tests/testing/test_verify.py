"""Verification tells a right query from a wrong one, shows the smallest input that does, and says what it has run."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.compute as pc
import pytest
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.errors import NeedsSpark, PlanError, UnknownColumn
from streamq.runtime.kernels.settle import SettleKernel
from streamq.testing.execution import executed
from streamq.testing.profiles import loaded_profile
from streamq.testing.replay import replay

TRIPS = sq.events([(1, 5, {"zone": "a", "fare": 3.0})], name="trips")
WINDOWS = TRIPS.group_by("zone").hopping_window(6, 2).select(n=sq.count(), most=sq.max("fare"))
EDGES = sq.edges(t.table("at bigint, e string, k string", []), time="at", edge="e", key=["k"], name="edges")
FAST = t.Profile(examples=20, batch=0, streams=0, shrinking=5)


def test_a_right_query_is_verified_in_process() -> None:
    report = t.verify(WINDOWS, profile=FAST)
    assert report.cases == 20 and report.failing == 0
    assert report.executions["stream"] > 0 < report.executions["literal"]
    assert str(report).startswith("verified over 20 cases (")


def test_functions_without_an_arrow_form_are_left_to_spark() -> None:
    odd = TRIPS.where(sq.functions.soundex("zone") == "A000")
    with pytest.raises(NeedsSpark, match=r"verify: nothing could be run; .*soundex.* Use a profile that runs cases"):
        t.verify(odd, profile=FAST)


def test_cases_that_fail_by_sparks_rules_are_counted() -> None:
    report = t.verify(TRIPS.select(x=sq.lit(1) / sq.col("fare")), profile=FAST)
    assert 0 < report.failing < report.cases


def lost(kernel: object, state: object, arrivals: object, clock: object) -> object:
    """SettleKernel.advance, but what ends after instant 20 is lost."""
    made = RIGHT(kernel, state, arrivals, clock)
    if made.table is not None:
        made.table = made.table.filter(pc.less_equal(made.table.column("__re"), 20))
    return made


RIGHT = SettleKernel.advance


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
            "not the oracle's history (stream, final output",
            "missing (only in the expected history): 1 row",
            "micro-batch 1\n  edges  ",
            " = sq.edges(",
            f"again by: t.replay('{failed.saved}')",
        ):
            assert part in text
        assert failed.saved is not None
        with pytest.raises(t.VerificationFailed):
            replay(failed.saved)
    replay(failed.saved)
    assert executed(failed.case, failed.how).num_rows


def test_what_a_query_raises_is_told_with_the_case() -> None:
    def broken(*_: object) -> object:
        raise ZeroDivisionError("oh")

    with mock.patch.object(SettleKernel, "advance", broken):
        with pytest.raises(t.VerificationFailed, match="ZeroDivisionError: oh") as caught:
            t.verify(EDGES, profile=FAST)
    assert isinstance(caught.value.error, ZeroDivisionError) and caught.value.difference is None


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

        def answer(case: t.Case, how: str, cases: list[str] = cases, right: Any = t.Case.answer) -> Any:
            cases.append(repr(case))
            return right(case, how)

        with mock.patch.object(t.Case, "answer", answer):
            t.verify(WINDOWS, anything, profile=FAST, seed=seed, examples=5)
        seen.append(cases)
    assert seen[0] == seen[1] != seen[2]


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
    with pytest.raises(PlanError, match="profile: no profile 'fats'; there are: fast, default, thorough, nightly"):
        t.verify(WINDOWS, profile="fats")


def test_time_is_bounded() -> None:
    report = t.verify(WINDOWS, profile=t.Profile(examples=10_000, batch=0, streams=0, seconds=0.5))
    assert 0 < report.cases < 10_000


def test_what_is_wrong_in_the_query_is_said_as_always() -> None:
    with pytest.raises(UnknownColumn, match="where: no column 'fares'. .*"):
        t.verify(TRIPS.where(sq.col("fares") > 1))
