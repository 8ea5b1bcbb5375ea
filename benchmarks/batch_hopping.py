"""Hopping windows in batch: splitting into basic windows and merging, against Spark's own ``window()``.

    python -m benchmarks.batch_hopping [--rows 10000000] [--repeat 3] [--only d60-n16 ...] [--matrix] [--json FILE]

Point events with a timestamp and a double, 1,000 keys unless a cell says otherwise; sum, count and max (or other aggregates) a
key and window, written to the noop sink. Both sides run in turn, A B B A, in one session; a cell is the median of its runs.
Ratios above 1: ours is faster. ``--matrix``: cells by density and hops, with as many rows as Spark copies in seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import streamq as sq
from streamq.compiler.rewriter import rewrite
from streamq.operators.operator import Operator
from streamq.plan.expected import NO_RATES
from streamq.plan.node import nodes, number_sources

KEYS = 1_000
HOP = 60_000_000
CENTURY = 100 * 365 * 24 * 3_600_000_000
Query = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Cell:
    """A comparison: ``density`` is events per key and hop, ``share`` the fraction of --rows that is used.

    ``of`` names the aggregates. ``target``: the ratio to reach; 0: none. ``keys``: the number of keys.
    """

    name: str
    density: float
    n: int
    target: float
    against: str = "native"
    share: float = 1.0
    lone: bool = False
    of: str = "sum"
    keys: int = KEYS


CELLS = (
    Cell("d60-n1", 60, 1, 1 / 1.1),
    Cell("d60-n16", 60, 16, 4),
    Cell("d60-n60", 60, 60, 12),
    Cell("d60-n512", 60, 512, 150, share=0.2),
    Cell("d60-n512-by-n1", 60, 512, 1 / 2, against="ours n=1"),
    Cell("d60-n60-century", 60, 60, 1 / 1.1, against="ours without the event", lone=True),
    Cell("d1-n60", 1, 60, 4, share=0.3),
    Cell("d0.1-n60", 0.1, 60, 1 / 1.1, share=0.05),
    Cell("d60-n4-median", 60, 4, 1, share=0.1, of="median"),
    Cell("d60-n60-median", 60, 60, 1, share=0.1, of="median"),
    Cell("d60-n60-mixed", 60, 60, 1, share=0.1, of="mixed"),
    Cell("d60-n60-distinct", 60, 60, 1, share=0.1, of="distinct"),
    Cell("d60-n60-corr", 60, 60, 1, share=0.1, of="corr"),
    Cell("d60-n60-first", 60, 60, 1, share=0.1, of="first"),
)

COPIES = 30_000_000
"""The number of events of a matrix cell, counted once for each window that they lie in."""


def matrix() -> Iterator[Cell]:
    """Yield cells by density and hops; ``benchmarks.scaling`` has those by rows, by keys and by hops alone."""
    for density in (100, 10, 1, 0.1):
        for n in (1, 4, 16, 60, 512):
            yield Cell(f"d{density}-n{n}-matrix", density, n, 1 if n == 1 else 0, share=matrix_share(n))


def matrix_share(n: int) -> float:
    """Return the fraction of 10 M rows of a cell of the matrix."""
    return COPIES / max(n, 5) / 10_000_000


OURS: dict[str, Callable[[], dict[str, Any]]] = {
    "sum": lambda: {"events": sq.count("v"), "total": sq.sum("v"), "top": sq.max("v")},
    "count": lambda: {"events": sq.count("v")},
    "median": lambda: {"mid": sq.median("v")},
    "mixed": lambda: {"mid": sq.median("v"), "total": sq.sum("v"), "top": sq.max("v")},
    "distinct": lambda: {"values": sq.count_distinct(sq.functions.floor("v"))},
    "corr": lambda: {"corr": sq.corr("v", "w")},
    "first": lambda: {"first": sq.first("v")},
}
NATIVE: dict[str, Callable[[], list[Column]]] = {
    "sum": lambda: [F.count("v"), F.sum("v"), F.max("v")],
    "count": lambda: [F.count("v")],
    "median": lambda: [F.median("v")],
    "mixed": lambda: [F.median("v"), F.sum("v"), F.max("v")],
    "distinct": lambda: [F.count_distinct(F.floor("v"))],
    "corr": lambda: [F.corr("v", "w")],
    "first": lambda: [F.min_by("v", F.struct("ts", "key", "v", "w"))],
}


def windows(df: DataFrame, n: int, of: str) -> sq.Stream:
    """Return windows of ``n`` hops by the public API."""
    groups = sq.points(df, time="ts").group_by("key")
    return groups.hopping_window(f"{n} minutes", "1 minute").select(**OURS[of]())


def ours(df: DataFrame, n: int, of: str) -> DataFrame:
    """Return windows in the form that streamq chooses."""
    return windows(df, n, of).to_df()


def form_of(df: DataFrame, n: int, of: str) -> str:
    """Return the form that streamq chooses."""
    plan = rewrite(number_sources(windows(df, n, of).plan)[0]).plan
    choices = [node.batch_forms(NO_RATES) for node in nodes(plan) if isinstance(node, Operator)]
    return ", ".join(forms.cheapest.form for forms in choices if forms is not None)


def native(df: DataFrame, n: int, of: str) -> DataFrame:
    """Return the same by Spark's own window function."""
    minutes = HOP // 60_000_000
    window = F.window("ts", f"{n * minutes} minutes", f"{minutes} minutes")
    return df.groupBy("key", window).agg(*NATIVE[of]())


