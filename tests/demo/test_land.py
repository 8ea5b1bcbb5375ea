"""Edges landed as files: order, cut, modification times."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamq.demo.task_edges import EDGES, ddl, land
from streamq.errors import SourceError


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
    paths = land(edges(count), tmp_path / "landed", batches)
    assert len(paths) == files
    assert paths == sorted(paths)
    assert pa.concat_tables(map(pq.read_table, paths)).cast(EDGES) == edges(count)
    sizes = [pq.read_metadata(path).num_rows for path in paths]
    assert max(sizes) - min(sizes) <= 1


def test_modification_times_increase_and_nothing_else_is_left(tmp_path: Path) -> None:
    paths = land(edges(20), tmp_path, 6)
    times = [path.stat().st_mtime_ns // 1_000_000 for path in paths]
    assert times == sorted(set(times))
    assert sorted(tmp_path.iterdir()) == paths


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    land(edges(3), tmp_path, 1)
    with pytest.raises(SourceError, match="Parquet files in it"):
        land(edges(3), tmp_path, 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="cannot write to"):
        land(edges(3), tmp_path / "file" / "below", 1)
    with pytest.raises(ValueError, match="at least 1"):
        land(edges(3), tmp_path / "other", 0)


def test_ddl_names_every_column() -> None:
    assert ddl(EDGES).startswith(
        "ts timestamp, edge string, task_id bigint, stage_id bigint, attempt int, executor string"
    )
    assert "failed boolean" in ddl(EDGES)
