"""Tables of Delta and of a catalog on Spark: in a batch and as a stream, and what a session without the format says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import streamq as sq
from streamq.errors import SessionError, SourceError
from tests.connectors.test_outside_table import TRIPS, configured_lake, rates


def test_deltalake_reads_a_batch_where_the_session_lacks_the_format(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "trips"), TRIPS)
    trips = sq.points(sq.table("delta", str(tmp_path / "trips")), time="at", invalid="drop")
    assert trips.to_df().toArrow().sort_by("k").to_pylist() == trips.to_arrow().to_pylist()
    history = sq.changes(sq.table("delta", rates(tmp_path / "rates"), changes=True), key="currency")
    assert history.to_df().toArrow().sort_by("rate").to_pylist() == history.to_arrow().sort_by("rate").to_pylist()


def test_pyiceberg_reads_a_batch_where_the_session_lacks_the_format(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers get the configuration from the program."""
    lake = sq.table("iceberg", configured_lake(tmp_path, monkeypatch))
    assert lake.iceberg is not None
    catalog = lake.iceberg.catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.trips", TRIPS.schema).append(TRIPS)
    trips = sq.points(lake, time="at", invalid="drop")
    assert trips.to_df().toArrow().sort_by("k").to_pylist() == trips.to_arrow().to_pylist()


def test_a_stream_without_the_format_is_refused_before_it_starts(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "trips"), TRIPS)
    for one in (sq.table("delta", str(tmp_path / "trips")), sq.table("iceberg", "db.trips")):
        wrong = f"table: Spark has no format '{one.format}'; .* Start Spark with the format's package, of .*_4.1_2.13"
        with pytest.raises(SessionError, match=wrong.replace("_4.1", ".4.1")):
            sq.points(one, time="at").run(sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp"))


def test_a_stream_meets_a_table_of_deltas_as_it_is_now(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    people = str(tmp_path / "people")
    write_deltalake(people, pa.table({"k": ["a"], "name": ["Anna"]}))
    spark.range(1, 2).selectExpr("id AS at", "'a' AS k").write.parquet(str(tmp_path / "in"))
    query = sq.points(sq.files(tmp_path / "in"), time="at").join_table(
        sq.table("delta", people), on="k", refresh="each batch"
    )
    run = query.run(sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp"))
    try:
        run.query.processAllAvailable()
        DeltaTable(people).update(updates={"name": "'Ada'"}, predicate="k = 'a'")
        spark.range(2, 3).selectExpr("id AS at", "'a' AS k").write.mode("append").parquet(str(tmp_path / "in"))
        run.query.processAllAvailable()
    finally:
        run.stop()
    rows = sq.files(tmp_path / "out").in_memory("show").sort_by("start")
    assert rows.column("name").to_pylist() == ["Anna", "Ada"]


def test_a_table_that_is_not_there_is_an_error_of_the_users_line(spark: SparkSession) -> None:
    with pytest.raises(
        SourceError, match=r"table: spark_catalog.default.nowhere is not read; \[TABLE_OR_VIEW_NOT_FOUND\]"
    ):
        sq.points(sq.table("spark_catalog.default.nowhere"), time="at")


def test_a_table_of_a_catalog_is_a_batch_and_a_stream(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    spark.range(1, 4).selectExpr("id AS at").write.saveAsTable("outside_trips", path=str(tmp_path / "in"))
    try:
        trips = sq.points(sq.table("spark_catalog.default.outside_trips"), time="at")
        expected = [(1, 2), (2, 3), (3, 4)]
        assert sorted(map(tuple, trips.to_df().collect())) == expected
        trips.run(sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp"), trigger="available_now", finish=True)
        assert sorted(map(tuple, spark.read.parquet(str(tmp_path / "out")).collect())) == expected
    finally:
        spark.sql("DROP TABLE outside_trips")
