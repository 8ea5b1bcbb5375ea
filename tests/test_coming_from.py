"""Each row of docs/coming_from.md gives the rows that it says: those of SQL, which DuckDB runs, or a test says the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import streamq as sq
from streamq.run.rehearsal import Rehearsal
from tests.coming_from import ON_SPARK, ZONES, T, W, page_rows, streams, values
from tests.judged import answer

TESTS = Path(__file__).parent


def sql(text: str, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a query over the tables ``t``, ``b`` and ``zones``."""
    connection = duckdb.connect()
    connection.sql("SET timezone = 'UTC'")
    for name, rows in {"t": T, "b": W, "zones": ZONES}.items():
        connection.register(name, rows)
    return values(connection.sql(text).to_arrow_table(), *columns)


GRID = "(SELECT unnest(generate_series(TIMESTAMPTZ '2024-01-01 08:00', '2024-01-01 13:00', INTERVAL {step} MINUTE)) AS start)"
HOPS = f"t JOIN {GRID.format(step=15)} ON ts >= start AND ts < start + INTERVAL 1 HOUR"
QUARTER = "time_bucket(INTERVAL 15 MINUTE, ts)"
GAPS = "SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) < INTERVAL 5 MINUTE THEN 0 ELSE 1 END AS first FROM t"
SESSIONS = f"SELECT *, sum(first) OVER (PARTITION BY k ORDER BY ts) AS i FROM ({GAPS})"
PRECEDING = "`SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS 2 PRECEDING)`"
TOTALS = "SELECT k, ts AS start, v, {code} AS total FROM t"
THIRD = "QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts) >= 3"
WITHIN = "a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' MINUTE"
BEFORE = "SELECT * FROM t e WHERE e.k = t.k AND e.ts < t.ts AND e.ts >= t.ts - INTERVAL 10 MINUTE"

BY_SQL: dict[str, tuple[str, str]] = {
    "`TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '15' MINUTE)`": (
        "start n",
        f"SELECT {QUARTER} AS start, count(*) AS n FROM t GROUP BY ALL",
    ),
    "`HOP(TABLE t, DESCRIPTOR(ts), slide, size)`": (
        "start n",
        f"SELECT start, count(*) AS n FROM {HOPS} GROUP BY ALL",
    ),
    "`SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), gap)`": (
        "k start end n",
        f'SELECT k, min(ts) AS start, max(ts) + INTERVAL 5 MINUTE AS "end", count(*) AS n FROM ({SESSIONS}) GROUP BY k, i',
    ),
    "`GROUP BY window_start, window_end, k`": (
        "k start end n",
        f'SELECT k, {QUARTER} AS start, start + INTERVAL 15 MINUTE AS "end", count(*) AS n FROM t GROUP BY ALL',
    ),
    f"{PRECEDING}, from the third row on": (
        "k start v total",
        f"SELECT k, ts + INTERVAL 1 MICROSECOND AS start, v, {{code}} AS total FROM t {THIRD}",
    ),
    f"{PRECEDING}, the first two rows too": ("k start v total", TOTALS),
    "`SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE INTERVAL '10' MINUTE PRECEDING)`": ("k start v total", TOTALS),
    f"an interval join: `{WITHIN}`": ("k v w start", "SELECT a.k, v, w, b.ts AS start FROM t a JOIN b ON {code}"),
    "the same as a `LEFT JOIN`": ("k v w start", f"SELECT a.k, v, w, a.ts AS start FROM t a {{code}} b ON {WITHIN}"),
    "a join `FOR SYSTEM_TIME AS OF orders.ts`": (
        "k start v w",
        "SELECT a.k, a.ts AS start, v, w FROM t a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts",
    ),
    "a lookup join": ("k start v city", "SELECT t.k, ts AS start, v, city FROM t JOIN zones ON t.k = zones.k"),
    "`MATCH_RECOGNIZE`": (
        "a_k a_v b_k b_w start",
        "SELECT a.k AS a_k, a.v AS a_v, b.k AS b_k, b.w AS b_w, b.ts AS start "
        "FROM t a JOIN b ON b.ts > a.ts AND b.ts <= a.ts + INTERVAL 10 MINUTE",
    ),
    "`dropDuplicatesWithinWatermark`": (
        "k start v",
        f"SELECT k, ts AS start, v FROM t WHERE NOT EXISTS ({BEFORE})",
    ),
}
"""Rows that SQL answers: the columns to compare and the query, in which ``{code}`` is the code of the first column."""


@pytest.mark.parametrize("theirs", BY_SQL)
def test_a_row_gives_the_rows_of_sql(theirs: str) -> None:
    """A row's windows are counted."""
    columns, text = BY_SQL[theirs]
    row = page_rows()[theirs]
    rows = row.result if isinstance(row.result, sq.Stream) else row.result.select(n=sq.count())
    wanted = sql(text.format(code=row.their_code), *columns.split())
    assert wanted
    assert values(rows.to_arrow(), *columns.split()) == wanted


