"""Runs into tables of Delta, Iceberg, databases: killed before and after a commit, nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import streamq as sq
from scripts.postgres import PostgresServer
from streamq import testing as t
from streamq.errors import PlanError
from tests.spark.test_kill import SCHEMA, SOAK, land, stays
from tests.targets import IcebergTarget, SqliteTarget, in_folder

ROOT = Path(__file__).parents[2]

SITE = """
import os, signal, time

def kill():
    os.killpg(int(os.environ["JOB"]), signal.SIGKILL)
    os._exit(9)

def armed(point, number):
    wanted, least = os.environ["KILL"].split(":")
    if point == wanted and number >= int(least):
        kill()

if "KILL" in os.environ:
    import deltalake, psycopg, sqlalchemy
    from pyiceberg.table import Table

    do_commit = Table._do_commit

    def commit_iceberg(self, updates, requirements):
        marks = {name: value for update in updates for name, value in getattr(update, "updates", {}).items()}
        number = max((int(value) for name, value in marks.items() if name.startswith("streamq.batch")), default=-1)
        armed("before iceberg", number)
        do_commit(self, updates, requirements)
        armed("after iceberg", number)

    Table._do_commit = commit_iceberg
    write, commit = deltalake.write_deltalake, psycopg.Connection.commit

    def write_deltalake(table, rows, **arguments):
        number = arguments["commit_properties"].app_transactions[0].version
        armed("before delta", number)
        write(table, rows, **arguments)
        armed("after delta", number)

    def commit_postgres(self):
        if os.environ["JOB"] == str(os.getpid()):
            return commit(self)
        number = self.execute("SELECT max(batch) FROM streamq_batches").fetchone()[0]
        armed("before postgres", number)
        commit(self)
        armed("after postgres", number)

    def commit_sqlite(self):
        if os.environ["JOB"] == str(os.getpid()) or self.engine.url.database.endswith("catalog.db"):
            return commit_sql(self)
        number = self.execute(sqlalchemy.text("SELECT max(batch) FROM streamq_batches")).scalar_one()
        armed("before sqlite", number)
        commit_sql(self)
        armed("after sqlite", number)

    commit_sql = sqlalchemy.Connection.commit
    sqlalchemy.Connection.commit = commit_sqlite
    deltalake.write_deltalake, psycopg.Connection.commit = write_deltalake, commit_postgres
"""
"""The module that every Python of the job imports as it starts: it kills the job at a point of a micro-batch."""

SCRIPT = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["JOB"] = str(os.getpid())
from pyspark.sql import SparkSession
from tests.conftest import INTERPRETED
from tests.spark.test_tables import run

builder = SparkSession.builder.master("local[2]")
for key, value in ({"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"} | INTERPRETED).items():
    builder = builder.config(key, value)
run(builder.getOrCreate(), *sys.argv[1:])
"""


def counts(s: sq.Stream) -> sq.Stream:
    return s.group_by("k").hopping_window(12, 4).select(n=sq.count(), most=sq.max("v"))


def run(spark: SparkSession, folder: object, dsn: str, *, finish: bool = False) -> None:
    """Write final rows into tables of all systems, in one run, over what files there are."""
    query = counts(stays(spark, folder))
    delta, iceberg = sq.merge_into("delta", f"{folder}/final"), in_folder(IcebergTarget, folder, "final").sink()
    database = in_folder(SqliteTarget, folder).sink()
    sinks: list[Any] = [delta, iceberg, sq.postgres(dsn, "killed"), database]
    results = [sq.result(query, sink=sink) for sink in sinks]
    sq.run_all(results, checkpoint=f"{folder}/checkpoint", trigger="available_now", finish=finish, buckets=2)


def delta_rows(path: object) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in pa.table(DeltaTable(str(path)).to_pyarrow_table()).to_pylist()]


KILLS = (
    "before delta:0",
    "before iceberg:1",
    "after iceberg:1",
    "after postgres:1",
    "before sqlite:2",
    "after sqlite:2",
)
"""The places where the job is killed, each in the first micro-batch of at least that number that comes there with rows."""


