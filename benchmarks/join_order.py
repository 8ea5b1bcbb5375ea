"""Joins in the order of fewest pairs against the order as written, of the same query over the same rows: processor time.

    python -m benchmarks.join_order [--rows 200000] [--batches 8] [--repeat 3] [--json FILE]

Three streams of points of 100 keys, of which two are frequent, with ten events a key and minute, and the last one is rare: a
SEQUENCE of one minute, and a join of events that last a minute. Each runs as a batch on Spark into the noop sink, and in-process
as a stream of micro-batches, with ``sq.Expected`` and without, in turn; a cell is the median of the runs. Both sides have as many
rows. Ratios above 1: the order of fewest pairs is cheaper. Of the stream also the greatest state is shown, in rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import streamq as sq
from benchmarks.processor_time import cpu_seconds
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Results
from streamq.compiler.stages import compile_stages
from streamq.plan.node import number_sources

KEYS, OF_A_KEY, MINUTE = 100, 10, 60_000_000
NAMES = {"views": 1, "carts": 1, "orders": 1_000}
"""The streams, each with the number of views to one of its events."""
Tables = Mapping[str, pa.Table]


def events(rows: int) -> dict[str, pa.Table]:
    """Return the events of each stream, in time order."""
    chance, span = np.random.default_rng(7), rows * MINUTE // (OF_A_KEY * KEYS)
    tables = {}
    for name, fewer in NAMES.items():
        at = np.sort(chance.integers(0, span, rows // fewer)) + 1_700_000_000_000_000
        times = pa.array(at, pa.timestamp("us", "UTC"))
        tables[name] = pa.table({"at": times, "k": chance.integers(0, KEYS, len(at)), "v": np.arange(len(at))})
    return tables


def expected(tables: Tables) -> sq.Expected:
    """Return what is expected of the streams: the rows of each, and the number of keys."""
    rows = {name: table.num_rows for name, table in tables.items()}
    minutes = rows["views"] // (OF_A_KEY * KEYS)
    return sq.Expected(rows=rows, every=f"{minutes} minutes", distinct={"k": KEYS})


def sequence(*streams: sq.Stream) -> sq.Stream:
    """Return an order after a cart after a view of its key, all within a minute."""
    parts = (stream.alias(f"{name}_") for name, stream in zip(NAMES, streams, strict=True))
    return sq.sequence(*parts, within="1 minute").where("CorrelationKey(k, EQUAL)")


def joined(*streams: sq.Stream) -> sq.Stream:
    """Return the events of a key that live at once."""
    views, carts, orders = (s.rename(v=f"v{place}").set_duration("1 minute") for place, s in enumerate(streams))
    return views.join(carts, on="k").join(orders, on="k")


QUERIES: dict[str, Callable[..., sq.Stream]] = {"sequence": sequence, "join": joined}
Measured = tuple[float, int, int]
"""The processor time in seconds, the rows of the result, and the greatest number of rows of state."""


def in_batch(query: Callable[..., sq.Stream], spark: SparkSession, folder: str, rates: sq.Expected | None) -> Measured:
    """Run a query over the files of its streams into the noop sink, and count its rows in another job."""
    answer = query(*(sq.points(spark.read.parquet(f"{folder}/{name}"), "at", name=name) for name in NAMES))
    begun = cpu_seconds()
    answer.to_df(expected=rates).write.format("noop").mode("overwrite").save()
    spent = cpu_seconds() - begun
    return spent, answer.to_df(expected=rates).count(), 0


def as_stream(query: Callable[..., sq.Stream], tables: Tables, batches: int, rates: sq.Expected | None) -> Measured:
    """Run a query in-process, in micro-batches that divide the time of all streams."""
    streams = (sq.points(table.slice(0, 0), "at", name=name, progress=sq.generate(0)) for name, table in tables.items())
    root, _ = number_sources(Results((query(*streams).plan,)))
    run = LocalRun(compile_stages(root, Options(buckets=4, expected=rates)))
    rows, state, begun = 0, 0, time.process_time()
    for number in range(batches):
        part = {}
        for name, table in tables.items():
            first, last = (table.num_rows * place // batches for place in (number, number + 1))
            part[name] = table.slice(first, last - first)
        rows += run.batch(part).num_rows
        state = max(state, sum(kernel.state_rows or 0 for kernel in run.readings.of_kernels.values()))
    rows += run.finish().num_rows
    return time.process_time() - begun, rows, state


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("join_order.json"))
    options = parser.parse_args()
    spark = sq.session("join order", master="local[2]", config={"spark.sql.shuffle.partitions": 4})
    tables, results = events(options.rows), []
    rates = expected(tables)
    line = "{:<10} {:<8} {:>10} {:>11} {:>9} {:>7} {:>12} {:>10}"
    print(line.format("query", "run", "rows", "as written", "ordered", "ratio", "state before", "state now"))
    with tempfile.TemporaryDirectory() as folder:
        for name, table in tables.items():
            spark.createDataFrame(table).write.parquet(f"{folder}/{name}")
        for name, query in QUERIES.items():
            ways: dict[str, Callable[[sq.Expected | None], Measured]] = {
                "batch": partial(in_batch, query, spark, folder),
                "stream": partial(as_stream, query, tables, options.batches),
            }
            for way, measure in ways.items():
                measure(rates)  # warm-up
                runs = [(measure(None), measure(rates)) for _ in range(options.repeat)]
                assert len({rows for pair in runs for _, rows, _ in pair}) == 1, "an order gives other rows"
                written, ordered = (statistics.median(spent for spent, *_ in side) for side in zip(*runs, strict=True))
                (_, rows, before), (_, _, now) = runs[0]
                cells = (f"{written:.2f}", f"{ordered:.2f}", f"{written / ordered:.2f}", before, now)
                print(line.format(name, way, rows, *cells), flush=True)
                results.append({"query": name, "run": way, "runs": runs, "ratio": written / ordered})
    spark.stop()
    settings = {name: str(value) for name, value in vars(options).items()}
    options.json.write_text(json.dumps({"options": settings, "results": results}, indent=2))


if __name__ == "__main__":
    main()
