"""Tables of Delta and Iceberg on PySpark 4.1, whose packages they fit; make old runs this."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import streamq as sq
from streamq.connectors.outside_table import JARS
from streamq.errors import SourceError
from tests.connectors.test_outside_table import TRIPS, rates
from tests.targets import IcebergTarget, in_folder

CONFIG = {
    "spark.jars.packages": ",".join(JARS.values()),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    assert pyspark.__version__.startswith("4.1."), f"these packages are for PySpark 4.1; found {pyspark.__version__}"
    places = {
        "spark.sql.catalog.ice.warehouse": str(tmp_path_factory.mktemp("ice")),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    session = sq.session(master="local[2]", config={**CONFIG, **places, "spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


def rows_of(query: sq.Stream, folder: Path) -> list[tuple[object, ...]]:
    """Run a query as a stream to its end, and return its rows."""
    out = folder / "out"
    query.run(sink=str(out), checkpoint=str(folder / "cp"), trigger="available_now", finish=True)
    return sorted(map(tuple, SparkSession.active().read.parquet(str(out)).collect()), key=repr)


def test_delta_is_the_same_in_process_in_a_batch_and_as_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "trips"), TRIPS)
    trips = sq.points(sq.table("delta", str(tmp_path / "trips")), time="at", invalid="drop")
    query = trips.group_by("k").tumbling_window("1 hour").select(n=sq.count())
    expected = sorted(map(tuple, query.to_df().collect()), key=repr)
    assert query.to_df().toArrow().sort_by("k").to_pylist() == query.to_arrow().sort_by("k").to_pylist()
    assert len(expected) == 2 and rows_of(query, tmp_path) == expected


def test_a_change_feed_of_delta_is_a_history(spark: SparkSession, tmp_path: Path) -> None:
    history = sq.changes(sq.table("delta", rates(tmp_path / "rates"), changes=True), key="currency")
    expected = sorted(map(tuple, history.to_df().collect()), key=repr)
    assert history.to_df().toArrow().sort_by("rate").to_pylist() == history.to_arrow().sort_by("rate").to_pylist()
    assert len(expected) == 3 and rows_of(history, tmp_path) == expected


def test_a_stream_meets_the_newest_version_of_a_table_of_deltas(spark: SparkSession, tmp_path: Path) -> None:
    people, trips = tmp_path / "people", tmp_path / "in"
    spark.sql("SELECT 'a' AS k, 'Anna' AS name").write.format("delta").save(str(people))
    spark.sql("SELECT 1L AS at, 'a' AS k").write.parquet(str(trips))
    query = sq.points(sq.files(trips), time="at").join_table(sq.table("delta", str(people)), on="k")
    run = query.run(sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp"))
    try:
        run.query.processAllAvailable()
        DeltaTable(str(people)).update(updates={"name": "'Ada'"}, predicate="k = 'a'")
        spark.sql("SELECT 2L AS at, 'a' AS k").write.mode("append").parquet(str(trips))
        run.query.processAllAvailable()
    finally:
        run.stop()
    rows = sq.files(tmp_path / "out").in_memory("show").sort_by("start")
    assert rows.column("name").to_pylist() == ["Anna", "Ada"]


def test_iceberg_and_names_of_catalogs(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("CREATE TABLE ice.db.trips (at BIGINT, k STRING) USING iceberg")
    spark.sql("INSERT INTO ice.db.trips VALUES (1, 'a'), (2, 'b')")
    for number, table in enumerate((sq.table("iceberg", "ice.db.trips"), sq.table("ice.db.trips"))):
        trips = sq.points(table, time="at")
        assert sorted(map(tuple, trips.to_df().collect())) == [("a", 1, 2), ("b", 2, 3)]
        (tmp_path / str(number)).mkdir()
        assert rows_of(trips, tmp_path / str(number)) == [("a", 1, 2), ("b", 2, 3)]


def test_changes_of_iceberg_are_a_history(spark: SparkSession, tmp_path: Path) -> None:
    """Of a file that is written anew only rows that changed are changes; streams of them there are none."""
    spark.sql("CREATE TABLE ice.db.rates (currency STRING, rate DOUBLE) USING iceberg")
    spark.sql("INSERT INTO ice.db.rates VALUES ('EUR', 1.0), ('USD', 2.0), ('GBP', 5.0)")
    spark.sql("UPDATE ice.db.rates SET rate = 3.0 WHERE currency = 'USD'")
    spark.sql("DELETE FROM ice.db.rates WHERE currency = 'EUR'")
    feed = sq.table("iceberg", "ice.db.rates", changes=True)
    history = sq.changes(feed, key="currency")
    assert history.columns == ["currency", "rate"]
    rows = {(row["currency"], row["rate"]): (row["start"], row["end"]) for row in history.to_df().toArrow().to_pylist()}
    assert {*rows} == {("EUR", 1.0), ("USD", 2.0), ("USD", 3.0), ("GBP", 5.0)}
    assert rows["USD", 2.0][1] == rows["USD", 3.0][0] and rows["USD", 3.0][1] is None is rows["GBP", 5.0][1]
    assert rows["EUR", 1.0][1] > rows["USD", 3.0][0] > rows["EUR", 1.0][0] == rows["GBP", 5.0][0]
    second = spark.sql("SELECT snapshot_id FROM ice.db.rates.snapshots ORDER BY committed_at").collect()[1][0]
    since = sq.table("iceberg", "ice.db.rates", changes=True, options={"start-snapshot-id": str(second)})
    late = sq.changes(since, key="currency", invalid="drop")
    assert late.to_df().count() == 0
    with pytest.raises(
        SourceError, match="run: Iceberg has no stream of a table's changes; found ice.db.rates. Read them"
    ):
        history.run(sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp"))
    with pytest.raises(SourceError, match="table: ice.db.nowhere is not read; "):
        sq.points(sq.table("iceberg", "ice.db.nowhere"), time="at")


def test_spark_reads_what_pyiceberg_writes(spark: SparkSession, tmp_path: Path) -> None:
    """By its metadata, as Spark has no such catalog: upserts and deletions."""
    lake = in_folder(IcebergTarget, tmp_path)
    for rows in ("(1L, 'a'), (2L, 'b'), (3L, NULL)", "(4L, 'a'), (15L, 'a')"):
        spark.sql(f"SELECT * FROM VALUES {rows} AS t(at, k)").write.mode("append").parquet(str(tmp_path / "in"))
        trips = sq.points(sq.files(tmp_path / "in"), time="at", progress=sq.generate(100))
        counts = trips.group_by("k").tumbling_window(10).select(n=sq.count()).where(sq.col("n") < 2)
        counts.run(
            sink=lake.sink(), output="upsert", checkpoint=str(tmp_path / "cp"), trigger="available_now", early=True
        )
    stored = spark.read.format("iceberg").load(lake.stored().metadata_location)
    assert {*map(tuple, stored.collect())} == {*lake.tuples()} == {("b", 1, 0, 10), (None, 1, 0, 10), ("a", 1, 10, 20)}
