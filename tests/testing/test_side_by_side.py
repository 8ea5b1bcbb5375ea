"""Several queries are judged side by side, as one run of them: each by its own answer, and what they share by all of these."""

from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.results import Results
from streamq.errors import PlanError
from streamq.testing.arrival import Item
from streamq.testing.backends import execute
from streamq.testing.case import Case
from streamq.testing.execution import LITERAL, STREAM, Execution
from streamq.testing.history import result_of, side_by_side
from streamq.testing.replay import case_from_json, case_to_json, replay
from streamq.testing.trial import check

CALLS = sq.events([sq.insert(1, 5, k="a", v=3), sq.retract(1, 5, 4, k="a", v=3)], name="calls")
POINTS = CALLS.to_points().group_by("k")
SIZES = [POINTS.hopping_window(12, 4).select(x=sq.avg("v")), POINTS.tumbling_window(4).select(y=sq.avg("v"))]
FORMS = [POINTS.tumbling_window(4).select(n=sq.count()), POINTS.tumbling_window(4).select(total=sq.sum("v"))]
PROFILE = t.Profile(examples=40, batch=0, streams=0, shrinking=0)


def case_of(*queries: Any) -> Case:
    """The queries over two calls in two micro-batches."""
    items = [Item("insert", 1, 5, payload={"k": "a", "v": 3}), Item("insert", 6, 9, payload={"k": "a", "v": 4})]
    plans = [query.plan for query in queries]
    root = plans[0] if len(plans) == 1 else Results.from_plans(plans)
    return Case(root, tuple(("calls", item) for item in items), (1, 1))


def test_each_query_has_its_own_answer() -> None:
    """In one table, from which each is taken again; a query by itself is as ever."""
    case = case_of(*FORMS)
    for how in (
        Execution(LITERAL),
        Execution(STREAM),
        Execution(STREAM, OutputForm.CHANGELOG, others=OutputForm.FINAL),
    ):
        answer = execute(case, how)
        for number, query in enumerate(FORMS, start=1):
            t.assert_same_history(result_of(answer, number), case_of(query).answer())
        assert check(case, [how])
    one = case_of(FORMS[0]).answer()
    assert side_by_side([one]) is one


def test_a_case_of_several_queries_is_printed_and_read_back(tmp_path: Any) -> None:
    case, how = case_of(*SIZES), Execution(STREAM, OutputForm.CHANGELOG)
    again, *_ = case_from_json(case_to_json(case, how))
    assert [plan.digest for plan in again.plans] == [plan.digest for plan in case.plans]
    path = tmp_path / "sizes.streamq.json"
    path.write_text(case_to_json(case, how))
    replay(path)
    text = case.program()
    assert "q2 = " in text and text.endswith("# side by side: t.verify([q1, q2])\n# micro-batches: calls | calls\n")
    exec(text, {})


def test_what_cannot_run_as_one_is_refused() -> None:
    days = sq.points(t.table("at timestamp, k string", []), time="at", name="days")
    for queries, wrong in (
        ([], "verify: no queries; the list is empty"),
        ([CALLS, "calls"], "verify: not a query; found"),
        ([CALLS, t.stream()], "verify: a scenario in a list of queries"),
        ([CALLS, days], "verify: queries on different time axes; found integer and timestamp"),
    ):
        with pytest.raises(PlanError, match=wrong):
            t.verify(queries, profile=PROFILE)  # type: ignore[arg-type]


def check_alone_and_side_by_side(name: str) -> None:
    """Verify queries one by one, and then side by side; what queries share must not show before."""
    queries = {"sizes": SIZES, "forms": FORMS}[name]
    for query in queries:
        try:
            t.verify(query, profile=PROFILE, examples=4)
        except t.VerificationFailed as failed:
            raise RuntimeError("it shows in one query alone") from failed
    t.verify(queries, profile=PROFILE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sizes", "forms"])
def test_what_queries_share_is_right(name: str) -> None:
    check_alone_and_side_by_side(name)
