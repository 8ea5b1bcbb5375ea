"""Physical streams: retractions fold into their inserts, in whatever order they come."""

from __future__ import annotations

import pytest

import streamq as sq
from streamq.errors import InvalidEvent


def test_a_retraction_of_nothing_is_no_event() -> None:
    s = [sq.insert(1, 5, v=3), sq.retract(1, 5, 4, v=7)]
    with pytest.raises(InvalidEvent, match=r"a retraction that matches nothing \(start 1, end 5\)"):
        sq.events(s).to_arrow()
    assert sq.events(s, invalid="drop").to_arrow().to_pylist() == [{"v": 3, "start": 1, "end": 5}]
