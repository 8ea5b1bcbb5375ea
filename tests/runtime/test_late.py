"""Late rows are judged as they arrive, whatever the plan makes of them afterwards: each counts once and leaves no trace."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.errors import LateEvent
from tests.programs import compiled
from tests.rehearsed import rehearsal

ZONES = pa.table({"k": ["a", "a", "a"], "zone": [1, 2, 3]})


def second(
    query: Callable[[sq.Stream], sq.Stream], late: list[tuple[Any, ...]], first: tuple[int, Any] = (100, 101)
) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Events of a second micro-batch behind one whose event starts at 100: what was counted, and the whole answer."""
    live = sq.events([(*first, {"k": "a"})], name="s", progress=sq.generate(0))
    made = query(live)
    run = LocalRun(compiled(rewrite(made.plan).plan, buckets=1), static=made.tables)
    tables = [live.tables["s"], *sq.events([(*span, {"k": "a"}) for span in late]).tables.values()]
    out = [run.batch({"s": table}) for table in tables] + [run.finish()]
    counted: Counter[str] = Counter()
    for totals in run.totals.values():
        counted.update(totals)
    return counted, pa.concat_tables(t.drop_columns(["__w"]) for t in out).to_pylist()


BEFORE_OTHERS: dict[str, Callable[[sq.Stream], sq.Stream]] = {
    "a table that has three rows for each": lambda s: (
        s.join_table(ZONES, on="k", name="zones").group_by("k").tumbling_window(10).select(n=sq.count())
    ),
    "a start that moves": lambda s: s.shift(1_000).tumbling_window(10).select(n=sq.count()),
    "windows of every row": lambda s: s.tumbling_window(10).select(n=sq.median(sq.lit(1))),
}


@pytest.mark.parametrize("name", BEFORE_OTHERS)
def test_a_late_row_counts_once(name: str) -> None:
    counted, rows = second(BEFORE_OTHERS[name], [(1, 2), (3, 4), (100, 101)])
    assert counted == {"s|dropped": 2}
    assert len(rows) == 1


def test_late_points_count_beside_better_ones() -> None:
    """Of those that come together only the best go on, but all are counted."""
    table = t.table("at bigint, v bigint", [(100, 1), (1, 1), (3, 2)])
    s = sq.points(table.slice(0, 0), time="at", name="s", progress=sq.generate(0))
    run = LocalRun(compiled(rewrite(s.hopping_window(20, 10).top_k(1, by="v").plan).plan, buckets=1))
    for rows in (table.slice(0, 1), table.slice(1, 2)):
        run.batch({"s": rows})
    assert [*run.totals.values()] == [{"s|dropped": 2}]


@pytest.mark.parametrize("by", [5, -5, 10])
def test_a_late_row_before_a_moved_window_is_late_for_the_source(by: int) -> None:
    """c = 106 lies in a window of the grid, but the window is one of moved events: c is not rounded down to it."""
    counted, rows = second(
        lambda s: s.shift(by).tumbling_window(10).select(n=sq.count()), [(101, 102), (107, 108)], first=(106, 107)
    )
    assert counted == {"s|dropped": 1} and sum(r["n"] for r in rows) == 2


def test_a_query_without_state_judges_at_its_source_before_its_filters() -> None:
    """A late row counts though a filter drops it; before a window's stage it does not."""
    s = sq.events(
        [(t, t + 1, {"v": v}) for t, v in ((10, 1), (3, 0), (4, 1), (20, 1))], name="s", progress=sq.generate(0)
    )
    kept = s.where(sq.col("v") > 0)
    for query, dropped in ((kept, 2), (kept.session_window(2).select(n=sq.count()), 1)):
        run = rehearsal(query)
        starts = [
            row["start"] for part in (*(run.arrive(s=1) for _ in range(4)), run.finish()) for row in part.to_pylist()
        ]
        assert run.late["s|dropped"] == dropped
        assert starts == [10, 20]


@pytest.mark.parametrize(
    "query",
    [
        lambda s: s.tumbling_window(10).select(n=sq.median(sq.lit(1))),
        lambda s: s.tumbling_window(10).top_k(1, by="k").select("k"),
        lambda s: s.chop(10),
        lambda s: s.windowed_join(s.select(j=sq.lit("k")), size=10, hop=10),
        lambda s: s.landmark_window(100, start=0, period=100, stamp="align").select(n=sq.count()),
    ],
    ids=["median", "top_k", "chop", "windowed_join", "landmark_window"],
)
def test_a_late_row_does_not_bound_the_windows_of_those_without_an_end(query: Any) -> None:
    counted, rows = second(query, [(1, 9_000), (100, 105)], first=(100, None))
    assert counted["s|dropped"] == 1
    assert {r["__le"] for r in rows} == {100}


