"""clip: an event ends at the first start, strictly after its own, of a matching event of the other stream."""

from __future__ import annotations

import datetime as dt

import pytest

import streamq as sq
from streamq.errors import PlanError, TypeMismatch, UnknownColumn
from streamq.time import INFINITY
from tests.judged import answer

NAN = float("nan")


def spans(*rows: tuple[int, int | None]) -> sq.Stream:
    return sq.events([(*row, {"k": 1}) for row in rows])


def ends(s: sq.Stream) -> list[tuple[int, int | None]]:
    return [row[:2] for row in answer(s)]


def test_the_first_start_strictly_after_the_own_one_is_the_end() -> None:
    """
    events   [1,9)   [4,6)
    by       [0,2)  [1,..)  [4,5)  [5,6)
    result   [1,4)   [4,5)
    """
    by = spans((0, 2), (1, None), (4, 5), (5, 6))
    assert ends(spans((1, 9), (4, 6)).clip(by, "k")) == [(1, 4), (4, 5)]


def test_a_start_at_or_after_the_end_changes_nothing() -> None:
    assert ends(spans((1, 5)).clip(spans((5, 6), (7, 8)), "k")) == [(1, 5)]
    assert ends(spans((1, None)).clip(spans((1, 3)), "k")) == [(1, None)]
    assert ends(spans((1, None)).clip(spans((INFINITY - 1, None)), "k")) == [(1, INFINITY - 1)]


def test_null_keys_match_nothing_and_no_key_matches_all() -> None:
    events = sq.events([(1, 9, {"k": None}), (1, 9, {"k": "a"})])
    by = sq.events([(3, 4, {"k": None}), (5, 6, {"k": "a"})])
    assert answer(events.clip(by, "k")) == [(1, 5, "a"), (1, 9, None)]
    assert ends(events.clip(by)) == [(1, 3), (1, 3)]


def test_keys_are_equal_as_spark_has_it_and_may_have_other_names() -> None:
    events = sq.events([(1, 9, {"k": k}) for k in (-0.0, NAN, 2.0)])
    by = sq.events([(i + 3, 99, {"id": k}) for i, k in enumerate((0.0, NAN))])
    assert sorted(ends(events.clip(by, [("k", "id")]))) == [(1, 3), (1, 4), (1, 9)]
    assert ends(spans((1, 9)).clip(sq.events([(3, 4, {"id": 1.0}), (2, 4, {"id": 1.5})]), {"k": "id"})) == [(1, 3)]


def test_errors() -> None:
    words = sq.events([(1, 2, {"k": "a"})])
    with pytest.raises(
        TypeMismatch, match="clip: keys 'k' and 'k' of different types; found bigint and string. Cast one"
    ):
        spans((1, 2)).clip(words, "k")
    with pytest.raises(UnknownColumn, match="clip: no column 'z' on the left; there are: k"):
        words.clip(words, "z")
    with pytest.raises(PlanError, match="clip: not a stream; found int"):
        words.clip(3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="clip: streams on different time axes; found integer and timestamp"):
        words.clip(sq.events([(dt.datetime(2024, 1, 1), None, {"k": "a"})]), "k")
