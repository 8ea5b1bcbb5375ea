"""select, with_columns, drop, rename."""

from __future__ import annotations

import pytest

import streamq as sq
from streamq.errors import AmbiguousColumn, PlanError, TypeMismatch, UnknownColumn

S = sq.events([(1, 5, {"a": 3, "b": "x"})])


def test_columns_and_order() -> None:
    assert S.select("b", twice=sq.col("a") * 2).columns == ["b", "twice"]
    assert S.with_columns(a=sq.lit(1.5), c=sq.start()).columns == ["a", "b", "c"]
    assert S.drop("a").columns == ["b"]
    assert S.rename(a="z").columns == ["z", "b"]
    assert S.rename({"a": "b", "b": "a"}).to_arrow().to_pylist() == [{"b": 3, "a": "x", "start": 1, "end": 5}]
    assert S.select(sq.col("a").alias("q")).columns == ["q"]
    assert S.pipe(lambda s, n: s.select(n=sq.lit(n)), 7).to_arrow().column("n").to_pylist() == [7]


def test_errors() -> None:
    with pytest.raises(PlanError, match="a payload column called 'start'; that is the lifetime's name in results"):
        S.select(start=sq.col("a"))
    with pytest.raises(PlanError, match="begins with two underscores"):
        S.with_columns(__le=sq.col("a"))
    with pytest.raises(AmbiguousColumn, match="column 'A' twice; found 'a' and 'A'"):
        S.with_columns(A=sq.lit(1))
    with pytest.raises(AmbiguousColumn):
        S.rename(a="b")
    with pytest.raises(UnknownColumn, match="drop: no column 'c'; there are: a, b"):
        S.drop("c")
    with pytest.raises(PlanError, match=r"drop: a column name is a string; found \['b'\]. Write drop\('a', 'b'\)"):
        S.drop(["b"])  # type: ignore[arg-type]
    with pytest.raises(TypeMismatch, match=r"\+ needs numbers; found string in b \+ 1"):
        S.select(x=sq.col("b") + 1)
    with pytest.raises(PlanError, match="an expression without a name"):
        S.select(sq.col("a") + 1)
    with pytest.raises(PlanError, match="column 'x' has no type"):
        S.select(x=sq.lit(None))
    with pytest.raises(
        PlanError, match=r"select: a bound of a window .* found window_end\(\) - a. An event's own is sq.end"
    ):
        S.select(x=sq.window_end() - sq.col("a"))
    with pytest.raises(PlanError, match="with_columns: a bound of a window where there are only events"):
        S.with_columns(x=sq.window_start())
    with pytest.raises(TypeMismatch, match=r"not iterable; found a. Python's own sum, min and max take lists"):
        S.select(x=sum(sq.col("a")))
    with pytest.raises(PlanError, match=r"select: an event is not iterable. Aggregates are sq.sum"):
        S.select(x=sum)
