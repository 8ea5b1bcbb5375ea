"""Tables of Delta without Spark: changes, plans in JSON, and what is no table."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import streamq as sq
from streamq.connectors.iceberg_catalog import iceberg_place
from streamq.errors import NeedsSpark, PlanError, SourceError

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
TRIPS = pa.table(
    {"at": pa.array([NOON, NOON, None], pa.timestamp("us", "UTC")), "k": ["a", "b", None], "n": [1, None, 3]}
)


def rates(folder: Path) -> str:
    """A table with a change feed: a version inserts two rows, one updates, one deletes."""
    rows = pa.table({"currency": ["EUR", "USD"], "rate": [1.0, 2.0]})
    write_deltalake(str(folder), rows, configuration={"delta.enableChangeDataFeed": "true"})
    table = DeltaTable(str(folder))
    table.update(updates={"rate": "3.0"}, predicate="currency = 'USD'")
    table.delete("currency = 'EUR'")
    return str(folder)


def configured_lake(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a table in a catalog in a file, which pyiceberg's configuration has."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{folder}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{folder}")
    return "lake.db.trips"


def test_changes_are_the_history_of_each_row(tmp_path: Path) -> None:
    feed = sq.table("delta", rates(tmp_path), changes=True)
    history = sq.changes(feed, key="currency")
    assert history.columns == ["currency", "rate"]
    rows = history.to_arrow().to_pylist()
    versions = {(row["currency"], row["rate"]): (row["start"], row["end"]) for row in rows}
    assert {*versions} == {("EUR", 1.0), ("USD", 2.0), ("USD", 3.0)}
    assert versions["USD", 2.0][1] == versions["USD", 3.0][0] and versions["USD", 3.0][1] is None
    assert versions["EUR", 1.0][0] == versions["USD", 2.0][0] and versions["EUR", 1.0][1] > versions["USD", 3.0][0]
    since = {"startingVersion": "1"}
    late = sq.changes(sq.table("delta", str(tmp_path), changes=True, options=since), key="currency", invalid="drop")
    assert [row["rate"] for row in late.to_arrow().to_pylist()] == [3.0]


def test_a_plan_in_json_holds_the_table(tmp_path: Path) -> None:
    options = {"startingVersion": "0"}
    history = sq.changes(sq.table("delta", rates(tmp_path), changes=True, options=options), key="currency")
    again = sq.from_json(history.to_json())
    assert again.to_json() == history.to_json() and again.to_arrow().equals(history.to_arrow())
    named = sq.reading._connectors({"tables": {"t": sq.table("spark_catalog.default.t").to_json()}})
    assert named == {"t": sq.table("spark_catalog.default.t")}
    with pytest.raises(PlanError, match="from_json: not a table of a plan"):
        sq.reading._connectors({"tables": {"t": {"connector": "table", "format": "delta"}}})


def test_pyiceberg_reads_a_table_of_a_catalog_that_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = configured_lake(tmp_path, monkeypatch)
    catalog = iceberg_place(lake, {}).catalog()
    catalog.create_namespace("db")
    stored = catalog.create_table("db.trips", TRIPS.schema)
    stored.append(TRIPS)
    answers = [
        sq.points(rows, time="at", invalid="drop").tumbling_window("1 hour").select(n=sq.sum("n")).to_arrow()
        for rows in (TRIPS, sq.table("iceberg", lake))
    ]
    assert answers[0].num_rows == 1 and answers[1].equals(answers[0])
    stored.delete("k = 'a'")
    trips = sq.points(sq.table("iceberg", lake), time="at", invalid="drop")
    assert trips.to_arrow().column("k").to_pylist() == ["b"]
    assert sq.from_json(trips.to_json()).to_arrow().equals(trips.to_arrow())
    with pytest.raises(SourceError, match="table: lake.db.nowhere is not read; Table does not exist: db.nowhere"):
        sq.points(sq.table("iceberg", "lake.db.nowhere"), time="at")
    with pytest.raises(NeedsSpark, match="show: option 'branch' of a table. Spark reads it"):
        sq.points(sq.table("iceberg", lake, options={"branch": "b"}), time="at").show()


def test_what_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"table: {tmp_path} is not read; .*"):
        sq.points(sq.table("delta", str(tmp_path)), time="at")
    write_deltalake(str(tmp_path), TRIPS)
    feed = sq.changes(sq.table("delta", str(tmp_path), changes=True), key="k")
    with pytest.raises(SourceError, match="show: .* is not read; .* Changes are there where the table has"):
        feed.show()
    with pytest.raises(NeedsSpark, match="show: option 'versionAsOf' of a table. Spark reads it"):
        sq.points(sq.table("delta", str(tmp_path), options={"versionAsOf": "0"}), time="at").show()
    with pytest.raises(PlanError, match="table: changes=True is of a table of Delta's or Iceberg's; found 'hudi'"):
        sq.table("hudi", "db.t", changes=True)
    with pytest.raises(PlanError, match="table: path is a text; found 7"):
        sq.table("delta", 7)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="table: no format 'detla'. Did you mean 'delta'?"):
        sq.table("detla", "x")
    with pytest.raises(PlanError, match="table: options are texts; found 'x': 1"):
        sq.table("delta", "x", options={"x": 1})  # type: ignore[dict-item]
