"""What is drawn over timestamps is as long as the query's own durations, and lies on, just before and just after borders."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.testing.case import Case
from streamq.testing.scale import scale
from streamq.time import ticks

MILLISECOND = dt.timedelta(milliseconds=1)
TIMES = ("intervals", "edges", "physical")
Query = Callable[[Any, dt.timedelta], Any]

QUERIES: dict[str, Query] = {
    "tumbling": lambda s, d: s.tumbling_window(d).select(n=sq.count()),
    "hopping": lambda s, d: s.group_by("k").hopping_window(d, d / 3).select(n=sq.count()),
    "session": lambda s, d: s.group_by("k").session_window(d).select(n=sq.count()),
    "landmark": lambda s, d: s.landmark_window(d, period=4 * d).select(n=sq.count()),
    "shift": lambda s, d: s.shift(d).snapshot_window().select(n=sq.count()),
    "chop": lambda s, d: s.chop(d),
    "distinct_ids": lambda s, d: s.to_points().distinct_ids(d, id="k"),
    "unless": lambda s, d: sq.cedr(f"EVENT E WHEN UNLESS(A, B, {d // MILLISECOND} ms)", A=s, B=s),
}
DURATIONS = (dt.timedelta(milliseconds=300), dt.timedelta(minutes=30), dt.timedelta(days=1))
MANY = 20


@pytest.mark.parametrize("name", [n if n == "hopping" else pytest.param(n, marks=pytest.mark.slow) for n in QUERIES])
def test_lifetimes_are_as_long_as_the_durations_of_the_query(name: str) -> None:
    near: Counter[bool] = Counter()
    beside: Counter[int] = Counter()

    @settings(
        max_examples=MANY, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(data=st.data(), shape=st.sampled_from(TIMES), duration=st.sampled_from(DURATIONS))
    def law(data: st.DataObject, shape: str, duration: dt.timedelta) -> None:
        stream = t.stream(columns="k string, v int", axis="timestamp", shape=shape)
        # what CEDR reads of a stream is where its events start
        case = data.draw(t.concrete(QUERIES[name](stream, duration), t.Intent(late="none", invalid=False)))
        lengths = {ticks(duration, "timestamp"), *scale(case.plan).lengths}
        for lasts in lifetimes(case):
            near[any(length <= 10 * lasts and lasts <= 10 * length for length in lengths)] += 1
        edges = scale(case.plan).edges(0, 30)
        for at in (time for _, item in case.arrival for time in item.times):
            beside.update(by for by in (-1, 0, 1) if at - by in edges)

    law()
    assert near[True] > near[False] > 0, near
    if name in ("tumbling", "hopping", "landmark", "chop"):
        assert min(beside[by] for by in (-1, 0, 1)) > MANY / 4


def lifetimes(case: Case) -> list[int]:
    """The lengths of the finite lifetimes that are inserted; of edges the distances of one to the next of its key."""
    inserts = [item for _, item in case.arrival if item.kind == "insert"]
    spans = [item.end - item.start for item in inserts if item.end is not None and item.start is not None]
    edges = sorted((repr(item.payload["k"]), item.start) for _, item in case.arrival if item.kind in ("open", "close"))
    spans += [b - a for (k, a), (other, b) in itertools.pairwise(edges) if k == other and b > a]
    return [lasts for lasts in spans if lasts > 0]
