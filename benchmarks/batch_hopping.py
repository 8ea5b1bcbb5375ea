"""Hopping windows in batch: splitting into basic windows and merging, against Spark's own ``window()``.

    python -m benchmarks.batch_hopping [--rows 10000000] [--repeat 3] [--only d60-n16 ...] [--matrix density] [--json FILE]

Point events with a timestamp and a double, 1,000 keys unless a cell says otherwise; sum, count and max (or other aggregates) a
key and window, written to the noop sink. Both sides run in turn, A B B A, in one session; a cell is the median of its runs.
Ratios above 1: ours is faster. ``--matrix``: cells by density and hops, or by aggregates, of points and
of intervals, with as many rows as Spark copies in seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamq as sq
from benchmarks.hopping import HOP_US, LONGEST_US, spark_windows, windows
from streamq.compiler.rewriter import rewrite
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.operator import BatchForm
from streamq.plan.footprint import NO_RATES
from streamq.plan.node import nodes, number_sources

KEYS = 1_000
CENTURY = 100 * 365 * 24 * 3_600_000_000
Query = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Cell:
    """A comparison: ``density`` is events per key and hop, ``share`` the fraction of --rows that is used.

    ``of`` names the aggregates. ``target``: the ratio to reach; 0: none. ``keys``: the number of keys. ``lasting``: intervals of
    up to two hops instead of points. ``form``: the form that is asked for.
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
    lasting: bool = False
    form: BatchForm | None = None


CELLS = (
    Cell("d60-n1", 60, 1, 1 / 1.1),
    Cell("d60-n16", 60, 16, 4),
    Cell("d60-n60", 60, 60, 40),
    Cell("d60-n60-partials", 60, 60, 1 / 2, against="partials"),
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

COMPARED = ("count_sum", "max", "avg", "median", "distinct", "top_k")
"""The aggregates of the cells of a matrix."""


def by_density() -> Iterator[Cell]:
    """Yield cells by density and hops; ``benchmarks.scaling`` has those by rows, by keys and by hops alone."""
    for density in (100, 10, 1, 0.1):
        for n in (1, 4, 16, 60, 512):
            yield Cell(f"d{density}-n{n}", density, n, 1 if n == 1 else 0, share=matrix_share(n))


def by_aggregates() -> Iterator[Cell]:
    """Yield cells by aggregates, of points and of intervals; 10 events a key and hop, 16 hops."""
    for lasting in (False, True):
        for of in COMPARED:
            name = f"{'intervals' if lasting else 'points'}-{of}"
            yield Cell(name, 10, 16, 0, share=matrix_share(16), of=of, lasting=lasting)
    yield Cell(
        "intervals-max-copied", 10, 16, 0, share=matrix_share(16), of="max", lasting=True, form=BatchForm.EXPLODE
    )


MATRICES = {"density": by_density, "aggregates": by_aggregates}


def matrix_share(n: int) -> float:
    """Return the fraction of 10 M rows of a cell of the matrix."""
    return COPIES / max(n, 5) / 10_000_000


def ours(cell: Cell, df: DataFrame) -> DataFrame:
    """Return the windows of a cell in its form, or in the one that streamq chooses."""
    return windows(df, cell.n, cell.of, lasting=cell.lasting).to_df(form=cell.form)


def form_of(cell: Cell, df: DataFrame) -> str:
    """Return the form of a cell."""
    query = windows(df, cell.n, cell.of, lasting=cell.lasting)
    plan = rewrite(number_sources(query.plan)[0]).plan
    choices = [node.batch_forms(NO_RATES) for node in nodes(plan) if isinstance(node, EvaluatedOperator)]
    return ", ".join(forms.choose(cell.form).form for forms in choices if forms is not None)


def events(spark: SparkSession, folder: Path, rows: int, density: float, lone: bool, keys: int) -> DataFrame:
    """Return events roughly in time order, written once; ``lone``: with one event a century later."""
    path = folder / f"{rows}-{density}-{keys}{'-lone' if lone else ''}"
    if not path.exists():
        if lone:
            usual = events(spark, folder, rows, density, False, keys)
            late = usual.limit(1).withColumn("ts", F.timestamp_micros(F.unix_micros("ts") + CENTURY))
            usual.union(late).write.parquet(str(path))
        else:
            span = rows / keys / density * HOP_US
            ids = spark.range(rows, numPartitions=4)
            ts = F.timestamp_micros((F.col("id") * (span / rows) + F.rand(1) * HOP_US).cast("bigint"))
            key = (F.rand(2) * keys).cast("int")
            v, w = (F.rand(3) * 100).alias("v"), (F.rand(4) * 100).alias("w")
            ids.select(key.alias("key"), ts.alias("ts"), v, w).write.parquet(str(path))
    df = spark.read.parquet(str(path))
    return df.withColumn("until", F.timestamp_micros(F.unix_micros("ts") + 1 + F.floor(F.col("w") / 100 * LONGEST_US)))


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


def partial_results(df: DataFrame) -> DataFrame:
    """Return count, sum and maximum of each key and hop, by Spark, without windows."""
    hop = F.floor(F.unix_micros("ts") / HOP_US)
    return df.groupBy("key", hop).agg(F.count("v"), F.sum("v"), F.max("v"))


def sides(cell: Cell) -> tuple[Query, Query]:
    """Return the query that is measured, and the one it is measured against."""
    others: dict[str, Query] = {
        "native": lambda df: spark_windows(df, cell.n, cell.of, lasting=cell.lasting),
        "ours n=1": partial(ours, replace(cell, n=1)),
        "partials": partial_results,
    }
    merged = partial(ours, cell)
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
        yield Result(cell, count, form_of(cell, df), runs[True], runs[False])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="names of cells")
    parser.add_argument("--matrix", choices=list(MATRICES), help="the cells of a matrix")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--memory", default="5g")
    parser.add_argument("--data", type=Path, help="where the events are kept (default: a new temporary folder)")
    parser.add_argument("--json", type=Path, default=Path("batch_hopping.json"))
    options = parser.parse_args()
    config = {"spark.driver.memory": options.memory, "spark.sql.shuffle.partitions": options.partitions}
    spark = sq.session("hopping", master="local[2]", config=config)
    named = list(MATRICES[options.matrix]() if options.matrix else CELLS)
    unknown = set(options.only) - {cell.name for cell in named}
    if unknown:
        parser.error(f"no cells {sorted(unknown)}, the cells are {[cell.name for cell in named]}")
    cells = [cell for cell in named if not options.only or cell.name in options.only]
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
