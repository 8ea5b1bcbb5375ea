"""Windows on a grid in a stream: events are combined by basic window before the shuffle, and lateness goes by ends of windows."""

from __future__ import annotations

import pyarrow as pa
import pytest

import streamq as sq
from streamq.compiler.options import Options
from streamq.compiler.results import Results, rewritten
from streamq.compiler.stages import compile_stages
from streamq.plan.node import number_sources
from streamq.testing.arrival import Item
from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.table import table
from streamq.testing.trial import check

EMPTY = pa.table({"t": pa.array([], pa.int64()), "k": pa.array([], pa.string()), "v": pa.array([], pa.int64())})
HOPPING = sq.points(EMPTY, time="t", name="s").group_by("k").hopping_window(20, 5)
MERGED = HOPPING.select(n=sq.count(), most=sq.max("v"))
COUNTED = HOPPING.select(middle=sq.median("v"))


@pytest.mark.parametrize(("query", "rows"), [(MERGED, 2), (COUNTED, 3)])
def test_events_of_a_basic_window_are_one_row_before_the_shuffle(query: sq.Stream, rows: int) -> None:
    """Those of one value, where values are counted."""
    events = pa.table({"k": ["a", "a", "a", "b"], "__arg0": [1, 1, 2, 2], "__le": [1, 2, 3, 4]})
    (stage,) = compile_stages(rewritten(Results((query.plan,))), Options()).stages
    (hosted,) = stage.hosted
    assert hosted.kernel.combine(0, events).num_rows == rows


@pytest.mark.parametrize("aggregate", [sq.count(), sq.median("v"), sq.collect("v")])
def test_lateness_goes_by_the_ends_of_windows(aggregate: sq.Aggregate) -> None:
    """An event behind the CTI is late only if a window has ended since: at 4 that of 2 is not, at 14 that of 7 is."""
    query = sq.points(EMPTY, time="t", name="s", progress=sq.generate(0)).group_by("k").hopping_window(20, 5)
    plan, _ = number_sources(query.select(x=aggregate).plan)
    arrival = [("s", Item("insert", t, t + 1, payload={"k": "a", "v": t})) for t in (1, 4, 3, 8, 14, 2, 7, 40)]
    check(Case(plan, tuple(arrival), (3, 3, 2)), [Execution()])


@pytest.mark.parametrize("clip", ["full", "none"])
@pytest.mark.parametrize(("size", "hop"), [(6, 2), (10, 10)])
def test_what_is_left_of_a_late_event_is_weighed_and_listed_from_the_same_instant(
    size: int, hop: int, clip: str
) -> None:
    lives = sq.intervals(
        table("a bigint, b bigint, v bigint", []), "a", "b", name="s", progress=sq.generate(0), late="adjust"
    )
    windows = lives.hopping_window(size, hop, clip_input=clip)
    plan, _ = number_sources(windows.select(load=sq.time_weighted_avg("v"), all=sq.collect("v")).plan)
    rows = (1, 3, 1), (9, 12, 2), (0, 30, 4), (4, 15, 8), (8, 9, 16), (31, 33, 1), (7, 40, 32)
    arrival = [("s", Item("insert", start, end, payload={"v": v})) for start, end, v in rows]
    check(Case(plan, tuple(arrival), (2, 3, 2)), [Execution()])
