"""select, with_columns, drop, rename."""

from __future__ import annotations

import streamq as sq

S = sq.events([(1, 5, {"a": 3, "b": "x"})])


def test_columns_and_order() -> None:
    assert S.select("b", twice=sq.col("a") * 2).columns == ["b", "twice"]
    assert S.with_columns(a=sq.lit(1.5), c=sq.start()).columns == ["a", "b", "c"]
    assert S.drop("a").columns == ["b"]
    assert S.rename(a="z").columns == ["z", "b"]
    assert S.rename({"a": "b", "b": "a"}).to_arrow().to_pylist() == [{"b": 3, "a": "x", "start": 1, "end": 5}]
    assert S.select(sq.col("a").alias("q")).columns == ["q"]
    assert S.pipe(lambda s, n: s.select(n=sq.lit(n)), 7).to_arrow().column("n").to_pylist() == [7]
