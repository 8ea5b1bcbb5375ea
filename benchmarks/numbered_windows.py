"""Windows by numbers in batch, of rows and of distinct starts: streamq against Spark's own frames of rows.

    python -m benchmarks.numbered_windows [--rows 1000000] [--repeat 3] [--json FILE]

Points of 1,000 keys, each at an instant of its own, so that a window of n starts is one of n rows; sum and maximum of a whole
number a key and window, written to the noop sink. By hand: a frame of the last n rows at each row, of which those that end a
window are left. Both sides run in turn, A B A B, in one session; a cell is the median of its runs. Ratios above 1: ours is
faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

import streamq as sq
from benchmarks.batch_hopping import KEYS, seconds


@dataclass(frozen=True)
class Cell:
    """Windows of ``n`` rows, one from every ``step`` rows on; ``by_starts``: of n distinct starts, one from each."""

    name: str
    n: int
    step: int
    by_starts: bool = False


CELLS = (
    Cell("rows 40/10", 40, 10),
    Cell("rows 160/10", 160, 10),
    Cell("rows 1,000/100", 1_000, 100),
    Cell("starts 16", 16, 1, by_starts=True),
)


def ours(df: DataFrame, cell: Cell) -> DataFrame:
    """Return the windows by the public API."""
    groups = sq.points(df, time="t").group_by("key")
    windows = groups.count_window(cell.n) if cell.by_starts else groups.rows_window(cell.n, cell.step)
    return windows.select(total=sq.sum("v"), top=sq.max("v")).to_df()


def by_hand(df: DataFrame, cell: Cell) -> DataFrame:
    """Return the same by frames of rows."""
    order = Over.partitionBy("key").orderBy("t")
    frame = order.rowsBetween(1 - cell.n, 0)
    place = F.row_number().over(order)
    rows = df.select("key", "t", place.alias("place"), F.sum("v").over(frame).alias("total"), F.max("v").over(frame))
    return rows.where((F.col("place") >= cell.n) & ((F.col("place") - cell.n) % cell.step == 0))


def points(spark: SparkSession, rows: int) -> DataFrame:
    """Return the points, held in memory."""
    value = (F.rand(3) * 1_000).cast("bigint")
    df = spark.range(rows, numPartitions=4).select(
        F.col("id").alias("t"), (F.col("id") % KEYS).alias("key"), value.alias("v")
    )
    df = df.cache()
    df.count()
    return df


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("numbered_windows.json"))
    options = parser.parse_args()
    config = {"spark.driver.memory": "5g", "spark.sql.shuffle.partitions": 4}
    spark = sq.session("numbered windows", master="local[2]", config=config)
    df, results = points(spark, options.rows), []
    print(f"{'windows':<16} {'ours s':>8} {'by hand s':>10} {'ratio':>6}")
    for cell in CELLS:
        few = df.limit(options.rows // 20)
        sides = [lambda table, cell=cell: ours(table, cell), lambda table, cell=cell: by_hand(table, cell)]
        for side in sides:
            seconds(side, few)
        pairs = [[seconds(side, df) for side in sides] for _ in range(options.repeat)]
        mine, theirs = (statistics.median(runs) for runs in zip(*pairs, strict=True))
        print(f"{cell.name:<16} {mine:>8.2f} {theirs:>10.2f} {theirs / mine:>6.2f}", flush=True)
        results.append({**asdict(cell), "ours": mine, "by_hand": theirs, "ratio": theirs / mine})
    spark.stop()
    options.json.write_text(json.dumps({"rows": options.rows, "results": results}, indent=2))


if __name__ == "__main__":
    main()
