"""Patterns on a stream against Spark's own stream-stream joins with the same key and time bound: time a micro-batch.

    python -m benchmarks.streaming_patterns [--rows 200000] [--keys 10000] [--batches 8] [--json FILE]

Point events of two kinds in equal parts, in time order, an event a key and 40 seconds on average, a micro-batch a file. SEQUENCE
is compared with Spark's inner join, UNLESS beside its left outer join, filtered to rows without a partner; Spark keeps its state
in RocksDB, as streamq does, or in its own memory. Over few rows the answers have been compared. Prints a table and writes JSON;
ratios above 1: ours is faster.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq

SCOPE = 60
"""The scope in seconds."""

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("k", pa.int64()), ("kind", pa.string())])
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PROVIDERS = {
    "RocksDB": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}


def generate(folder: Path, batches: int, rows: int, keys: int) -> Path:
    """Write files of points in time order, and a last one an hour later, whose two events make all others final."""
    rng = np.random.default_rng(7)
    span = int(40_000_000 * rows / keys)
    folder.mkdir(parents=True)
    for i in range(batches):
        at = np.sort(rng.integers(i * span, (i + 1) * span, rows)) + 1_700_000_000_000_000
        kinds = np.array(["a", "b"])[rng.integers(0, 2, rows)]
        table = pa.table([pa.array(at, SCHEMA.field("at").type), rng.integers(0, keys, rows), kinds], schema=SCHEMA)
        # at least two row groups, so that both cores read
        pq.write_table(table, folder / f"{i:04d}.parquet", row_group_size=max(1, rows // 8))
    end = pa.array([1_700_000_000_000_000 + batches * span + 3_600_000_000] * 2, SCHEMA.field("at").type)
    pq.write_table(pa.table([end, [-1, -2], ["a", "b"]], schema=SCHEMA), folder / f"{batches:04d}.parquet")
    return folder


def sources(spark: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    """Return streams of the two kinds of events, one file per micro-batch."""
    reader = spark.readStream.schema(from_arrow_schema(SCHEMA)).option("maxFilesPerTrigger", 1)
    a, b = (reader.parquet(str(folder)).where(F.col("kind") == kind).select("at", "k") for kind in "ab")
    return a, b


def ours(pattern: str, output: str) -> Callable[[SparkSession, Path, str], Any]:
    """Return the function that runs a pattern by streamq, and returns the ended query."""

    def run(spark: SparkSession, folder: Path, sink: str) -> Any:
        a, b = (
            sq.points(df, time="at", name=name) for df, name in zip(sources(spark, folder), ("a", "b"), strict=True)
        )
        text = f"EVENT E WHEN {pattern} WHERE CorrelationKey(k, EQUAL) OUTPUT {output}"
        query = sq.cedr(text, A=a, B=b)
        checkpoint = tempfile.mkdtemp()
        ran = query.run(sink=sink, output="final", trigger="available_now", checkpoint=checkpoint)
        shutil.rmtree(checkpoint, ignore_errors=True)
        return ran.query

    return run


def native(how: str, columns: list[str]) -> Callable[[SparkSession, Path, str], Any]:
    """Return the function that runs Spark's stream-stream join, and returns the ended query."""

    def run(spark: SparkSession, folder: Path, sink: str) -> Any:
        a, b = sources(spark, folder)
        a = a.select("k", F.col("at").alias("a")).withWatermark("a", "0 seconds")
        b = b.select(F.col("k").alias("k2"), F.col("at").alias("b")).withWatermark("b", "0 seconds")
        within = F.expr(f"a + INTERVAL {SCOPE} SECONDS")
        bound = F.col("b") <= within if how == "inner" else F.col("b") < within
        joined = a.join(b, (F.col("k") == F.col("k2")) & (F.col("b") > F.col("a")) & bound, how)
        if how == "leftOuter":
            joined = joined.where(F.col("b").isNull())
        checkpoint = tempfile.mkdtemp()
        writer = joined.select(*columns).writeStream.outputMode("append").option("checkpointLocation", checkpoint)
        sinked = writer.format("noop") if sink == "noop" else writer.format("parquet").option("path", sink)
        query = sinked.trigger(availableNow=True).start()
        query.awaitTermination()
        shutil.rmtree(checkpoint, ignore_errors=True)
        return query

    return run


SEQUENCE, UNLESS = ["k", "a", "b"], ["k", "a"]
CELLS = {
    "sequence": (
        ours(f"SEQUENCE(A AS x, B AS y, {SCOPE} seconds)", "x.k AS k, x.Vs AS a, y.Vs AS b"),
        native("inner", SEQUENCE),
        SEQUENCE,
    ),
    "unless": (
        ours(f"UNLESS(A AS x, B AS y, {SCOPE} seconds)", "x.k AS k, x.Vs AS a"),
        native("leftOuter", UNLESS),
        UNLESS,
    ),
}


def batch_ms(query: Any) -> tuple[float, list[int]]:
    """Return the median time of the micro-batches with rows, without warm-up and the last one's two events, and all times."""
    reports = [json.loads(p.json) for p in query.recentProgress]
    times = [p["durationMs"]["triggerExecution"] for p in reports if p["numInputRows"] > 4]
    return statistics.median(times[2:] or times), times


def check(spark: SparkSession, folder: Path, name: str) -> None:
    """Raise AssertionError if the answers over few rows differ, as bags."""
    mine, other, columns = CELLS[name]
    answers = []
    for number, run in enumerate((mine, other)):
        out = str(folder / f"{name}-{number}")
        run(spark, folder / "few", out)
        answers.append(spark.read.parquet(out).where("k >= 0").select(*columns))
    one, two = answers
    assert not one.isEmpty()
    assert one.exceptAll(two).isEmpty() and two.exceptAll(one).isEmpty()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="of a micro-batch")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--only", nargs="*", choices=list(CELLS))
    parser.add_argument("--json", type=Path, default=Path("streaming_patterns.json"))
    options = parser.parse_args()
    config = {"spark.sql.shuffle.partitions": 2, "spark.driver.memory": "6g"}
    spark = sq.session("patterns", master="local[2]", config=config)
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        generate(folder / "few", 3, 2_000, 50)
        generate(folder / "many", options.batches, options.rows, options.keys)
        line = "{:<10} {:<16} {:>10} {:>8} {:>7}   {}"
        print(line.format("cell", "Spark's state in", "ours ms", "Spark's", "ratio", "each micro-batch"))
        for name in options.only or CELLS:
            check(spark, folder, name)
            mine, other, _ = CELLS[name]
            own, all_own = batch_ms(mine(spark, folder / "many", "noop"))
            for where, provider in PROVIDERS.items():
                before = spark.conf.get(PROVIDER)
                spark.conf.set(PROVIDER, provider)
                theirs, all_theirs = batch_ms(other(spark, folder / "many", "noop"))
                spark.conf.set(PROVIDER, before or PROVIDERS["RocksDB"])
                print(
                    line.format(
                        name, where, f"{own:.0f}", f"{theirs:.0f}", f"{theirs / own:.2f}", f"{all_own} {all_theirs}"
                    ),
                    flush=True,
                )
                results.append(
                    {"cell": name, "state": where, "ours": all_own, "theirs": all_theirs, "ratio": theirs / own}
                )
    spark.stop()
    settings = {name: str(value) for name, value in vars(options).items()}
    options.json.write_text(json.dumps({"options": settings, "results": results}, indent=2))


if __name__ == "__main__":
    main()
