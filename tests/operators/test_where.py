"""where: what it keeps, what it refuses."""

from __future__ import annotations

import pytest

import streamq as sq
from streamq.errors import MixedStreams, PlanError, TypeMismatch, UnknownColumn

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


def test_errors_name_what_exists() -> None:
    with pytest.raises(UnknownColumn, match=r"where: no column 'fares'; there are: fare, zone. Did you mean 'fare'\?"):
        FARES.where(sq.col("fares") > 2)
    for lifetime in (lambda e: e.start > 1, lambda e: e["end"] > 1, sq.col("start") > 1, sq.col("duration") > 1):
        with pytest.raises(UnknownColumn, match=r"The lifetime is sq.start\(\), sq.end\(\), sq.duration\(\)"):
            FARES.where(lifetime)
    with pytest.raises(PlanError, match="where: a bound of a window where there are only events"):
        FARES.where(sq.window_start() > 1)
    with pytest.raises(UnknownColumn, match="there are: fare, zone"):
        FARES.where(lambda e: e.price > 2)
    with pytest.raises(TypeMismatch, match="cannot compare string with int"):
        FARES.where(sq.col("zone") > 2)
    with pytest.raises(TypeMismatch, match="the predicate is not boolean; found bigint"):
        FARES.where(sq.col("fare"))
    with pytest.raises(TypeMismatch, match="Use & | ~ instead of and, or, not"):
        FARES.where(lambda e: e.fare > 1 and e.fare < 3)
    with pytest.raises(MixedStreams, match="an expression that mixes streams; column 'fare' is of another one"):
        FARES.where(sq.events([(1, 2, {"fare": 1})])["fare"] > 2)
    with pytest.raises(PlanError, match="an aggregate outside a window's select"):
        FARES.where(sq.count() > 2)


def test_columns_of_a_stream_serve_those_derived_from_it() -> None:
    assert kept(FARES.where(FARES["fare"] > 2).where(FARES["fare"] < 5)) == [3]
