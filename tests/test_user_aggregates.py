"""uda: aggregates of a user's own, what they are called with, and how they fail."""

from __future__ import annotations

import datetime as dt
import re
import sys
import threading
import time
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import streamq as sq
from streamq.compiler.local import LocalRun
from streamq.errors import ModuleFailed, PlanError, TypeMismatch
from streamq.plan.node import number_sources
from tests.programs import compiled
from tests.window_modules import WINDOWS

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
    return list(query.to_arrow().sort_by([("start", "ascending")]).column(column).to_pylist())


def failure(code: Any, returns: str = "double", stream: Any = WINDOW, **options: Any) -> str:
    with pytest.raises(ModuleFailed) as raised:
        stream.select(x=sq.uda(returns, name="own", **options)(code)("v")).to_arrow()
    return str(raised.value)


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


def test_functions_that_are_there_take_one_line() -> None:
    median = sq.uda("double", name="median")(np.median)
    skew = sq.uda("double", name="skew")(pd.Series.skew)
    query = S.where(sq.col("v").is_not_null()).tumbling_window(10).select(x=median("v"), y=skew("v"))
    assert values(query) == [4.0]
    assert values(query, "y") == [0.0]


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
    with pytest.raises(
        PlanError, match=r"Above: it cannot be made; .*missing 1 required .* 'limit'.* It is Above\(limit"
    ):
        Above("v")
    with pytest.raises(PlanError, match="uda: an object takes no parameters; found limit"):
        sq.uda("bigint", name="made")(Above.code(3))("v", limit=3)


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


def test_a_time_sensitive_one_reads_lifetimes_as_the_clip_cuts_them_and_the_window() -> None:
    @sq.uda("string", time_sensitive=True)
    def shown(events: pd.DataFrame, window: Any) -> str:
        pairs = sorted(zip(events.start, events.end, events.v.isna(), strict=True))
        return f"[{window.start}, {window.end}) {window.duration}: {[(int(a), int(b)) for a, b, _ in pairs]}"

    expected = {
        "full": ["[0, 5) 5: [(1, 4), (3, 5)]", "[5, 10) 5: [(5, 6), (5, 8), (5, 9)]"],
        "left": ["[0, 5) 5: [(1, 4), (3, 8)]", "[5, 10) 5: [(5, 6), (5, 8), (5, 9)]"],
        "right": ["[0, 5) 5: [(1, 4), (3, 5)]", "[5, 10) 5: [(3, 8), (5, 6), (5, 9)]"],
        "none": ["[0, 5) 5: [(1, 4), (3, 8)]", "[5, 10) 5: [(3, 8), (5, 6), (5, 9)]"],
    }
    for clip, texts in expected.items():
        assert values(S.tumbling_window(5, clip_input=clip).select(x=shown("v"))) == texts


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
    with pytest.raises(PlanError, match=r"columns: an argument without a name; found v \* 2. Name it"):
        columns(sq.col("v") * 2)
    with pytest.raises(PlanError, match="named: 2 arguments; it takes value"):
        named("v", "w")
    with pytest.raises(PlanError, match="columns: arguments of one name; found v, v, start, end"):
        columns("v", "v")


def test_one_that_reads_lifetimes_needs_no_column() -> None:
    alive = sq.uda("bigint", name="alive", time_sensitive=True)(lambda events, window: len(events[["start", "end"]]))
    query = S.group_by("k").tumbling_window(5).select(n=alive(), some=alive(where=sq.col("v") > 4), of=sq.count())
    assert values(query, "n") == values(query, "of")
    assert [some or 0 for some in values(query, "some")] == values(
        S.group_by("k").tumbling_window(5).select(n=sq.count(where=sq.col("v") > 4)), "n"
    )


# how it fails


def test_what_it_raises_names_the_window_the_group_and_the_first_events() -> None:
    grouped = S.group_by("k").tumbling_window(5)
    text = failure(lambda v: 1 / int(v.isna().sum() - 1), stream=grouped)
    assert (
        text == "own: it failed; ZeroDivisionError: division by zero; window [5, 10), k = 'b'; events: v = None; v = 4."
    )
    many = sq.events([(0, 1, {"v": i}) for i in range(9)]).tumbling_window(5)
    assert "window [0, 5); the first of 9 events: v = 0; v = 1; v = 2." in failure(lambda v: v.nothing, stream=many)


