"""union: a bag, of equal columns on one axis."""

from __future__ import annotations

import datetime as dt

import pytest

import streamq as sq
from streamq.errors import PlanError

A = sq.events([(1, 5, {"v": 3}), (1, 5, {"v": 3})], name="a")


def test_errors() -> None:
    with pytest.raises(PlanError, match=r"union: streams of different columns; found \(v bigint\) and \(w bigint\)"):
        A.union(A.rename(v="w"))
    with pytest.raises(PlanError, match="streams on different time axes; found integer and timestamp"):
        A.union(sq.events([(dt.datetime(2024, 1, 1), None, {"v": 1})]))
    with pytest.raises(PlanError, match="two sources called 'a'"):
        A.union(sq.events([(0, 1, {"v": 1})], name="a"))
    with pytest.raises(PlanError, match="not a stream"):
        A.union([1])  # type: ignore[list-item]
