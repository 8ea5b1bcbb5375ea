"""join in its four kinds: pairs while both live, maximal parts with and without a partner, keys, conditions, names."""

from __future__ import annotations

import datetime as dt

import pytest

import streamq as sq
from streamq.errors import AmbiguousColumn, PlanError, TypeMismatch, UnknownColumn
from streamq.testing.table import table
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


def test_errors() -> None:
    with pytest.raises(
        TypeMismatch, match="join: keys 'v' and 'w' of different types; found string and bigint. Cast one"
    ):
        L.join(R, [("v", "w")])
    with pytest.raises(UnknownColumn, match="join: no column 'kk' on the left; there are: k, v. Did you mean 'k'?"):
        L.join(R, "kk")
    with pytest.raises(UnknownColumn, match="join: no column 'v' on the right; there are: k, w"):
        L.left_anti_join(R, "v")
    clash = "join: columns of both streams have equal names; found v. Bring them apart with suffixes="
    with pytest.raises(AmbiguousColumn, match=clash):
        L.join(L, "k")
    with pytest.raises(AmbiguousColumn, match=clash):
        L.join(L.rename(v="V"), "k")
    with pytest.raises(AmbiguousColumn, match="join: column 'v_x' twice in the result. Choose other suffixes"):
        L.join(L, "k", suffixes=("_x", "_x"))
    with pytest.raises(PlanError, match='join: suffixes are two strings; found .*Write suffixes=\\("_l", "_r"\\)'):
        L.join(L, "k", suffixes="_x")  # type: ignore[arg-type]
    for how, end in (("outer", "found 'outer'."), ("lft", "Did you mean 'left'?"), ("left_anti", "Write 'anti'.")):
        with pytest.raises(PlanError, match="^join: how is 'inner', 'left', 'semi' or 'anti'; found ") as refused:
            L.join(R, "k", how=how)
        assert str(refused.value).endswith(end)
    with pytest.raises(PlanError, match="join: not a stream; found int"):
        L.join(3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="join: a key is a column name or a pair of them; found 3. Write on="):
        L.join(R, [3])  # type: ignore[list-item]
    with pytest.raises(PlanError, match="join: streams on different time axes; found integer and timestamp"):
        L.join(sq.events([(dt.datetime(2024, 1, 1), None, {"w": 1})]))
    arrays = sq.points(table("at bigint, xs map<string,bigint>", [(1, {"a": 1})]), time="at")
    with pytest.raises(TypeMismatch, match="join: cannot match by column 'xs'; found map<string,bigint>"):
        arrays.join(arrays, "xs")


def test_errors_of_conditions() -> None:
    with pytest.raises(PlanError, match="join: the condition takes two events; .* Write lambda left, right: ..."):
        L.join(R, "k", lambda l: l.v == "a")
    with pytest.raises(TypeMismatch, match="join: the condition is not boolean; found bigint in w"):
        L.join(R, "k", lambda l, r: r.w)
    with pytest.raises(PlanError, match="the condition reads a lifetime; .* with_columns\\(at=sq.start\\(\\)\\)"):
        L.join(R, "k", lambda l, r: sq.start() > 3)
    with pytest.raises(UnknownColumn, match="join: no column 'w'; there are: k, v"):
        L.join(R, "k", lambda l, r: l.w > 3)
    with pytest.raises(UnknownColumn, match="join: no column 'z'; there are: k, v, w"):
        L.join(R, "k", sq.col("z") > 3)
    with pytest.raises(PlanError, match="the function gave no expression; found None. Use & | ~"):
        L.join(R, "k", lambda l, r: None)
    with pytest.raises(TypeMismatch, match="Use & | ~ instead of and, or, not"):
        L.join(R, "k", lambda l, r: l.k > 1 and r.w > 1)
    with pytest.raises(PlanError, match="an aggregate outside a window's select"):
        L.join(R, "k", lambda l, r: sq.count() > 1)
