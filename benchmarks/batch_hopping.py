"""Hopping windows in batch: splitting into basic windows and merging, against Spark's own ``window()``.

    python benchmarks/batch_hopping.py [--rows 10000000] [--repeat 3] [--only d60-n16 ...] [--json FILE]

Point events with a timestamp and a double, 1,000 keys; sum, count and max a key and window, written to the noop sink. Both
sides run in turn, A B A B, in one session; a cell is the median of its runs. Ratios above 1 mean that ours is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from streamq.compiler.merging import PartialSlot, choose_strategy, merge_partials

KEYS = 1_000
HOP = 60_000_000
CENTURY = 100 * 365 * 24 * 3_600_000_000
SLOTS = (PartialSlot("events", "count", True), PartialSlot("total", "sum", False), PartialSlot("top", "max", False))


@dataclass(frozen=True)
class Cell:
    """One comparison: ``density`` is events a key and hop, ``share`` the part of --rows that is used."""

    name: str
    density: float
    n: int
    target: float
    against: str = "native"
    share: float = 1.0
    lone: bool = False


CELLS = (
    Cell("d60-n1", 60, 1, 1 / 1.1),
    Cell("d60-n16", 60, 16, 4),
    Cell("d60-n60", 60, 60, 12),
    Cell("d60-n512", 60, 512, 1 / 2, against="ours n=1"),
    Cell("d60-n60-century", 60, 60, 1 / 1.1, against="ours without the event", lone=True),
    Cell("d1-n60", 1, 60, 4, share=0.3),
    Cell("d0.1-n60", 0.1, 60, 1 / 1.1, share=0.05),
)


def ours(df: DataFrame, n: int, strategy: str | None = None) -> DataFrame:
    """Windows of ``n`` hops, by whatever strategy is chosen (or the one given)."""
    strategy = strategy or choose_strategy("points", n, SLOTS)[0]
    at = F.unix_micros("ts")
    last = ((at - F.pmod(at, F.lit(HOP))) / F.lit(HOP)).cast("bigint") if False else F.expr(f"(unix_micros(ts) - pmod(unix_micros(ts), {HOP})) div {HOP}")
    aggregates = [F.count("v").alias("events"), F.sum("v").alias("total"), F.max("v").alias("top")]
    df = df.select("key", last.alias("__hi"), "v")
    if strategy == "direct":
        first = F.col("__hi") - (n - 1)
        index = F.col("__hi") if n == 1 else F.explode(F.sequence(first, F.col("__hi")))
        merged = df.select("key", index.alias("__i"), "v").groupBy("key", "__i").agg(*aggregates)
    else:
        partials = df.groupBy("key", "__hi").agg(F.count(F.lit(1)).alias("__n"), *aggregates)
        partials = partials.withColumns({"__lo": F.col("__hi") - (n - 1), "total__n": F.col("events")})
        merged = merge_partials(partials, ["key"], SLOTS, n, strategy)
    start = F.col("__i") * HOP
    return merged.select(
        "key", F.timestamp_micros(start).alias("start"), F.timestamp_micros(start + n * HOP).alias("end"), "events", "total", "top"
    )


def native(df: DataFrame, n: int) -> DataFrame:
    """The same by Spark's own window function."""
    minutes = HOP // 60_000_000
    window = F.window("ts", f"{n * minutes} minutes", f"{minutes} minutes")
    return df.groupBy("key", window).agg(F.count("v").alias("events"), F.sum("v").alias("total"), F.max("v").alias("top"))


def events(spark: SparkSession, folder: Path, rows: int, density: float, lone: bool) -> DataFrame:
    """Roughly in time order, written once; ``lone``: with one event a century later."""
    path = folder / f"{rows}-{density}{'-lone' if lone else ''}"
    if not path.exists():
        if lone:
            usual = events(spark, folder, rows, density, False)
            late = usual.limit(1).withColumn("ts", F.timestamp_micros(F.unix_micros("ts") + CENTURY))
            usual.union(late).write.parquet(str(path))
        else:
            span = rows / KEYS / density * HOP
            ids = spark.range(rows, numPartitions=4)
            ts = F.timestamp_micros((F.col("id") * (span / rows) + F.rand(1) * HOP).cast("bigint"))
            key = (F.rand(2) * KEYS).cast("int")
            ids.select(key.alias("key"), ts.alias("ts"), (F.rand(3) * 100).alias("v")).write.parquet(str(path))
    return spark.read.parquet(str(path))


def seconds(make: Callable[[], DataFrame]) -> float:
    begun = time.perf_counter()
    make().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun


def measure(spark: SparkSession, folder: Path, rows: int, repeat: int, cells: list[Cell]) -> Iterator[dict[str, object]]:
    """Yields a result a cell, both sides warmed up by a tenth of the rows."""
    for cell in cells:
        count = int(rows * cell.share)
        df = events(spark, folder, count, cell.density, cell.lone)
        plain = events(spark, folder, count, cell.density, False)
        sides: tuple[Callable[[DataFrame], DataFrame], Callable[[DataFrame], DataFrame]] = {
            "native": (lambda d: ours(d, cell.n), lambda d: native(d, cell.n)),
            "ours n=1": (lambda d: ours(d, cell.n), lambda d: ours(d, 1)),
            "ours without the event": (lambda d: ours(d, cell.n), lambda d: ours(d, cell.n)),
        }[cell.against]
        for side in sides:
            seconds(lambda: side(plain.limit(max(1, count // 20))))
        mine, theirs = [], []
        for _ in range(repeat):
            mine.append(seconds(lambda: sides[0](df)))
            theirs.append(seconds(lambda: sides[1](plain)))
        ratio = statistics.median(theirs) / statistics.median(mine)
        yield {
            **asdict(cell), "rows": count, "ours": mine, "other": theirs, "ratio": ratio, "met": ratio >= cell.target,
            "strategy": choose_strategy("points", cell.n, SLOTS)[0],
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=[cell.name for cell in CELLS])
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--memory", default="5g")
    parser.add_argument("--data", type=Path, help="where the events are kept (default: a new temporary folder)")
    parser.add_argument("--json", type=Path, default=Path("batch_hopping.json"))
    options = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", options.memory)
        .config("spark.sql.shuffle.partitions", options.partitions)
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    cells = [cell for cell in CELLS if not options.only or cell.name in options.only]
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.data or Path(temporary)
        row = "{:<16} {:>10} {:>11} {:>8} {:<23} {:>8} {:>7} {:>7}"
        print(row.format("cell", "rows", "strategy", "ours s", "against", "other s", "ratio", "target"))
        for result in measure(spark, folder, options.rows, options.repeat, cells):
            results.append(result)
            mine, other = (f"{statistics.median(result[side]):.2f}" for side in ("ours", "other"))
            print(row.format(
                result["name"], result["rows"], result["strategy"], mine, result["against"], other,
                f"{result['ratio']:.2f}", f"{result['target']:.2f}" + ("" if result["met"] else " !"),
            ), flush=True)  # fmt: skip
        spark.stop()
    options.json.write_text(json.dumps({"options": {k: str(v) for k, v in vars(options).items()}, "results": results}, indent=2))


if __name__ == "__main__":
    main()
