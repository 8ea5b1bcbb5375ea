"""The model of what sources admit, by hand; and that what it is about is drawn often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.operators import Source
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.expr import fold
from streamq.plan.node import Node
from streamq.progress_policies import ExplicitCtis, GeneratedCtis
from streamq.runtime.deltas import CTI, INSERT, RETRACT
from streamq.testing.arrival import CLOSE, OPEN, Item, end_ticks, is_event
from streamq.testing.case import Case
from streamq.testing.execution import STREAM, Execution
from streamq.testing.expectation import admissions, without_late_items
from streamq.testing.sources.room import Admission
from streamq.testing.trial import check
from streamq.time import INFINITY

INTERVALS = sq.intervals(t.table("start bigint, end bigint, v bigint", []), start="start", end="end", name="s")
PHYSICAL = sq.physical(t.table("kind string, start bigint, end bigint, new_end bigint, v bigint", []), name="s")
EDGES = sq.edges(t.table("at bigint, edge string, k bigint", []), time="at", edge="edge", key="k", name="s")


def insert(start: int, end: int | None, v: int = 0) -> Item:
    return Item(INSERT, start, end, payload={"v": v})


def retract(start: int, end: int | None, new_end: int | None, v: int = 0) -> Item:
    return Item(RETRACT, start, end, new_end, {"v": v})


def edge(kind: str, at: int, k: int = 1) -> Item:
    return Item(kind, at, payload={"k": k})


def case_of(
    query: sq.Stream, items: Sequence[Item], delay: int | None = 0, late: str = "adjust", every: int = 1
) -> Case:
    """The items one by one."""

    def with_policy(node: Node, inputs: list[Node]) -> Node:
        if isinstance(node, Source):
            progress = ExplicitCtis() if delay is None else GeneratedCtis(delay, every)
            return replace(node, policy=SourcePolicy(progress=progress, late=late, invalid="drop"))
        return node.with_children(inputs)

    return Case(fold(query.plan, with_policy), tuple(("s", item) for item in items), (1,) * len(items))


def left(case: Case, **level: Sequence[int | None]) -> tuple[list[tuple[int, int | None]], Counter[str]]:
    """The lifetimes that are left, and what is counted."""
    one = admissions(case, **level).get("s", Admission())
    lifetimes = sorted(
        ((item.start or 0, item.end) for item in one.events), key=lambda span: (span[0], end_ticks(span[1]))
    )
    return lifetimes, one.counts


@pytest.mark.parametrize(
    ("end", "late", "lifetime", "reason"),
    [
        (10, "adjust", None, "dropped"),
        (11, "adjust", (10, 11), "adjusted"),
        (None, "adjust", (10, None), "adjusted"),
        (20, "drop", None, "dropped"),
    ],
)
def test_a_late_insert_is_cut_at_c(end: int | None, late: str, lifetime: tuple[int, int] | None, reason: str) -> None:
    case = case_of(INTERVALS, [insert(10, 15), insert(10, 12), insert(9, end)], late=late)
    lifetimes, counts = left(case)
    assert lifetimes == sorted(
        [(10, 12), (10, 15), *([lifetime] if lifetime else [])], key=lambda span: end_ticks(span[1])
    )
    assert counts == {reason: 1}


def test_what_is_late_goes_by_delay_grid_and_level() -> None:
    items = [insert(10, 15), insert(7, 20)]
    assert not admissions(case_of(INTERVALS, items, delay=3)), "at c it is on time"
    assert left(case_of(INTERVALS, items, delay=2))[0] == [(8, 20), (10, 15)]
    assert not admissions(case_of(INTERVALS, items, every=7)), "CTIs at multiples of 7 only"
    assert left(case_of(INTERVALS, items, delay=3), remember=(2,))[0] == [(8, 20), (10, 15)]
    assert left(case_of(INTERVALS, items, delay=3, late="drop"), remember=(2,))[1] == {"adjusted": 1}
    assert left(case_of(INTERVALS.tumbling_window(4).select(n=sq.count()), items))[0] == [(8, 20), (10, 15)]
    assert not admissions(case_of(INTERVALS.tumbling_window(7).select(n=sq.count()), items))
    shifted = INTERVALS.shift(1).tumbling_window(4).select(n=sq.count())
    assert left(case_of(shifted, items))[0] == [(10, 15), (10, 20)], "windows of other starts"
    assert admissions(case_of(INTERVALS, items, late="fail"))["s"].refused


@pytest.mark.parametrize(
    ("move", "late", "lifetimes", "counts"),
    [
        (retract(1, 20, 11), "adjust", [(1, 11)], {}),
        (retract(1, 20, 10), "adjust", [(1, 10)], {}),
        (retract(1, 20, 9), "adjust", [(1, 10)], {"adjusted": 1}),
        (retract(1, 20, 9), "drop", [(1, 20)], {"dropped": 1}),
        (retract(1, 20, 1), "adjust", [(1, 10)], {"adjusted": 1}),
    ],
)
def test_a_late_retraction_of_a_living_event_ends_it_at_c(
    move: Item, late: str, lifetimes: list[tuple[int, int]], counts: dict[str, int]
) -> None:
    items = [insert(1, 20), Item(CTI, 10), move, insert(9, 10, 1)]
    assert left(case_of(PHYSICAL, items, None, late)) == (lifetimes, {"dropped": 1} | _plus(counts, "dropped"))


def _plus(counts: dict[str, int], reason: str) -> dict[str, int]:
    return counts | {reason: counts.get(reason, 0) + 1}


def test_a_late_retraction_of_an_ended_event_adds_what_lies_beyond_c() -> None:
    items = [insert(1, 5), Item(CTI, 10), retract(1, 5, 20), retract(1, 20, 15)]
    assert left(case_of(PHYSICAL, items, None)) == ([(1, 5), (10, 15)], {"adjusted": 1})
    assert left(case_of(PHYSICAL, items, None, "drop")) == ([(1, 5)], {"dropped": 2})
    assert left(case_of(PHYSICAL, [*items[:2], retract(1, 5, 10)], None)) == ([(1, 5)], {"dropped": 1})
    gone = [Item(CTI, 10), insert(1, 20), retract(1, 20, 15)]
    assert left(case_of(PHYSICAL, gone, None, "drop")) == ([], {"dropped": 2})


def test_of_rows_that_contradict_each_other_the_first_stands() -> None:
    named = sq.intervals(t.table("start bigint, end bigint, v bigint", []), start="start", end="end", id="v", name="s")
    items = [insert(1, 5), insert(1, 3), insert(1, 5), insert(2, 3)]
    case = case_of(named, items, delay=10)
    assert left(case) == ([(1, 5), (2, 3)], {"invalid": 1, "duplicates": 1})
    assert left(replace(case, cut=(4,))) == ([(1, 3), (2, 3)], {"invalid": 2}), "at once the lesser stands"


def test_what_is_delivered_again_is_known_while_it_lives() -> None:
    named = sq.intervals(t.table("start bigint, end bigint, v bigint", []), start="start", end="end", id="v", name="s")
    again = [insert(1, 20), insert(2, 10), insert(1, 9)]
    one = admissions(case_of(named, [*again, insert(10, 11), insert(5, 6), *again]))["s"]
    assert one.counts == {"invalid": 2, "dropped": 1, "duplicates": 2} and one.sure_duplicates == 2
    one = admissions(case_of(named, [insert(3, 9), insert(10, 11), insert(5, 6), insert(3, 9)]))["s"]
    assert one.counts == {"dropped": 1, "duplicates": 1} and one.sure_duplicates == 0


def test_late_edges_act_from_c_on() -> None:
    items = [edge(OPEN, 1), edge(OPEN, 10), edge(CLOSE, 5)]
    assert left(case_of(EDGES, items)) == ([(1, 10), (10, None)], {"dropped": 1})
    again = [edge(OPEN, 1), Item(OPEN, 10, payload={"k": 2}), edge(CLOSE, 5)]
    assert left(case_of(EDGES, again)) == ([(1, 10), (10, None)], {"adjusted": 1})
    assert left(case_of(EDGES, again, late="drop")) == ([(1, None), (10, None)], {"dropped": 1})
    pair = [Item(OPEN, 10, payload={"k": 2}), edge(OPEN, 5), edge(CLOSE, 12)]
    assert left(case_of(EDGES, pair)) == ([(10, 12), (10, None)], {"adjusted": 1})
    assert left(case_of(EDGES, pair, late="drop")) == ([(10, None)], {"dropped": 2})


def test_a_dropped_end_without_a_start_takes_no_late_start_from_a_later_end() -> None:
    """The end at 3 is forgotten, so that of the start at -2, which is dropped too, is the one at 7, and goes with it."""
    items = [edge(OPEN, 6), edge(CLOSE, 7, 2), edge(CLOSE, 3, 2), edge(OPEN, -2, 2), edge(OPEN, 13)]
    case = case_of(EDGES, items, late="drop")
    assert left(case) == ([(6, 13), (13, None)], {"dropped": 3})
    assert check(case, [Execution(STREAM)])


def test_the_legal_case_has_the_same_answer() -> None:
    case = case_of(INTERVALS, [insert(10, 15), insert(9, 12), Item(INSERT, None, 3, payload={"v": 0})])
    same = without_late_items(case, admissions(case))
    assert not admissions(same) and len(same.arrival) == 2
    t.assert_same_history(
        same.answer(), t.history(t.table("start bigint, end bigint, v bigint", [(10, 15, 0), (10, 12, 0)]))
    )


# what is drawn


def met(case: Case) -> Iterator[str]:
    """Which boundaries a case of one source that is cut after every item meets."""
    greatest = c = -INFINITY
    (source,) = case.sources.values()
    for _, item in case.with_cut().arrival:
        if item.start is None or not is_event(item):
            yield "no event"
            continue
        for by in (-2, -1, 0, 1):
            if item.sync == c + by:
                yield f"sync is c {by:+}"
            if item.kind == INSERT and item.start < c and item.end == c + by:
                yield f"late, its end is c {by:+}"
            if item.kind == RETRACT and item.new_end == c + by:
                yield f"new end is c {by:+}"
        progress = source.policy.progress
        if not isinstance(progress, GeneratedCtis):
            c = max(c, item.start) if item.kind == CTI else c
        elif item.kind != CLOSE:
            greatest = max(greatest, item.start)
            c = (greatest - progress.delay) // progress.every * progress.every


INDEPENDENT = 150
"""Of a search of Hypothesis about a third of the examples are independent; ``verify`` draws each afresh, 200 of them.

