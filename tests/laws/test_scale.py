"""What is drawn over timestamps is as long as the query's own durations, and lies on, just before and just after borders."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.testing.case import Case
from streamq.testing.query_scale import scale
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
MANY = 10


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_lifetimes_are_as_long_as_the_durations_of_the_query(name: str) -> None:
    """They follow it: a query of half an hour has lifetimes of about half an hour, and hardly one of about a day."""
    far, beside = 0, Counter[int]()
    for number, duration in enumerate(DURATIONS):
        cases = drawn_cases(name, duration, number)
        spans = [lasts for case in cases for lasts in lifetimes(case)]
        own = {ticks(duration, "timestamp"), *scale(cases[0].plan).lengths}
        near = sum(is_near(lasts, own) for lasts in spans)
        far += len(spans) - near
        # of hundreds of draws by other seeds it is never less than half, and more than three times as many
        assert len(spans) >= MANY and 4 * near > len(spans), (duration, near, len(spans))
        for other in {*DURATIONS} - {duration}:
            assert 2 * sum(is_near(lasts, {ticks(other, "timestamp")}) for lasts in spans) < near, (duration, other)
        edges = scale(cases[0].plan).edges(0, 30)
        instants = [at for case in cases for _, item in case.arrival for at in item.times]
        beside.update(by for at in instants for by in (-1, 0, 1) if at - by in edges)
    assert far > 0, "some are much shorter, or longer"
    if name in ("tumbling", "hopping", "landmark", "chop"):
        assert min(beside[by] for by in (-1, 0, 1)) > MANY / 2, beside


def drawn_cases(name: str, duration: dt.timedelta, number: int) -> list[Case]:
    """Cases of a query over sources of each kind whose events have lifetimes, by a seed: the same in every run."""
    drawn: list[Case] = []

    @seed(number)
    @settings(
        max_examples=MANY,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data(), shape=st.sampled_from(TIMES))
    def draw(data: st.DataObject, shape: str) -> None:
        stream = t.stream(columns="k string, v int", axis="timestamp", shape=shape)
        # what CEDR reads of a stream is where its events start
        drawn.append(data.draw(t.concrete(QUERIES[name](stream, duration), t.Intent(late="none", invalid=False))))

    draw()
    return drawn


def is_near(lasts: int, lengths: set[int]) -> bool:
    """True if a lifetime is within a factor of ten of one of some lengths."""
    return any(length <= 10 * lasts and lasts <= 10 * length for length in lengths)


def lifetimes(case: Case) -> list[int]:
    """The lengths of the finite lifetimes that are inserted; of edges the distances of one to the next of its key."""
    inserts = [item for _, item in case.arrival if item.kind == "insert"]
    spans = [item.end - item.start for item in inserts if item.end is not None and item.start is not None]
    edges = sorted((repr(item.payload["k"]), item.start) for _, item in case.arrival if item.kind in ("open", "close"))
    spans += [b - a for (k, a), (other, b) in itertools.pairwise(edges) if k == other and b > a]
    return [lasts for lasts in spans if lasts > 0]


def test_durations_in_words() -> None:
    hours = [
        ticks(text, "timestamp") / 3_600_000_000 for text in ("1.5 hours", "-1.5 hours", "90 minutes", "-0.5 hours")
    ]
    assert hours == [1.5, -1.5, 1.5, -0.5]
