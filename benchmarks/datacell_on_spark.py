"""DataCell's Q1 and Q3 on Spark: a slide of a stream, and the whole window computed anew by Spark, in turn.

    python -m benchmarks.datacell_on_spark [--rows 100000] [--hops 64] [--slides 5] [--json FILE]

Q1: ``x1, sum(x2) where x1 > v group by x1`` over a hopping window, 20 % selected. Q3: ``max(x1), sum(x2) where x1 > v`` since a
landmark. A file a hop of ``--rows`` tuples; the window of Q1 has ``--hops`` hops, and Q3 has seen as many. *Slide* is the
micro-batch of the next file, by Spark's clock; *anew* is Spark's own aggregation of all files of the window, written to the noop
sink. Source: Liarou et al., section 4.1; the paper's window has 10.24 M tuples in 512 hops.
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
    """A query of the paper: as a stream over windows of so many hops, and Spark's own over the tuples of a window."""

    stream: Callable[[sq.Stream, int], sq.Stream]
    anew: Callable[[DataFrame], DataFrame]
    is_landmark: bool = False


V = int(GROUPS * (1 - SELECTED)) - 1
QUESTIONS = {
    "Q1": Question(
        lambda s, hops: s.group_by("x1").hopping_window(f"{hops} minutes", "1 minute").select(total=sq.sum("x2")),
        lambda df: df.groupBy("x1").agg(F.sum("x2")),
    ),
    "Q3": Question(
        lambda s, hops: s.landmark_window("1 minute", start=dt.datetime.fromtimestamp(START / 1e6, dt.UTC)).select(
            top=sq.max("x1"), total=sq.sum("x2")
        ),
        lambda df: df.agg(F.max("x1"), F.sum("x2")),
        is_landmark=True,
    ),
}


def write_hop(folder: Path, number: int, rows: int) -> Path:
    """Write the tuples of a hop, and return their file, which appears at once."""
    rng = np.random.default_rng(number)
    ts = pa.array(np.sort(rng.integers(0, HOP, rows)) + START + number * HOP, pa.timestamp("us", tz="UTC"))
    table = pa.table({"ts": ts, "x1": rng.integers(0, GROUPS, rows), "x2": rng.integers(0, 1_000, rows)})
    hidden, file = folder / f".{number:05d}", folder / f"{number:05d}.parquet"
    pq.write_table(table, hidden, row_group_size=max(1, rows // 2))
    return hidden.rename(file)


def measure(spark: SparkSession, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the milliseconds of each slide, and of each window computed anew."""
    question = QUESTIONS[name]
    slides: list[float] = []
    anew: list[float] = []
    with tempfile.TemporaryDirectory(prefix="streamq-bench-") as temporary:
        folder = Path(temporary) / "tuples"
        folder.mkdir()
        files = [write_hop(folder, number, options.rows) for number in range(options.hops)]
        df = spark.readStream.schema(SCHEMA).parquet(str(folder))
        tuples = sq.points(df, time="ts", name="tuples").where(sq.col("x1") > V)
        with question.stream(tuples, options.hops).run(checkpoint=str(Path(temporary) / "checkpoint")) as run:
            run.process_all_available()
            for number in range(options.hops, options.hops + options.slides + 1):
                files.append(write_hop(folder, number, options.rows))
                run.process_all_available()
                (last,) = [p for p in run.query.recentProgress if p["numInputRows"]][-1:]
                slides.append(last["durationMs"]["triggerExecution"])
                window = files if question.is_landmark else files[-options.hops :]
                begun = time.perf_counter()
                tuples_of_window = spark.read.schema(SCHEMA).parquet(*map(str, window)).where(F.col("x1") > V)
                question.anew(tuples_of_window).write.format("noop").mode("overwrite").save()
                anew.append(1_000 * (time.perf_counter() - begun))
    # the first of each warms up
    return {"query": name, "rows": options.rows, "hops": options.hops, "slide": slides[1:], "anew": anew[1:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="the tuples of a hop")
    parser.add_argument("--hops", type=int, nargs="*", default=[64])
    parser.add_argument("--slides", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("datacell_on_spark.json"))
    options = parser.parse_args()
    spark = sq.session(
        "benchmark", master="local[2]", config={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "6g"}
    )
    results = []
    print(f"{'query':<6} {'tuples':>10} {'hops':>5} {'slide ms':>9} {'anew ms':>9} {'anew / slide':>13}")
    for hops in options.hops:
        for name in QUESTIONS:
            r = measure(spark, name, argparse.Namespace(**{**vars(options), "hops": hops}))
            slide, anew = median(r["slide"]), median(r["anew"])
            print(
                f"{name:<6} {r['rows'] * hops:>10} {hops:>5} {slide:9.0f} {anew:9.0f} {anew / slide:13.2f}", flush=True
            )
            results.append(r)
    options.json.write_text(json.dumps(results, indent=1))
    spark.stop()


if __name__ == "__main__":
    main()
