"""One definition of what an aggregate is made of serves the rules and the expansion."""

from __future__ import annotations

import streamq as sq
from streamq.compiler.rules.restating import restate
from streamq.operators import Select, WindowAggregate
from streamq.windows import Hopping


def test_a_mean_is_sum_by_count() -> None:
    plan = sq.events([(1, 4, {"v": 1})]).plan
    window = WindowAggregate(plan, (), Hopping(10, 5), (("m", sq.avg("v")), ("n", sq.count())))
    found = restate(window, {"avg"})
    assert isinstance(found, Select) and isinstance(found.input, WindowAggregate)
    assert found.schema == window.schema
    assert {a.name for _, a in found.input.aggregates} == {"sum", "count"}
    assert restate(window, {"stddev"}) is None
