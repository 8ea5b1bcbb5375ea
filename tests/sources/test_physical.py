"""Physical streams: retractions fold into their inserts, in whatever order they come."""

from __future__ import annotations

import itertools

import pytest

import streamq as sq
from streamq.errors import InvalidEvent


def test_a_chain_of_retractions_in_any_order() -> None:
    items = [
        sq.insert(1, None, v=3),
        sq.retract(1, None, 10, v=3),
        sq.retract(1, 10, 20, v=3),
        sq.retract(1, 20, 4, v=3),
    ]
    for order in itertools.permutations(items):
        assert sq.events(order).to_arrow().to_pylist() == [{"v": 3, "start": 1, "end": 4}]


def test_a_deletion_leaves_nothing_and_equal_events_are_told_apart() -> None:
    s = sq.events([sq.insert(1, 5, v=3), sq.insert(1, 5, v=3), sq.retract(1, 5, 1, v=3)])
    assert s.to_arrow().num_rows == 1


def test_a_retraction_of_nothing_is_no_event() -> None:
    s = [sq.insert(1, 5, v=3), sq.retract(1, 5, 4, v=7)]
    with pytest.raises(InvalidEvent, match=r"a retraction that matches nothing \(start 1, end 5\)"):
        sq.events(s).to_arrow()
    assert sq.events(s, invalid="drop").to_arrow().to_pylist() == [{"v": 3, "start": 1, "end": 5}]
