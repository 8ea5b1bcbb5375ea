"""uda: aggregates of a user's own, what they are called with, and how they fail."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa

import streamq as sq
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from tests.judged import answer
from tests.programs import compiled

S = sq.events(
    [
        (1, 4, {"k": "a", "v": 2, "w": 1.5}),
        (3, 8, {"k": "a", "v": 6, "w": None}),
        (5, 6, {"k": "b", "v": None, "w": 0.5}),
        (5, 9, {"k": "b", "v": 4, "w": 2.5}),
    ]
)
WINDOW = S.tumbling_window(5)


def values(query: sq.Stream, column: str = "x") -> list[Any]:
    """The values of a column by start, as the oracle has them, too."""
    place = 2 + query.columns.index(column)
    return [row[place] for row in sorted(answer(query), key=lambda row: row[0])]


# what it is called with


def test_a_function_gets_the_members_in_their_order_a_series_an_argument() -> None:
    @sq.uda("string")
    def shown(v: pd.Series, w: pd.Series) -> str:
        return f"{[None if pd.isna(x) else int(x) for x in v]} {v.dtype} {w.dtype}"

    assert values(WINDOW.select(x=shown("v", "w"))) == ["[2, 6] int64 float64", "[6, None, 4] Int64 float64"]
    assert values(WINDOW.select(x=shown(sq.col("v") * 2, "w", where=sq.col("v") > 2))) == [
        "[12] int64 float64",
        "[12, 8] int64 float64",
    ]


def test_it_stands_in_expressions_beside_others_and_over_groups() -> None:
    total = sq.uda("bigint", name="total")(lambda v: int(v.sum()))
    grouped = S.group_by("k").tumbling_window(5).select(n=sq.count(), x=total("v") + sq.max("v"), y=total("v"))
    rows = sorted(tuple(r.values()) for r in grouped.to_arrow().select(["k", "start", "n", "x", "y"]).to_pylist())
    assert rows == [("a", 0, 2, 14, 8), ("a", 5, 1, 12, 6), ("b", 5, 2, 8, 4)]


def test_a_filter_that_leaves_nothing_gives_null_and_no_call() -> None:
    never = sq.uda("double", name="never")(lambda v: v.iloc[0])
    assert values(WINDOW.select(x=never("v", where=sq.col("v") > 100))) == [None, None]


def test_nan_and_na_are_null() -> None:
    mean = sq.uda("double", name="mean")(lambda v: v.mean())
    assert values(WINDOW.select(x=mean("w", where=sq.col("v") == 6))) == [None, None]
    assert values(WINDOW.select(x=sq.uda("bigint", name="na")(lambda v: pd.NA)("v"))) == [None, None]


def test_options_are_parameters_of_functions_and_of_classes_as_they_are_made() -> None:
    @sq.uda("bigint")
    def top(v: pd.Series, k: int = 1) -> int:
        return int(v.nlargest(k).iloc[-1])

    @sq.uda("bigint")
    class Above:
        def __init__(self, limit: int):
            self.limit = limit

        def initial(self) -> int:
            return 0

        def add(self, state: int, v: pd.Series) -> int:
            return state + int((v > self.limit).sum())

        def merge(self, a: int, b: int) -> int:
            return a + b

        def result(self, state: int) -> int:
            return state

    query = S.hopping_window(10, 5).select(x=top("v"), y=top("v", k=2), z=Above("v", limit=3), a=Above("v", limit=5))
    assert [values(query, name) for name in "xyza"] == [[6, 6, 6], [2, 4, 4], [1, 2, 2], [1, 1, 1]]


def test_an_aggregator_of_sparks_shape_is_taken_as_it_is() -> None:
    class Longest:
        zero = ""

        def reduce(self, buffer: str, value: tuple[str, int]) -> str:
            return max(buffer, value[0] * (value[1] or 0), key=len)

        def merge(self, a: str, b: str) -> str:
            return max(a, b, key=len)

        def finish(self, buffer: str) -> str:
            return buffer

    longest = sq.uda("string")(Longest)
    assert values(S.hopping_window(10, 5).select(x=longest("k", "v"))) == ["aaaaaa"] * 3


def test_on_a_timestamp_axis_instants_are_timestamps_in_utc_and_open_ends_are_missing() -> None:
    noon = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    rows = pa.table(
        {"at": [noon, noon + dt.timedelta(minutes=90)], "to": [noon + dt.timedelta(hours=2), None], "v": [1, 2]}
    )
    s = sq.intervals(rows, start="at", end="to")

    @sq.uda("double", time_sensitive=True)
    def hours(events: pd.DataFrame, window: Any) -> float:
        assert str(events.start.dt.tz) == str(window.start.tz) == "UTC"
        return float(((events.end.fillna(window.end) - events.start) * events.v).sum() / pd.Timedelta(hours=1))

    assert values(s.tumbling_window("1 hour", clip_input="left").select(x=hours("v")), "x")[:2] == [2.0, 1 + 2 * 0.5]
    assert values(s.tumbling_window("1 hour").select(x=hours("v"))) == [1.0, 2.0]


def test_arguments_are_called_as_the_query_or_the_module_says() -> None:
    columns = sq.uda("string", time_sensitive=True, name="columns")(lambda events, window: ", ".join(events.columns))
    named = sq.uda("string", time_sensitive=True, name="named", columns=["value"])(columns.code)
    double = (sq.col("v") * 2).alias("double")
    assert values(WINDOW.select(x=columns("v", double), y=named("w")))[:1] == ["v, double, start, end"]
    assert values(WINDOW.select(x=named("w")))[:1] == ["value, start, end"]


def test_one_that_reads_lifetimes_needs_no_column() -> None:
    alive = sq.uda("bigint", name="alive", time_sensitive=True)(lambda events, window: len(events[["start", "end"]]))
    query = S.group_by("k").tumbling_window(5).select(n=alive(), some=alive(where=sq.col("v") > 4), of=sq.count())
    assert values(query, "n") == values(query, "of")
    assert [some or 0 for some in values(query, "some")] == values(
        S.group_by("k").tumbling_window(5).select(n=sq.count(where=sq.col("v") > 4)), "n"
    )


# over a stream


def in_batches(query: Any, *batches: list[Any]) -> list[Any]:
    """The final values ``x`` over a stream that comes in micro-batches, by start."""
    s = sq.events(list(batches[0]), name="s", schema={"v": "bigint"})
    run = LocalRun(compiled(number_sources(query(s).plan)[0]))
    out = [run.batch(sq.events(batch, name="s", schema={"v": "bigint"}).tables) for batch in batches]
    rows = pa.concat_tables([*out, run.finish()]).sort_by([("__le", "ascending")])
    return list(rows.column("x").to_pylist())


class Greatest:
    """A state may be None: here, before a value has come; its result is -1."""

    def initial(self) -> int | None:
        return None

    def add(self, state: int | None, v: pd.Series) -> int | None:
        return max([*v.dropna(), *([] if state is None else [state])], default=None)

    def merge(self, a: int | None, b: int | None) -> int | None:
        return b if a is None else a if b is None else max(a, b)

    def result(self, state: int | None) -> int:
        return -1 if state is None else int(state)


def test_a_state_of_none_is_a_state() -> None:
    greatest = sq.uda("bigint", name="greatest")(Greatest)
    batches = [[sq.insert(1, 2, v=None), sq.insert(2, 3, v=None)], [sq.insert(6, 7, v=None)], [sq.insert(9, 10, v=3)]]
    assert in_batches(lambda s: s.tumbling_window(4).select(x=greatest("v")), *batches) == [-1, -1, 3]


def test_basic_windows_whose_events_a_filter_leaves_out_merge_with_others() -> None:
    @sq.uda("bigint", name="counted")
    class Counted:
        def initial(self) -> list[int]:
            return []

        def add(self, state: list[int], v: pd.Series) -> list[int]:
            return [*state, *map(int, v)]

        def merge(self, a: list[int], b: list[int]) -> list[int]:
            return a + b

        def result(self, state: list[int]) -> int:
            return len(state)

    batches = [[sq.insert(1, 2, v=0), sq.insert(2, 3, v=0)], [sq.insert(1, 3, v=7)], [sq.insert(6, 7, v=0)]]
    query = lambda s: s.tumbling_window(4).select(x=Counted("v", where=sq.col("v") > 1))  # noqa: E731
    assert in_batches(query, *batches) == [1, None]
