"""An intent's words shape what is generated, and what it leaves open is sampled."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, StringType

import streamq as sq
from streamq import testing as t
from streamq.errors import PlanError
from streamq.plan.schema import Field
from streamq.runtime.deltas import CTI, RETRACT
from streamq.testing import Intent
from streamq.testing.arrival import TICKS, Item
from streamq.testing.payloads import rows
from streamq.testing.sources.insert_only import interval_items
from streamq.testing.sources.physical import physical_items
from streamq.testing.sources.room import ArrivalPlan

FIELDS = (Field("k", StringType()), Field("v", DoubleType()))
PLAIN = {"nulls": False, "nan": False, "infinities": False, "unicode": False, "duplicates": False}


def intervals(intent: Intent) -> st.SearchStrategy[list[Item]]:
    return interval_items(ArrivalPlan(rows(FIELDS, intent), intent, TICKS))


def physical(intent: Intent) -> st.SearchStrategy[list[Item]]:
    return physical_items(ArrivalPlan(rows(FIELDS, intent), intent, TICKS))


def spans(items: Sequence[Item]) -> list[tuple[int, int]]:
    return sorted((i.start, 2**62 if i.end is None else i.end) for i in items)


def weekly(rng: random.Random, many: int) -> list[tuple[int, int | None]]:
    return [(7 * i, 7 * i + rng.choice([1, 5])) for i in range(many)]


def last(items: list[Item], low: int, high: int) -> bool:
    """Whether all items end, so many ticks after their starts."""
    return all(i.end is not None and low <= i.end - i.start <= high for i in items)


def off_by_one(items: list[Item]) -> bool:
    ends = {end for _, end in spans(items)}
    return all({start - 1, start + 1} & ends for start, _ in spans(items)[1:])


def is_slight(items: list[Item]) -> bool:
    return all(sum(o.start > item.start for o in items[:at]) <= 8 for at, item in enumerate(items))


def has_eager_ctis(items: list[Item]) -> bool:
    ctis = sum(i.kind == CTI for i in items)
    return ctis == len(items) - ctis + 1


SHAPED: list[tuple[Any, Intent, Callable[[list[Item]], bool]]] = [
    (intervals, Intent(duration="point"), lambda items: last(items, 1, 1)),
    (intervals, Intent(duration="short"), lambda items: last(items, 1, 5)),
    (intervals, Intent(duration="long"), lambda items: last(items, 1, 30)),
    (
        intervals,
        Intent(overlap="none", duplicates=False),
        lambda items: all(b <= c for (_, b), (c, _) in itertools.pairwise(spans(items))),
    ),
    (
        intervals,
        Intent(overlap="back_to_back", duration="short", duplicates=False),
        lambda items: all(b == c for (_, b), (c, _) in itertools.pairwise(spans(items))),
    ),
    (intervals, Intent(overlap="off_by_one", duration="short", duplicates=False, disorder="in_order"), off_by_one),
    (intervals, Intent(disorder="in_order"), lambda items: items == sorted(items, key=lambda i: i.start)),
    (intervals, Intent(disorder="slight", duplicates=False), is_slight),
    (physical, Intent(ctis="none"), lambda items: all(i.kind != CTI for i in items)),
    (physical, Intent(ctis="eager"), has_eager_ctis),
    (physical, Intent(speculation=False), lambda items: all(i.kind != RETRACT for i in items)),
    (
        intervals,
        Intent(**PLAIN),
        lambda items: all(i.payload["k"] in ("a", "b", "c", "") and -3 < i.payload["v"] < 8 for i in items),
    ),
    (
        intervals,
        Intent(payload={"k": ["x"], "v": st.floats(1, 2)}),
        lambda items: all(i.payload["k"] == "x" and 1 <= i.payload["v"] <= 2 for i in items),
    ),
    (
        intervals,
        Intent(pattern=weekly, disorder="in_order", duplicates=False),
        lambda items: [i.start for i in items] == [7 * n for n in range(len(items))] and last(items, 1, 5),
    ),
]


@pytest.mark.parametrize(("kind", "intent", "is_so"), SHAPED)
@given(data=st.data())
def test_words_shape_what_is_drawn(
    kind: Any, intent: Intent, is_so: Callable[[list[Item]], bool], data: st.DataObject
) -> None:
    assert is_so(data.draw(kind(intent)))


@pytest.mark.parametrize(
    ("given_as", "message"),
    [
        ({"duration": "brief"}, "no such duration; found 'brief'; there are: point, short, long, infinite"),
        ({"overlap": ("high", "total")}, "no such overlap; found 'total'"),
        ({"disorder": "chaos"}, "no such disorder"),
        ({"ctis": "often"}, "no such ctis"),
        ({"events": -1}, "events is not a whole number of at least 0; found -1"),
        ({"duration": True}, "duration is neither a word nor a tuple of words; found True; there are: point, short"),
        ({"overlap": 3}, "overlap is neither a word nor a tuple of words; found 3"),
        ({"ctis": ()}, r"no word for ctis; found \(\); there are: none, lazy, eager. To leave it open, leave it out"),
        ({"disorder": ("high", 1)}, "no such disorder; found 1"),
        ({"speculation": "yes"}, "speculation is not a boolean; found 'yes'. Give True or False, or leave it out"),
        ({"nulls": 1}, "nulls is not a boolean; found 1"),
        ({"pattern": 3}, r"pattern is not a function; found 3. Give a function \(random, number of events\)"),
        ({"events": True}, "events is not a whole number of at least 0; found True"),
        ({"payload": ["a"]}, r"payload is not a mapping; found \['a'\]. Give values by column"),
        ({"payload": {3: ["a"]}}, "a column name in payload is not a string; found 3"),
        ({"payload": {"k": b"ab"}}, "not values for column 'k'; found b'ab'"),
        ({"payload": {"k": []}}, r"no values for column 'k'. None stands for NULL: \[None\]"),
        ({"payload": {"k": 5}}, "not values for column 'k'; found 5. Give a sequence"),
    ],
)
def test_errors(given_as: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Intent(**given_as)


def test_parts_left_open_can_be_said_later() -> None:
    one = Intent(disorder="high").completed(Intent(disorder="slight", duration="point"))
    assert one == Intent(disorder="high", duration="point")
    assert repr(one) == "Intent(duration='point', disorder='high')"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"zoen": ["a"]}, r"no source has a column 'zoen'; there are: fare, zone. Did you mean 'zone'\?"),
        ({"fare": ["much"]}, r"values that column 'fare' cannot hold; .* \(the column is int\)"),
    ],
)
def test_payloads_that_do_not_fit_the_query(payload: dict[str, Any], message: str) -> None:
    trips = sq.points(t.table("at bigint, zone string, fare int", []), time="at")
    with pytest.raises(PlanError, match=message):
        t.verify(trips, Intent(payload=payload), profile="fast")


TRIPS = sq.points(t.table("at bigint, zone string, fare int", []), time="at")
STAYS = sq.intervals(t.table("start bigint, end bigint, k string, v int", []), start="start", end="end")
TASKS = sq.edges(t.table("at bigint, e string, k string", []), time="at", edge="e", key="k")
LOG = sq.physical(
    t.table("kind string, start bigint, end bigint, new_end bigint, k string", []), progress=sq.generate(0)
)


@pytest.mark.slow
@pytest.mark.parametrize("source", [TRIPS, STAYS, LOG], ids=["points", "intervals", "physical"])
@given(st.data())
def test_no_two_events_are_equal_where_duplicates_are_ruled_out(source: sq.Stream, data: st.DataObject) -> None:
    case = data.draw(t.concrete(source, Intent(duplicates=False, speculation=False)))
    events = [repr(row) for row in case.answer().to_pylist()]
    assert len(events) == len(set(events))


@pytest.mark.slow
@pytest.mark.parametrize("source", [STAYS, LOG], ids=["intervals", "physical"])
@given(st.data())
def test_no_two_events_overlap_where_none_are_to(source: sq.Stream, data: st.DataObject) -> None:
    case = data.draw(t.concrete(source, Intent(overlap="none")))
    found = sorted((row["start"], row["end"]) for row in case.answer().to_pylist())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(found))


@pytest.mark.slow
@given(t.concrete(TASKS, Intent(pattern=lambda random, n: [(1000 + i, 1002 + i) for i in range(n)])))
def test_edges_follow_a_pattern(case: t.Case) -> None:
    assert all(1000 <= r["start"] < r["end"] <= r["start"] + 2 for r in case.answer().to_pylist())


@pytest.mark.slow
@given(t.concrete(TASKS, Intent(duration="point")))
def test_edges_last_as_long_as_is_said(case: t.Case) -> None:
    assert {row["end"] - row["start"] for row in case.answer().to_pylist()} <= {1}


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [[1, 2], [(1.5, 2)], [(5, 5)], [(3,)], 7])
def test_patterns_that_are_none(pairs: Any) -> None:
    with pytest.raises(PlanError, match=r"a pattern yields pairs \(start, end\) in whole ticks"):
        t.verify(STAYS, Intent(pattern=lambda random, n: pairs), profile="fast")


@pytest.mark.slow
@given(t.concrete(sq.points(t.table("at timestamp", []), time="at"), Intent(unit="10 minutes", duplicates=False)))
def test_a_unit_of_ones_own(case: t.Case) -> None:
    starts = [row["start"] for row in case.answer().to_pylist()]
    # an event can lie a tick beside the one before it
    assert all(min(start % 600_000_000, -start % 600_000_000) <= Intent().events for start in starts)
