"""Progress (SEMANTICS section 6): no output CTI is breached, nothing final changes, no state that the future needs is gone.

A simulation of each operator over random histories and legal futures. CTIs are as tight as what is still to come allows,
and state is compacted in every micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.compiler.operators import (
    AlterLifetime,
    Chop,
    Clip,
    DistinctIds,
    Except,
    Join,
    Select,
    TopK,
    ToSignal,
    Union,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.compiler.operators.alter_lifetime import FIXED, GIVEN, RE, SAME, Length, Start
from streamq.compiler.plan import Node
from streamq.expr import Aggregate, Call, Cast, Col, Lit, duration, end, start
from streamq.testing.case import Case
from streamq.testing.execution import CHANGELOG, FINAL, Execution
from streamq.testing.generate import cases
from streamq.testing.queries import grids
from streamq.testing.verify import check
from streamq.time import INTEGER
from streamq.windows import ALIGN, CLIPS, POINT_AT_END, Count, Landmark, Rows, Session, Snapshot, Window

Draw = Callable[[st.SearchStrategy[Any]], Any]
EXAMPLES = max(1, settings().max_examples // 8)


def progresses(case: Case, slack: Sequence[int | None]) -> None:
    """The law."""
    # no watermark goes beyond: what is told of lifetimes without an end is what a batch tells
    bounded, behind = replace(case, until=case.latest + 20), tuple(slack)
    check(bounded, [Execution(output=CHANGELOG, rules=(), slack=behind, watch=True)])
    check(bounded, [Execution(output=FINAL, rules=(), slack=behind)])


# the operators


def some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


LENGTHS = (
    Length(),
    Length(SAME, 3),
    Length(SAME, -2),
    Length(FIXED, 1),
    Length(FIXED, 5),
    Length(GIVEN, 0, Cast(Call("abs", (Col("v"),)), t.LongType())),
    Length(GIVEN, 0, duration() * 2),
)
STARTS = (
    Start(),
    Start(by=4),
    Start(by=-4),
    Start(RE),
    Start(GIVEN, 0, start() - start() % 4),
    Start(GIVEN, 0, start() - Cast(Call("coalesce", (Call("abs", (Col("v"),)), Lit(0))), t.LongType()), 8),
)


def lifetimes(plan: Node) -> st.SearchStrategy[Node]:
    return st.builds(lambda s, n: AlterLifetime(plan, s, n), some(*STARTS), some(*LENGTHS))


def heard(plan: Node) -> Node:
    """A stateless operator below one that believes what it makes of the CTI."""
    return WindowAggregate(plan, (), Snapshot(), (("n", Aggregate("count", ())),))


def conditions(plan: Node) -> st.SearchStrategy[Node]:
    return some(end() > 5, end().is_null(), duration() > 3, Col("v") > 1).map(lambda p: Where(plan, p))


def selected(plan: Node) -> st.SearchStrategy[Node]:
    return some(Col("v"), duration(), end()).map(
        lambda e: Select(plan, (("k", Col("k")), ("v", Cast(e, t.IntegerType()))))
    )


def joined(how: str) -> Callable[[Node, Node], st.SearchStrategy[Node]]:
    def made(one: Node, two: Node) -> st.SearchStrategy[Node]:
        where = some(None, Col("v") < Col("v_r"))
        return st.builds(
            lambda on, where: Join(
                one, two, (("k", "k"),) if on else (), where, how, (("k", "k"), ("v", "v")),
                (("v", "v_r"),) if on else (("k", "k_r"), ("v", "v_r")),
            ),
            st.booleans(), where,
        )  # fmt: skip

    return made


def joined_in_windows(one: Node, two: Node) -> st.SearchStrategy[Node]:
    ours, theirs = (("k", "k"), ("v", "v")), (("v", "v_r"),)
    return grids().map(lambda grid: WindowedJoin(one, two, grid, (("k", "k"),), None, ours, theirs))


INSENSITIVE = (
    (("n", Aggregate("count", ())), ("x", Aggregate("sum", (Col("v"),)))),
    (("x", Aggregate("collect", (Col("v"),))),),
    (("x", Aggregate("max", (Col("v"),))), ("y", Aggregate("first", (Col("v"),)))),
    (("x", Aggregate("sum", (Cast(duration(), t.LongType()),))),),
)
SENSITIVE = ((("x", Aggregate("time_weighted_avg", (Col("v"),))),),)


def windowed(
    kinds: st.SearchStrategy[Window], aggregates: Sequence[Any] = INSENSITIVE, clips: Sequence[str] = CLIPS
) -> Callable[[Node, Node], st.SearchStrategy[Node]]:
    """One kind of window, with every clip and stamp, per group or not."""

    def made(plan: Node, _: Node) -> st.SearchStrategy[Node]:
        def one(keys: Any, window: Window, aggregate: Any, clip: str, stamp: str) -> Node:
            return WindowAggregate(plan, keys, window, aggregate, clip, stamp)

        return st.builds(one, some((), ("k",)), kinds, some(*aggregates), some(*clips), some(ALIGN, POINT_AT_END))

    return made


def slid(plan: Node, _: Node) -> st.SearchStrategy[Node]:
    over = windowed(st.just(Snapshot()))
    return st.integers(1, 6).flatmap(lambda by: over(AlterLifetime(plan, Start(), Length(SAME, by)), plan))


COUNTS = st.builds(Count, st.integers(1, 3), st.just("start"))
COUNTS_OF_ENDS = st.builds(Count, st.integers(1, 3), st.just("end"))
ROWS = st.builds(Rows, st.integers(1, 4), st.integers(1, 4), some((), ("v",)))
SESSIONS = st.builds(Session, st.integers(2, 6))
LANDMARKS = st.builds(Landmark, st.integers(1, 6), st.integers(-5, 5), st.one_of(st.none(), st.integers(2, 15)))
EVERY = st.one_of(grids(), st.just(Snapshot()), COUNTS, ROWS, SESSIONS, LANDMARKS)


def ranked(plan: Node, _: Node) -> st.SearchStrategy[Node]:
    return st.builds(
        lambda keys, window, k, ties, stamp: TopK(plan, keys, window, k, Col("v"), True, ties, "full", stamp),
        some((), ("k",)), EVERY, st.integers(1, 2), some("keep", "break"), some(ALIGN, POINT_AT_END),
    )  # fmt: skip


OPERATORS: dict[str, Callable[[Node, Node], st.SearchStrategy[Node]]] = {
    "ingress": lambda one, two: st.just(one),
    "where": lambda one, two: conditions(one).map(heard),
    "select": lambda one, two: selected(one).map(heard),
    "union": lambda one, two: st.just(heard(Union((one, two)))),
    "alter_lifetime": lambda one, two: lifetimes(one).map(heard),
    "to_signal": lambda one, two: some((), ("k",)).map(lambda keys: ToSignal(one, keys)),
    "chop": lambda one, two: st.builds(lambda n, o: Chop(one, n, o), st.integers(1, 7), st.integers(-3, 3)),
    "distinct_ids": lambda one, two: st.builds(
        lambda ids, within: DistinctIds(one, ids, within), some(("k",), ("v",)), st.integers(0, 6)
    ),
    "clip": lambda one, two: some((), (("k", "k"),)).map(lambda on: Clip(one, two, on)),
    "except": lambda one, two: st.just(Except(one, two)),
    "inner join": joined("inner"),
    "left join": joined("left"),
    "semi join": joined("semi"),
    "anti join": joined("anti"),
    "windowed_join": joined_in_windows,
    "hopping": windowed(grids()),
    "snapshot": windowed(st.just(Snapshot())),
    "sliding": slid,
    "count": windowed(COUNTS),
    "count of ends": windowed(COUNTS_OF_ENDS, clips=("none", "right")),
    "rows": windowed(ROWS),
    "session": windowed(SESSIONS),
    "landmark": windowed(LANDMARKS),
    "time_weighted": windowed(EVERY, SENSITIVE),
    "time_weighted count of ends": windowed(COUNTS_OF_ENDS, SENSITIVE, ("none", "right")),
    "top_k": ranked,
}
"""Operators over one or two streams with payload ``k, v``."""

PAIRED = ("union", "clip", "except", "inner join", "left join", "semi join", "anti join", "windowed_join")
SLACK = st.lists(some(0, 0, 0, 1, 3, None), min_size=1, max_size=4)


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_operator(name: str, data: st.DataObject) -> None:
    """Every operator, window, clip and stamp over all kinds of sources."""

    def query(inputs: Sequence[Node]) -> st.SearchStrategy[Node]:
        return OPERATORS[name](inputs[0], inputs[-1])

    case = data.draw(cases(values=("int",), axes=(INTEGER,), most_sources=1 + (name in PAIRED), query=query))
    progresses(case, data.draw(SLACK))


@settings(max_examples=EXAMPLES)
@given(case=cases(), slack=SLACK)
def test_stack(case: Case, slack: list[int | None]) -> None:
    """Operators on operators: each believes the CTIs of those below it."""
    progresses(case, slack)
