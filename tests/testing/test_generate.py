"""What is generated is legal, varied, and understood by the oracle."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, find, given, settings
from hypothesis import strategies as st
from pyspark.sql import types

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.operators import Source, TopK, Union
from streamq.plan.expr import Lit
from streamq.plan.node import nodes
from streamq.plan.schema import Field
from streamq.runtime.deltas import CTI, INSERT, RETRACT, WEIGHT
from streamq.sources.edges import Edges
from streamq.sources.physical import Physical
from streamq.testing.arrival import (
    EPOCH,
    TICKS,
    GridBounds,
    Item,
    Scale,
    bounds,
    comparable_payload,
    delay_for,
)
from streamq.testing.backends import play
from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.folding import fold_physical
from streamq.testing.generate import cuts
from streamq.testing.history import assert_same_history
from streamq.testing.intent import ANYTHING, Intent
from streamq.testing.payload_values import NUMBERS, OTHERS
from streamq.testing.payloads import rows as payloads
from streamq.testing.sources.edges import edge_items
from streamq.testing.sources.insert_only import interval_items, point_items
from streamq.testing.sources.physical import physical_items
from streamq.testing.sources.room import ArrivalPlan, repeated
from streamq.testing.window_kinds import CalendarBounds
from streamq.time import Grid
from streamq.windows import Calendar
from tests.judged import answer

few = settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
brief = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
# what can be drawn at all: the first that is found will do
any_of_many = settings(max_examples=3_000, phases=[Phase.generate], database=None, derandomize=True)


def payload(value: str = "int") -> st.SearchStrategy[dict[str, Any]]:
    return payloads([Field("k", types.StringType()), Field("v", {**NUMBERS, **OTHERS}[value])], ANYTHING)


def arrived(kind: str, **more: Any) -> st.SearchStrategy[Case]:
    """Items of a kind of source, none of them late, and the source as the query."""
    intent = Intent(late="none", invalid=False, **more)
    return t.concrete(t.stream("s", shape=kind), intent).map(lambda case: replace(case, plan=case.sources["s"]))


@pytest.mark.slow
@few
@given(arrived("physical") | arrived("physical_ids", duplicates=False))
def test_the_oracle_folds_as_fold_physical_does(case: Case) -> None:
    assert isinstance(case.plan, Physical)
    folded = fold_physical(case.tables["s"], case.plan.id)
    if folded.num_rows:
        assert_same_history(case.answer(), folded)
    else:
        assert case.answer().num_rows == 0


_COLUMNS = tuple(Field(n, types.LongType()) for n in ("t", "edge", "k", "v", "lsn"))
KEYED = Edges("s", _COLUMNS[:-1], "t", "edge", ("k",), Lit(1), Lit(0))
ORDERED = replace(KEYED, columns=_COLUMNS, order_by=("lsn",), beside=("lsn",))


@pytest.mark.slow
@brief
@given(
    st.one_of(
        point_items(ArrivalPlan(payload(), ANYTHING, TICKS)),
        interval_items(ArrivalPlan(payload(), ANYTHING, TICKS)),
        edge_items(KEYED, ArrivalPlan(payload(), ANYTHING, TICKS)),
        edge_items(ORDERED, ArrivalPlan(payload(), ANYTHING, TICKS)),
        physical_items(ArrivalPlan(payload("double"), ANYTHING, TICKS, explicit=False)),
    )
)
def test_a_delay_that_keeps_every_item_on_time(items: list[Item]) -> None:
    greatest: int | None = None
    delay = delay_for(items)
    tight = delay == 0
    for item, bound in zip(items, bounds(items), strict=True):
        if greatest is not None:
            assert bound >= greatest - delay
            tight |= bound == greatest - delay
        greatest = item.start if greatest is None else max(greatest, item.start)
    assert tight


@few
@given(st.data())
def test_a_constant_for_another_column_of_a_name_is_no_value_of_the_source(data: st.DataObject) -> None:
    """Of two streams that meet, values of a source pass the filters; here a filter reads a text of the name of a number."""
    s = sq.events([(1, 2, {"k": "a", "v": 3})], name="s")
    texts = s.select("k", v=sq.functions.upper("k")).where(sq.col("v") == "A")
    case = data.draw(t.concrete(texts.join(s.shift(1), on="k", suffixes=("", "_r"))))
    assert all(type(item.payload["v"]) in (int, type(None)) for _, item in case.arrival)


def again(kind: str) -> st.SearchStrategy[Case]:
    """Items of a kind of source that delivers rows more than once, and moves no end where it was."""
    return arrived(kind, duplicates=True, speculation=False)


@pytest.mark.slow
@few
@given(st.sampled_from(["points_ids", "intervals_ids", "physical_ids", "edges"]).flatmap(again))
def test_the_history_of_repeated_rows_is_that_of_the_rows(case: Case) -> None:
    """What the oracle says of rows that are delivered again, of the same rows once, and how many are too many."""
    source, items = case.sources["s"], case.arrived("s")
    # 0.0 and -0.0 are one value; what puts items of one instant in order tells them apart, too
    order = getattr(source, "order_by", ())
    once = {
        (i.kind, i.start, i.end, i.new_end, comparable_payload(i), *(i.beside.get(name) for name in order)): i
        for i in items
    }
    assume(len(items) > len(once))
    assert repeated(source, items) == sum(i.kind != CTI for i in items) - sum(i.kind != CTI for i in once.values())
    assert repeated(source, [*once.values()]) == 0
    alone = replace(case, arrival=tuple(("s", item) for item in once.values()))
    assert_same_history(alone.answer(), case.answer())


@brief
@given(st.integers(0, 12).flatmap(lambda n: st.tuples(st.just(n), cuts(n))))
def test_cuts_are_partitions(drawn: tuple[int, tuple[int, ...]]) -> None:
    n, cut = drawn
    assert sum(cut) == n
    # now and then one brings nothing
    assert all(length >= 0 for length in cut)
    assert sum(length == 0 for length in cut) <= 1


def shapes(items: list[Item]) -> set[str]:
    """What a physical stream has in it."""
    found = {"late retraction"} if any(_before_its_insert(items, i) for i in range(len(items))) else set()
    for item in items:
        if item.kind == RETRACT:
            ends = tuple(2**63 if end is None else end for end in (item.end, item.new_end))
            found.add("delete" if ends[1] == item.start else "extend" if ends[1] > ends[0] else "shorten")
        elif item.kind == INSERT:
            length = "infinite" if item.end is None else "point" if item.end == item.start + 1 else "interval"
            found |= {length, "duplicate" if items.count(item) > 1 else "single"}
            found |= {f"null {name}" for name, value in item.payload.items() if value is None}
            found |= {"nan"} if item.payload["v"] != item.payload["v"] else set()
    return found | ({"cti"} if any(item.kind == CTI for item in items) else set())


def _before_its_insert(items: list[Item], i: int) -> bool:
    before = [item for item in items[:i] if item.kind == INSERT and item.start == items[i].start]
    return items[i].kind == RETRACT and not before


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        *("shorten", "extend", "delete", "infinite", "point", "interval", "duplicate", "nan", "null k", "null v"),
        *("late retraction", "cti"),
    ],
)
def test_physical_streams_have_every_shape(shape: str) -> None:
    find(
        physical_items(ArrivalPlan(payload("double"), ANYTHING, TICKS)),
        lambda items: shape in shapes(items),
        settings=any_of_many,
    )


# bounds of windows


def test_bounds_of_a_grid_lie_from_about_an_instant_on() -> None:
    assert Scale(bounds=(GridBounds(Grid(5, 3, 1)),)).edges(0, many=2) == [-2, 1, 3, 6]


def test_bounds_of_a_calendar_are_the_midnights_of_its_zone() -> None:
    near = (dt.datetime(2023, 11, 20, tzinfo=dt.UTC) - EPOCH.replace(tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    edges = Scale(bounds=(CalendarBounds(Calendar(1, "month", "America/Havana")),)).edges(near, many=2)
    # clocks are set back on 5 November
    assert [str(EPOCH.replace(tzinfo=None) + dt.timedelta(microseconds=t)) for t in edges] == [
        "2023-11-01 04:00:00",
        "2023-12-01 05:00:00",
        "2024-01-01 05:00:00",
    ]
    assert list(CalendarBounds(Calendar(1, "day", "UTC")).edges_near(1 << 62, 3)) == []


# retractions and duplicates above a source


def test_the_greatest_of_each_group_at_each_instant() -> None:
    """
    a: 3 [1,9)   a: 5 [4,6)   b: 1 [2,3)
    """
    s = sq.events([(1, 9, {"k": "a", "v": 3}), (4, 6, {"k": "a", "v": 5}), (2, 3, {"k": "b", "v": 1})])
    assert answer(t.make_speculative(s)) == [(1, 4, "a", 3), (2, 3, "b", 1), (4, 6, "a", 5), (6, 9, "a", 3)]


def test_columns_stay_as_they_are_whatever_they_are() -> None:
    for row in ({"rank": 1}, {"xs": [1, 2]}, {"rank": 1, "xs": [3], "v": 2.5}):
        s = t.make_speculative(sq.events([(1, 9, row), (4, 6, row)]))
        assert s.columns == list(row)
        assert len(answer(s)) == 4


def test_duplicates() -> None:
    s = sq.events([sq.insert(1, 9, v=3), sq.retract(1, 9, 5, v=3)])
    assert answer(t.inject_duplicates(s)) == [(1, 5, 3), (1, 5, 3)]


def retracts(case: t.Case) -> bool:
    """Whether what arrives out of order makes the operators above the source take rows back."""
    made = play(case, Execution(output=OutputForm.CHANGELOG))
    return any(w < 0 for tables in made for table in tables for w in table.column(WEIGHT).to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("intent", "wanted"),
    [
        (t.Intent(speculation=True, disorder="high", late="none"), retracts),
        (t.Intent(speculation=True), lambda case: any(isinstance(n, TopK) for n in nodes(case.plan))),
        (t.Intent(duplicates=True), lambda case: isinstance(case.plan, Union)),
        (t.Intent(speculation=False, duplicates=False), lambda case: isinstance(case.plan, Source)),
    ],
)
def test_intents_transform_the_plan(intent: t.Intent, wanted: Callable[[t.Case], bool]) -> None:
    find(t.concrete(t.stream(shape="intervals"), intent), wanted, settings=any_of_many)
