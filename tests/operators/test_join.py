"""join in its four kinds: pairs while both live, maximal parts with and without a partner, keys, conditions, names."""

from __future__ import annotations

import streamq as sq
from streamq.time import INFINITY
from tests.judged import answer

NAN = float("nan")
L = sq.events([(1, 6, {"k": 1, "v": "a"}), (2, None, {"k": 2, "v": "b"}), (3, 9, {"k": None, "v": "c"})])
R = sq.events([(2, 4, {"k": 1, "w": 10}), (5, 9, {"k": 1, "w": 20}), (0, None, {"k": None, "w": 30})])


def made(rows: list[tuple[int, int | None, int]], name: str) -> sq.Stream:
    return sq.events([(a, b, {"k": 1, name: v}) for a, b, v in rows])


def test_null_keys_match_nothing_in_any_kind() -> None:
    nulls = L.where(sq.col("v") == "c")
    assert answer(nulls.join(R, "k")) == answer(nulls.join(R, "k", how="semi")) == []
    assert answer(nulls.join(R, "k", how="left")) == [(3, 9, None, "c", None)]
    assert answer(nulls.join(R, "k", how="anti")) == [(3, 9, None, "c")]


def test_keys_are_equal_as_spark_has_it() -> None:
    """NaN equals NaN, -0.0 equals 0.0; keys of different numeric types meet in the wider one."""
    left = sq.events([(1, 5, {"k": k}) for k in (-0.0, NAN, 1.5)])
    right = sq.events([(2, 9, {"k": k, "w": i}) for i, k in enumerate((0.0, NAN, 1.0))])
    assert [r[3] for r in answer(left.join(right, "k"))] == [0, 1]
    whole = sq.events([(1, 5, {"k": 1}), (1, 5, {"k": 2**40})])
    assert answer(whole.join(right, "k")) == [(2, 5, 1, 2)]
    assert answer(right.join(whole, "k", how="semi")) == [(2, 5, 1.0, 2)]
    small = sq.events([(1, 5, {"n": 1})], schema={"n": "int"})
    assert answer(small.join(whole, {"n": "k"})) == [(1, 5, 1, 1)]


def test_suffixes_bring_equal_names_apart() -> None:
    s = made([(1, 5, 1)], "v")
    assert s.join(s, "k", suffixes=("_l", "_r")).columns == ["k", "v_l", "v_r"]
    assert s.join(s, suffixes=("", "_r")).columns == ["k", "v", "k_r", "v_r"]
    assert s.join(s, "k", how="semi").columns == s.left_anti_join(s, "k").columns == ["k", "v"]
    seen = sq.col("v_l") == sq.col("v_r")
    assert answer(s.join(s, "k", seen, suffixes=("_l", "_r"))) == [(1, 5, 1, 1, 1)]


def test_a_join_of_points_gives_points() -> None:
    points, spans = L.to_points(), R
    assert points.join(spans, "k").schema.shape == spans.join(points, "k").schema.shape == "point"
    assert points.join(spans, "k", how="anti").schema.shape == "point"
    assert spans.join(points, "k", how="anti").schema.shape == "interval"
    assert answer(spans.join(points, "k", how="anti"))[0] == (0, None, None, 30)


def test_lifetimes_at_the_ends_of_the_axis() -> None:
    left = made([(-(2**63) + 1, INFINITY - 1, 1), (INFINITY - 1, None, 2)], "v")
    right = made([(-(2**63) + 1, None, 3)], "w")
    assert [r[:2] for r in answer(left.join(right, "k"))] == [(-(2**63) + 1, INFINITY - 1), (INFINITY - 1, None)]
    assert answer(left.left_anti_join(right, "k")) == []
