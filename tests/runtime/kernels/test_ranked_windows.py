"""Windows of ``top_k`` on a grid keep the best events of each hop, and count the late ones among those that are not."""

from __future__ import annotations

from collections import Counter

import pytest

import streamq as sq
from streamq import testing as t
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from tests.programs import compiled
from tests.runtime.kernels.test_condensing import reading

COLUMNS = "at bigint, k bigint, v bigint"


def started(ties: str) -> LocalRun:
    s = sq.points(t.table(COLUMNS, []), "at", name="s", progress=sq.generate(0))
    query = s.group_by("k").hopping_window(20, 10).top_k(2, by="v", ties=ties)
    return LocalRun(compiled(rewrite(number_sources(query.plan)[0]).plan, buckets=1))


@pytest.mark.parametrize("ties", ["keep", "break"])
def test_the_best_of_a_hop_are_kept_and_late_events_behind_others_are_counted(ties: str) -> None:
    run = started(ties)
    run.batch({"s": t.table(COLUMNS, [(at, at % 2, at) for at in range(10)])})
    run.batch({"s": t.table(COLUMNS, [(19, 0, at % 7) for at in range(48)])})
    ties_of_the_greatest = {"keep": 6, "break": 2}[ties]
    assert reading(run).state_rows == 2 * 2 + ties_of_the_greatest
    run.batch({"s": t.table(COLUMNS, [(45, 0, 1), *((1, 0, v) for v in range(9))])})
    assert [+Counter(totals) for totals in run.totals.values()] == [{"s|dropped": 9}]
