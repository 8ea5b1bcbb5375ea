"""Calls of modules that fail: the error names the module, the reason, and the window, event or group, with its first events."""

from __future__ import annotations

import datetime as dt
import itertools
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamq as sq
from streamq.compiler.local import LocalRun
from streamq.errors import ModuleFailed
from streamq.plan.node import number_sources
from tests.pairwise import covering
from tests.programs import compiled
from tests.window_modules import WINDOWS

S = sq.events(
    [
        (1, 4, {"k": "a", "v": 2}),
        (3, 8, {"k": "a", "v": 6}),
        (5, 6, {"k": "b", "v": None}),
        (5, 9, {"k": "b", "v": 4}),
    ]
)
GROUPED = S.group_by("k").tumbling_window(5)


def failure(query: Callable[[], sq.Stream]) -> str:
    with pytest.raises(ModuleFailed) as raised:
        query().to_arrow()
    assert str(raised.value).startswith("own: it failed; ")
    return str(raised.value)


def uda(code: Any, returns: str = "double", window: Any = None, **options: Any) -> Callable[[], sq.Stream]:
    window = S.tumbling_window(5) if window is None else window
    return lambda: window.select(x=sq.uda(returns, name="own", **options)(code)("v"))


def udo(code: Any, returns: str = "v bigint", stamp: Any = None, **options: Any) -> Callable[[], sq.Stream]:
    operator = sq.udo(returns, name="own", time_sensitive=True, **options)(code)
    return lambda: S.tumbling_window(5, stamp=stamp).select(operator("v"))


def udf(code: Any, returns: str = "int", takes: str = "values", **options: Any) -> Callable[[], sq.Stream]:
    function = sq.udf(returns, takes=takes, name="own", **options)(code)
    return lambda: S.where(sq.col("v") == 4).select(x=function("v"))


class Exits:
    def initial(self) -> int:
        return 0

    def add(self, state: int, v: pd.Series) -> int:
        sys.exit(3)

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, state: int) -> float:
        return 1.0


class Appends:
    def initial(self) -> list[int]:
        return []

    def add(self, state: list[int], v: pd.Series) -> list[int]:
        state += v.tolist()
        return state

    def result(self, state: list[int]) -> float:
        return 1.0


async def later(v: pd.Series) -> float:
    return 1.0


def generated(events: pd.DataFrame, window: Any) -> Iterator[Any]:
    yield 1, 2, 3
    raise KeyError("a generator's")


def zeroes(v: pd.Series) -> float:
    v.iloc[0] = 0
    return 1.0


MANY = sq.events([(0, 1, {"v": i}) for i in range(9)]).tumbling_window(5)
FAILED = "own: it failed; "
COUNTED = itertools.count(1)
FAILING: list[tuple[Callable[[], sq.Stream], str]] = [
    # what is raised
    (
        uda(lambda v: 1 / int(v.isna().sum() - 1), window=GROUPED),
        "ZeroDivisionError: division by zero; window [5, 10), k = 'b'; events: v = None; v = 4.",
    ),
    (uda(lambda v: v.nothing, window=MANY), "window [0, 5); the first of 9 events: v = 0; v = 1; v = 2."),
    (uda(lambda v: sys.exit()), f"{FAILED}SystemExit; window [0, 5); events: v = 2"),
    (uda(lambda v: sys.exit(3), time_limit=9), f"{FAILED}SystemExit: 3; window [0, 5)"),
    (
        uda(Exits, window=S.group_by("k").hopping_window(10, 5)),
        f"{FAILED}SystemExit: 3; window [-5, 5), k = 'a'; events: v = ",
    ),
    (udo(generated), 'KeyError: "a generator\'s"; window [0, 5)'),
    *(
        (udf(lambda v: sys.exit(3), takes=takes), f"{FAILED}SystemExit: 3; of v = 4")
        for takes in ("values", "series", "arrays")
    ),
    # guards
    (
        uda(lambda v: float(next(COUNTED)), checked=True),
        "two calls with the same events gave 1.0 and 2.0; window [0, 5)",
    ),
    (uda(zeroes, checked=True), "result changes its arguments: from "),
    (uda(Appends, checked=True), "add changes its arguments: from ([], "),
    # values of another type, with what to write instead
    (uda(lambda v: "one"), "'one' is no double; window [0, 5)"),
    (uda(lambda v: 1.5, "bigint"), "1.5 is no bigint (write int(...)); window [0, 5)"),
    (uda(lambda v: 300, "tinyint"), "300 is no tinyint"),
    (uda(lambda v: v), "a Series of 2 values is no double (a list is an array<...>); window"),
    (uda(lambda v: v, "array<string>"), "a Series of 2 values is no array<string> (write .tolist())"),
    (uda(lambda v: [(1, 2)]), "[(1, 2)] is no double (@sq.udo makes rows)"),
    (uda(lambda v: pd.DataFrame({"x": [1]})), "a DataFrame of 1 rows is no double (@sq.udo makes rows)"),
    (uda(lambda v: (yield 1)), "a generator is no double (return a value; @sq.udo makes rows)"),
    (uda(lambda v: np.int64(5), "string"), "5 is no string (write str(...))"),
    (uda(lambda v: float("inf"), "bigint"), "inf is no bigint; window"),
    (uda(later), "a coroutine is no double (write def, not async def)"),
    (udf(lambda v: v.head(0), takes="series"), "0 results for 1 events"),
    (udf(lambda v: pa.array(["x"] * len(v)), "date", "arrays"), "is no column of date"),
    (udf(lambda v: [v], "string"), "[4] is no string"),
    (udf(lambda v: v, "string", "series"), "is no column of string: it is a column of int64"),
    (udf(lambda v: v + 0.5, takes="series"), "is no column of int"),
    (udf(lambda v: [1.5], "array<int>"), "[1.5] is no array<int>"),
    (udf(lambda v: {"a": 1, "c": 2}, "struct<a: int, b: int>"), "is no struct<a:int,b:int>"),
    (udf(lambda v: dt.datetime(2024, 5, 1, 12), "date"), "is no date"),
    (udf(lambda v: 5, "timestamp"), "5 is no timestamp"),
    (udf(lambda v: 1e300, "float"), "1e+300 is no float"),
    (udf(lambda v: True, "bigint"), "True is no bigint"),
    # rows
    (
        udo(lambda events, window: [(1, 2)]),
        "own: it failed; a row of 2 values, (1, 2), instead of start, end, v; window [0, 5)",
    ),
    (udo(lambda events, window: [{"w": 1}]), "a row has w instead of start, end, v"),
    (
        udo(lambda events, window: events.itertuples()),
        "a row has Index, v, start, end instead of start, end, v (write itertuples(index=False))",
    ),
    (udo(lambda events, window: [(1, 2, "x")]), "'x' is no bigint"),
    (udo(lambda events, window: [("soon", 2, 1)]), "'soon' is no instant"),
    (udo(lambda events, window: 7), "7 is no collection of rows (return a list of rows)"),
    (udo(lambda events, window: (1, 2, 3)), "is one row (return a list of rows); window"),
    (
        udo(lambda events, window: [1, 2], properties=[sq.one_output_per_group]),
        "2 rows for a window, declared one_output_per_group",
    ),
    (
        udo(lambda events, window: [(window.start - 1, window.end, 1)]),
        "a row that starts at -1, before its window, under stamp='unchanged': (-1, 5, 1); window [0, 5)",
    ),
    (
        udo(lambda events, window: [(3, 3, 1)]),
        "a row with no lifetime, under stamp='unchanged': (3, 3, 1); window",
    ),
    (
        udo(lambda events, window: [(window.end, window.end + 1, 1)], stamp="clip"),
        "a row with no lifetime in its window, under stamp='clip'",
    ),
]