@pytest.mark.slow
@pytest.mark.parametrize(("size", "hop"), [(10, 10), (10, 5), (12, 4), (10, 4), (4, 10)])
def test_what_is_adjusted_is_what_is_left_of_it(size: int, hop: int) -> None:
    """Whether lateness is judged in the window's kernel, behind a combiner, or apart: for a late output, or as windows lie."""
    ends = [4, 10, 11, 13, 15, 16, 17, 21, None]
    live = sq.events([(t, t + 1, {"v": 0}) for t in (16, 60)], name="s", progress=sq.generate(0), late="adjust")
    query = live.hopping_window(size, hop).select(n=sq.count())
    late = [sq.events([(3, end, {"v": 0})], name="s").tables["s"] for end in ends]
    found = []
    for apart in (False, True):
        made = []
        for table in late:
            run = LocalRun(compiled(rewrite(query.plan).plan, buckets=2, late_output=apart))
            parts = [run.batch({"s": t}) for t in (live.tables["s"].slice(0, 1), table, live.tables["s"].slice(1))]
            rows = pa.concat_tables([*parts, run.finish(80)]).to_pylist()
            counted = Counter(k for totals in run.totals.values() for k, n in totals.items() for _ in range(n))
            made.append((sorted((r["__le"], r["n"]) for r in rows), counted))
        found.append(made)
    assert found[0] == found[1]
    assert {reason for _, counted in found[0] for reason in counted} == {"s|dropped", "s|adjusted"}


@pytest.mark.parametrize("late_output", [False, True])
def test_rows_that_are_no_events_go_to_the_late_output_if_there_is_one(late_output: bool) -> None:
    spans = sq.intervals(t.table("start bigint, end bigint", []), start="start", end="end", name="s", invalid="drop")
    run = LocalRun(compiled(spans.plan, buckets=1, late_output=late_output))
    run.batch({"s": t.table("start bigint, end bigint", [(5, 5), (1, 2), (None, 3)])})
    late = {(row["reason"], row["start"], row["end"]) for table in run.late for row in table.to_pylist()}
    assert late == ({("end not after start", 5, 5), ("null start", None, 3)} if late_output else set())
    assert run.totals[(0, 0)] == {"s|invalid": 2}


PHYSICAL = "kind string, start bigint, end bigint, new_end bigint, id bigint"
EDGES = "start bigint, kind string, id bigint"
COMES_LATE: dict[str, tuple[Callable[..., sq.Stream], str, list[list[tuple[Any, ...]]]]] = {
    "physical": (
        sq.physical,
        PHYSICAL,
        [
            [("insert", 20, 40, None, 1), ("insert", 30, None, None, 2), ("insert", 100, 101, None, 3)],
            [("insert", 10, 30, None, 4), ("retract", 20, 40, 35, 1), ("retract", 30, None, 50, 2)],
            [("retract", 10, 30, 25, 4), ("insert", 5, None, None, 5)],
            [("retract", 5, None, 120, 5)],
        ],
    ),
    "edges": (
        partial(sq.edges, time="start", edge="kind", key="id"),
        EDGES,
        [
            [(20, "start", 1), (30, "start", 2), (100, "start", 3)],
            [(10, "start", 4), (40, "end", 1), (50, "end", 2)],
            [(110, "end", 4), (120, "end", 3)],
        ],
    ),
}
COMES_LATE["physical with ids"] = (partial(sq.physical, id="id"), *COMES_LATE["physical"][1:])


@pytest.mark.parametrize("name", COMES_LATE)
def test_late_rows_of_a_source_that_retracts_are_read_back_by_its_verb(name: str) -> None:
    """Dropped rows and processed rows are together the whole input, retractions and ends of edges included."""
    verb, schema, batches = COMES_LATE[name]
    tables = [t.table(schema, rows) for rows in batches]
    run = LocalRun(compiled(verb(tables[0], name="s", progress=sq.generate(0)).plan, buckets=2, late_output=True))
    for table in tables:
        run.batch({"s": table})
    run.finish()
    late = [row for table in run.late for row in table.to_pylist()]
    assert {row["reason"] for row in late} == {"dropped"} and all(row["late_by"] != 0 for row in late)
    dropped = [{**row, **json.loads(row["payload"])} for row in late]
    names = tables[0].column_names
    read_back = pa.Table.from_pylist([{n: row[n] for n in names} for row in dropped], tables[0].schema)
    every = [row for table in tables for row in table.to_pylist()]
    assert 4 <= read_back.num_rows < len(every)
    on_time = [row for row in every if row not in read_back.to_pylist()]
    assert len(on_time) + read_back.num_rows == len(every)
    together = pa.concat_tables([pa.Table.from_pylist(on_time, tables[0].schema), read_back])
    assert verb(together).to_arrow().equals(verb(pa.concat_tables(tables)).to_arrow())


def test_a_late_row_is_shown_on_its_axis() -> None:
    day = dt.datetime(2024, 3, 9, tzinfo=dt.UTC)
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("k", pa.string())])
    tables = [pa.table({"at": [day + dt.timedelta(hours=h)], "k": ["a"]}, schema=schema) for h in (5, 2)]
    points = sq.points(tables[0], time="at", name="s", late="fail", progress=sq.generate("1 hour"))
    plan = points.snapshot_window().select(n=sq.count()).plan
    run = LocalRun(compiled(rewrite(plan).plan, buckets=1))
    run.batch({"s": tables[0]})
    with pytest.raises(
        LateEvent, match=r"the CTI is 2024-03-09T04:00:00.000000Z, first: .* \(start 2024-03-09T02:00:00.0"
    ):
        run.batch({"s": tables[1]})
