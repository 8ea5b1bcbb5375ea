"""Every form in which a physical stream may be given, and what is none."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import PlanError, SourceError
from streamq.testing.validator import check_stream
from tests.testing.test_validator import broken


def test_forms_of_the_same_rows() -> None:
    at = dt.datetime(2024, 3, 9, tzinfo=dt.UTC)
    hour = dt.timedelta(hours=1)
    items = [sq.insert(at, None, v=1), sq.cti(at + 3 * hour), sq.retract(at, None, at + 2 * hour, v=1)]
    rows = [{"kind": i.kind, "start": i.start, "end": i.end, "new_end": i.new_end, **dict(i.payload)} for i in items]
    naive = [{n: v.replace(tzinfo=None) if isinstance(v, dt.datetime) else v for n, v in row.items()} for row in rows]
    ticks = [{n: int(v.timestamp()) if isinstance(v, dt.datetime) else v for n, v in row.items()} for row in rows]
    frame = pd.DataFrame(ticks)
    assert frame["end"].isna().all()
    assert frame["new_end"].dtype == np.float64
    zoned = pd.DataFrame(rows).astype({"start": "datetime64[s, America/New_York]", "kind": "category"})
    seconds = pa.Table.from_pylist(naive).set_column(
        1, "start", pa.array([r["start"] for r in naive], pa.timestamp("s"))
    )
    for form in (items, iter(items), rows, naive, ticks, frame, frame.to_dict("records"), zoned, seconds,
                 pa.Table.from_pylist(rows), pd.DataFrame(rows).to_dict("records")):  # fmt: skip
        assert broken(form) == [("cti", 2)]


def test_dates_are_their_midnights() -> None:
    days = [dt.date(2024, 3, n) for n in (1, 2, 3)]
    table = pa.table({"start": days[:2], "end": days[1:]})
    check_stream(table)
    assert broken([(days[1], days[0])]) == [("item", 0)]


def test_a_history_is_inserts_whatever_its_payload() -> None:
    table = pa.table({"start": [1, 2], "end": [3, None], "kind": ["a", "b"], "new_end": ["x", "y"]})
    assert broken(table.drop_columns("new_end")) == [("item", 0), ("item", 1)]
    check_stream(table, kind=None)
    check_stream(table.drop_columns(["kind", "new_end"]))
    check_stream(table.slice(0, 0), kind=None)
    check_stream([])


def test_columns_may_have_other_names() -> None:
    rows = [{"op": "insert", "le": 1, "re": 9, "to": None}, {"op": "retract", "le": 1, "re": 8, "to": 3}]
    assert broken(rows, kind="op", start="le", end="re", new_end="to") == [("match", 1)]


@pytest.mark.parametrize(
    ("inserted", "taken"),
    [(float("nan"), "NaN"), (True, 1), (np.True_, 1), (np.float32("nan"), "NaN"), ([float("nan")], ["NaN"])],
)
def test_values_of_another_kind_are_other_values(inserted: Any, taken: Any) -> None:
    def rows(value: Any) -> list[dict[str, Any]]:
        made = {"kind": "insert", "start": 1, "end": 9, "new_end": None, "v": inserted}
        return [made, {"kind": "retract", "start": 1, "end": 9, "new_end": 3, "v": value}]

    assert broken(rows(taken)) == [("match", 1)]
    assert broken(rows(inserted)) == []


def test_zeros_are_equal() -> None:
    made = {"kind": "insert", "start": 1, "end": 9, "new_end": None, "v": 0.0}
    assert broken([made, {**made, "kind": "retract", "new_end": 3, "v": -0.0}]) == []


@pytest.mark.parametrize(
    ("rows", "declared", "message"),
    [
        (
            [{"kind": "insert", "at": 1, "end": 2}],
            {},
            "no column 'start'; there are: 'kind', 'at', 'end'. Name it: start=",
        ),
        ([{"kind": "retract", "start": 1, "end": 2}], {}, "no column 'new_end'"),
        ([{"new_end": 1, "start": 1, "end": 2}], {}, "no column 'kind'"),
        ([{"start": 1, "end": 2}], {"kind": "op"}, "no column 'op'"),
        ([{"start": 1, "end": 2}], {"id": "n"}, "no column 'n'.*id="),
        ([{"start": 1, "end": 2}], {"batch": "n"}, "no column 'n'.*batch="),
        ([{"start": 1, "end": 2}], {"shape": "edge", "key": "k"}, "no column 'k'.*key="),
        ([{"start": 1, "end": 2.5}], {}, "column 'end' does not hold times; found 2.5"),
        (pd.DataFrame({"start": [1.5], "end": [2]}), {}, "column 'start' does not hold times; found 1.5"),
        ([{"start": "1", "end": 2}], {}, "column 'start' does not hold times; found '1'"),
        (pa.table({"start": ["1"], "end": [2]}), {}, "column 'start' does not hold times; found string"),
        ([{"start": True, "end": 2}], {}, "does not hold times"),
        ([{"start": 2**70, "end": None}], {}, "does not hold times"),
        ([{"start": 1, "end": dt.date(2024, 1, 1)}], {}, "must all be timestamps or all be integers"),
        ([(1, 2), (dt.datetime(2024, 1, 1), None)], {}, "timestamps and integers"),
        ([{"start": 1, "end": 2, "n": None}], {"batch": "n"}, "column 'n' of micro-batches has NULLs"),
        ([{"start": 1, "end": 2, "n": "9"}], {"batch": "n"}, "column 'n' does not hold times"),
        ([7], {}, "not a row; found 7"),
        (7, {}, "not a physical stream; found int"),
        ("nowhere", {}, "no folder 'nowhere'"),
    ],
)
def test_what_cannot_be_read_is_an_error(rows: Any, declared: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        check_stream(rows, **declared)


@pytest.mark.parametrize("declared", [{"shape": "points"}, {"order": "chained"}, {"shape": "signal"}])
def test_wrong_arguments_are_an_error(declared: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="check_stream: "):
        check_stream([(1, 2)], **declared)