@pytest.mark.parametrize(("query", "text"), FAILING, ids=[text[:40] for _, text in FAILING])
def test_a_call_that_fails_says_why_and_over_what(query: Callable[[], sq.Stream], text: str) -> None:
    assert text in failure(query)


@pytest.mark.parametrize("takes", ["values", "series", "arrays"])
def test_what_a_function_raises_names_the_event_and_is_the_cause(takes: str) -> None:
    def inverse(v: Any, of: Any) -> Any:
        if takes == "values":
            return of / v
        if 0 in v.to_pylist() if takes == "arrays" else (v == 0).any():
            raise ZeroDivisionError("division by zero")
        return pc.divide(of, v) if takes == "arrays" else of / v

    function = sq.udf("double", takes=takes)(inverse)
    text = r"inverse: it failed; ZeroDivisionError: (float )?division by zero; of v = 0, of = 1(.0)?\."
    with pytest.raises(ModuleFailed, match=text) as raised:
        S.where(sq.col("v") >= 0).select(x=function(sq.col("v") - 4, sq.lit(1.0))).to_arrow()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert raised.value.__cause__.__traceback__ is not None


def interrupted(v: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("query", [uda(interrupted), *(udf(interrupted, takes=t) for t in ("values", "arrays"))])
def test_an_interrupt_ends_the_query(query: Callable[[], sq.Stream]) -> None:
    with pytest.raises(KeyboardInterrupt):
        query().to_arrow()


def only_one(v: pa.Array) -> pa.Array:
    if len(v) > 1:
        raise ValueError("too many")
    return v


@pytest.mark.parametrize(
    ("takes", "code", "wrong"),
    [
        ("series", lambda v: v.head(1), "1 results for 4 events"),
        ("arrays", only_one, "ValueError: too many"),
    ],
)
def test_what_fails_for_events_together_fails(takes: str, code: Any, wrong: str) -> None:
    """Even where it answers for each alone: an answer may not go by which events come together."""
    with pytest.raises(ModuleFailed, match=f"it failed; {wrong}; of 4 events together, and none of them alone"):
        S.select(x=sq.udf("bigint", takes=takes)(code)("v")).to_arrow()


def test_a_time_limit_ends_what_never_returns() -> None:
    begun = time.monotonic()

    def forever(v: pd.Series) -> float:
        while True:
            time.sleep(0.01)

    assert "it took longer than 0.2 seconds; window [0, 5)" in failure(uda(forever, time_limit=0.2))
    assert time.monotonic() - begun < 5
    while any(thread.name.startswith("streamq call") for thread in threading.enumerate()):
        assert time.monotonic() - begun < 10, "the call goes on"
        time.sleep(0.05)


# methods of classes


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


def error_of(query: sq.Stream) -> ModuleFailed | None:
    try:
        query.to_arrow()
    except ModuleFailed as error:
        return error
    return None


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


# instants of rows

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


# over what was taken back


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


def test_under_quarantine_a_change_that_fails_is_called_again_over_all_members() -> None:
    class Holds(NoThirteen):
        def remove(self, state: int, v: pd.Series) -> int:
            raise ValueError("nothing goes")

    events = sq.events([(i, i + 1, {"v": i}) for i in range(12)])
    own = sq.uda("bigint", name="own", on_error="quarantine")(Holds)
    query = events.hopping_window(6, 2).select(x=own("v"), y=sq.sum("v"))
    assert all(row["x"] == row["y"] for row in query.to_arrow().to_pylist())
    assert query.quarantine().to_arrow().num_rows == 0
