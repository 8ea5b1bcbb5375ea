"""What the demo asks, over starts and ends made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

import streamq as sq
from streamq.demo.queries import stuck

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
