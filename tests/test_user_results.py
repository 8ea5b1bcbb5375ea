"""Values that a module gives and may not: they are shown readably, with what to write instead."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamq as sq
from streamq.errors import ModuleFailed
from tests.pairwise import covering

WINDOW = sq.events([(1, 4, {"v": 2}), (3, 4, {"v": 6})]).tumbling_window(5)


def failure(code: Any, returns: str = "double") -> str:
    with pytest.raises(ModuleFailed) as raised:
        WINDOW.select(x=sq.uda(returns, name="own")(code)("v")).to_arrow()
    return str(raised.value)


def test_a_value_of_another_type_fails() -> None:
    assert "'one' is no double; window [0, 5)" in failure(lambda v: "one")
    assert "1.5 is no bigint (write int(...)); window [0, 5)" in failure(lambda v: 1.5, "bigint")
    assert "300 is no tinyint" in failure(lambda v: 300, "tinyint")
    assert "a Series of 2 values is no double (a list is an array<...>); window" in failure(lambda v: v)
    assert "[2, 6] is no double (a list is an array<...>)" in failure(lambda v: v.tolist())
    assert "a Series of 2 values is no array<string> (write .tolist())" in failure(lambda v: v, "array<string>")
    assert "[(1, 2)] is no double (@sq.udo makes rows)" in failure(lambda v: [(1, 2)])
    assert "a DataFrame of 1 rows is no double (@sq.udo makes rows)" in failure(lambda v: pd.DataFrame({"x": [1]}))
    assert "a generator is no double (return a value; @sq.udo makes rows)" in failure(lambda v: (yield 1))
    assert "5 is no string (write str(...))" in failure(lambda v: np.int64(5), "string")
    assert "inf is no bigint; window" in failure(lambda v: float("inf"), "bigint")

    async def later(v: pd.Series) -> float:
        return 1.0

    assert "a coroutine is no double (write def, not async def)" in failure(later)


MOMENT = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
NANOSECONDS = pd.Timestamp(MOMENT) + pd.Timedelta(7, "ns")
NO_INSTANTS = {
    "integer": [4500.5, 2**70, -(2**63), float("inf"), "4500", True, pd.Timestamp(MOMENT), MOMENT, dt.date(2024, 5, 1)],
    "timestamp": [1, 4500.0, 2**70, "2024-05-01", dt.date(2024, 5, 1), pd.Timedelta("1h"), NANOSECONDS],
}


@pytest.mark.slow
@pytest.mark.parametrize("axis", NO_INSTANTS)
def test_what_is_no_instant_of_the_axis_is_refused(axis: str) -> None:
    """As a start and as an end, of a row in a list and in a DataFrame, by every stamp that keeps lifetimes; every two meet."""
    span = (1, 4) if axis == "integer" else (MOMENT, MOMENT + dt.timedelta(seconds=3))
    source = sq.events([(*span, {"v": 2})])
    stamps, places, forms = ("unchanged", "clip", "time_bound"), ("start", "end"), ("list", "DataFrame")
    every = list(itertools.product(enumerate(NO_INSTANTS[axis]), stamps, places, forms))
    for (_, instant), stamp, place, form in covering(every, lambda one: (one[0][0], *one[1:])):
        row = (instant, span[1], 1) if place == "start" else (span[0], instant, 1)
        rows = [row] if form == "list" else pd.DataFrame([row], columns=["start", "end", "x"], dtype=object)
        code = sq.udo("x int", time_sensitive=True, properties=[sq.time_bound], name="own")
        window = source.tumbling_window(5 if axis == "integer" else "5 seconds", stamp=stamp)
        with pytest.raises(ModuleFailed, match="is no instant of the query"):
            window.select(code(lambda events, window, rows=rows: rows)("v")).to_arrow()


def test_instants_of_an_axis() -> None:
    """Of every type that stands for one, and an end that is infinite."""

    @sq.udo("x int", time_sensitive=True)
    def own(events: Any, window: Any) -> Any:
        yield from [(np.int32(1), 4.0, 1), (2, None, 2), (3, float("nan"), 3), (4, pd.NaT, 4)]

    rows = WINDOW.select(own("v")).to_arrow().to_pylist()
    assert sorted((r["start"], r["end"]) for r in rows) == [(1, 4), (2, None), (3, None), (4, None)]

    late = MOMENT + dt.timedelta(hours=1)

    @sq.udo("x int", time_sensitive=True)
    def moments(events: Any, window: Any) -> Any:
        yield from [(window.start, late, 1), (np.datetime64("2024-05-01T12:00"), late.replace(tzinfo=None), 2)]

    answer = sq.events([(MOMENT, late, {"v": 1})]).tumbling_window("1 hour").select(moments("v")).to_arrow()
    assert {(r["start"], r["end"]) for r in answer.to_pylist()} == {(MOMENT, late)}


@pytest.mark.parametrize("takes", ["values", "series", "arrays"])
def test_an_events_result_does_not_depend_on_the_events_beside_it(takes: str) -> None:
    """Zero, NULL and NaN divided by themselves, alone and beside each other; a result of NaN is NULL."""
    forms = {
        "values": lambda v: None if v is None else (float("nan") if v == 0 or v != v else v / v),
        "series": lambda v: v / v,
        "arrays": lambda v: pc.divide(v, v),
    }
    for kind in (pa.float64(), pa.int32()):
        ratio = sq.udf("double", takes=takes, name="ratio")(
            lambda v: forms[takes](v.cast(pa.float64()) if takes == "arrays" else v)
        )
        values: list[Any] = [0, None, 2, 0, 5] + ([float("nan")] if kind == pa.float64() else [])
        expected = [None if v in (0, None) or v != v else 1.0 for v in values]
        for first in range(len(values)):
            for last in range(first + 1, len(values) + 1):
                table = pa.table({"start": range(last - first), "v": pa.array(values[first:last], kind)})
                results = sq.points(table, time="start").select(x=ratio("v")).to_arrow().sort_by("start")
                assert results.column("x").to_pylist() == expected[first:last]