def test_killed_before_and_after_a_commit(spark: SparkSession, postgres: PostgresServer, tmp_path: Path) -> None:
    """The tables are written one after the other, so that between two of them some have the micro-batch, and others have not."""
    everything = land(tmp_path / "in", random.Random(7))
    (tmp_path / "sitecustomize.py").write_text(SITE)
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    for kill in KILLS if SOAK else KILLS[2:4]:
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "KILL": kill}
        with (tmp_path / "log").open("ab") as log:
            command = [sys.executable, str(script), str(tmp_path), postgres.dsn()]
            job = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            assert job.wait(300) == -signal.SIGKILL, (tmp_path / "log").read_text()[-3000:]
    run(spark, tmp_path, postgres.dsn(), finish=True)
    answer = counts(sq.intervals(t.table(SCHEMA, everything), start="start", end="end")).to_arrow()
    expected = sorted(tuple(row.values()) for row in answer.to_pylist())
    assert len(expected) > 20
    assert sorted(delta_rows(tmp_path / "final")) == expected
    assert sorted(in_folder(IcebergTarget, tmp_path, "final").tuples()) == expected
    assert sorted(in_folder(SqliteTarget, tmp_path).tuples()) == expected
    assert sorted(postgres.rows("SELECT * FROM killed")) == expected


def test_upserts_are_the_history_as_it_stands(spark: SparkSession, postgres: PostgresServer, tmp_path: Path) -> None:
    """Counts that have grown too large are deleted; a table that does not fit is refused before the checkpoint has a run."""
    source = tmp_path / "source"
    for rows in ([(1, "a"), (2, "b"), (3, None)], [(4, "a"), (5, "a"), (6, None), (15, "a")]):
        spark.createDataFrame(rows, "at int, k string").coalesce(1).write.mode("append").parquet(str(source))
        s = sq.points(sq.files(source), time="at", progress=sq.generate(100))
        query = s.group_by("k").tumbling_window(10).select(n=sq.count()).where(sq.col("n") < 3)
        sinks: list[Any] = [
            sq.merge_into("delta", str(tmp_path / "rows"), partition_by="k"),
            in_folder(IcebergTarget, tmp_path).sink(partition_by="k"),
            in_folder(SqliteTarget, tmp_path).sink(),
            sq.postgres(postgres.dsn(), "latest_rows"),
        ]
        results = [sq.result(query, sink=sink, output="upsert") for sink in sinks]
        sq.run_all(results, checkpoint=str(tmp_path / "checkpoint"), trigger="available_now", early=True)
    expected = {("a", 1, 10, 20), ("b", 1, 0, 10), (None, 2, 0, 10)}
    assert {*delta_rows(tmp_path / "rows")} == expected == {*postgres.rows("SELECT * FROM latest_rows")}
    assert {*in_folder(IcebergTarget, tmp_path).tuples()} == expected == {*in_folder(SqliteTarget, tmp_path).tuples()}
    wrong = s.select(k=sq.col("k"), n=sq.lit("many"))
    with pytest.raises(PlanError, match="run: the table .*rows does not fit the rows; its 'n' is bigint, not string"):
        wrong.run(sink=sq.merge_into("delta", str(tmp_path / "rows")), checkpoint=str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_the_current_value_of_each_key(spark: SparkSession, postgres: PostgresServer, tmp_path: Path) -> None:
    """One row a key, replaced by the next window and by what comes late, over runs that go on; ``key`` for any query."""
    source, seen = tmp_path / "source", []
    for rows in ([(1, "a"), (2, "b"), (12, "a"), (31, None)], [(13, "a"), (14, "a"), (3, "b"), (41, None)]):
        spark.createDataFrame(rows, "at int, k string").coalesce(1).write.mode("append").parquet(str(source))
        s = sq.points(sq.files(source), time="at", progress=sq.generate(100))
        counts = s.group_by("k").tumbling_window(10).select(n=sq.count()).where(sq.col("n") < 3)
        results = [
            sq.result(counts, output="latest", sink=sq.merge_into("delta", str(tmp_path / "rows"))),
            sq.result(counts, output="latest", sink=in_folder(IcebergTarget, tmp_path).sink()),
            sq.result(
                s.select(k=sq.col("k"), at=sq.start()), output="latest", key="k", sink=sq.postgres(postgres.dsn(), "at")
            ),
            sq.result(counts, output="latest", sink=lambda df, batch: seen.append(df.toArrow().to_pylist())),
        ]
        run = sq.run_all(results, checkpoint=str(tmp_path / "checkpoint"), trigger="available_now", early=True)
        assert run.key == ("k",)
    latest = {("a", 1, 0, 10), ("b", 2, 0, 10), (None, 1, 40, 50)}
    assert {*delta_rows(tmp_path / "rows")} == latest == {*in_folder(IcebergTarget, tmp_path).tuples()}
    assert {*postgres.rows("SELECT * FROM at")} == {("a", 14, 14, 15), ("b", 3, 3, 4), (None, 41, 41, 42)}
    assert {"op": "upsert", "k": "a", "n": 1, "start": 0, "end": 10} in seen[-1], (
        "the window after it has grown too large"
    )
