"""Physical streams fold into histories, in whatever form they come; what is no table is told so."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.errors import InvalidEvent, PlanError, SourceError
from streamq.testing.python_values import comparable

COLUMNS = "kind string, start bigint, end bigint, new_end bigint, v int"
ROWS = [("insert", 1, None, None, 3), ("retract", 1, None, 10, 3), ("cti", 5, None, None, None)]
CHANGES = t.table(COLUMNS, ROWS)
LEFT = t.table("start bigint, end bigint, v int", [(1, 10, 3)])


@pytest.mark.parametrize("rows", [CHANGES, CHANGES.to_pandas(), CHANGES.to_pylist(), iter(CHANGES.to_pylist())])
def test_rows_and_tables_fold(rows: Any) -> None:
    assert t.fold_physical(rows).to_pylist() == LEFT.to_pylist()


def test_columns_of_a_table_keep_their_types() -> None:
    assert t.fold_physical(CHANGES).schema == LEFT.schema
    assert t.fold_physical(CHANGES.slice(0, 0)).schema == LEFT.schema


def test_instants_of_a_table_are_ticks() -> None:
    at = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    columns = COLUMNS.replace("bigint", "timestamp")
    found = t.fold_physical(t.table(columns, [("insert", at, None, None, 3), ("retract", at, None, 3_000_000, 3)]))
    assert found.to_pylist() == [{"start": 1_000_000, "end": 3_000_000, "v": 3}]


def test_a_history_of_physical_rows_is_what_they_leave() -> None:
    assert t.history(CHANGES).equals(LEFT)
    t.assert_same_history(CHANGES, LEFT)
    # a payload may have columns of these names
    named = t.table("start bigint, end bigint, kind string, new_end bigint", [(1, 4, "taxi", 7)])
    assert t.history(named).equals(named)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"kind": "move", "start": 1, "end": 2}, "a kind that is not insert, retract or cti"),
        ({"kind": "insert", "start": None, "end": 2}, "a start of NULL or infinity"),
        ({"kind": "insert", "start": 2, "end": 2}, "an end that is not after the start"),
    ],
)
def test_rows_that_are_no_events(row: Any, message: str) -> None:
    with pytest.raises(InvalidEvent, match=f"fold_physical: a row that is not an event; {message}"):
        t.fold_physical([row])


def test_what_is_no_table() -> None:
    stream: Any = sq.events([(1, 5, {"v": 3})])
    for read, verb in (
        (t.history, "history"),
        (lambda given: t.same_history(given, LEFT), "same_history"),
        (lambda given: t.assert_same_history(LEFT, given), "same_history"),
    ):
        with pytest.raises(SourceError, match=f"^{verb}: takes .*; found Stream. Pass its answer: .to_arrow()"):
            read(stream)
        with pytest.raises(SourceError, match=f"^{verb}: takes .*; found int. Fold physical rows with t.fold_physical"):
            read(5)
    with pytest.raises(SourceError, match="history: takes an Arrow table or a pandas frame; found list"):
        t.history(CHANGES.to_pylist())
    with pytest.raises(SourceError, match="fold_physical: not a row; found 3. Give dicts"):
        t.fold_physical([3])
    with pytest.raises(SourceError, match="fold_physical: not a physical stream; found Stream"):
        t.fold_physical(stream)
    with pytest.raises(SourceError, match="fold_physical: no column 'no'"):
        t.fold_physical(CHANGES, id="no")


def test_a_value_is_equal_to_no_other_kind_of_value() -> None:
    nan = float("nan")
    assert comparable(nan) == comparable(-nan)
    assert comparable(-0.0) == comparable(0.0) == comparable(0)
    for one, other in ((nan, "NaN"), (True, 1), (False, 0.0), ([True], [1]), ([nan], ["NaN"]), ({"a": True}, {"a": 1})):
        assert comparable(one) == comparable(one)
        assert comparable(one) != comparable(other)


@pytest.mark.parametrize("wrong", [[(1, 5)], 5, LEFT, pd.DataFrame(), pa.table({})])
def test_transformations_take_streams(wrong: Any) -> None:
    for transform in (t.make_speculative, t.inject_duplicates):
        with pytest.raises(
            PlanError, match=f"{transform.__name__}: takes a stream; found {type(wrong).__name__}. Make"
        ):
            transform(wrong)


def test_a_scenario_says_what_its_data_are_like() -> None:
    scenario: Any = t.stream()
    with pytest.raises(PlanError, match=r"found Scenario. Write t.stream\(speculation=True\)"):
        t.make_speculative(scenario)
    with pytest.raises(PlanError, match=r"found Scenario. Write t.stream\(duplicates=True\)"):
        t.inject_duplicates(scenario)