What must be met is met a few times in half as many."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "often"),
    [
        ("intervals", {"sync is c +0": 8, "sync is c -1": 2, "late, its end is c +0": 1, "late, its end is c +1": 1}),
        (
            "physical",
            {"sync is c +0": 10, "sync is c -1": 3, "new end is c +0": 1, "new end is c -1": 1, "new end is c +1": 2},
        ),
        ("edges", {"sync is c +0": 10, "sync is c -1": 3}),
    ],
)
def test_boundaries_are_met_often(shape: str, often: dict[str, int]) -> None:
    cases = 0
    counts: Counter[str] = Counter()

    @settings(max_examples=INDEPENDENT, database=None)
    @given(t.concrete(t.stream(shape=shape, columns="k int").snapshot_window().select(n=sq.count())), st.none())
    def draw(case: Case, _: None) -> None:
        nonlocal cases
        cases += 1
        counts.update(set(met(case)))
        counts["no bound"] += case.until is None
        counts["nothing arrives"] += 0 in case.cut

    draw()
    often = {**often, "no event": 2, "no bound": 5, "nothing arrives": 5}
    assert {what: n for what, n in often.items() if counts[what] < n} == {}, counts


@pytest.mark.slow
def test_windows_are_met_at_their_edges() -> None:
    """Where lengths are such that no part of one is a part of another."""
    counts: Counter[str] = Counter()

    @settings(max_examples=INDEPENDENT, database=None)
    @given(t.concrete(t.stream(shape="intervals", axis="integer").hopping_window(1_003, 331, 17).select(n=sq.count())))
    def draw(case: Case) -> None:
        ends = {(name, (time - 17 - part) % 331) for _, item in case.arrival for name, time, part in instants(item)}
        counts.update({f"{name} {by - 331 if by > 165 else by:+}" for name, by in ends})

    def instants(item: Item) -> Iterator[tuple[str, int, int]]:
        for part in (0, 1_003):
            if item.start is not None:
                yield "start", item.start, part
            if item.end is not None:
                yield "end", item.end, part

    draw()
    for name in ("start", "end"):
        for by in (-1, 0, 1):
            assert counts[f"{name} {by:+}"] >= 3, counts
