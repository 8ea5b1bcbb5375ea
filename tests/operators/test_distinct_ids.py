"""distinct_ids: an event goes if one of its id started shortly before it, whether that was kept or not."""

from __future__ import annotations

import streamq as sq
from tests.judged import answer

NAN = float("nan")


def ids(*rows: tuple[int, object]) -> sq.Stream:
    return sq.events([(at, at + 1, {"id": i}) for at, i in rows])


def starts(s: sq.Stream) -> list[int]:
    return [row[0] for row in answer(s)]


def test_the_reach_is_closed_at_its_far_end() -> None:
    assert starts(ids((1, 7), (6, 7)).distinct_ids(5, id="id")) == [1], "6 - 5 = 1 lies in [1, 6)"
    assert starts(ids((1, 7), (7, 7)).distinct_ids(5, id="id")) == [1, 7]


def test_of_one_instant_the_least_end_and_then_the_least_payload_stays() -> None:
    s = sq.events(
        [(1, 9, {"id": 7, "v": 1}), (1, 5, {"id": 7, "v": 3}), (1, 5, {"id": 7, "v": 2}), (1, None, {"id": 8, "v": 0})]
    )
    assert answer(s.distinct_ids(0, id="id")) == [(1, 5, 7, 2), (1, None, 8, 0)]
    equal = sq.events([(1, 5, {"id": 7, "v": 2})] * 3)
    assert answer(equal.distinct_ids(0, id="id")) == [(1, 5, 7, 2)]
    nulls = sq.events([(1, 5, {"id": 7, "v": v}) for v in (NAN, 1.0, None)])
    assert answer(nulls.distinct_ids(0, id="id")) == [(1, 5, 7, None)], "NULL is least"


def test_null_ids_are_equal_and_so_are_both_zeros_and_nans() -> None:
    s = ids((1, None), (2, None), (3, NAN), (4, NAN), (5, -0.0), (6, 0.0))
    assert starts(s.distinct_ids(5, id="id")) == [1, 3, 5]


def test_reach_saturates() -> None:
    least = -(2**63) + 1
    assert starts(ids((least, 7), (least + 3, 7)).distinct_ids(2**61, id="id")) == [least]
