"""What the demo asks, over starts and ends made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamq as sq
from streamq.demo.__main__ import ASCII, BLOCKS, DDL, EDGES, WIDTH, answer_differences, land, strip, stuck

BEGIN = datetime(2024, 5, 1, 8, tzinfo=UTC)


def points(name: str, rows: list[tuple[float, int, int]]) -> sq.Stream:
    """Rows of (seconds from 8:00, task, stage)."""
    columns = {
        "ts": pa.array([BEGIN + timedelta(seconds=at) for at, _, _ in rows], pa.timestamp("us", "UTC")),
        "task_id": pa.array([task for _, task, _ in rows], pa.int64()),
        "stage_id": pa.array([stage for _, _, stage in rows], pa.int64()),
    }
    return sq.points(pa.table(columns), time="ts", name=name)


def test_a_task_is_stuck_that_has_not_ended_in_time() -> None:
    starts = points("starts", [(0, 1, 7), (0.5, 2, 7), (0.6, 3, 7), (2, 4, 8), (2.5, 5, 8)])
    # the first ends in time, the second just too late, the third does not; the fourth ends in time, though after another one
    ends = points("ends", [(1.9, 1, 7), (2.5, 2, 7), (3.9, 4, 8), (3.0, 5, 8)])
    rows = stuck(starts, ends, "2 seconds", "1 second").query.to_arrow().to_pylist()
    found = [
        ((row["start"].replace(tzinfo=UTC) - BEGIN).total_seconds(), row["stage_id"], row["stuck"]) for row in rows
    ]
    assert found == [(0, 7, 2)]


# Answers compared as bags of rows.

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("batch", "streaming", "differences"),
    [
        ([{"k": 1, "v": 0.1 + 0.2}, {"k": 2, "v": None}], [{"k": 2, "v": None}, {"v": 0.3, "k": 1}], []),
        ([{"k": 1}, {"k": 1}], [{"k": 1}, {"k": 3}], ["only in batch: k=1", "only in streaming: k=3"]),
        ([{"k": n} for n in range(4)], [], ["only in batch: k=0", "only in batch: k=1", "... and 2 more"]),
        ([{"t": NOON}], [{"t": NOON.replace(tzinfo=None)}], []),
        ([{"t": NOON}], [{"t": NOON.astimezone(timezone(timedelta(hours=2)))}], []),
    ],
    ids=["order and last bits", "how often", "the first ones", "no zone", "another zone"],
)
def test_answers_are_compared_as_bags_of_rows(batch: Any, streaming: Any, differences: list[str]) -> None:
    assert answer_differences(batch, streaming, most=2) == differences


# Values over time as characters.


def drawn(*values: float, top: float, glyphs: str = BLOCKS) -> str:
    seconds = [BEGIN + timedelta(seconds=n) for n in range(len(values) + 1)]
    return strip(list(zip(seconds, seconds[1:], values, strict=False)), BEGIN, seconds[-1], top, glyphs)


def test_a_strip_grows_to_the_greatest_value_and_shows_a_small_one() -> None:
    text = drawn(*range(9), top=8)
    assert len(text) == WIDTH and "".join(sorted(set(text), key=text.index)) == " ▁▂▃▄▅▆▇█"
    assert drawn(1000, 0, 1, 500, top=1000) == "█" * 10 + " " * 10 + "▁" * 10 + "▄" * 10
    assert drawn(1, 2, top=2, glyphs=ASCII) == "=" * 20 + "@" * 20
    assert set(drawn(*[5.0] * 333, top=5)) == {"█"}, "more values than characters"


# Edges landed as files: order, cut, modification times.


def edges(count: int) -> pa.Table:
    columns = {name: [None] * count for name in EDGES.names}
    columns |= {
        "ts": list(range(count)),
        "edge": ["start"] * count,
        "task_id": list(range(count)),
        "stage_id": [0] * count,
    }
    return pa.table(columns, schema=EDGES)


@pytest.mark.parametrize(("count", "batches", "files"), [(10, 3, 3), (10, 1, 1), (10, 10, 10), (4, 9, 4), (0, 5, 1)])
def test_files_in_order_are_the_table(count: int, batches: int, files: int, tmp_path: Path) -> None:
    assert land(edges(count), tmp_path / "landed", batches) == files
    paths = sorted((tmp_path / "landed").iterdir())
    assert len(paths) == files
    assert pa.concat_tables(map(pq.read_table, paths)).cast(EDGES) == edges(count)
    sizes = [pq.read_metadata(path).num_rows for path in paths]
    assert max(sizes) - min(sizes) <= 1


def test_modification_times_increase(tmp_path: Path) -> None:
    land(edges(20), tmp_path / "landed", 6)
    times = [path.stat().st_mtime_ns // 1_000_000 for path in sorted((tmp_path / "landed").iterdir())]
    assert times == sorted(set(times)) and len(times) == 6


def test_the_file_source_reads_every_column() -> None:
    assert [column.split()[0] for column in DDL.split(", ")] == EDGES.names
