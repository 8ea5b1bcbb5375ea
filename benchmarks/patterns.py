"""Patterns in batch against the same questions answered by hand in PySpark.

    python -m benchmarks.patterns [--rows 5000000] [--keys 10000] [--repeat 3] [--only sequence] [--json FILE]

Point events with a timestamp and a key, of three kinds in equal parts, some 500 a key, written to the noop sink. By hand, a
SEQUENCE is an equi-join on key and pane of the scope, UNLESS a window function over both kinds: the next restart of the key. A
SEQUENCE with FIRST CONSUME is a queue of the open events of a key, in applyInPandas.
Both sides run in turn, A B A B, in one session, and have been compared over few rows; a cell is the median of its runs. Ratios
above 1: ours is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import streamq as sq

SCOPE = 60
"""The scope in seconds."""

Sides = tuple[Callable[[], DataFrame], Callable[[], DataFrame]]


def events(spark: SparkSession, folder: Path, rows: int, keys: int) -> dict[str, DataFrame]:
    """Return events of three kinds, on average one per key and 40 seconds."""
    path = str(folder / f"events-{rows}")
    at = F.timestamp_seconds(F.lit(1_700_000_000) + F.rand(7) * (40.0 * rows / keys))
    kind = F.element_at(F.array(*map(F.lit, "abc")), (F.rand(8) * 3).cast("int") + 1)
    df = spark.range(rows).select(at.alias("at"), (F.rand(9) * keys).cast("int").alias("k"), kind.alias("kind"))
    df.write.mode("overwrite").parquet(path)
    read = spark.read.parquet(path)
    return {kind: read.where(F.col("kind") == kind).select("at", "k") for kind in "abc"}


def sequence(streams: dict[str, DataFrame]) -> Sides:
    """Return queries for an a, then a b of its key within the scope."""

    def ours() -> DataFrame:
        a, b = (sq.points(streams[name], time="at", name=name) for name in "ab")
        pattern = f"SEQUENCE(A AS x, B AS y, {SCOPE} seconds) WHERE CorrelationKey(k, EQUAL)"
        return (
            sq.cedr(f"EVENT E WHEN {pattern} OUTPUT x.k AS k, x.Vs AS a, y.Vs AS b", A=a, B=b)
            .to_df()
            .select("k", "a", "b")
        )

    def by_hand() -> DataFrame:
        pane = (F.unix_micros("at") / F.lit(SCOPE * 1_000_000)).cast("bigint")
        a = streams["a"].select("k", F.col("at").alias("a"), F.explode(F.array(pane, pane + 1)).alias("pane"))
        b = streams["b"].select("k", F.col("at").alias("b"), pane.alias("pane"))
        near = (F.col("b") > F.col("a")) & (F.unix_micros("b") - F.unix_micros("a") <= SCOPE * 1_000_000)
        return a.join(b, ["k", "pane"]).where(near).select("k", "a", "b")

    return ours, by_hand


def unless(streams: dict[str, DataFrame]) -> Sides:
    """Return queries for an a that no b of its key follows within the scope."""

    def ours() -> DataFrame:
        a, b = (sq.points(streams[name], time="at", name=name) for name in "ab")
        pattern = f"UNLESS(A AS x, B AS y, {SCOPE} seconds) WHERE CorrelationKey(k, EQUAL)"
        return sq.cedr(f"EVENT E WHEN {pattern} OUTPUT x.k AS k, x.Vs AS a", A=a, B=b).to_df().select("k", "a")

    def by_hand() -> DataFrame:
        a, b = (streams[name].withColumn("is_b", F.lit(name == "b")) for name in "ab")
        after = Window.partitionBy("k").orderBy(F.unix_micros("at")).rangeBetween(1, Window.unboundedFollowing)
        next_b = F.min(F.when(F.col("is_b"), F.col("at"))).over(after)
        both = a.unionByName(b).withColumn("next", next_b)
        alone = F.col("next").isNull() | (F.unix_micros("next") - F.unix_micros("at") >= SCOPE * 1_000_000)
        return both.where(~F.col("is_b") & alone).select("k", F.col("at").alias("a"))

    return ours, by_hand


def first_consume(streams: dict[str, DataFrame]) -> Sides:
    """Return queries for each b with the first a of its key within the scope that no b before it has used."""

    def ours() -> DataFrame:
        a, b = (sq.points(streams[name], time="at", name=name) for name in "ab")
        pattern = f"SEQUENCE(A AS x FIRST CONSUME, B AS y, {SCOPE} seconds) WHERE CorrelationKey(k, EQUAL)"
        query = sq.cedr(f"EVENT E WHEN {pattern} OUTPUT x.k AS k, x.Vs AS a, y.Vs AS b", A=a, B=b)
        return query.to_df().select("k", "a", "b")

    def pairs(events: pd.DataFrame) -> pd.DataFrame:
        """Return the pairs of one key, from events with ``at`` in microseconds and ``is_b``."""
        events = events.sort_values(["at", "is_b"])
        waiting: deque[int] = deque()
        firsts, lasts = [], []
        for at, is_b in zip(events["at"].tolist(), events["is_b"].tolist(), strict=True):
            while waiting and at - waiting[0] > SCOPE * 1_000_000:
                waiting.popleft()
            if not is_b:
                waiting.append(at)
            elif waiting and waiting[0] < at:
                firsts.append(waiting.popleft())
                lasts.append(at)
        return pd.DataFrame({"k": events["k"].iloc[0], "a": firsts, "b": lasts})

    def by_hand() -> DataFrame:
        a, b = (streams[n].select("k", F.unix_micros("at").alias("at"), F.lit(n == "b").alias("is_b")) for n in "ab")
        rows = a.unionAll(b).groupBy("k").applyInPandas(pairs, "k int, a bigint, b bigint")
        return rows.select("k", F.timestamp_micros("a").alias("a"), F.timestamp_micros("b").alias("b"))

    return ours, by_hand


CELLS = {"sequence": sequence, "unless": unless, "first consume": first_consume}
TARGETS = {"sequence": 0.91, "unless": 0.91, "first consume": 2.0}
"""The least ratios: at most 1.1 times as long as by hand, and at most half as long."""


def seconds(query: Callable[[], DataFrame]) -> float:
    """Return the time in which a query writes its result to the noop sink."""
    begun = time.perf_counter()
    query().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(CELLS))
    parser.add_argument("--json", type=Path, default=Path("patterns.json"))
    options = parser.parse_args()
    spark = sq.session("patterns", master="local[2]", config={"spark.sql.shuffle.partitions": 8})
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        few = events(spark, Path(temporary), max(options.rows // 50, 1000), max(options.keys // 50, 1))
        many = events(spark, Path(temporary), options.rows, options.keys)
        line = "{:<13} {:>10} {:>8} {:>8} {:>7} {:>7}"
        print(line.format("cell", "rows", "ours s", "hand s", "ratio", "target"))
        for name in options.only or CELLS:
            ours, by_hand = CELLS[name](few)
            # compared as bags: neither has a row that the other lacks
            assert ours().exceptAll(by_hand()).isEmpty() and by_hand().exceptAll(ours()).isEmpty()
            ours, by_hand = CELLS[name](many)
            runs = [(seconds(ours), seconds(by_hand)) for _ in range(options.repeat)]
            mine, other = (statistics.median(side) for side in zip(*runs, strict=True))
            columns = (f"{mine:.2f}", f"{other:.2f}", f"{other / mine:.2f}", f"{TARGETS[name]:.2f}")
            print(line.format(name, options.rows, *columns), flush=True)
            results.append({"cell": name, "rows": options.rows, "runs": runs, "ratio": other / mine})
    spark.stop()
    settings = {name: str(value) for name, value in vars(options).items()}
    options.json.write_text(json.dumps({"options": settings, "results": results}, indent=2))


if __name__ == "__main__":
    main()
