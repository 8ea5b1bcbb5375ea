"""Several queries as one stream: each result in its own sink is the oracle's history, over restarts, and the late rows once."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from streamq.errors import CheckpointError, PlanError
from streamq.testing.backends import land, stream
from streamq.testing.history import assert_same_history, from_changelog, net
from streamq.testing.oracle import oracle
from tests.algebra import QUERIES, SCHEMA, SIZES, intervals

SOAK = bool(os.environ.get("STREAMQ_SOAK"))


@sq.udo("length bigint")
def lengths(k: Any) -> list[int]:
    return [len(k)]


LATE = {"from": 3, "to": 5, "k": "a", "v": 1, "w": 0.5}


def test_each_result_goes_into_its_own_sink(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """The results are final rows, a changelog with CTIs and upserts, over one window, windows of two sizes, and no state."""
    tables = {n: intervals(seed, 30) for seed, n in enumerate("lr")}
    land(tmp_path / "l", [tables["l"].slice(0, 20), tables["l"].slice(20)])
    land(tmp_path / "l", [pa.Table.from_pylist([LATE], schema=SCHEMA)], first=2)
    land(tmp_path / "r", [tables["r"]])
    left, right = (
        sq.intervals(stream(spark, tmp_path / n, SCHEMA), start="from", end="to", name=n, progress=sq.generate(5))
        for n in "lr"
    )
    counts = left.group_by("k").tumbling_window(10).select(n=sq.count(), least=sq.min("v"))
    pairs = counts.join(right, on="k", suffixes=("", "_r")).select("k", "n", "v")
    shared = counts.select("k", twice=sq.col("n") * 2)
    queries = {
        "plain": left.where(sq.col("v") > 0).select("k", x=sq.col("v")),
        "counts": counts,
        "pairs": pairs,
        "shared": shared,
        "long": left.to_points().group_by("k").hopping_window(12, 3).select(n=sq.count()),
        "short": left.to_points().group_by("k").tumbling_window(6).select(least=sq.min("v")),
    }
    out = {name: str(tmp_path / "out" / name) for name in queries}
    upserts: dict[tuple[Any, Any], Any] = {}

    def upsert(rows: DataFrame, number: int) -> None:
        for row in rows.toArrow().to_pylist():
            upserts.pop((row["k"], row["start"]), None)
            if row.pop("op") == "upsert":
                upserts[row["k"], row["start"]] = row

    def run(**how: Any) -> Any:
        results = [
            sq.result(queries["plain"], sink=out["plain"]),
            sq.result(queries["counts"], sink=upsert, output="upsert"),
            sq.result(queries["pairs"], sink=out["pairs"], output="changelog", ctis=True),
            sq.result(queries["shared"], sink={"format": "json", "path": out["shared"]}),
            *(sq.result(queries[name], sink=out[name]) for name in ("long", "short")),
            sq.result(queries["shared"].select("twice")),
            sq.result(left.select(y=sq.col("w"))),
            sq.result(left.group_by("k").tumbling_window(10).select(lengths("k"))),
        ]
        where = {"checkpoint": str(tmp_path / "cp"), "late_sink": str(tmp_path / "late")}
        return sq.run_all(results, **where, buckets=2, **how)

    with run(trigger="available_now") as first:
        assert first.late["l|dropped"] == 1
        assert first.progress["batch"] == 2
        assert first.metrics["query"]["inserted"] > 0
    with run() as last:
        last.finish()
        assert last.why().verdict == "finished"
    with pytest.raises(CheckpointError, match="the checkpoint's stream has ended"):
        sq.run_all([sq.result(counts, sink=out["counts"])], checkpoint=str(tmp_path / "cp"))

    def read(name: str) -> pa.Table:
        return spark.read.parquet(out[name]).drop("streamq_batch").toArrow()

    expected = {name: oracle(query.plan, tables) for name, query in queries.items()}
    for name in ("plain", "long", "short"):
        assert_same_history(read(name), expected[name])
    changes = read("pairs")
    ctis = spark.read.parquet(out["pairs"]).where("kind = 'cti'").groupBy("streamq_batch").count().toArrow()
    assert set(ctis.column("count").to_pylist()) == {1}, "one a micro-batch"
    assert_same_history(net([from_changelog(changes)]), expected["pairs"])
    # beside a late sink every micro-batch has a folder of its own, which is no part of the changes
    in_folders = spark.read.parquet(out["pairs"])
    assert "streamq_batch" in in_folders.columns
    assert_same_history(sq.physical(in_folders).to_df().toArrow(), expected["pairs"])
    in_json = spark.read.schema("k string, twice long, start long, end long").json(f"{out['shared']}/*").toArrow()
    assert_same_history(in_json, expected["shared"])
    assert_same_history(pa.Table.from_pylist(list(upserts.values())), expected["counts"])
    assert spark.read.parquet(str(tmp_path / "late")).count() == 1


def test_many_results_share_a_folder(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """One job writes all of a micro-batch, however many results there are; each is the oracle's history, over restarts."""
    rows = intervals(3, 40)
    land(tmp_path / "l", [rows.slice(0, 20)])
    left = sq.intervals(
        stream(spark, tmp_path / "l", SCHEMA), start="from", end="to", name="l", progress=sq.generate(5)
    )
    counts = left.group_by("k").tumbling_window(10)
    queries = {
        "rows": left.where(sq.col("v") > 0).select("k", x=sq.col("v")),
        "n": counts.select(n=sq.count()),
        "upper": counts.select(n=sq.count()).select(upper=sq.functions.upper(sq.col("k"))),
        **{f"above {v}": left.where(sq.col("v") > v).snapshot_window().select(n=sq.count()) for v in range(3)},
    }
    jobs: dict[int, set[int]] = {}

    def run(names: list[str], folder: str, **how: Any) -> None:
        results = [sq.result(queries[name], name=name) for name in names]
        results.append(sq.result(queries["n"], sink=str(tmp_path / f"{folder} alone"), output="changelog"))
        where = {"folder": str(tmp_path / folder), "checkpoint": str(tmp_path / f"{folder} cp"), "buckets": 2}
        with sq.run_all(results, **where, trigger="available_now", **how) as done:
            group = spark.sparkContext.statusTracker().getJobIdsForGroup(str(done.query.runId))
            batches = [one for one in done.query.recentProgress if one["durationMs"].get("addBatch")]
            jobs.setdefault(len(names), set()).add(len(group) // len(batches))

    run([*queries], "all")
    run(["n", "rows"], "two")
    assert jobs[2] == jobs[len(queries)], "a result more is no job more"
    land(tmp_path / "l", [rows.slice(20)], first=1)
    run([*queries], "all", finish=True)
    folders = [*(tmp_path / "all").glob("streamq_batch=*/result=*"), *(tmp_path / "all alone").glob("streamq_batch=*")]
    files = [len([*folder.glob("*.parquet")]) for folder in folders]
    assert len(files) > len(queries) and set(files) == {1}, "a file for a few rows, whichever tasks have made them"
    written = spark.read.parquet(str(tmp_path / "all"))
    assert set(written.columns) == {"k", "x", "n", "upper", "start", "end", "result", "streamq_batch"}
    assert written.where("start is null").count() == 0, "a row of one result is none of another"
    for name, query in queries.items():
        own = written.where(written.result == name).select(*query.plan.schema.names, "start", "end").toArrow()
        assert_same_history(own, oracle(query.plan, {"l": rows}))
    changes = spark.read.parquet(str(tmp_path / "all alone")).drop("streamq_batch").toArrow()
    assert_same_history(net([from_changelog(changes)]), oracle(queries["n"].plan, {"l": rows}))
    wrong = {
        "a name of its own": [sq.result(queries["n"], name="n"), sq.result(queries["rows"])],
        "one form of output": [
            sq.result(queries["n"], name="n"),
            sq.result(queries["rows"], name="rows", output="changelog"),
        ],
        "two types": [sq.result(queries["n"], name="n"), sq.result(left.select(n=sq.col("w")), name="w")],
    }
    for message, results in wrong.items():
        with pytest.raises(PlanError, match=message):
            sq.run_all(results, folder=str(tmp_path / "wrong"), checkpoint=str(tmp_path / "wrong cp"))
        assert not (tmp_path / "wrong cp" / "streamq" / "identity").exists()


def test_a_final_row_waits_for_no_other_result(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """Matches, which live to the end of their scope, and sessions are written in the same micro-batch alone and beside others."""
    spans = intervals(5, 40)
    for number in range(8):
        land(tmp_path / "l", [spans.slice(5 * number, 5)], first=number)
    reader = spark.readStream.schema(from_arrow_schema(SCHEMA)).option("maxFilesPerTrigger", 1)
    left = sq.points(reader.parquet(str(tmp_path / "l")), time="from", name="l", progress=sq.generate(3))
    text = "EVENT M WHEN SEQUENCE(A AS a LAST CONSUME, B AS b, 40) WHERE {a.k = b.k} OUTPUT a.k AS k, b.v AS v"
    low, high = left.where(sq.col("v") <= 1).select("k", "v"), left.where(sq.col("v") > 1).select("k", "v")
    queries = {
        "matches": sq.cedr(text, A=low, B=high),
        "sessions": left.group_by("k").session_window(2).select(n=sq.count()),
    }

    def written(folder: str, beside: dict[str, sq.Stream]) -> dict[str, list[Any]]:
        out = {name: str(tmp_path / folder / name) for name in queries}
        results = [sq.result(query, sink=out[name]) for name, query in queries.items()]
        results += [sq.result(query, output="changelog") for query in beside.values()]
        results += [sq.result(query.tumbling_window(10).select(n=sq.count())) for query in beside.values()]
        sq.run_all(
            results, checkpoint=str(tmp_path / folder / "cp"), buckets=2, trigger="available_now"
        ).await_termination()
        return {name: sorted(map(repr, spark.read.parquet(path).collect())) for name, path in out.items()}

    alone = written("alone", {})
    assert all(len({row[row.index("streamq_batch") :] for row in rows}) > 1 for rows in alone.values())
    assert written("beside", queries) == alone


def test_a_migration_counts_a_micro_batch_whose_rows_all_sinks_have(
    spark: SparkSession, plain: None, tmp_path: Path
) -> None:
    """A result without rows may lack it, the last folder not; the micro-batch is planned, and not committed."""
    land(tmp_path / "l", [intervals(3, 20)])
    left = sq.intervals(
        stream(spark, tmp_path / "l", SCHEMA), start="from", end="to", name="l", progress=sq.generate(5)
    )
    counts, none = left.group_by("k").tumbling_window(10).select(n=sq.count()), left.where(sq.col("v") > 1_000)
    out, old = tmp_path / "out", str(tmp_path / "cp")
    alone = [sq.result(query, sink=str(out / name)) for name, query in (("n", counts), ("none", none))]
    results = [*alone, sq.result(counts, name="n"), sq.result(none, name="none")]
    with sq.run_all(results, folder=str(out / "all"), checkpoint=old, trigger="available_now", buckets=2):
        pass
    commits = tmp_path / "cp" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    (commits / str(last)).unlink()
    # written as the first one after a start
    assert spark.read.parquet(str(out / "none")).count() == 0
    shutil.rmtree(out / "none" / f"streamq_batch={last}")
    assert sq.migrate(results, old, to=str(tmp_path / "new"), buckets=3).upto == last
    shutil.rmtree(out / "all" / f"streamq_batch={last}")
    with pytest.raises(CheckpointError, match=f"micro-batch {last} was interrupted, and only some sinks have its rows"):
        sq.migrate(results, old, to=str(tmp_path / "other"), buckets=3)


MULTIPLYING = ["explode", "join_table", "rows of a UDO", "events of a UDO"]
"""The operators that make several rows of one."""


@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
def test_two_paths_from_any_operator(spark: SparkSession, plain: None, tmp_path: Path, seed: int) -> None:
    """Whoever reads an operator's rows beside others, a result, another path or a kernel, reads each row once."""
    rng = random.Random(seed)
    tables = {n: intervals(2 * seed + i, 24) for i, n in enumerate("lr")} | {"sizes": SIZES}
    for n in "lr":
        land(tmp_path / n, [tables[n].slice(0, 15), tables[n].slice(15)])
    left, right = (
        sq.intervals(stream(spark, tmp_path / n, SCHEMA), start="from", end="to", name=n, progress=sq.generate(4))
        for n in "lr"
    )
    sizes = spark.createDataFrame(SIZES.to_pylist(), from_arrow_schema(SIZES.schema))
    others = sorted(QUERIES.keys() - set(MULTIPLYING))
    results = []
    for name in [*rng.sample(MULTIPLYING, 2 if SOAK else 1), rng.choice(others)]:
        query = QUERIES[name](left, right, sizes)
        results += [
            (query.union(query.where(sq.start() > 7)), "final"),
            (query, "changelog"),
            (query.snapshot_window().select(n=sq.count()), "changelog"),
        ]
    sinks = [str(tmp_path / "out" / str(number)) for number in range(len(results))]
    run = sq.run_all(
        [sq.result(q, sink=sink, output=output) for (q, output), sink in zip(results, sinks, strict=True)],
        checkpoint=str(tmp_path / "cp"), buckets=2,
    )  # fmt: skip
    with run:
        run.finish()
    for (query, output), sink in zip(results, sinks, strict=True):
        rows = spark.read.parquet(sink).drop("streamq_batch").toArrow()
        history = rows if output == "final" else net([from_changelog(rows)])
        assert_same_history(history, oracle(query.plan, tables))
