"""DataCell's three queries on Spark: a slide of a stream, and the whole window computed anew by Spark, in turn.

    python -m benchmarks.datacell_on_spark [--rows 100000] [--paired 1600] [--hops 64] [--slides 5] [--only Q1 ...] [--json FILE]

Q1: ``x1, sum(x2) where x1 > v group by x1`` over a hopping window, 20 % selected. Q2: ``max(s1.x1), avg(s2.x1) where s1.x2 =
s2.x2`` over hopping windows of two streams, where a tuple meets one of the other stream. Q3: ``max(x1), sum(x2) where x1 > v``
since a landmark. A file a hop of ``--rows`` tuples, of Q2 of ``--paired`` tuples in each stream; windows have ``--hops`` hops,
and Q3 has seen as many. *Slide* is the micro-batch of the next files, by Spark's clock; *anew* is Spark's own query over all
files of the window, written to the noop sink. Source: Liarou et al., section 4.1; the paper's window has 10.24 M tuples in 512
hops, that of Q2 102,400 tuples in 64.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamq as sq

HOP = 60_000_000
GROUPS, SELECTED = 1_000, 0.2
START = 1_700_000_040_000_000
SCHEMA = "ts timestamp, x1 bigint, x2 bigint"


@dataclass(frozen=True)
class Question:
    """A query of the paper: as a stream over windows of so many hops, and Spark's own over the tuples of a window.

    ``sources`` are the names of its streams.
    """

    stream: Callable[[list[sq.Stream], int], sq.Stream]
    anew: Callable[[list[DataFrame]], DataFrame]
    sources: tuple[str, ...] = ("s",)
    is_landmark: bool = False


V = int(GROUPS * (1 - SELECTED)) - 1


def q1(sources: list[sq.Stream], hops: int) -> sq.Stream:
    """Return Q1 as a stream."""
    groups = sources[0].where(sq.col("x1") > V).group_by("x1")
    return groups.hopping_window(f"{hops} minutes", "1 minute").select(total=sq.sum("x2"))


def q2(sources: list[sq.Stream], hops: int) -> sq.Stream:
    """Return Q2 as a stream."""
    first, second = sources
    pairs = first.windowed_join(second, on="x2", size=f"{hops} minutes", hop="1 minute", suffixes=("", "_2"))
    return pairs.select(top=sq.max("x1"), mean=sq.avg("x1_2"))


def q3(sources: list[sq.Stream], hops: int) -> sq.Stream:
    """Return Q3 as a stream; its windows grow, so it has no number of hops."""
    landmark = dt.datetime.fromtimestamp(START / 1e6, dt.UTC)
    windows = sources[0].where(sq.col("x1") > V).landmark_window("1 minute", start=landmark)
    return windows.select(top=sq.max("x1"), total=sq.sum("x2"))


def q2_by_spark(tables: list[DataFrame]) -> DataFrame:
    """Return Q2 over the tuples of a window."""
    first, second = tables[0].alias("s1"), tables[1].alias("s2")
    return first.join(second, F.col("s1.x2") == F.col("s2.x2")).agg(F.max("s1.x1"), F.avg("s2.x1"))


QUESTIONS = {
    "Q1": Question(q1, lambda tables: tables[0].where(F.col("x1") > V).groupBy("x1").agg(F.sum("x2"))),
    "Q2": Question(q2, q2_by_spark, sources=("s1", "s2")),
    "Q3": Question(q3, lambda tables: tables[0].where(F.col("x1") > V).agg(F.max("x1"), F.sum("x2")), is_landmark=True),
}


def write_hop(folder: Path, number: int, rows: int, values: int) -> Path:
    """Write the tuples of a hop, whose ``x2`` is one of some ``values``, and return their file, which appears at once."""
    rng = np.random.default_rng([number, *folder.name.encode()])
    ts = pa.array(np.sort(rng.integers(0, HOP, rows)) + START + number * HOP, pa.timestamp("us", tz="UTC"))
    table = pa.table({"ts": ts, "x1": rng.integers(0, GROUPS, rows), "x2": rng.integers(0, values, rows)})
    hidden, file = folder / f".{number:05d}", folder / f"{number:05d}.parquet"
    pq.write_table(table, hidden, row_group_size=max(1, rows // 2))
    return hidden.rename(file)


def measure(spark: SparkSession, name: str, hops: int, rows: int, values: int, slides: int) -> dict[str, Any]:
    """Return the milliseconds of each slide, and of each window computed anew; a hop has some ``rows`` in each stream."""
    question = QUESTIONS[name]
    slide: list[float] = []
    anew: list[float] = []
    with tempfile.TemporaryDirectory(prefix="streamq-bench-") as temporary:
        folders = [Path(temporary) / source for source in question.sources]
        for folder in folders:
            folder.mkdir()
        files = [[write_hop(folder, number, rows, values) for folder in folders] for number in range(hops)]
        sources = [
            sq.points(spark.readStream.schema(SCHEMA).parquet(str(folder)), time="ts", name=folder.name)
            for folder in folders
        ]
        with question.stream(sources, hops).run(checkpoint=str(Path(temporary) / "checkpoint")) as run:
            run.process_all_available()
            for number in range(hops, hops + slides + 1):
                files.append([write_hop(folder, number, rows, values) for folder in folders])
                run.process_all_available()
                (last,) = [p for p in run.query.recentProgress if p["numInputRows"]][-1:]
                slide.append(last["durationMs"]["triggerExecution"])
                window = files if question.is_landmark else files[-hops:]
                begun = time.perf_counter()
                tables = [spark.read.schema(SCHEMA).parquet(*map(str, each)) for each in zip(*window, strict=True)]
                question.anew(tables).write.format("noop").mode("overwrite").save()
                anew.append(1_000 * (time.perf_counter() - begun))
    # the first of each warms up
    return {"query": name, "rows": rows, "hops": hops, "slide": slide[1:], "anew": anew[1:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="the tuples of a hop")
    parser.add_argument("--paired", type=int, default=1_600, help="the tuples of a hop in each stream of Q2")
    parser.add_argument("--hops", type=int, nargs="*", default=[64])
    parser.add_argument("--only", nargs="*", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--slides", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("datacell_on_spark.json"))
    options = parser.parse_args()
    spark = sq.session(
        "benchmark", master="local[2]", config={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "6g"}
    )
    results = []
    print(f"{'query':<6} {'tuples':>10} {'hops':>5} {'slide ms':>9} {'anew ms':>9} {'anew / slide':>13}")
    for hops in options.hops:
        for name in options.only:
            # of Q2 a tuple meets one of the other stream
            is_paired = len(QUESTIONS[name].sources) > 1
            rows, values = (options.paired, options.paired * hops) if is_paired else (options.rows, 1_000)
            r = measure(spark, name, hops, rows, values, options.slides)
            slide, anew = median(r["slide"]), median(r["anew"])
            print(
                f"{name:<6} {r['rows'] * hops:>10} {hops:>5} {slide:9.0f} {anew:9.0f} {anew / slide:13.2f}", flush=True
            )
            results.append(r)
    options.json.write_text(json.dumps(results, indent=1))
    spark.stop()


if __name__ == "__main__":
    main()
