"""Every form in which a physical stream may be given, and what is none."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamq as sq
from streamq.errors import PlanError, SourceError
from streamq.testing.validator import StreamViolation, check_stream, find_breaches
from tests.testing.test_validator import broken, changelog


def test_forms_of_the_same_rows() -> None:
    at = dt.datetime(2024, 3, 9, tzinfo=dt.UTC)
    hour = dt.timedelta(hours=1)
    items = [sq.insert(at, None, v=1), sq.cti(at + 3 * hour), sq.retract(at, None, at + 2 * hour, v=1)]
    rows = [{"kind": i.kind, "start": i.start, "end": i.end, "new_end": i.new_end, **dict(i.payload)} for i in items]
    naive = [{n: v.replace(tzinfo=None) if isinstance(v, dt.datetime) else v for n, v in row.items()} for row in rows]
    ticks = [{n: int(v.timestamp()) if isinstance(v, dt.datetime) else v for n, v in row.items()} for row in rows]
    frame = pd.DataFrame(ticks)
    assert frame["end"].isna().all()
    assert frame["new_end"].dtype == np.float64
    zoned = pd.DataFrame(rows).astype({"start": "datetime64[s, America/New_York]", "kind": "category"})
    seconds = pa.Table.from_pylist(naive).set_column(
        1, "start", pa.array([r["start"] for r in naive], pa.timestamp("s"))
    )
    for form in (items, iter(items), rows, naive, ticks, frame, frame.to_dict("records"), zoned, seconds,
                 pa.Table.from_pylist(rows), pd.DataFrame(rows).to_dict("records")):  # fmt: skip
        assert broken(form) == [("cti", 2)]


def test_dates_are_their_midnights() -> None:
    days = [dt.date(2024, 3, n) for n in (1, 2, 3)]
    table = pa.table({"start": days[:2], "end": days[1:]})
    check_stream(table)
    assert broken([(days[1], days[0])]) == [("item", 0)]


def test_a_history_is_inserts_whatever_its_payload() -> None:
    table = pa.table({"start": [1, 2], "end": [3, None], "kind": ["a", "b"], "new_end": ["x", "y"]})
    assert broken(table.drop_columns("new_end")) == [("item", 0), ("item", 1)]
    check_stream(table, kind=None)
    check_stream(table.drop_columns(["kind", "new_end"]))
    check_stream(table.slice(0, 0), kind=None)
    check_stream([])


def test_columns_may_have_other_names() -> None:
    rows = [{"op": "insert", "le": 1, "re": 9, "to": None}, {"op": "retract", "le": 1, "re": 8, "to": 3}]
    assert broken(rows, kind="op", start="le", end="re", new_end="to") == [("match", 1)]


@pytest.mark.parametrize(
    ("inserted", "taken"),
    [(float("nan"), "NaN"), (True, 1), (np.True_, 1), (np.float32("nan"), "NaN"), ([float("nan")], ["NaN"])],
)
def test_values_of_another_kind_are_other_values(inserted: Any, taken: Any) -> None:
    def rows(value: Any) -> list[dict[str, Any]]:
        made = {"kind": "insert", "start": 1, "end": 9, "new_end": None, "v": inserted}
        return [made, {"kind": "retract", "start": 1, "end": 9, "new_end": 3, "v": value}]

    assert broken(rows(taken)) == [("match", 1)]
    assert broken(rows(inserted)) == []


def test_zeros_are_equal() -> None:
    made = {"kind": "insert", "start": 1, "end": 9, "new_end": None, "v": 0.0}
    assert broken([made, {**made, "kind": "retract", "new_end": 3, "v": -0.0}]) == []


@pytest.mark.parametrize(
    ("rows", "declared", "message"),
    [
        (
            [{"kind": "insert", "at": 1, "end": 2}],
            {},
            "no column 'start'; there are: 'kind', 'at', 'end'. Name it: start=",
        ),
        ([{"kind": "retract", "start": 1, "end": 2}], {}, "no column 'new_end'"),
        ([{"new_end": 1, "start": 1, "end": 2}], {}, "no column 'kind'"),
        ([{"start": 1, "end": 2}], {"kind": "op"}, "no column 'op'"),
        ([{"start": 1, "end": 2}], {"id": "n"}, "no column 'n'.*id="),
        ([{"start": 1, "end": 2}], {"batch": "n"}, "no column 'n'.*batch="),
        ([{"start": 1, "end": 2}], {"shape": "edge", "key": "k"}, "no column 'k'.*key="),
        ([{"start": 1, "end": 2.5}], {}, "column 'end' does not hold times; found 2.5"),
        (pd.DataFrame({"start": [1.5], "end": [2]}), {}, "column 'start' does not hold times; found 1.5"),
        ([{"start": "1", "end": 2}], {}, "column 'start' does not hold times; found '1'"),
        (pa.table({"start": ["1"], "end": [2]}), {}, "column 'start' does not hold times; found '1'"),
        ([{"start": True, "end": 2}], {}, "does not hold times"),
        ([{"start": 2**70, "end": None}], {}, "does not hold times"),
        ([{"start": 1, "end": dt.date(2024, 1, 1)}], {}, "must all be timestamps or all be integers"),
        ([(1, 2), (dt.datetime(2024, 1, 1), None)], {}, "timestamps and integers"),
        ([{"start": 1, "end": 2, "n": None}], {"batch": "n"}, "column 'n' of micro-batches has NULLs"),
        ([{"start": 1, "end": 2, "n": "9"}], {"batch": "n"}, "column 'n' does not hold times"),
        ([7], {}, "not a row; found 7"),
        (7, {}, "not a physical stream; found int"),
        ("nowhere", {}, "no folder 'nowhere'"),
    ],
)
def test_what_cannot_be_read_is_an_error(rows: Any, declared: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        check_stream(rows, **declared)


@pytest.mark.parametrize("declared", [{"shape": "points"}, {"order": "chained"}, {"shape": "signal"}])
def test_wrong_arguments_are_an_error(declared: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="check_stream: "):
        check_stream([(1, 2)], **declared)


# folders of Parquet files: their micro-batches are known from their names, or from the log of Spark's sink


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
