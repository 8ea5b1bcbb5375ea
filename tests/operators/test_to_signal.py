"""to_signal: a sample lives until the next strictly later one of its key."""

from __future__ import annotations

import pytest

import streamq as sq
from streamq.errors import TypeMismatch, UnknownColumn
from streamq.testing.table import table
from streamq.time import INFINITY
from tests.judged import answer

NAN = float("nan")


def samples(*rows: tuple[int, object, int]) -> sq.Stream:
    return sq.events([(at, at + 1, {"k": k, "v": v}) for at, k, v in rows])


def test_a_sample_lives_until_the_next_of_its_key() -> None:
    """
    a     10 [1,5)   11 [5,9)   12 [9,inf)
    b          7 [3,inf)
    """
    s = samples((5, "a", 11), (1, "a", 10), (3, "b", 7), (9, "a", 12))
    assert answer(s.to_signal("k")) == [(1, 5, "a", 10), (3, None, "b", 7), (5, 9, "a", 11), (9, None, "a", 12)]
    assert [r[:2] for r in answer(s.to_signal())] == [(1, 3), (3, 5), (5, 9), (9, None)]


def test_null_is_a_key_of_its_own_and_so_is_nan() -> None:
    s = samples((1, None, 1), (2, NAN, 2), (3, None, 3), (4, NAN, 4), (5, -0.0, 5), (6, 0.0, 6))
    assert {r[3]: r[:2] for r in answer(s.to_signal("k"))} == {
        1: (1, 3),
        2: (2, 4),
        3: (3, None),
        4: (4, None),
        5: (5, 6),
        6: (6, None),
    }


def test_a_signal_is_a_signal_of_itself() -> None:
    signal = samples((1, "a", 1), (4, "a", 2), (4, "b", 3)).to_signal("k")
    assert signal.schema.shape == "signal"
    assert answer(signal.to_signal("k")) == answer(signal)


def test_at_the_ends_of_the_axis() -> None:
    least = -(2**63) + 1
    s = sq.events([(least, least + 1, {"v": 1}), (INFINITY - 1, None, {"v": 2})])
    assert answer(s.to_signal()) == [(least, INFINITY - 1, 1), (INFINITY - 1, None, 2)]


def test_errors() -> None:
    with pytest.raises(UnknownColumn, match="to_signal: no column 'z'; there are: k, v"):
        samples((1, "a", 1)).to_signal("z")
    with pytest.raises(TypeMismatch, match="to_signal: cannot group by column 'xs'; found map<string,bigint>"):
        sq.points(table("at bigint, xs map<string,bigint>", [(1, {"a": 1})]), time="at").to_signal("xs")
