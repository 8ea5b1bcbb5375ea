"""The kernel of windows with modules: it calls those that have changed, with what has changed, and sets aside what fails."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pandas as pd
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.errors import ModuleFailed
from streamq.plan.node import number_sources
from streamq.runtime.deltas import LE, RE
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.stream import Stream
from streamq.time import INFINITY
from tests.programs import compiled

CALLS: list[tuple[Any, ...]] = []
"""What modules were called with."""


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


@sq.uda("bigint", name="whole_sum")
def whole_sum(v: pd.Series) -> int:
    CALLS.append(("call", *sorted(v)))
    return int(v.sum())


@sq.uda("bigint", name="running_sum", time_limit=60)
class RunningSum:
    """A time limit has it run window by window, though it could merge."""

    def initial(self) -> int:
        return 0

    def add(self, state: int, v: pd.Series) -> int:
        CALLS.append(("add", *sorted(v)))
        return state + int(v.sum())

    def remove(self, state: int, v: pd.Series) -> int:
        CALLS.append(("remove", *sorted(v)))
        return state - int(v.sum())

    def result(self, state: int) -> int:
        return state


def physical(*items: Any) -> Stream:
    return sq.events(list(items), name="s", schema={"v": "bigint"})


def run(query: Any, output: str = OutputForm.CHANGELOG, **options: Any) -> LocalRun:
    plan = number_sources(query(physical(sq.insert(0, 1, v=0), sq.cti(0))).plan)[0]
    return LocalRun(compiled(plan, output, buckets=1, **options))


def fed(live: LocalRun, *items: Any) -> list[tuple[Any, ...]]:
    """The deltas of a micro-batch, and what modules were called with in it."""
    CALLS.clear()
    deltas = live.batch(physical(sq.cti(-1_000_000), *items).tables)
    names = [n for n in deltas.column_names if n not in (LE, RE, "__w")]
    return sorted(((r[LE], r[RE], *(r[n] for n in names), r["__w"]) for r in deltas.to_pylist()), key=repr)


def test_only_windows_that_have_changed_are_called() -> None:
    live = run(lambda s: s.tumbling_window(10).select(x=whole_sum("v")))
    assert fed(live, sq.insert(1, 5, v=1), sq.insert(12, 15, v=2), sq.insert(33, 35, v=0)) == [
        (0, 10, 1, 1),
        (10, 20, 2, 1),
    ]
    assert sorted(CALLS) == [("call", 1), ("call", 2)]
    assert fed(live, sq.insert(3, 4, v=5)) == [(0, 10, 1, -1), (0, 10, 6, 1)]
    assert CALLS == [("call", 1, 5)]
    assert fed(live, sq.retract(3, 4, 3, v=5), sq.insert(4, 5, v=7)) == [(0, 10, 6, -1), (0, 10, 8, 1)]
    assert CALLS == [("call", 1, 7)], "as many members are not the same"
    assert fed(live, sq.retract(12, 15, 12, v=2)) == [(10, 20, 2, -1)]
    assert CALLS == []
    assert fed(live, sq.cti(12)) == []
    assert CALLS == []


@sq.uda("bigint", name="apart")
def apart(v: pd.Series) -> int:
    """It can say nothing of a single event."""
    CALLS.append(("call", *sorted(v)))
    return int(v.iloc[1] - v.iloc[0])


@sq.uda("bigint", name="merged_apart")
class MergedApart:
    def initial(self) -> list[int]:
        return []

    def add(self, state: list[int], v: pd.Series) -> list[int]:
        return sorted([*state, *v])

    def merge(self, state: list[int], other: list[int]) -> list[int]:
        return sorted([*state, *other])

    def result(self, state: list[int]) -> int:
        CALLS.append(("call", *state))
        return state[1] - state[0]


@pytest.mark.parametrize("module", [apart, MergedApart])
def test_final_rows_ask_for_windows_that_are_final_alone(module: Any) -> None:
    live = run(lambda s: s.tumbling_window(10).select(x=module("v")), OutputForm.FINAL)
    assert fed(live, sq.insert(1, 2, v=1), sq.insert(12, 13, v=12)) == []
    assert fed(live, sq.insert(3, 4, v=3), sq.insert(14, 15, v=14), sq.cti(11)) == [(0, 10, 2, 1)]
    assert CALLS == [("call", 1, 3)]


def test_a_state_of_a_window_takes_what_comes_and_goes() -> None:
    point_sum = sq.uda("bigint", name="point_sum")(RunningSum.code)
    live = run(lambda s: s.to_points().tumbling_window(200).select(x=point_sum("v")))
    total = sum(range(100))
    assert fed(live, *(sq.insert(i, i + 1, v=i) for i in range(100)), sq.insert(300, 301, v=0)) == [(0, 200, total, 1)]
    live = live.restart()
    assert fed(live, sq.insert(3, 4, v=50)) == [(0, 200, total, -1), (0, 200, total + 50, 1)]
    assert CALLS == [("add", 50)]
    rows = fed(live, sq.retract(7, 8, 7, v=7), sq.insert(2, 9, v=1))
    assert rows == [(0, 200, total + 44, 1), (0, 200, total + 50, -1)]
    assert CALLS == [("add", 1, 50), ("remove", 7)]


def test_from_window_to_window_it_is_given_what_comes_and_goes() -> None:
    live = run(lambda s: s.hopping_window(8, 2).select(x=RunningSum("v")), OutputForm.FINAL)
    assert fed(live, *(sq.insert(i, i + 1, v=i) for i in range(24))) == []
    rows = fed(live, sq.cti(24))
    whole = [call for call in CALLS if len(call) > 3]
    assert whole == [], "each window differs from the one before by two events on either side"
    assert [r for r in rows if r[0] == 8] == [(8, 16, sum(range(8, 16)), 1)]


@pytest.mark.slow
def test_nothing_is_remembered_of_windows_that_are_final() -> None:
    live = run(lambda s: s.tumbling_window(10).select(x=RunningSum("v")))
    for i in range(30):
        fed(live, sq.insert(10 * i, 10 * i + 3, v=1), sq.cti(10 * i - 5))
    (store,) = (held for held in live.stores.values() if any("reported" in key for key in held))
    counts = Baskets(DictStore(store)).counts
    (sent,) = (bins for name, bins in counts.items() if name.endswith("reported"))
    assert sum(bin.stored for bin in sent.values()) <= 3


def test_at_the_end_nothing_is_left() -> None:
    live = run(lambda s: s.tumbling_window(10).select(x=RunningSum("v")))
    fed(live, sq.insert(1, 3, v=1), sq.insert(12, 13, v=1))
    live.batch({}, [(None, INFINITY)])
    assert all(set(store) == {"manifest"} for store in live.stores.values())


@sq.uda("double", name="inverse", on_error="quarantine")
def inverse(v: pd.Series) -> float:
    if (v == 0).any():
        raise ZeroDivisionError("a zero")
    return float((1 / v).sum())


def set_aside(live: LocalRun) -> list[dict[str, Any]]:
    """What has come into the late output so far."""
    return [row for table in live.late for row in table.to_pylist()]


def test_what_fails_is_set_aside_whole_once_it_is_final_and_the_query_goes_on() -> None:
    live = run(lambda s: s.tumbling_window(10).select(x=inverse("v"), n=sq.count()), late_output=True)
    rows = fed(live, sq.insert(1, 2, v=0), sq.insert(3, 14, v=2), sq.insert(12, 13, v=4), sq.insert(25, 26, v=1))
    assert rows == [(0, 10, None, 2, 1), (10, 20, 1 / 2 + 1 / 4, 2, 1)]
    assert not set_aside(live), "its members may change until it is final"
    fed(live, sq.cti(11))
    first, second = set_aside(live)
    assert {**first, "reason": ""} == {
        "source": "inverse",
        "reason": "",
        "kind": None,
        "start": 1,
        "end": 2,
        "new_end": None,
        "late_by": None,
        "payload": '{"v": 0}',
        "window_start": 0,
        "window_end": 10,
        "group": "{}",
    }
    assert (second["start"], second["end"], json.loads(second["payload"])) == (3, 14, {"v": 2}), "it is not cut"
    assert first["reason"] == second["reason"] == "ZeroDivisionError: a zero; window [0, 10); events: v = 0; v = 2"
    assert {key: n for totals in live.totals.values() for key, n in totals.items() if n} == {"inverse|quarantined": 1}
    fed(live, sq.insert(13, 14, v=4), sq.cti(12))
    assert len(set_aside(live)) == 2, "what is final fails once"


def test_a_window_that_is_mended_before_it_is_final_is_not_set_aside() -> None:
    live = run(lambda s: s.tumbling_window(10).select(x=inverse("v"), n=sq.count()), late_output=True)
    fed(live, sq.insert(1, 2, v=0), sq.insert(3, 4, v=2), sq.insert(25, 26, v=1))
    assert fed(live, sq.retract(1, 2, 1, v=0)) == [(0, 10, 0.5, 1, 1), (0, 10, None, 2, -1)]
    fed(live, sq.cti(20))
    assert not set_aside(live)


def test_a_promise_to_be_time_bound_that_is_broken_fails() -> None:
    @sq.udo("n bigint", time_sensitive=True, properties=[sq.time_bound])
    def counted(events: pd.DataFrame, window: Any) -> Any:
        yield window.start, window.end, len(events)

    live = run(lambda s: s.tumbling_window(10).select(counted("v")))
    assert fed(live, sq.insert(1, 2, v=1), sq.insert(4, 5, v=1)) == [(0, 10, 2, 1)]
    fed(live, sq.cti(6))
    with pytest.raises(ModuleFailed, match="counted: it breaks its promise to be time_bound; after CTI 6 the row"):
        fed(live, sq.insert(7, 8, v=1))


@sq.udo("v bigint", time_sensitive=True, properties=[sq.time_bound], name="lived_in")
def lived_in(events: pd.DataFrame, window: Any) -> Any:
    """Each member's lifetime within the window."""
    for event in events.itertuples():
        ends = [end for end in (event.end, window.end) if not pd.isna(end)]
        yield max(event.start, window.start), min(ends, default=None), event.v


