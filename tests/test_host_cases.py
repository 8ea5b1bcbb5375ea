"""Every case of ``host_cases.py`` in-process: all rows at once, and as a stream that is restarted, by the oracle."""

from __future__ import annotations

from collections import Counter

import pytest

from streamq.testing.history import assert_same_history, net
from streamq.testing.oracle import oracle
from tests.changed_query import ChangingRun
from tests.host_cases import CASES, HostCase


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_rows_at_once(case: HostCase) -> None:
    queries = case.local
    for query in queries:
        answer = query.to_arrow()
        assert answer.num_rows
        if case.judged:
            assert_same_history(answer, oracle(query.plan, query.tables))
    if case.expected is not None:
        rows = queries[0].to_arrow().select(["start", "end", *queries[0].columns]).to_pylist()
        assert Counter(tuple(row.values()) for row in rows) == Counter(case.expected)


@pytest.mark.parametrize("case", [case for case in CASES if "stream" in case.hosts], ids=lambda case: case.name)
def test_a_stream(case: HostCase) -> None:
    """Restarted after each micro-batch; rows that are set aside are counted."""
    run, deltas = case.arrive()
    for query, of in zip(case.local, deltas, strict=True):
        assert_same_history(net(of), query.to_arrow())
    counted = sum((Counter(totals) for totals in run.run.totals.values()), Counter[str]())
    assert +counted == case.counted


def test_windows_over_windows_by_key_are_one_stage() -> None:
    (chained,) = (case for case in CASES if "in one stage" in case.name)
    (stage,) = ChangingRun(*chained.local, output=chained.outputs).run.program.stages
    assert len(stage.hosted) == 3
