"""Stream: what is no verb of it, and answers that cannot be had."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
import re
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import PlanError, StreamqError, TimeError, UnknownVerb

TOLLS = sq.events([(1, 3, {"toll": 7.0})])


def test_attributes_that_are_no_verbs() -> None:
    with pytest.raises(
        UnknownVerb, match=r"stream: no verb 'toll'. A column is sq.col\('toll'\), stream\['toll'\], or in a"
    ):
        _ = TOLLS.toll  # type: ignore[attr-defined]
    assert not hasattr(TOLLS, "toll")
    assert copy.copy(TOLLS).columns == pickle.loads(pickle.dumps(TOLLS)).columns == ["toll"]


def test_python_itself_tells_of_verbs_by_names_that_users_know() -> None:
    group, window = TOLLS.group_by("toll"), TOLLS.tumbling_window(5)
    for call, name in (
        (lambda: TOLLS.where(), "Stream.where()"),  # type: ignore[call-arg]
        (lambda: TOLLS.tumbling_window(), "Stream.tumbling_window()"),  # type: ignore[call-arg]
        (lambda: TOLLS.run("out"), "Stream.run()"),
        (lambda: group.apply(), "group_by(...).apply()"),  # type: ignore[call-arg]
        (lambda: window.top_k(), "window.top_k()"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError) as error:
            call()
        assert str(error.value).startswith(name)
    assert repr(group) == "Stream(toll double; interval on integer) by toll"
    assert repr(window) == "Stream(toll double; interval on integer) in hopping windows (size=5, hop=5)"
    for other, found in (
        (group, "found a group without a window. Add a window first"),
        (window, "found a window without a select. Call select(...) first"),
        (pd.DataFrame(), "found pandas DataFrame. Make a source of it"),
        (pa.table({"a": [1]}), "found pyarrow Table. Make a source of it"),
        ([1], "found list."),
    ):
        with pytest.raises(PlanError, match="union: not a stream; ") as wrong:
            TOLLS.union(other)  # type: ignore[arg-type]
        assert found in str(wrong.value)


def test_a_stream_is_no_list() -> None:
    with pytest.raises(PlanError, match=r"stream: not iterable. Its rows are stream.to_arrow\(\).to_pylist\(\)"):
        list(TOLLS)
    with pytest.raises(
        PlanError, match=r"stream: no length; its rows are not computed yet. Write s.to_arrow\(\).num_rows."
    ):
        len(TOLLS)
    assert TOLLS


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (0, "s.show(5)"),
        (slice(3), "s.show(5)"),
        (["booth", "toll"], "s.select('booth', 'toll')"),
        (sq.col("toll") > 5, f"s.where(sq.col({TOLLS.columns[0]!r}) > 0)"),
        (lambda e: e.toll > 5, f"s.where(sq.col({TOLLS.columns[0]!r}) > 0)"),
    ],
    ids=["place", "slice", "names", "condition", "function"],
)
def test_in_brackets_is_a_column_s_name(key: Any, code: str) -> None:
    with pytest.raises(PlanError, match=f"in brackets is a column's name; .*Write {re.escape(code)}"):
        TOLLS[key]


def test_a_group_without_a_window_says_what_to_write_in_ticks_on_an_axis_of_integers() -> None:
    code = r"Write s.group_by\('toll'\).tumbling_window\(10\).select\(n=sq.count\(\)\), for results of windows"
    with pytest.raises(PlanError, match=f"select: a group without a window; .*{code}"):
        TOLLS.group_by("toll").agg(n=sq.count())
    with pytest.raises(UnknownVerb, match=r"s.hopping_window\(60, 10\).select\(n=sq.count\(\)\)"):
        TOLLS.hop


def test_errors_of_answers() -> None:
    with pytest.raises(
        TimeError, match="until: an instant that does not fit the time axis; found 'x' on an integer axis"
    ):
        TOLLS.to_arrow(until="x")  # type: ignore[arg-type]
    with pytest.raises(
        PlanError, match="to_stream: output is 'final', 'changelog', 'upsert' or 'latest'; found 'update'"
    ):
        TOLLS.to_stream(output="update")


def test_arguments_of_a_run_are_checked_first() -> None:
    for trigger in ("10 parsecs", "-1 second", 10):
        with pytest.raises(
            PlanError,
            match=r"run: not a trigger; found .* Write 'available_now', 'adaptive', or a duration as '10 seconds'",
        ):
            TOLLS.run(trigger=trigger)
    for trigger in ("availableNow", "once"):
        with pytest.raises(PlanError, match=f"run: not a trigger; found '{trigger}'. Did you mean 'available_now'"):
            TOLLS.run(trigger=trigger)
    with pytest.raises(PlanError, match="run: not a sink; found 5"):
        TOLLS.run(sink=5)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="run_all: two results have one name; found 'a' twice"):
        sq.run_all([sq.result(TOLLS, name=name) for name in ("a", "b", "a")])


def test_instants_beyond_the_years_that_python_has(capsys: pytest.CaptureFixture[str]) -> None:
    far = 300_000_000_000_000_000
    table = pa.table({
        "at": pa.array([-far, far], pa.timestamp("us", tz="UTC")),
        "day": pa.array([-(10**9), 10**9], pa.date32()),
        "n": pa.array([far, -far], pa.timestamp("us")),
        "xs": pa.array([[far], None], pa.list_(pa.timestamp("us"))),
    })  # fmt: skip
    s = sq.points(table, time="at").tumbling_window("1 day")
    s.select(day=sq.max("day"), n=sq.min("n"), all=sq.collect("n")).show()
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "day n all start end",
        "-2735938-12-29 +11476-08-15 05:20:00 ['+11476-08-15 05:20:00'] -7537-05-18 00:00:00 -7537-05-19 00:00:00",
        "+2739877-01-03 -7537-05-18 18:40:00 ['-7537-05-18 18:40:00'] +11476-08-15 00:00:00 +11476-08-16 00:00:00",
    ]
    frame = sq.points(table, time="at").to_pandas()
    assert str(frame["n"].dtype) == "datetime64[us]"
    assert frame["n"].astype("int64").tolist() == [far, -far]
    assert frame["start"].astype("int64").tolist() == [-far, far]


def test_answers_in_order_of_nested_payloads() -> None:
    """Arrays, structs and maps as Spark orders them, NULL last; in pandas their whole numbers stay whole beside a NULL."""
    lists, structs = [[2**60 + 1, None], [1], None, []], [{"x": 1}, {"x": None}, None, {"x": 2}]
    maps = pa.array([[("a", 2)], [("a", 1)], None, []], pa.map_(pa.string(), pa.int64()))
    table = pa.table({"at": [7] * 4, "a": lists, "b": structs, "c": maps})

    def order(name: str) -> list[object]:
        s = sq.points(table, time="at").select(name)
        given = s.to_pandas()[name].tolist()
        assert given == s.to_arrow().column(name).to_pylist()
        return given

    assert order("a") == [[], [1], [2**60 + 1, None], None]
    assert order("b") == [{"x": None}, {"x": 1}, {"x": 2}, None]
    assert order("c") == [[], [("a", 1)], [("a", 2)], None]


def test_instants_are_shown_with_four_digits_of_year_and_no_zero_fraction(capsys: pytest.CaptureFixture[str]) -> None:
    sq.events([(dt.datetime(1, 1, 1), dt.datetime(999, 12, 31, 1, 2, 3, 40), {"v": dt.datetime(2020, 1, 1)})]).show()
    assert capsys.readouterr().out.split("\n")[1].split("  ") == [
        "2020-01-01 00:00:00", "0001-01-01 00:00:00", "0999-12-31 01:02:03.00004"
    ]  # fmt: skip


@pytest.mark.parametrize("given", [3, 1.5, [1], object, dt.timedelta(1)])
def test_arguments_of_other_types_are_errors_of_ours(given: object) -> None:
    table = pa.table({"at": [1], "what": ["start"], "k": [1]})
    for call in (
        lambda: sq.points(table, time=given),  # type: ignore[arg-type]
        lambda: sq.points(table, time="at", id=given),  # type: ignore[arg-type]
        lambda: sq.edges(table, time="at", edge=given, key="k"),  # type: ignore[arg-type]
        lambda: sq.edges(table, time="at", edge="what", key=given),  # type: ignore[arg-type]
        lambda: sq.signal(table, time="at", key=given),  # type: ignore[arg-type]
        lambda: sq.events(given),  # type: ignore[arg-type]
        lambda: sq.events([(1, 2, {"v": 1})], schema=given),  # type: ignore[arg-type]
        lambda: TOLLS.rename(toll=given),  # type: ignore[arg-type]
        lambda: TOLLS.join(TOLLS, on=given),  # type: ignore[arg-type]
        lambda: TOLLS.join(TOLLS, on="toll", suffixes=given),  # type: ignore[arg-type]
        lambda: TOLLS.to_signal(given),  # type: ignore[arg-type]
        lambda: TOLLS.distinct_ids(5, id=given),  # type: ignore[arg-type]
        lambda: TOLLS.rows_window(2, order_by=given),  # type: ignore[arg-type]
        lambda: sq.from_json(TOLLS.to_json(), given),  # type: ignore[arg-type]
    ):
        with pytest.raises(StreamqError):
            call()
