"""Interval joins and snapshots in batch, against the same written by hand in PySpark.

    python -m benchmarks.intervals [--rows 1000000] [--repeat 3] [--only join ...] [--json FILE]

Both sides run in turn in one session, on Parquet, into the noop sink; a cell is the median of its runs. Ratios are ours / other:
below 1 ours is faster. The hand-written join puts both sides into cells of the mean lifetime and keeps a pair in the cell in
which it begins. The plain ``groupBy`` computes the same aggregates without windows: by key and start, which gives half as many
rows as there are snapshots, or by key alone, which gives hardly any.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamq as sq

KEYS, SPAN = 1_000, 1_000_000_000
PARTNERS = 3


def intervals(
    spark: SparkSession, path: Path, rows: int, seed: int, kind: str, partners: float = PARTNERS
) -> DataFrame:
    """Return ``key, from, to, v``, written once; ``kind`` is even, skewed or long.

    skewed: a thirtieth of the rows has key 0; long: one event lasts all the time.
    """
    if not path.exists():
        mean = partners * SPAN * KEYS / rows / 2
        key = (F.rand(seed) * KEYS).cast("int")
        if kind == "skewed":
            key = F.when(F.rand(seed + 9) < 1 / 30, 0).otherwise(key)
        start = (F.rand(seed + 1) * SPAN).cast("bigint")
        lasts = (-F.log(1 - F.rand(seed + 2)) * mean + 1).cast("bigint")
        df = spark.range(rows, numPartitions=4).select(
            key.alias("key"),
            start.alias("from"),
            lasts.alias("lasts"),
            (F.rand(seed + 3) * 1000).cast("bigint").alias("v"),
        )
        df = df.select("key", "from", (F.col("from") + F.col("lasts")).alias("to"), "v")
        if kind == "long":
            df = df.unionAll(spark.sql(f"select 0 as key, 0L as `from`, {SPAN}L as `to`, 1L as v"))
        df.write.parquet(str(path))
    return spark.read.parquet(str(path))


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    """Return the join by the public API."""
    one, two = (sq.intervals(df, start="from", end="to") for df in (left, right))
    return one.join(two, on="key", suffixes=("", "_r")).to_df()


def binned(left: DataFrame, right: DataFrame, width: int) -> DataFrame:
    """Return the join by hand: an equi-join over cells of time of one width."""

    def cells(df: DataFrame, tag: str) -> DataFrame:
        first, last = F.floor(F.col("from") / width), F.floor((F.col("to") - 1) / width)
        df = df.withColumn("cell", F.explode(F.sequence(first, last)))
        return df.select(*(F.col(n).alias(n + tag) for n in df.columns))

    a, b = cells(left, "_a"), cells(right, "_b")
    start, end = F.greatest("from_a", "from_b"), F.least("to_a", "to_b")
    on = (F.col("key_a") == F.col("key_b")) & (F.col("cell_a") == F.col("cell_b"))
    on = on & (F.col("from_a") < F.col("to_b")) & (F.col("from_b") < F.col("to_a"))
    on = on & (F.floor(start / width) == F.col("cell_a"))
    return a.join(b, on).select("key_a", "v_a", "v_b", start.alias("start"), end.alias("end"))


def snapshot(df: DataFrame, exact: bool) -> DataFrame:
    """Return snapshots per key by the public API: counts and integer sums, or a mean and a maximum."""
    windows = sq.intervals(df, start="from", end="to").group_by("key").snapshot_window()
    aggregates = {"n": sq.count(), "s": sq.sum("v")} if exact else {"n": sq.count(), "m": sq.max("v")}
    return windows.select(**aggregates).to_df()


def grouped(df: DataFrame, exact: bool, *by: str) -> DataFrame:
    """Return the aggregates without windows: the least that these rows cost."""
    other = F.sum("v") if exact else F.max("v")
    return df.groupBy("key", *by).agg(F.count("*").alias("n"), other.alias("o"), F.max("to"))


def seconds(df: DataFrame) -> float:
    """Return the time in which a DataFrame is written to the noop sink."""
    begun = time.perf_counter()
    df.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--snapshots", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--json", type=Path, default=Path("intervals.json"))
    options = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "5g")
        .config("spark.sql.shuffle.partitions", 4)
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    results = []
    with tempfile.TemporaryDirectory() as folder:
        width = int(PARTNERS * SPAN * KEYS / options.rows / 2)

        def pair(kind: str) -> tuple[DataFrame, DataFrame]:
            sides = [intervals(spark, Path(folder) / f"{kind}{i}", options.rows, 10 * i, kind) for i in (1, 2)]
            return sides[0], sides[1]

        def stays() -> DataFrame:
            return intervals(spark, Path(folder) / "stays", options.snapshots, 7, "even")

        cells: dict[str, tuple[Callable[[], DataFrame], Callable[[], DataFrame], float]] = {
            "join": (lambda: joined(*pair("even")), lambda: binned(*pair("even"), width), 1.5),
            "join-skewed": (lambda: joined(*pair("skewed")), lambda: binned(*pair("skewed"), width), 1.5),
            "join-long": (lambda: joined(*pair("long")), lambda: joined(*pair("even")), 1.5),
            "snapshot-exact": (lambda: snapshot(stays(), True), lambda: grouped(stays(), True, "from"), 4),
            "snapshot-exact-key": (lambda: snapshot(stays(), True), lambda: grouped(stays(), True), 0),
            "snapshot-max": (lambda: snapshot(stays(), False), lambda: grouped(stays(), False, "from"), 0),
        }
        row = "{:<18} {:>8} {:>8} {:>7} {:>7}"
        print(row.format("cell", "ours s", "other s", "ratio", "at most"))
        for name, (ours, other, target) in cells.items():
            if options.only and name not in options.only:
                continue
            seconds(ours()), seconds(other())
            runs = [(seconds(ours()), seconds(other())) for _ in range(options.repeat)]
            mine, theirs = (statistics.median(side) for side in zip(*runs, strict=True))
            print(row.format(name, f"{mine:.2f}", f"{theirs:.2f}", f"{mine / theirs:.2f}", target or "-"), flush=True)
            results.append({"cell": name, "runs": runs, "ratio": mine / theirs, "at most": target})
        spark.stop()
    settings = {name: str(value) for name, value in vars(options).items()}
    options.json.write_text(json.dumps({"options": settings, "results": results}, indent=2))


if __name__ == "__main__":
    main()
