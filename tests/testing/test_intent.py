"""An intent's words shape what is generated, and what it leaves open is sampled."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, StringType

import streamq as sq
from streamq import testing as t
from streamq.errors import PlanError
from streamq.runtime.event import CTI, RETRACT
from streamq.schema import Field
from streamq.testing import Intent, events
from streamq.testing.arrival import Item
from streamq.testing.payloads import rows
from streamq.testing.scale import TICKS

FIELDS = (Field("k", StringType()), Field("v", DoubleType()))
PLAIN = {"nulls": False, "nan": False, "infinities": False, "unicode": False, "duplicates": False}


def intervals(intent: Intent) -> st.SearchStrategy[list[Item]]:
    return events.intervals(rows(FIELDS, intent), intent, TICKS)


def physical(intent: Intent) -> st.SearchStrategy[list[Item]]:
    return events.physical(rows(FIELDS, intent), intent, TICKS)


def spans(items: Sequence[Item]) -> list[tuple[int, int]]:
    return sorted((i.start, 2**62 if i.end is None else i.end) for i in items)


@given(intervals(Intent(duration="point")))
def test_points(items: list[Item]) -> None:
    assert all(i.end == i.start + 1 for i in items)


@given(intervals(Intent(duration="short")))
def test_short(items: list[Item]) -> None:
    assert all(i.end is not None and 1 <= i.end - i.start <= 5 for i in items)


@given(intervals(Intent(duration="long")))
def test_long(items: list[Item]) -> None:
    assert all(i.end is not None and 1 <= i.end - i.start <= 30 for i in items)


@given(intervals(Intent(overlap="none", duplicates=False)))
def test_none_overlap(items: list[Item]) -> None:
    assert all(b <= c for (_, b), (c, _) in itertools.pairwise(spans(items)))


@given(intervals(Intent(overlap="back_to_back", duration="short", duplicates=False)))
def test_back_to_back(items: list[Item]) -> None:
    assert all(b == c for (_, b), (c, _) in itertools.pairwise(spans(items)))


@given(intervals(Intent(overlap="off_by_one", duration="short", duplicates=False, disorder="in_order")))
def test_off_by_one(items: list[Item]) -> None:
    ends = {end for _, end in spans(items)}
    assert all({start - 1, start + 1} & ends for start, _ in spans(items)[1:])


@given(intervals(Intent(disorder="in_order")))
def test_in_order(items: list[Item]) -> None:
    assert [i.start for i in items] == sorted(i.start for i in items)


@given(intervals(Intent(disorder="slight", duplicates=False)))
def test_slightly_out_of_order(items: list[Item]) -> None:
    for at, item in enumerate(items):
        assert sum(other.start > item.start for other in items[:at]) <= 8


@given(physical(Intent(ctis="none")))
def test_no_ctis(items: list[Item]) -> None:
    assert all(i.kind != CTI for i in items)


@given(physical(Intent(ctis="eager")))
def test_a_cti_after_every_item(items: list[Item]) -> None:
    assert len([i for i in items if i.kind == CTI]) == len([i for i in items if i.kind != CTI]) + 1


@given(physical(Intent(speculation=False)))
def test_nothing_is_taken_back(items: list[Item]) -> None:
    assert all(i.kind != RETRACT for i in items)


@given(intervals(Intent(**PLAIN)))
def test_no_special_values(items: list[Item]) -> None:
    assert all(i.payload["k"] in ("a", "b", "c", "") and -3 < i.payload["v"] < 8 for i in items)


@given(intervals(Intent(payload={"k": ["x"], "v": st.floats(1, 2)})))
def test_values_of_ones_own(items: list[Item]) -> None:
    assert all(i.payload["k"] == "x" and 1 <= i.payload["v"] <= 2 for i in items)


def weekly(rng: random.Random, many: int) -> list[tuple[int, int | None]]:
    return [(7 * i, 7 * i + rng.choice([1, 5])) for i in range(many)]


@given(intervals(Intent(pattern=weekly, disorder="in_order", duplicates=False)))
def test_a_pattern_of_ones_own(items: list[Item]) -> None:
    assert [i.start for i in items] == [7 * n for n in range(len(items))]
    assert all(i.end is not None and i.end - i.start in (1, 5) for i in items)


@pytest.mark.parametrize(
    ("given_as", "message"),
    [
        ({"duration": "brief"}, "no such duration; found 'brief'; there are: point, short, long, infinite"),
        ({"overlap": ("high", "total")}, "no such overlap; found 'total'"),
        ({"disorder": "chaos"}, "no such disorder"),
        ({"ctis": "often"}, "no such ctis"),
        ({"events": -1}, "events is how many a source has at most; found -1"),
        ({"duration": True}, "duration is a word or a tuple of words; found True; there are: point, short"),
        ({"overlap": 3}, "overlap is a word or a tuple of words; found 3"),
        ({"ctis": ()}, r"no word for ctis; found \(\); there are: none, lazy, eager. Left out it is open"),
        ({"disorder": ("high", 1)}, "no such disorder; found 1"),
        ({"speculation": "yes"}, "speculation is a yes or a no; found 'yes'. Say True or False, or leave it out"),
        ({"nulls": 1}, "nulls is a yes or a no; found 1"),
        ({"pattern": 3}, r"pattern is no function; found 3. Give a function \(random, how many\)"),
        ({"events": True}, "events is how many a source has at most; found True"),
        ({"payload": ["a"]}, r"payload is no mapping; found \['a'\]. Give values by column"),
        ({"payload": {3: ["a"]}}, "payload is values by column; found the name 3"),
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
