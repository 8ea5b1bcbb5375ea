"""Folders of Parquet files: their micro-batches are known from their names, or from the log of Spark's sink."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamq.errors import SourceError
from streamq.testing.validator import StreamViolation, check_stream, find_breaches
from tests.testing.test_validator import broken, changelog

MADE, PROMISED, GONE = (
    changelog(("insert", 1, 5, None)),
    changelog(("cti", 4, None, None)),
    changelog(("retract", 1, 5, 2)),
)


def test_folders_of_micro_batches_tell_the_order(tmp_path: Path) -> None:
    for number, table in ((2, PROMISED), (10, GONE), (1, MADE)):
        (tmp_path / f"streamq_batch={number}").mkdir()
        pq.write_table(table, tmp_path / f"streamq_batch={number}" / "part-0.parquet")
    assert broken(tmp_path, order="chain") == [("cti", find(tmp_path, "retract"))]
    assert "of micro-batch 10" in str(find_breaches(str(tmp_path)))


def find(folder: Path, kind: str) -> int:
    """Where the row of a kind is read."""
    found = pq.read_table(folder).column("kind").to_pylist()
    return found.index(kind)


def log(folder: Path, entry: str, *files: str) -> None:
    lines = [f'{{"path":"file://{folder}/{name}","isDir":false,"modificationTime":1,"action":"add"}}' for name in files]
    (folder / "_spark_metadata").mkdir(exist_ok=True)
    (folder / "_spark_metadata" / entry).write_text("\n".join(["v1", *lines]))


def test_the_log_of_a_file_sink_tells_the_order_and_what_counts(tmp_path: Path) -> None:
    for name, table in (("c", MADE), ("b", PROMISED), ("a", GONE), ("left over", GONE)):
        pq.write_table(table, tmp_path / name)
    log(tmp_path, "0", "c")
    log(tmp_path, "1", "b")
    log(tmp_path, "2.compact", "b", "a", "c")
    (tmp_path / "_spark_metadata" / ".2.compact.crc").write_bytes(b"\0")
    assert broken(tmp_path, order="chain") == [("cti", 2)]
    (tmp_path / "_spark_metadata" / "0").unlink()
    assert broken(tmp_path, ctis=False) == []
    with pytest.raises(SourceError, match="rows without an order cannot be judged for CTIs.*batch=.*ctis=False"):
        check_stream(tmp_path)
    with pytest.raises(SourceError, match="cannot be judged for order"):
        check_stream(tmp_path, order="chain")


def test_a_folder_without_micro_batches_is_a_bag(tmp_path: Path) -> None:
    pq.write_table(pa.concat_tables([GONE, MADE]), tmp_path / "part-0.parquet")
    check_stream(tmp_path)
    pq.write_table(GONE, tmp_path / "part-1.parquet")
    assert [rule for rule, _ in broken(tmp_path)] == ["match"]


def test_final_rows_are_told_to_be_inserts(tmp_path: Path) -> None:
    pq.write_table(pa.table({"start": [1, 2], "end": [3, 4], "op": ["a", "b"]}), tmp_path / "part-0.parquet")
    assert str(check_stream(tmp_path)) == "2 rows, all read as inserts (no column 'kind'), no breach"
    assert str(check_stream(tmp_path, kind=None)) == "2 rows, no breach"
    with pytest.raises(StreamViolation, match=r"2 breaches in 2 rows, all read as inserts \(no column 'kind'\)"):
        check_stream(tmp_path, shape="point")


def test_folders_that_no_sink_has_written(tmp_path: Path) -> None:
    sink, state = tmp_path / "busy", tmp_path / "checkpoint" / "commits"
    state.mkdir(parents=True)
    with pytest.raises(
        SourceError, match="a folder without Parquet files; found .*. Give the folder of one Parquet sink"
    ):
        check_stream(tmp_path)
    (state / "0").write_text("v1")
    with pytest.raises(SourceError, match="not all files in it are Parquet; found .* of one Parquet sink.$"):
        check_stream(tmp_path)
    sink.mkdir()
    pq.write_table(MADE, sink / "c.parquet")
    with pytest.raises(SourceError, match="not all files in it are Parquet; .* of one Parquet sink: '.*busy'.$"):
        check_stream(tmp_path)
    log(sink, "0", "c.parquet")
    with pytest.raises(
        SourceError, match="a folder with the folder of a sink in it; .* of one Parquet sink: '.*busy'.$"
    ):
        check_stream(tmp_path)
    check_stream(sink)
    check_stream(sink / "c.parquet")
    with pytest.raises(SourceError, match="not all files in it are Parquet"):
        check_stream(state / "0")
