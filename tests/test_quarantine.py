"""The quarantine of a query: whole events, with the types that they had, which mended modules replay."""

from __future__ import annotations

import datetime as dt
import warnings
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import streamq as sq
from streamq import col
from streamq.errors import PlanError, StreamqWarning, UnknownColumn

EVENTS = [(i, i + 4 - i % 2, {"k": "abc"[i % 3], "v": i * 7 % 5}) for i in range(1, 14)]
S = sq.events(EVENTS, name="s")


def sum_of(name: str, poison: int | None, **options: Any) -> Any:
    """A sum that fails for windows in which there is a value; None: the mended one."""

    def total(values: pd.Series) -> int:
        if (values == poison).any():
            raise ValueError("poison")
        return int(values.sum())

    return sq.uda("bigint", name=name, **options)(total)


FAILING, MENDED = sum_of("total", 3, on_error="quarantine"), sum_of("total", None)

WINDOWS: dict[str, Any] = {
    "hopping": lambda s: s.hopping_window(5, 2),
    "snapshot": lambda s: s.snapshot_window(),
    "sliding": lambda s: s.sliding_window(3),
    "count": lambda s: s.count_window(2, stamp="align"),
    "rows": lambda s: s.rows_window(3, 2, order_by="v", stamp="align"),
    "session": lambda s: s.session_window(2),
    "landmark": lambda s: s.landmark_window(3, period=9, stamp="align"),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_a_replay_with_a_mended_module_gives_what_was_missing(window: str) -> None:
    wanted, lacking = (WINDOWS[window](S.group_by("k")).select(total=module("v")) for module in (MENDED, FAILING))
    with pytest.warns(StreamqWarning, match="are set aside and left out, of total"):
        came = lacking.where(col("total").is_not_null()).to_arrow().to_pylist()
    events = lacking.quarantine().events("total", on_windows=True)
    again = events.group_by("k").per_window().select(total=MENDED("v")).to_arrow().to_pylist()
    assert came and again
    assert sorted([*came, *again], key=str) == sorted(wanted.to_arrow().to_pylist(), key=str)


def test_events_of_functions_and_of_scan_are_replayed_as_they_are() -> None:
    lenient = sq.udf("double", name="inverse", on_error="quarantine")(lambda v: 1 / v)
    mended = sq.udf("double", name="inverse")(lambda v: 1 / v if v else None)
    aside = S.select("k", x=lenient("v")).quarantine()
    assert aside.modules == ["inverse"]
    with pytest.warns(StreamqWarning):
        came = S.select("k", x=lenient("v")).to_arrow().to_pylist()
    again = aside.events("inverse").select("k", x=mended("v")).to_arrow().to_pylist()
    wanted = S.select("k", x=mended("v")).to_arrow().to_pylist()
    assert sorted([*came, *again], key=str) == sorted(wanted, key=str)

    @sq.udso("v bigint", initial=0, on_error="quarantine", name="picky")
    def picky(state: int, v: int) -> Any:
        if v == 2:
            raise ValueError("2")
        return state + 1, [v]

    points = S.to_points()
    events = points.scan(picky("v")).quarantine().events("picky")
    assert events.plan.schema.shape == "point"
    assert events.to_arrow().to_pylist() == points.where(col("v") == 2).to_arrow().to_pylist()


KINDS = {
    "i": pa.array([None, 2**62, -5]),
    "d": pa.array([0.1, float("nan"), float("inf")]),
    "f": pa.array([0.1, None, -0.0], pa.float32()),
    "t": pa.array(["", "ü ' \" \\ \n", None]),
    "b": pa.array([b"", b"\x00\xff", None], pa.binary()),
    "is": pa.array([True, None, False]),
    "n": pa.array([Decimal("1.50"), None, Decimal("-99999999.99")], pa.decimal128(10, 2)),
    "at": pa.array([0, 253_402_300_800_000_001, -62_167_219_200_000_001], pa.timestamp("us", "UTC")),
    "local": pa.array([0, None, 1_714_565_700_123_456], pa.timestamp("us")),
    "day": pa.array([0, 2_932_897, -719_900], pa.date32()),
    "many": pa.array([[1, None], [], None], pa.list_(pa.int64())),
    "part": pa.array([{"a": 1, "at": dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)}, {"a": None, "at": None}, None]),
}


@pytest.mark.parametrize("axis", [pa.int64(), pa.timestamp("us", "UTC")])
def test_values_come_back_as_they_were(axis: pa.DataType) -> None:
    times = {"from": pa.array([3, 5, 9]).cast(axis), "to": pa.array([4, None, 12]).cast(axis)}
    s = sq.intervals(pa.table({**KINDS, **times}), "from", "to")
    fails = sq.udf("bigint", name="fails", on_error="quarantine")(lambda v: v.nothing)
    aside = s.select(x=fails("i")).quarantine()
    came, were = aside.events("fails").to_arrow(), s.to_arrow()
    assert came.schema == were.schema
    for name in came.column_names:
        a, b = (table.column(name).combine_chunks() for table in (came, were))
        assert a.to_string() == b.to_string(), name


def test_actions_warn_of_what_is_left_out_and_only_then() -> None:
    query = S.tumbling_window(5).select(total=FAILING("v"))
    first = "first: total: ValueError: poison; window"
    for action in (query.to_arrow, query.to_pandas, query.show):
        name = action.__name__
        with pytest.warns(
            StreamqWarning, match=rf"{name}: \d+ event\(s\) are set aside .* of total \d+; {first}.*quarantine\(\)"
        ):
            action()
    fine = S.where(col("v") != 3).tumbling_window(5).select(total=FAILING("v"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fine.to_arrow()
        assert query.quarantine().to_pandas().source.unique().tolist() == ["total"]
    assert fine.quarantine().to_arrow().num_rows == 0
    assert "there are: total" in _error(lambda: query.quarantine().events("totals"))


def test_rows_of_a_late_output_are_read_back() -> None:
    query = S.tumbling_window(5).select(total=FAILING("v"))
    stored = query.quarantine().to_arrow()
    of_source = {name: ["s"] if name == "source" else [None] for name in stored.column_names}
    mixed = pa.concat_tables([stored, pa.table(of_source, schema=stored.schema)])
    for rows in (mixed, mixed.to_pandas()):
        assert query.quarantine(rows).to_arrow() == stored
    with pytest.raises(UnknownColumn, match="quarantine: no column 'group'"):
        query.quarantine(stored.drop_columns(["group"])).to_arrow()


def test_what_cannot_be_told_apart_is_an_error() -> None:
    twice = S.tumbling_window(5).select(x=FAILING("v")).union(S.select("v").tumbling_window(5).select(x=FAILING("v")))
    assert "total is called over different inputs; they have k, v; v" in _error(
        lambda: twice.quarantine().events("total")
    )
    scan = S.select(x=sq.udf("bigint", name="own", on_error="quarantine")(len)("v")).quarantine()
    assert "own fails for events, not for windows" in _error(lambda: scan.events("own", on_windows=True))
    clash = S.rename(k="window_end").tumbling_window(5).select(x=FAILING("v"))
    assert "Rename it before the window" in _error(lambda: clash.quarantine().events("total"))


def _error(call: Any) -> str:
    with pytest.raises(PlanError) as raised:
        call()
    return str(raised.value)
