"""What is read of a source on the way to the first operator with state."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import streamq as sq
from streamq.compiler.rewriter import Consumer, consumers
from streamq.operators import ToSignal
from streamq.plan.node import Node
from streamq.windows import Hopping, Snapshot

S = sq.events([(1, 4, {"k": 1, "v": 1.0})])
ENDING = S.set_duration(3)


def only(plan: Node) -> Consumer:
    [[way]] = consumers(plan).values()
    return way


def test_the_windows_that_events_come_to() -> None:
    windows = [
        (S.hopping_window(4, 2).agg(n=sq.count()), Hopping(4, 2), False),
        (S.hopping_window(4, 2).agg(v=sq.median("v")), Hopping(4, 2), False),
        (S.hopping_window(4, 2).agg(v=sq.collect("v")), Hopping(4, 2), False),
        (ENDING.hopping_window(4, 2).agg(v=sq.collect("v")), Hopping(4, 2), False),
        (S.snapshot_window().agg(n=sq.count()), Snapshot(), False),
        (S.tumbling_window(4).top_k(1, by="v"), Hopping(4, 4), False),
        (S.chop(2), None, True),
        (ENDING.chop(2), None, False),
        (S.to_signal("k"), None, False),
        (S.last_rows(2), None, False),
    ]
    for query, window, bounds in windows:
        way = only(query.plan)
        assert way.has_state
        assert (way.window, way.bounds_windows) == (window, bounds), query.plan.title
    assert not only(S.where(sq.col("v") > 1).plan).has_state


def test_a_field_called_window_is_no_window() -> None:
    @dataclass(frozen=True, eq=False, repr=False)
    class Recent(ToSignal):
        window: int = 5

    assert only(Recent(S.plan, ("k",))).window is None


def test_a_node_without_a_schema_cannot_be_made() -> None:
    class Bare(Node):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Bare()  # type: ignore[abstract]
