"""Each row of docs/coming_from.md gives the rows that it says: those of SQL, which DuckDB runs, or a test says the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import streamq as sq
from streamq.run.rehearsal import Rehearsal
from tests.coming_from import ON_SPARK, ZONES, PageRow, T, W, page_rows, streams, values
from tests.judged import answer

TESTS = Path(__file__).parent
CASES: dict[str, Callable[[PageRow], None]] = {}


def case(*rows: str) -> Callable[[Callable[[PageRow], None]], Callable[[PageRow], None]]:
    """Make a function the test of rows, which it is called with."""

    def kept(test: Callable[[PageRow], None]) -> Callable[[PageRow], None]:
        CASES.update(dict.fromkeys(rows, test))
        return test

    return kept


def sql(text: str, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a query over the tables ``t``, ``b`` and ``zones``."""
    connection = duckdb.connect()
    connection.sql("SET timezone = 'UTC'")
    for name, rows in {"t": T, "b": W, "zones": ZONES}.items():
        connection.register(name, rows)
    return values(connection.sql(text).to_arrow_table(), *columns)


def is_same(row: PageRow, text: str, *columns: str) -> None:
    """Assert that a row's code gives the rows of SQL, both not empty."""
    wanted = sql(text, *columns)
    assert wanted
    assert values(row.result.to_arrow(), *columns) == wanted


SHOWN_BY = {
    "idle sources: `table.exec.source.idle-timeout`": (
        "test_policies.py",
        "test_where_all_are_silent_no_delay_is_waited_for",
    ),
    "a savepoint and a changed job": (
        "spark/test_changed_query.py",
        "test_a_migration_is_repeated_until_it_is_done_and_its_run_goes_on_where_the_old_one_stood",
    ),
    "`foreachBatch`": ("spark/test_egress.py", "test_upserts_keep_a_table"),
    "the one watermark of a query": (
        "test_diagnosis.py",
        "test_a_window_names_its_source_the_row_and_the_calls_that_release_it",
    ),
    "input and output policies: clip, align, point": (
        "operators/test_window_lifetimes.py",
        "test_the_window_is_known_wherever_the_row_lives",
    ),
    "`CepAggregate`, `CepTimeSensitiveOperator`": (
        "test_user_aggregates.py",
        "test_a_time_sensitive_one_reads_lifetimes_as_the_clip_cuts_them_and_the_window",
    ),
    "a user-defined stream operator": ("operators/test_scan.py", "test_each_group_has_a_state_of_its_own"),
    "`AdvanceTimeSettings`, Trill's `PeriodicPunctuationPolicy`": ("test_policies.py", "test_progress_in_steps"),
    "`AdvanceTimePolicy.Adjust` and `Drop`, Trill's `DisorderPolicy`": (
        "runtime/test_late.py",
        "test_what_is_adjusted_is_what_is_left_of_it",
    ),
    "the event flow debugger": (
        "tracing/test_trace.py",
        "test_a_row_is_there_because_of_its_events_and_one_that_is_missing_because_of_what_prevents_it",
    ),
}
"""The rows about running, whose right side is no query that SQL could answer: the file and the test that show each."""


def test_every_row_is_tested() -> None:
    by_hand = {*CASES, *ON_SPARK}
    assert by_hand | SHOWN_BY.keys() == page_rows().keys()
    assert not by_hand & SHOWN_BY.keys()
    for file, name in SHOWN_BY.values():
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), name


@pytest.mark.parametrize("theirs", CASES)
def test_a_row_gives_what_it_says(theirs: str) -> None:
    CASES[theirs](page_rows()[theirs])


@case("`WATERMARK FOR ts AS ts - INTERVAL '5' SECOND`", '`df.withWatermark("ts", "10 minutes")`')
def late_rows(row: PageRow) -> None:
    """A row is late if it lies more than the delay behind the greatest time before it."""
    delay = "INTERVAL 5 SECOND" if "SECOND" in row.theirs else "INTERVAL 10 MINUTE"
    before = "max(ts) OVER (ORDER BY arrival ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    arrivals = f"SELECT *, {before} AS m FROM (SELECT *, row_number() OVER () AS arrival FROM t)"
    ((late,),) = sql(f"SELECT count(*) AS n FROM ({arrivals}) WHERE ts < m - {delay}", "n")
    run = Rehearsal(row.result.snapshot_window().select(n=sq.count()))
    for _ in range(T.num_rows):
        run.arrive(**{next(iter(run._named)): 1})
    assert sum(run.late.values()) == late > 0


