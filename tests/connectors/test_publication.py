"""What a query publishes, read without Spark: rows that are finished, from a start on, or an error that says what is there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import streamq as sq
from streamq.compiler.results import ResultColumns
from streamq.connectors.publication import Description, EventsFrom, publication
from streamq.errors import CheckpointError, PlanError, SourceError
from streamq.run.publication_sink import publication_sink
from streamq.time import INFINITY, MINUS_INFINITY
from tests.each import each

CHANGELOG = pa.schema(
    {"kind": pa.string(), "k": pa.string(), "start": pa.int64(), "end": pa.int64(), "new_end": pa.int64()}
)
Row = tuple[str, str | None, int | None, int | None, int | None]
HISTORY: list[list[Row]] = [
    [
        ("insert", "short", 0, 5, None),
        ("insert", "longer", 1, 8, None),
        ("insert", "gone", 2, 30, None),
        ("insert", "alive", 3, None, None),
        ("cti", None, 8, None, None),
    ],
    [
        ("retract", "longer", 1, 8, 20),
        ("retract", "alive", 3, None, 25),
        ("retract", "gone", 2, 30, 9),
        ("insert", "new", 12, 14, None),
        ("insert", "newer", 13, 14, None),
        ("retract", "newer", 13, 14, 13),
        ("cti", None, 10, None, None),
    ],
]
SNAPSHOT: list[Row] = [
    ("insert", "gone", 2, 30, None),
    ("insert", "alive", 3, None, None),
    ("insert", "longer", 1, 20, None),
    ("retract", "alive", 3, None, 25),
    ("retract", "gone", 2, 30, 2),
    ("insert", "new", 12, 14, None),
    ("insert", "newer", 13, 14, None),
    ("retract", "newer", 13, 14, 13),
    ("cti", None, 10, None, None),
]


def table(rows: list[Row]) -> pa.Table:
    return pa.table(
        [pa.array(column, f.type) for column, f in zip(zip(*rows, strict=True), CHANGELOG, strict=True)], CHANGELOG
    )


def described(store: Path, name: str = "q", shape: str = "interval") -> Path:
    """A folder with a description and nothing else."""
    columns = StructType([StructField("k", StringType())]).jsonValue()
    publication(name, str(store), "publish").describe(Description("1", columns, "integer", shape, "/cp"))
    return store / name


def written(folder: Path, rows: list[Row], number: int, *, finished: bool = True) -> None:
    """A micro-batch as Spark writes it: a file, and then a line about it in the log."""
    path = folder / f"part-{9 - number}.parquet"
    pq.write_table(table(rows), path)
    (folder / "_spark_metadata").mkdir(exist_ok=True)
    if finished:
        line = json.dumps({"path": f"file://{path}", "action": "add"})
        (folder / "_spark_metadata" / str(number)).write_text(f"v1\n{line}\n")


def events(start: str, rows: list[Row], since: int) -> list[Row]:
    return [tuple(row.values()) for row in EventsFrom(start, since).rows(table(rows)).to_pylist()]  # type: ignore[misc]


def test_a_start_leaves_events() -> None:
    """Of a snapshot those that end at the CTI or later, as they change; of the latest those that start there or later."""
    rows = [row for batch in HISTORY for row in batch]
    assert events("snapshot", rows, 10) == SNAPSHOT
    assert events("latest", rows, 10) == SNAPSHOT[5:]
    assert events("snapshot", rows, MINUS_INFINITY) == events("earliest", rows, 10) == rows
    end: list[Row] = [("end", None, None, None, None)]
    assert events("snapshot", rows + end, INFINITY) == [rows[3], ("retract", "alive", 3, None, 3), *end]
    assert events("latest", rows + end, INFINITY) == end


def test_a_publication_is_a_source_without_spark(tmp_path: Path) -> None:
    """Of the files that are finished; a start counts from the CTI that is there when they are read."""
    folder = described(tmp_path)

    def found(start: str) -> list[str]:
        return sorted(sq.subscribe("q", store=str(tmp_path), start=start).to_arrow().column("k").to_pylist())

    assert found("earliest") == found("latest") == found("snapshot") == []
    written(folder, HISTORY[0], 0, finished=False)
    assert found("earliest") == []
    written(folder, HISTORY[0], 0)
    written(folder, HISTORY[1], 1, finished=False)
    assert found("earliest") == ["alive", "gone", "longer", "short"]
    assert (found("latest"), found("snapshot")) == ([], ["alive", "gone", "longer"])
    written(folder, HISTORY[1], 1)
    assert found("earliest") == ["alive", "gone", "longer", "new", "short"]
    assert (found("latest"), found("snapshot")) == (["new"], ["alive", "longer", "new"])
    query = sq.subscribe("q", store=str(tmp_path), start="snapshot").tumbling_window(100).select(n=sq.count())
    assert sq.from_json(query.to_json()).to_pandas()["n"].tolist() == [3]


def test_where_a_stream_has_begun_is_kept(tmp_path: Path) -> None:
    """With the CTI of then; of a publication that has been deleted and begun anew it is refused."""
    folder = described(tmp_path)
    written(folder, HISTORY[0], 0)
    written(folder, HISTORY[1], 1)
    rows = publication("q", str(tmp_path), "subscribe", "snapshot")
    begun = rows.start_position.now()
    assert json.loads(begun) == {"id": "1", "start": "snapshot", "since": 10}
    assert publication("q", str(tmp_path), "subscribe").start_position.rows_from(begun) == replace(rows, since=10)
    with pytest.raises(SourceError, match="'q' in .* is another publication than the one that the checkpoint has read"):
        rows.start_position.rows_from(begun.replace('"1"', '"2"'))


def test_points_stay_points(tmp_path: Path) -> None:
    described(tmp_path, "q", "point")
    assert sq.subscribe("q", store=str(tmp_path)).schema.shape == "point"


def test_a_name_belongs_to_one_run(tmp_path: Path) -> None:
    """Its checkpoint and its columns stay."""
    described(tmp_path)
    one = sq.events([(1, 2, {"k": "a"})])

    def create(query: sq.Stream, checkpoint: str = "/cp") -> None:
        columns = ResultColumns(title="result 1", condition="", source_columns=(), columns=())
        sink = publication_sink(query.schema, "q", str(tmp_path), "publish").placed(columns, checkpoint)
        sink.create(columns, "publish")

    create(one)
    with pytest.raises(CheckpointError, match="'q' is published by another run; its checkpoint is /cp"):
        create(one, "/other")
    for other in (one.rename({"k": "l"}), one.to_points(), one.select(k=1)):
        with pytest.raises(CheckpointError, match="'q' has other columns, or .*; it has k string; interval on integer"):
            create(other)


def test_nothing_there(tmp_path: Path) -> None:
    store = str(tmp_path)
    with pytest.raises(SourceError, match=f"no publication 'q' in {store}; nothing is published there. Start the run"):
        sq.subscribe("q", store=store)
    described(tmp_path, "other")
    with pytest.raises(SourceError, match=f"no publication 'q' in {store}; there are: other"):
        sq.subscribe("q", store=store)
    (tmp_path / "other" / "_publication.json").write_text("{")
    with pytest.raises(SourceError, match="other/_publication.json is not read"):
        sq.subscribe("other", store=store)


def refused(**how: Any) -> str:
    with pytest.raises(PlanError) as error:
        sq.subscribe(**{"name": "q", "store": "s", **how})
    return str(error.value)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "a/b"}, "subscribe: not a name for a publication; found 'a/b'"),
    ({"name": "_a"}, "subscribe: not a name for a publication; found '_a'"),
    ({"name": 3}, "subscribe: not a name for a publication; found 3"),
    ({"store": 3}, "subscribe: store is the path of a folder; found 3"),
    ({"start": "now"}, "subscribe: start is 'earliest', 'latest' or 'snapshot'; found 'now'"),
    ({"at_once": 0}, "subscribe: at_once is a number of bytes, at least 1; found 0"),
]


@each(WRONG)
def test_arguments(case: tuple[dict[str, Any], str]) -> None:
    how, wrong = case
    assert refused(**how).startswith(wrong), refused(**how)