def test_what_would_end_the_program_fails_like_any_error() -> None:
    assert failure(lambda v: sys.exit()).startswith("own: it failed; SystemExit; window [0, 5); events: v = 2")
    assert "own: it failed; SystemExit: 3; window [0, 5)" in failure(lambda v: sys.exit(3), time_limit=9)
    in_parts = failure(Exits, stream=S.group_by("k").hopping_window(10, 5))
    assert in_parts.startswith("own: it failed; SystemExit: 3; window [-5, 5), k = 'a'; events: v = ")

    def interrupted(v: pd.Series) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        WINDOW.select(x=sq.uda("double", name="own")(interrupted)("v")).to_arrow()


class Exits:
    def initial(self) -> int:
        return 0

    def add(self, state: int, v: pd.Series) -> int:
        sys.exit(3)

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, state: int) -> float:
        return 1.0


class Breaks:
    """A sum, one of whose methods fails, or whose state cannot be pickled."""

    def __init__(self, at: str, merges: bool = True) -> None:
        self.at = at
        if not merges:
            self.merge = None  # type: ignore[assignment, method-assign]

    def reached(self, method: str) -> None:
        if method == self.at:
            raise ValueError("planted")

    def initial(self) -> Any:
        self.reached("initial")
        return 0

    def add(self, state: Any, v: pd.Series) -> Any:
        self.reached("add")
        return threading.Lock() if self.at == "pickle" else state + int(v.fillna(0).sum())

    def remove(self, state: Any, v: pd.Series) -> Any:
        self.reached("remove")
        return state - int(v.fillna(0).sum())

    def merge(self, a: Any, b: Any) -> Any:
        self.reached("merge")
        return a + b

    def result(self, state: Any) -> Any:
        self.reached("result")
        return 1.0 if self.at == "pickle" else "nothing" if self.at == "type" else float(state)


METHODS = ["initial", "add", "remove", "merge", "result", "type", "pickle"]


@pytest.mark.slow
@pytest.mark.parametrize("at", METHODS)
def test_whatever_method_fails_over_whatever_windows_names_window_group_and_events(at: str) -> None:
    # a state that is not stored goes on to the next call
    lock = r"(cannot pickle '_thread.lock' object\)|unsupported operand .* '_thread.lock' and 'int')"
    reasons = {"type": "'nothing' is no double", "pickle": lock}
    failed = re.compile(
        rf"own: it failed; .*{reasons.get(at, 'ValueError: planted')}; window \[\S+, \S+\), k = 'a'; "
        r"(the first of [4-9] )?events: v = \d(; v = (\d|None))*\."
    )
    grouped = sq.events(
        [*(sq.insert(i, i + 3, k="a", v=i) for i in range(9)), sq.retract(3, 6, 4, k="a", v=3)],
        schema={"k": "string", "v": "bigint"},
    ).group_by("k")
    has_failed = False
    for turn, (name, window) in enumerate(WINDOWS.items(), METHODS.index(at)):
        # which windows are merged, and which are made from the ones before, is not said
        for merges in (True, False) if at in ("remove", "merge", "pickle") else (turn % 2 == 0,):
            own = sq.uda("double", name="own")(Breaks)("v", at=at, merges=merges)
            error = error_of(window(grouped).select(x=own))
            assert error is not None or at in ("remove", "merge", "pickle"), name
            assert error is None or (failed.fullmatch(str(error)) and error.__cause__ is not None), error
            has_failed |= error is not None
    assert has_failed


def error_of(query: sq.Stream) -> ModuleFailed | None:
    try:
        query.to_arrow()
    except ModuleFailed as error:
        return error
    return None


def test_a_time_limit_ends_what_never_returns() -> None:
    begun = time.monotonic()

    def forever(v: pd.Series) -> float:
        while True:
            time.sleep(0.01)

    assert "it took longer than 0.2 seconds; window [0, 5)" in failure(forever, time_limit=0.2)
    assert time.monotonic() - begun < 5
    for _ in range(100):
        if not any(thread.name.startswith("streamq call") for thread in threading.enumerate()):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the call goes on")