def events(spark: SparkSession, folder: Path, rows: int, density: float, lone: bool, keys: int) -> DataFrame:
    """Return events roughly in time order, written once; ``lone``: with one event a century later."""
    path = folder / f"{rows}-{density}-{keys}{'-lone' if lone else ''}"
    if not path.exists():
        if lone:
            usual = events(spark, folder, rows, density, False, keys)
            late = usual.limit(1).withColumn("ts", F.timestamp_micros(F.unix_micros("ts") + CENTURY))
            usual.union(late).write.parquet(str(path))
        else:
            span = rows / keys / density * HOP
            ids = spark.range(rows, numPartitions=4)
            ts = F.timestamp_micros((F.col("id") * (span / rows) + F.rand(1) * HOP).cast("bigint"))
            key = (F.rand(2) * keys).cast("int")
            v, w = (F.rand(3) * 100).alias("v"), (F.rand(4) * 100).alias("w")
            ids.select(key.alias("key"), ts.alias("ts"), v, w).write.parquet(str(path))
    return spark.read.parquet(str(path))


@dataclass(frozen=True)
class Result:
    """The seconds of both sides' runs, in the order of the runs."""

    cell: Cell
    rows: int
    form: str
    ours: list[float]
    other: list[float]

    @property
    def ratio(self) -> float:
        return statistics.median(self.other) / statistics.median(self.ours)


def seconds(query: Query, df: DataFrame) -> float:
    """Return the time in which a query writes its result to the noop sink."""
    begun = time.perf_counter()
    query(df).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun


def sides(cell: Cell) -> tuple[Query, Query]:
    """Return the query that is measured, and the one it is measured against."""

    def merged(df: DataFrame) -> DataFrame:
        return ours(df, cell.n, cell.of)

    others: dict[str, Query] = {
        "native": lambda df: native(df, cell.n, cell.of),
        "ours n=1": lambda df: ours(df, 1, cell.of),
    }
    return merged, others.get(cell.against, merged)


def measure(spark: SparkSession, folder: Path, rows: int, repeat: int, cells: list[Cell]) -> Iterator[Result]:
    """Yield a result per cell; both sides first run on a twentieth of the rows, as warm-up."""
    for cell in cells:
        count = int(rows * cell.share)
        plain = events(spark, folder, count, cell.density, False, cell.keys)
        df = events(spark, folder, count, cell.density, cell.lone, cell.keys)
        mine, theirs = sides(cell)
        few = plain.limit(max(1, count // 20))
        seconds(mine, few)
        seconds(theirs, few)
        runs: dict[bool, list[float]] = {True: [], False: []}
        for number in range(repeat):
            # the first of a pair runs in a colder JVM
            for is_ours in (True, False) if number % 2 else (False, True):
                runs[is_ours].append(seconds(mine, df) if is_ours else seconds(theirs, plain))
        yield Result(cell, count, form_of(df, cell.n, cell.of), runs[True], runs[False])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=[cell.name for cell in CELLS])
    parser.add_argument("--matrix", action="store_true", help="the cells by density and hops, whatever --only says")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--memory", default="5g")
    parser.add_argument("--data", type=Path, help="where the events are kept (default: a new temporary folder)")
    parser.add_argument("--json", type=Path, default=Path("batch_hopping.json"))
    options = parser.parse_args()
    config = {"spark.driver.memory": options.memory, "spark.sql.shuffle.partitions": options.partitions}
    spark = sq.session("hopping", master="local[2]", config=config)
    cells = list(matrix()) if options.matrix else [c for c in CELLS if not options.only or c.name in options.only]
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        row = "{:<16} {:>10} {:<11} {:>8} {:<23} {:>8} {:>7} {:>7}"
        print(row.format("cell", "rows", "form", "ours s", "against", "other s", "ratio", "target"))
        for result in measure(spark, options.data or Path(temporary), options.rows, options.repeat, cells):
            cell, met = result.cell, result.ratio >= result.cell.target
            mine, other = (f"{statistics.median(runs):.2f}" for runs in (result.ours, result.other))
            ratio, target = f"{result.ratio:.2f}", f"{cell.target:.2f}{'' if met else ' !'}" if cell.target else ""
            columns = cell.name, result.rows, result.form, mine, cell.against, other, ratio, target
            print(row.format(*columns), flush=True)
            results.append({**asdict(result), "ratio": result.ratio, "met": met})
        spark.stop()
    settings = {name: str(value) for name, value in vars(options).items()}
    options.json.write_text(json.dumps({"options": settings, "results": results}, indent=2))


if __name__ == "__main__":
    main()
