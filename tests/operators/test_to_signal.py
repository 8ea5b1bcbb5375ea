"""to_signal: a sample lives until the next strictly later one of its key."""

from __future__ import annotations

import streamq as sq
from streamq.time import INFINITY
from tests.judged import answer


def samples(*rows: tuple[int, object, int]) -> sq.Stream:
    return sq.events([(at, at + 1, {"k": k, "v": v}) for at, k, v in rows])


def test_a_signal_is_a_signal_of_itself() -> None:
    signal = samples((1, "a", 1), (4, "a", 2), (4, "b", 3)).to_signal("k")
    assert signal.schema.shape == "signal"
    assert answer(signal.to_signal("k")) == answer(signal)


def test_at_the_ends_of_the_axis() -> None:
    least = -(2**63) + 1
    s = sq.events([(least, least + 1, {"v": 1}), (INFINITY - 1, None, {"v": 2})])
    assert answer(s.to_signal()) == [(least, INFINITY - 1, 1), (INFINITY - 1, None, 2)]