SHOWN_BY = {
    "idle sources: `table.exec.source.idle-timeout`": "test_policies.py::test_where_all_are_silent_no_delay_is_waited_for",
    "a savepoint and a changed job": (
        "spark/test_changed_query.py"
        "::test_a_migration_is_repeated_until_it_is_done_and_its_run_goes_on_where_the_old_one_stood"
    ),
    **dict.fromkeys(
        ("`foreachBatch`", "an upsert sink", "output mode update", "output mode complete"),
        "spark/test_egress.py::test_upserts_keep_a_table",
    ),
    **dict.fromkeys(
        ("`+I`, `-D`, and `-U` with `+U`", "dynamic query composition"),
        "spark/test_egress.py::test_a_changelog_is_read_back",
    ),
    "output mode append": "spark/test_egress.py::test_every_sink_has_the_same",
    "the one watermark of a query": (
        "test_diagnosis.py::test_a_window_names_its_source_the_row_and_the_calls_that_release_it"
    ),
    "input and output policies: clip, align, point": (
        "operators/test_window_lifetimes.py::test_the_window_is_known_wherever_the_row_lives"
    ),
    **dict.fromkeys(
        ("an aggregate function", "a table function", "`CepAggregate`, `CepTimeSensitiveOperator`"),
        "laws/test_window_modules.py::test_every_choice",
    ),
    **dict.fromkeys(
        ("a user-defined stream operator", "`applyInPandasWithState`, `transformWithState`"),
        "operators/test_scan.py::test_each_group_has_a_state_of_its_own",
    ),
    **dict.fromkeys(
        ("rows that a source delivers twice", "point, interval and edge events"),
        "test_host_cases.py::test_all_rows_at_once",
    ),
    "CTIs enqueued by an adapter": "test_golden_cases.py::test_items_arrive_one_by_one",
    "`AdvanceTimeSettings`, Trill's `PeriodicPunctuationPolicy`": "test_policies.py::test_progress_in_steps",
    "`AdvanceTimePolicy.Adjust` and `Drop`, Trill's `DisorderPolicy`": (
        "runtime/test_late.py::test_what_is_adjusted_is_what_is_left_of_it"
    ),
    "the event flow debugger": (
        "tracing/test_trace.py"
        "::test_a_row_is_there_because_of_its_events_and_one_that_is_missing_because_of_what_prevents_it"
    ),
}
"""The rows whose right side is no query that SQL could answer: the file and the test that show each."""

WATERMARKS = {
    "`WATERMARK FOR ts AS ts - INTERVAL '5' SECOND`": "5 SECOND",
    '`df.withWatermark("ts", "10 minutes")`': "10 MINUTE",
}
CUMULATE = "`CUMULATE(TABLE t, DESCRIPTOR(ts), step, size)`"
BEST = tuple(f"`{rank}() OVER (PARTITION BY window_start, k ORDER BY v DESC) <= 3`" for rank in ("ROW_NUMBER", "RANK"))
JUDGED = (
    "`TumblingWindow`, `HoppingWindow`", "`SnapshotWindow`", "`CountByStartTimeWindow(n)`", "`ToPointEventStream`",
    "`AlterEventDuration`, `AlterEventLifetime`, `ShiftEventTime`", "`ClipEventDuration`", "Trill's `Chop`",
    "Group and Apply, `GroupApply`", "left anti semi join, `WhereNotExists`",
)  # fmt: skip
"""The rows whose code gives the rows of the oracle, which computes them by DuckDB."""


def test_every_row_is_tested() -> None:
    rows = [*BY_SQL, *ON_SPARK, *SHOWN_BY, *WATERMARKS, CUMULATE, *BEST, *JUDGED]
    assert sorted(rows) == sorted(page_rows())
    for shown in SHOWN_BY.values():
        file, _, name = shown.partition("::")
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), name


@pytest.mark.parametrize("theirs", WATERMARKS)
def test_a_row_is_late_if_it_lies_more_than_the_delay_behind_the_greatest_time_before_it(theirs: str) -> None:
    before = "max(ts) OVER (ORDER BY arrival ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    arrivals = f"SELECT *, {before} AS m FROM (SELECT *, row_number() OVER () AS arrival FROM t)"
    ((late,),) = sql(f"SELECT count(*) AS n FROM ({arrivals}) WHERE ts < m - INTERVAL {WATERMARKS[theirs]}", "n")
    run = Rehearsal(page_rows()[theirs].result.snapshot_window().select(n=sq.count()))
    for _ in range(T.num_rows):
        run.arrive(**{next(iter(run._named)): 1})
    assert sum(run.late.values()) == late > 0


def test_cumulating_windows() -> None:
    """Flink's windows, but for those of the last period that begin to grow behind the last event."""
    rows = values(page_rows()[CUMULATE].result.select(n=sq.count()).to_arrow(), "start", "end", "n")
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


@pytest.mark.parametrize("theirs", BEST)
def test_the_best_rows(theirs: str) -> None:
    """Over four events of a window and key, of which three are equal and share rank 2."""
    row, rows = page_rows()[theirs], streams()
    rows["s"] = rows["s"].union(rows["s"].where(sq.col("v") < 3)).where(sq.start() < sq.lit(T["ts"][3].as_py()))
    twice = "(SELECT * FROM t UNION ALL SELECT * FROM t WHERE v < 3)"
    source = (
        f"(SELECT *, time_bucket(INTERVAL 15 MINUTE, ts) AS window_start FROM {twice} WHERE ts < '2024-01-01 10:30')"
    )
    wanted = sql(f"SELECT k, window_start AS start, v FROM {source} QUALIFY {row.their_code}", "k", "start", "v")
    assert values(eval(row.codes[0], rows).to_arrow(), "k", "start", "v") == wanted


@pytest.mark.parametrize("theirs", JUDGED)
def test_a_row_gives_the_rows_of_the_oracle(theirs: str) -> None:
    for code in page_rows()[theirs].codes:
        rows = eval(code, streams())
        assert answer(rows if isinstance(rows, sq.Stream) else rows.select(n=sq.count())), code
