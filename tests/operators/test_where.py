"""where: what it keeps, what it refuses."""

from __future__ import annotations

import streamq as sq

FARES = sq.events(
    [(1, 5, {"fare": 3, "zone": "a"}), (2, None, {"fare": 8, "zone": None}), (4, 6, {"fare": None, "zone": "b"})]
)


def kept(s: sq.Stream) -> list[int | None]:
    return s.to_arrow().column("fare").to_pylist()


def test_what_a_filter_dropped_is_not_evaluated() -> None:
    zeros = sq.events([(1, 2, {"x": 0}), (1, 2, {"x": 4})])
    assert (
        zeros.where(lambda e: e.x != 0).where(lambda e: 8 / e.x > 1).select(y=8 / sq.col("x")).to_arrow().num_rows == 1
    )


def test_columns_of_a_stream_serve_those_derived_from_it() -> None:
    assert kept(FARES.where(FARES["fare"] > 2).where(FARES["fare"] < 5)) == [3]