@case("`TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '15' MINUTE)`")
def tumble(row: PageRow) -> None:
    rows = row.result.select(n=sq.count(), x=sq.sum("v")).to_arrow()
    text = "SELECT time_bucket(INTERVAL 15 MINUTE, ts) AS start, count(*) AS n, sum(v) AS x FROM t GROUP BY ALL"
    assert values(rows, "start", "n", "x") == sql(text, "start", "n", "x")


GRID = "(SELECT unnest(generate_series(TIMESTAMPTZ '2024-01-01 08:00', '2024-01-01 13:00', INTERVAL {step} MINUTE)) AS start)"


@case("`HOP(TABLE t, DESCRIPTOR(ts), slide, size)`")
def hop(row: PageRow) -> None:
    rows = row.result.select(n=sq.count()).to_arrow()
    on = "ts >= start AND ts < start + INTERVAL 1 HOUR"
    text = f"SELECT start, count(*) AS n FROM t JOIN {GRID.format(step=15)} ON {on} GROUP BY ALL"
    assert values(rows, "start", "n") == sql(text, "start", "n")


@case("`SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), gap)`")
def session(row: PageRow) -> None:
    """Sessions of less than five minutes between events; Flink's of at most that many are fewer."""
    rows = row.result.select(n=sq.count()).to_arrow()

    def sessions(joins: str) -> list[tuple[Any, ...]]:
        before = "lag(ts) OVER (PARTITION BY k ORDER BY ts)"
        begins = f"SELECT *, CASE WHEN ts - {before} {joins} INTERVAL 5 MINUTE THEN 0 ELSE 1 END AS first FROM t"
        numbered = f"SELECT *, sum(first) OVER (PARTITION BY k ORDER BY ts) AS i FROM ({begins})"
        text = f'SELECT k, min(ts) AS start, max(ts) + INTERVAL 5 MINUTE AS "end", count(*) AS n FROM ({numbered}) GROUP BY k, i'
        return sql(text, "k", "start", "end", "n")

    assert values(rows, "k", "start", "end", "n") == sessions("<")
    assert len(sessions("<=")) < len(sessions("<"))


@case("`CUMULATE(TABLE t, DESCRIPTOR(ts), step, size)`")
def cumulate(row: PageRow) -> None:
    """Flink's windows, but for those of the last period that begin to grow behind the last event."""
    rows = values(row.result.select(n=sq.count()).to_arrow(), "start", "end", "n")
    ends = (
        'SELECT time_bucket(INTERVAL 1 HOUR, start) AS start, start + INTERVAL 10 MINUTE AS "end" FROM '
        + GRID.format(step=10)
    )
    windows = (
        f'SELECT w.start, w."end", count(*) AS n FROM t JOIN ({ends}) w ON ts >= w.start AND ts < w."end" GROUP BY ALL'
    )
    flinks = sql(windows, "start", "end", "n")
    last = max(T["ts"].to_pylist())
    assert rows == [
        (start, end, n) for start, end, n in flinks if end <= last or end - last <= (rows[0][1] - rows[0][0])
    ]
    assert len(rows) < len(flinks)


@case("`GROUP BY window_start, window_end, k`")
def by_window(row: PageRow) -> None:
    start = "time_bucket(INTERVAL 15 MINUTE, ts)"
    text = f'SELECT k, {start} AS start, {start} + INTERVAL 15 MINUTE AS "end", count(*) AS n FROM t GROUP BY ALL'
    is_same(row, text, "k", "start", "end", "n")


PRECEDING = "`SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS 2 PRECEDING)`"


@case(f"{PRECEDING}, from the third row on")
def full_frames(row: PageRow) -> None:
    number = "QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts) >= 3"
    text = f"SELECT k, ts + INTERVAL 1 MICROSECOND AS start, v, {row.their_code} AS total FROM t {number}"
    is_same(row, text, "k", "start", "v", "total")


@case(f"{PRECEDING}, the first two rows too")
def all_frames(row: PageRow) -> None:
    is_same(row, f"SELECT k, ts AS start, v, {row.their_code} AS total FROM t", "k", "start", "v", "total")


@case("`SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE INTERVAL '10' MINUTE PRECEDING)`")
def ranges(row: PageRow) -> None:
    is_same(row, f"SELECT k, ts AS start, v, {row.their_code} AS total FROM t", "k", "start", "v", "total")


