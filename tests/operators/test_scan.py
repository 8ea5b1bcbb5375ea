"""scan: an operator of a user's own goes from event to event of a group, and its rows are points where they start."""

from __future__ import annotations

import sys
import time
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import ModuleFailed
from tests.judged import answer


def points(*rows: tuple[int, str | None, int | None]) -> sq.Stream:
    """A stream of points ``at, k, v``."""
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("at", "k", "v"))}
    return sq.points(pa.table(columns, schema=pa.schema({"at": pa.int64(), "k": pa.string(), "v": pa.int64()})), "at")


@sq.udso("delta bigint")
class Delta:
    """How far a value lies from the one before it."""

    def __init__(self, factor: int = 1):
        self.factor = factor

    def initial(self) -> int | None:
        return None

    def step(self, last: int | None, value: int) -> tuple[int, list[int] | None]:
        return value, None if last is None else [(value - last) * self.factor]


@sq.udso("n bigint", initial=0)
def numbered(n: int, value: object) -> tuple[int, list[int]]:
    return n + 1, [n]


ROWS = ((4, "b", 1), (1, "a", 2), (3, "a", 7), (6, "a", 4), (9, "b", 6))


def test_each_group_has_a_state_of_its_own() -> None:
    """
    events  a 2 at 1   a 7 at 3   b 1 at 4   a 4 at 6   b 6 at 9
    deltas             a 5 at 3              a -3 at 6  b 5 at 9
    """
    assert answer(points(*ROWS).group_by("k").scan(Delta("v"))) == [
        (3, 4, "a", 5),
        (6, 7, "a", -3),
        (9, 10, "b", 5),
    ]


def test_events_of_one_start_go_by_the_whole_payload_nulls_first() -> None:
    rows = points((1, "b", 5), (1, "a", 9), (1, "b", None), (1, "b", 2))
    assert answer(rows.scan(numbered("v")).select("n"))[-1] == (1, 2, 3)

    @sq.udso("seen string", initial="")
    def seen(before: str, k: str, v: int) -> tuple[str, list[str]]:
        return f"{before}{k}{v} ", [f"{before}{k}{v}"]

    assert ("a9 bNone b2 b5",) in [row[2:] for row in answer(rows.scan(seen("k", "v")))]


def test_what_a_filter_leaves_out_does_not_count_and_is_not_computed() -> None:
    rows = points((1, "a", 2), (2, "a", 0), (3, "a", 4), (4, "a", None))
    inverse = Delta((12 / sq.col("v")).cast("bigint"), where=sq.col("v") != 0)
    assert answer(rows.scan(inverse)) == [(3, 4, -3)]


def test_options_make_the_class_or_go_to_the_function() -> None:
    assert answer(points(*ROWS).group_by("k").scan(Delta("v", factor=-2)))[0] == (3, 4, "a", -10)

    @sq.udso("n bigint", initial=0)
    def every(n: int, value: object, step: int = 1) -> tuple[int, list[int]]:
        return n + step, [n]

    assert [row[2] for row in answer(points(*ROWS).scan(every("v", step=3)))] == [0, 3, 6, 9, 12]


def test_rows_are_tuples_dictionaries_or_values_and_as_many_as_it_likes() -> None:
    @sq.udso("a bigint, b string", initial=0)
    def rows(n: int, value: int) -> tuple[int, Any]:
        return n + 1, [(value, "x"), {"b": None, "a": n}] if n else ()

    assert answer(points((1, "a", 5), (2, "a", 7)).scan(rows("v"))) == [(2, 3, 1, None), (2, 3, 7, "x")]


def test_a_time_sensitive_one_takes_the_start_first() -> None:
    @sq.udso("gap bigint", time_sensitive=True, initial=None)
    def gap(last: int | None, start: int, value: object) -> tuple[int, list[int]]:
        return start, [] if last is None else [start - last]

    assert [row[3] for row in answer(points(*ROWS).group_by("k").scan(gap("v")))] == [2, 3, 5]

    @sq.udso("hour int, tz string", time_sensitive=True, initial=None)
    def hour(state: None, start: pd.Timestamp) -> tuple[None, list[tuple[int, str]]]:
        return None, [(start.hour, str(start.tz))]

    at = pa.array([pd.Timestamp("2024-05-01 14:30", tz="Europe/Berlin")], pa.timestamp("us", "UTC"))
    query = sq.points(pa.table({"at": at}), "at").scan(hour())
    assert query.to_arrow().select(["hour", "tz"]).to_pylist() == [{"hour": 12, "tz": "UTC"}]