def folded(deltas: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], int]:
    """The weights of rows that do not cancel out."""
    weights: Counter[Any] = Counter()
    for *row, weight in deltas:
        weights[tuple(row)] += weight
    return {row: weight for row, weight in weights.items() if weight}


def test_what_is_time_bound_does_not_wait_for_ends_that_are_not_clipped() -> None:
    live = run(lambda s: s.session_window(4, clip_input="none", stamp="time_bound").select(lived_in("v")))
    first = fed(live, sq.insert(1, None, v=1), sq.insert(3, 4, v=2), sq.cti(4))
    assert folded(first) == {(1, INFINITY, 1): 1, (3, 4, 2): 1}
    assert folded(fed(live, sq.retract(1, None, 5, v=1), sq.cti(20))) == {(1, 5, 1): 1, (1, INFINITY, 1): -1}


def test_what_is_late_for_a_time_bound_operator_goes_by_the_cti_itself() -> None:
    @sq.udo("v bigint", time_sensitive=True, properties=[sq.time_bound])
    def echo(events: pd.DataFrame, window: Any) -> Any:
        for event in events.itertuples():
            yield event.start, event.end, event.v

    rows = [(4, 5, {"v": 0}), (-7, -6, {"v": 1}), (9, 10, {"v": 2})]
    s = sq.events(rows, name="s", progress=sq.generate(10)).to_points()
    plan = number_sources(s.tumbling_window(5).select(echo("v")).plan)[0]
    live = LocalRun(compiled(plan, OutputForm.CHANGELOG, buckets=1))
    (table,) = s.tables.values()
    deltas = [live.batch({name: table.slice(i, 1) for name in s.tables}) for i in range(3)]
    assert not any(1 in d.column("v").to_pylist() for d in deltas), "behind CTI -6 it is late"
