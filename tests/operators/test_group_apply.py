"""group_by().apply(): a whole sub-plan per group, as one plan with the keys carried through it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from tests.judged import Row, answer

S = sq.events(
    [
        *((1, 5, {"k": "a", "v": 3}), (3, 8, {"k": "a", "v": 4}), (10, 11, {"k": "a", "v": 5})),
        *((2, 4, {"k": "b", "v": 9}), (3, 6, {"k": None, "v": 1}), (4, 7, {"k": None, "v": 2})),
    ]
)


def each(s: sq.Stream, key: str, sub_plan: Any) -> list[Row]:
    """What apply means: the sub-plan over every group by itself, its key put in front (here of strings only)."""
    found = []
    for value in sorted({row[2 + s.columns.index(key)] for row in answer(s)}, key=str):
        mine = s.where(sq.col(key).eq_null_safe(value))
        found += [(row[0], row[1], value, *row[2:]) for row in answer(sub_plan(mine))]
    return found


def same(s: sq.Stream, sub_plan: Any) -> None:
    applied = s.group_by("k").apply(sub_plan)
    # the sub-plan's own columns, behind a key that comes first
    assert sorted(map(str, answer(applied))) == sorted(map(str, each(s, "k", sub_plan)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "sub_plan",
    [
        lambda g: g.select("v").where(sq.col("v") > 2),
        lambda g: g.select(w=sq.col("v") * 2).shift(3),
        lambda g: g.select("v").chop(2),
        lambda g: g.select("v").to_signal(),
        lambda g: g.select("v").distinct_ids(5, id="v"),
        lambda g: g.select("v").union(g.select("v").shift(1)),
        lambda g: g.select("v").except_(g.where(sq.col("v") > 3).select("v")),
        lambda g: g.select("v").clip(g),
        lambda g: g.select("v").join(g.select(w=sq.col("v")), where=lambda a, b: a.v < b.w),
        lambda g: g.select("v").join(g.select("v"), where=lambda a, b: a.v < b.v, how="left", suffixes=("", "_r")),
        lambda g: g.select("v").left_anti_join(g.where(sq.col("v") > 3)),
        lambda g: g.select("v").join(g.where(sq.col("v") > 3), how="semi"),
        lambda g: g.select("v").windowed_join(g.select(w=sq.col("v")), size=4),
        lambda g: g.tumbling_window(4).select(n=sq.count(), mean=sq.avg("v")),
        lambda g: g.session_window(3).select(n=sq.count()),
        lambda g: g.count_window(2).select(n=sq.count()),
        lambda g: g.rows_window(2).select(s=sq.sum("v")),
        lambda g: g.sliding_window(2).select(s=sq.sum("v")),
        lambda g: g.select("v").tumbling_window(4).top_k(1, by="v"),
        lambda g: g.tumbling_window(4).select(n=sq.count()).tumbling_window(8).select(m=sq.max("n")),
    ],
)  # fmt: skip
def test_apply_is_the_sub_plan_over_every_group_by_itself(sub_plan: Any) -> None:
    same(S, sub_plan)


def test_a_join_inside_keeps_its_own_keys_and_null_in_those_matches_nothing() -> None:
    s = sq.events(
        [(1, 9, {"k": k, "id": i, "v": v}) for k, i, v in (("a", 1, 1), ("a", None, 2), (None, 1, 3), (None, None, 4))]
    )
    applied = s.group_by("k").apply(lambda g: g.select("id", "v").join(g.select("id", w=sq.col("v")), "id"))
    assert answer(applied) == [(1, 9, "a", 1, 1, 1), (1, 9, None, 1, 3, 3)]


def test_keys_that_the_sub_plan_keeps_stay_where_it_put_them() -> None:
    applied = S.group_by("k").apply(lambda g: g.where(sq.col("v") > 4).select("v", "k"))
    assert applied.columns == ["v", "k"]
    renamed = S.group_by("k").apply(lambda g: g.select(k=sq.col("v") * 10))
    assert renamed.columns == ["k"]
    assert answer(renamed)[0] == (1, 5, 30)


def test_a_computed_key_and_several_keys() -> None:
    even = S.group_by(even=sq.col("v") % 2 == 0).apply(lambda g: g.tumbling_window(12).select(n=sq.count()))
    assert answer(even) == [(0, 12, False, 4), (0, 12, True, 2)]
    both = S.group_by("k", odd=sq.col("v") % 2).apply(lambda g: g.tumbling_window(12).select(n=sq.count()))
    assert both.columns == ["k", "odd", "n"]
    assert len(answer(both)) == 5


def test_apply_inside_apply() -> None:
    s = S.with_columns(odd=sq.col("v") % 2)
    pairs = s.group_by("k").apply(
        lambda g: g.group_by("odd").apply(
            lambda h: h.select(a=sq.col("v")).join(h.select(b=sq.col("v")), where=lambda x, y: x.a <= y.b)
        )
    )
    flat = s.group_by("k", "odd").apply(
        lambda h: h.select(a=sq.col("v")).join(h.select(b=sq.col("v")), where=lambda x, y: x.a <= y.b)
    )
    assert pairs.columns == flat.columns == ["k", "odd", "a", "b"]
    assert answer(pairs) == answer(flat)
    assert len(answer(pairs)) == 6
    above = s.group_by("k").apply(
        lambda g: g.join(
            g.group_by("odd").apply(lambda h: h.snapshot_window().select(n=sq.count())), "odd", suffixes=("", "_r")
        ).select("odd", "v", "n")
    )
    assert above.columns == ["k", "odd", "v", "n"]
    assert [row[2:] for row in answer(above)] == [
        *(("a", 1, 3, 1), ("b", 1, 9, 1), (None, 1, 1, 1), ("a", 0, 4, 1), (None, 0, 2, 1), ("a", 1, 5, 1)),
    ]  # fmt: skip


def test_other_streams_are_the_same_for_every_group() -> None:
    limits = sq.events([(2, 4, {"limit": 2}), (9, None, {"limit": 4})])
    above = S.group_by("k").apply(lambda g: g.join(limits, where=lambda e, l: e.v > l.limit).select("v", "limit"))
    assert answer(above) == [(2, 4, "a", 3, 2), (2, 4, "b", 9, 2), (3, 4, "a", 4, 2), (10, 11, "a", 5, 4)]
    right = S.group_by("k").apply(lambda g: limits.join(g, where=lambda l, e: e.v > l.limit).select("v", "limit"))
    assert answer(right) == answer(above)
    quiet = S.group_by("k").apply(lambda g: g.select("v").left_anti_join(limits))
    assert [r[:2] for r in answer(quiet)] == [(1, 2), (4, 5), (4, 6), (4, 7), (4, 8)]
    cut = S.group_by("k").apply(lambda g: g.select("v").clip(limits))
    assert [r[:2] for r in answer(cut)] == [(1, 2), (2, 4), (3, 6), (3, 8), (4, 7), (10, 11)]
    tables = pa.table({"v": [3, 9], "name": ["three", "nine"]})
    named = S.group_by("k").apply(lambda g: g.join_table(tables, "v").select("name"))
    assert answer(named) == [(1, 5, "a", "three"), (2, 4, "b", "nine")]


def test_groups_of_other_types() -> None:
    keys: list[list[Any]] = [
        *([True, False, None], [b"x", b"", None], [Decimal("1.5"), None], [dt.date(2024, 1, 1), None]),
        *([dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None], [0, 1, None], ["", "x", None], [0.0, 1.0, None]),
    ]
    for values in keys:
        s = sq.events([(1, 5, {"k": k, "v": i}) for i, k in enumerate(values)])
        # every group is one event, which meets itself alone
        found = answer(s.group_by("k").apply(lambda g: g.join(g, suffixes=("", "_r")).select("v", "v_r")))
        assert sorted(r[3] for r in found) == list(range(len(values)))
        assert all(r[3] == r[4] for r in found)