def test_checking_finds_what_is_not_deterministic() -> None:
    calls: list[int] = []

    def counted(v: pd.Series) -> float:
        calls.append(1)
        return float(len(calls))

    assert "two calls with the same events gave 1.0 and 2.0; window [0, 5)" in failure(counted, checked=True)


def test_checking_finds_what_changes_what_it_is_given() -> None:
    def zeroes(v: pd.Series) -> float:
        v.iloc[0] = 0
        return 1.0

    class Appends:
        def initial(self) -> list[int]:
            return []

        def add(self, state: list[int], v: pd.Series) -> list[int]:
            state += v.tolist()
            return state

        def result(self, state: list[int]) -> float:
            return 1.0

    text = failure(zeroes, checked=True)
    assert "result changes its arguments: from " in text
    assert "window [0, 5); events: v = 2" in text
    assert "add changes its arguments: from ([], " in failure(Appends, checked=True)
    assert values(WINDOW.select(x=sq.uda("double", name="kept", checked=True)(lambda v: v.sum())("v"))) == [8.0, 10.0]


def test_bad_declarations_are_refused() -> None:
    with pytest.raises(PlanError, match='uda: no type of the value; found <function .*. Write @sq.uda\\("double"\\)'):
        sq.uda(lambda v: 1)  # type: ignore[arg-type]
    with pytest.raises(TypeMismatch, match="no such type; found 'duble'"):
        sq.uda("duble")
    with pytest.raises(PlanError, match="uda: not code; found 3"):
        sq.uda("double")(3)
    with pytest.raises(PlanError, match="uda: not a property of modules; found 'mergable'"):
        sq.uda("double", properties=["mergable"])(len)
    with pytest.raises(PlanError, match="own: it is declared mergeable; it cannot be merged"):
        sq.uda("double", properties=[sq.mergeable], name="own")(len)
    with pytest.raises(PlanError, match="uda: time_limit is a number of seconds above 0; found -1"):
        sq.uda("double", time_limit=-1)(len)
    with pytest.raises(PlanError, match="uda: on_error is 'fail' or 'quarantine'; found 'ignore'"):
        sq.uda("double", on_error="ignore")(len)
    with pytest.raises(PlanError, match="own: it is called without a column"):
        sq.uda("double", name="own")(len)()
    for stamp in ("unchanged", "clip", "time_bound"):
        with pytest.raises(PlanError, match=f"select: stamp '{stamp}' is for operations that give their own lifetimes"):
            S.tumbling_window(5, stamp=stamp).select(x=sq.uda("double", name="own")(len)("v"))


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


class NoThirteen:
    """A sum of all values but 13, which fails."""

    def initial(self) -> int:
        return 0

    def add(self, state: int, v: pd.Series) -> int:
        if (v == 13).any():
            raise ValueError("thirteen")
        return state + int(v.sum())

    def remove(self, state: int, v: pd.Series) -> int:
        return state - int(v.sum())

    def result(self, state: int) -> int:
        return state


@pytest.mark.parametrize("is_back", [True, False])
def test_what_fails_and_is_taken_back_before_its_window_is_reported_fails_nothing(is_back: bool) -> None:
    schema = {"k": "string", "v": "bigint"}
    items = [sq.insert(i % 9, i % 9 + 1, k="a", v=i % 9) for i in range(90)]
    items[5] = sq.insert(7, 8, k="a", v=13)
    back = [sq.retract(7, 8, 7, k="a", v=13)] if is_back else []
    s = sq.events([*items, *back], name="a", schema=schema, progress=sq.generate(20))
    query = s.to_points().tumbling_window(10).select(x=sq.uda("bigint", name="own")(NoThirteen)("v"))
    live = LocalRun(compiled(number_sources(query.plan)[0], buckets=1))
    for at in range(0, len(items) + 1, 10):
        assert live.batch({"a": s.tables["a"].slice(at, 10)}).num_rows == 0
    if is_back:
        assert live.finish().column("x").to_pylist() == [355]
    else:
        with pytest.raises(ModuleFailed, match=r"own: it failed; ValueError: thirteen; window \[0, 10\)"):
            live.finish()