def test_edges_are_gone_over_as_they_start() -> None:
    log = pa.table({"at": [1, 3, 5, 8], "what": ["start", "start", "end", "start"], "k": ["a", "b", "a", "a"]})
    opened = sq.edges(log, "at", edge="what", key="k")
    assert answer(opened.scan(numbered("k"))) == [(1, 2, 0), (3, 4, 1), (8, 9, 2)]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda s, v: (s, [1 // (v - 7)]), "ZeroDivisionError: integer division or modulo by zero"),
        (lambda s, v: sys.exit(3), "SystemExit: 3"),
        (lambda s, v: (s, ["x"]), "'x' is no bigint"),
        (lambda s, v: (s, [1.5]), "1.5 is no bigint"),
        (lambda s, v: (s, [(1, 2)]), r"a row of 2 values, \(1, 2\), instead of x"),
        (lambda s, v: (s, 3), "3 is no collection of rows"),
        (lambda s, v: [s], r"a step gives \(state, rows\), and this one \[None\]"),
        (lambda s, v: (time.sleep if v == 7 else s, [1] if s is None else s()), "TypeError"),
    ],
)
def test_a_failure_names_the_module_the_group_and_the_event(step: Any, reason: str) -> None:
    failing = sq.udso("x bigint", initial=None, name="failing")(step)
    with pytest.raises(ModuleFailed, match=f"failing: it failed; {reason}.*; event at [136], k = 'a'; v = "):
        points(*(row for row in ROWS if row[1] == "a")).group_by("k").scan(failing("v")).to_arrow()


def test_a_step_that_takes_too_long_or_gives_something_else_the_second_time_fails() -> None:
    @sq.udso("x int", initial=None, time_limit=0.05)
    def slow(state: None, v: int) -> tuple[None, None]:
        while v == 7:
            time.sleep(0.01)
        return None, None

    with pytest.raises(ModuleFailed, match=r"slow: it failed; it took longer than 0.05 seconds; event at 3; v = 7"):
        points(*ROWS).scan(slow("v")).to_arrow()
    calls: list[int] = []

    @sq.udso("x int", initial=None, checked=True)
    def other(state: None, v: int) -> tuple[None, list[int]]:
        calls.append(v)
        return None, [len(calls)]

    with pytest.raises(ModuleFailed, match="other: it failed; two calls with the same events gave"):
        points(*ROWS).scan(other("v")).to_arrow()

    @sq.udso("n bigint", checked=True)
    class Kept:
        def initial(self) -> list[int]:
            return []

        def step(self, state: list[int], v: int) -> tuple[list[int], list[int]]:
            return [*state, v], [len(state)]

    assert [row[2] for row in answer(points(*ROWS).scan(Kept("v")))] == [0, 1, 2, 3, 4]


def test_a_first_state_that_a_function_changes_stays_as_it_was() -> None:
    @sq.udso("n bigint", initial=[])
    def careless(state: list[int], v: int) -> tuple[list[int], list[int]]:
        state.append(v)
        return state, [len(state)]

    assert [row[3] for row in answer(points(*ROWS).group_by("k").scan(careless("v")))] == [1, 2, 1, 3, 2]
    watched = sq.udso("n bigint", initial=[], checked=True)(careless.code)
    with pytest.raises(ModuleFailed, match=r"careless: it failed; step changes its arguments: from \(\[\], 2\) to "):
        points(*ROWS).scan(watched("v")).to_arrow()


def test_values_are_pythons() -> None:
    rows = pa.table({"at": [1], "d": [Decimal("1.50")], "s": [[1, None]], "b": [b"x"]})

    @sq.udso("seen string", initial=None)
    def seen(state: None, *values: object) -> tuple[None, list[str]]:
        return None, [repr(values)]

    assert answer(sq.points(rows, "at").scan(seen("d", "s", "b"))) == [(1, 2, "(Decimal('1.50'), [1, None], b'x')")]


def test_it_is_known_by_name_and_written_as_json() -> None:
    assert sq.modules.get("Delta") is Delta
    assert repr(Delta) == "<udso Delta(factor=1) -> struct<delta:bigint>>"
    query = points(*ROWS).group_by("k").scan(Delta("v", factor=3, where=sq.col("v") > 1))
    text = query.to_json()
    assert '"kind":"udso"' in text.replace(" ", "")
    again = sq.from_json(text, {"#1": next(iter(query.tables.values()))})
    assert again.plan == sq.Stream(again.plan, {}).plan
    assert answer(again) == answer(query) == [(3, 4, "a", 15), (6, 7, "a", -9)]
    one, other = (sq.udso("n bigint", initial=n, name="numbered")(numbered.code) for n in (0, 1))
    assert one == numbered != other