@case(
    "`ROW_NUMBER() OVER (PARTITION BY window_start, k ORDER BY v DESC) <= 3`",
    "`RANK() OVER (PARTITION BY window_start, k ORDER BY v DESC) <= 3`",
)
def best_rows(row: PageRow) -> None:
    """Over four events of a window and key, of which three are equal and share rank 2."""
    rows = streams()
    rows["s"] = rows["s"].union(rows["s"].where(sq.col("v") < 3)).where(sq.start() < sq.lit(T["ts"][3].as_py()))
    twice = "(SELECT * FROM t UNION ALL SELECT * FROM t WHERE v < 3)"
    source = (
        f"(SELECT *, time_bucket(INTERVAL 15 MINUTE, ts) AS window_start FROM {twice} WHERE ts < '2024-01-01 10:30')"
    )
    wanted = sql(f"SELECT k, window_start AS start, v FROM {source} QUALIFY {row.their_code}", "k", "start", "v")
    assert values(eval(row.codes[0], rows).to_arrow(), "k", "start", "v") == wanted


@case("an interval join: `a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' MINUTE`")
def interval_join(row: PageRow) -> None:
    is_same(row, f"SELECT a.k, v, w, b.ts AS start FROM t a JOIN b ON {row.their_code}", "k", "v", "w", "start")


@case("the same as a `LEFT JOIN`")
def left_interval_join(row: PageRow) -> None:
    on = "a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' MINUTE"
    is_same(row, f"SELECT a.k, v, w, a.ts AS start FROM t a {row.their_code} b ON {on}", "k", "v", "w", "start")
    assert any(w is None for (w,) in values(row.result.to_arrow(), "w"))


@case("a join `FOR SYSTEM_TIME AS OF orders.ts`")
def as_of(row: PageRow) -> None:
    is_same(
        row,
        "SELECT a.k, a.ts AS start, v, w FROM t a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts",
        "k",
        "start",
        "v",
        "w",
    )


@case("a lookup join")
def lookup(row: PageRow) -> None:
    is_same(row, "SELECT t.k, ts AS start, v, city FROM t JOIN zones ON t.k = zones.k", "k", "start", "v", "city")


@case("`MATCH_RECOGNIZE`")
def sequence(row: PageRow) -> None:
    """Every pair in that order within ten minutes, also with other events between."""
    rows = eval(next(code for code in row.codes if "(" in code), streams()).to_arrow()
    on = "b.ts > a.ts AND b.ts <= a.ts + INTERVAL 10 MINUTE"
    text = f"SELECT a.k AS a_k, a.v AS a_v, b.k AS b_k, b.w AS b_w, b.ts AS start FROM t a JOIN b ON {on}"
    assert values(rows, "a_k", "a_v", "b_k", "b_w", "start") == sql(text, "a_k", "a_v", "b_k", "b_w", "start")


def rehearsed(output: str) -> list[dict[str, Any]]:
    run = Rehearsal(
        streams()["s"].group_by("k").tumbling_window("1 hour").select(n=sq.count()), output, early=output != "final"
    )
    parts = [*(run.arrive(t=1) for _ in range(T.num_rows)), run.finish()]
    return [row for part in parts for row in part.to_pylist()]


HOURLY = "SELECT k, time_bucket(INTERVAL 1 HOUR, ts) AS start, count(*) AS n FROM t GROUP BY ALL"


@case("`+I`, `-D`, and `-U` with `+U`")
def changelog(row: PageRow) -> None:
    counts: Counter[tuple[Any, ...]] = Counter()
    for change in rehearsed("changelog"):
        assert change["kind"] == "insert" or change["new_end"] == change["start"]
        counts[change["k"], change["start"], change["n"]] += 1 if change["kind"] == "insert" else -1
    assert sorted(counts.elements()) == sql(HOURLY, "k", "start", "n") and min(counts.values()) == 0


@case("dynamic query composition")
def composition(row: PageRow) -> None:
    """The changelog of one query is the source of another."""
    log = pa.Table.from_pylist(rehearsed("changelog"))
    rows = sq.physical(log, kind="kind", start="start", end="end", new_end="new_end").to_arrow()
    assert values(rows, "k", "start", "n") == sql(HOURLY, "k", "start", "n")


@case("an upsert sink", "output mode update", "output mode complete")
def upserts(row: PageRow) -> None:
    """The last row of each key is the result so far."""
    rows = {(change["k"], change["start"]): change["n"] for change in rehearsed("upsert") if change["op"] == "upsert"}
    assert sorted((*key, n) for key, n in rows.items()) == sql(HOURLY, "k", "start", "n")


@case("output mode append")
def appended(row: PageRow) -> None:
    rows = sorted((change["k"], change["start"], change["n"]) for change in rehearsed("final"))
    assert rows == sql(HOURLY, "k", "start", "n")


@case("an aggregate function")
def aggregate_function(row: PageRow) -> None:
    spread = eval(row.codes[0].lstrip("@"), streams())("bigint")(lambda values: values.max() - values.min())
    rows = streams()["s"].group_by("k").tumbling_window("1 hour").select(n=spread("v")).to_arrow()
    assert values(rows, "k", "start", "n") == sql(HOURLY.replace("count(*)", "max(v) - min(v)"), "k", "start", "n")


@case("a table function")
def table_function(row: PageRow) -> None:
    @sq.udo("x bigint")
    def doubled(values: Any) -> Any:
        return [(2 * v,) for v in values]

    hourly = streams()["s"].tumbling_window("1 hour")
    start = "time_bucket(INTERVAL 1 HOUR, ts) AS start"
    assert values(hourly.select(doubled("v")).to_arrow(), "start", "x") == sql(
        f"SELECT {start}, 2 * v AS x FROM t", "start", "x"
    )
    lists = hourly.select(x=sq.collect("v")).explode("x").to_arrow()
    assert values(lists, "start", "x") == sql(f"SELECT {start}, v AS x FROM t", "start", "x")


@case("`dropDuplicatesWithinWatermark`")
def duplicates(row: PageRow) -> None:
    rows = eval(next(code for code in row.codes if "distinct_ids" in code), streams()).to_arrow()
    earlier = "SELECT * FROM t e WHERE e.k = t.k AND e.ts < t.ts AND e.ts >= t.ts - INTERVAL 10 MINUTE"
    assert values(rows, "k", "start", "v") == sql(
        f"SELECT k, ts AS start, v FROM t WHERE NOT EXISTS ({earlier})", "k", "start", "v"
    )


@case("rows that a source delivers twice")
def delivered_twice(row: PageRow) -> None:
    rows = sq.points(pa.concat_tables([T, T]), time="ts", id="k").to_arrow()
    assert values(rows, "k", "start", "v") == sql("SELECT DISTINCT k, ts AS start, v FROM t", "k", "start", "v")


@case("`applyInPandasWithState`, `transformWithState`")
def with_state(row: PageRow) -> None:
    @sq.udso("n bigint", initial=0)
    def numbered(n: int, v: int) -> Any:
        return n + 1, [n + 1]

    rows = eval(row.codes[0].replace("...", "numbered('v')"), streams() | {"numbered": numbered}).to_arrow()
    text = "SELECT k, ts AS start, row_number() OVER (PARTITION BY k ORDER BY ts) AS n FROM t"
    assert values(rows, "k", "start", "n") == sql(text, "k", "start", "n")


@case("point, interval and edge events")
def shapes(row: PageRow) -> None:
    """One lifetime, as a row with two times and as two rows with one."""
    stay = pa.table({"a": [1], "b": [5], "k": ["x"]})
    visit = pa.table({"t": [1, 5], "what": ["start", "end"], "k": ["x", "x"]})
    as_interval, as_edges = sq.intervals(stay, start="a", end="b"), sq.edges(visit, time="t", edge="what", key="k")
    assert answer(as_interval) == answer(as_edges) == [(1, 5, "x")]
    assert answer(sq.points(stay.drop_columns("b"), time="a")) == [(1, 2, "x")]


@case("CTIs enqueued by an adapter")
def enqueued(row: PageRow) -> None:
    """A CTI in the input closes the window that ends there, and no event does."""
    events = sq.events([sq.insert(1, 2, v=3), sq.insert(90, 91, v=4), sq.cti(10)], name="s", progress=sq.explicit())
    run = Rehearsal(events.tumbling_window(10).select(n=sq.count()))
    assert run.arrive(s=2).num_rows == 0
    assert values(run.arrive(s=1), "start", "n") == [(0, 1)]


@case(
    "`TumblingWindow`, `HoppingWindow`", "`SnapshotWindow`", "`CountByStartTimeWindow(n)`", "`ToPointEventStream`",
    "`AlterEventDuration`, `AlterEventLifetime`, `ShiftEventTime`", "`ClipEventDuration`", "Trill's `Chop`",
    "Group and Apply, `GroupApply`", "left anti semi join, `WhereNotExists`",
)  # fmt: skip
def lifetimes(row: PageRow) -> None:
    """The code gives the rows of the oracle, which computes them by DuckDB."""
    for code in row.codes:
        rows = eval(code, streams())
        assert answer(rows if isinstance(rows, sq.Stream) else rows.select(n=sq.count())), code
