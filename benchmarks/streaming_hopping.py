"""Streaming hopping windows against Spark's own, batch by batch, in one run: time a micro-batch, rows and bytes of state.

streamq reads by ``sq.files``, Spark by its own reader. Settings, each with points in time order, a micro-batch a file, ``sum,
count, max`` of ``v``:

* dense: 2 M events a micro-batch, 1,000 keys, 60 events a key and hop, n = size / hop = 60, random doubles, against Spark's
  own hopping windows; cents: the same with amounts in cents (bigint), whose partial results compress;
* keys: 200 k events a micro-batch, 20,000 keys, tumbling and n = 60, against Spark's own *tumbling* windows;
* many: 200 k events a micro-batch, 1,000 keys, 10 events a key and hop: n = 512 against n = 1 by streamq, once windows are
  full; if named;
* matrix: 1,000 keys, by events a key and hop and by n, as many events a micro-batch as Spark copies in seconds; if named;
* by_keys: the same by the number of keys, 10 events a key and hop, n = 16; if named;
* by_aggregates: the same with 1,000 keys by aggregates, of points and of intervals; if named.

Prints a table and writes JSON. ``python -m benchmarks.streaming_hopping --help``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from benchmarks.batch_hopping import COMPARED
from benchmarks.hopping import HOP_US, LONGEST_US, spark_windows, windows

DENSITIES, HOPS = (100, 10, 1, 0.1), (1, 4, 16, 60)
"""The cells of the matrix."""

KEYS = (10, 1_000, 100_000, 1_000_000)

COPIES = 2_000_000
"""The events of a micro-batch in the matrix, counted once for each window that they lie in; and at most ``MOST`` events."""

MOST = 200_000
AXIS = pa.timestamp("us", tz="UTC")
RANDOM = pa.schema([("ts", AXIS), ("key", pa.int64()), ("v", pa.float64()), ("until", AXIS)])
"""``v`` is a random double, which does not compress; ``until`` the end of an interval, if the events last."""
CENTS = pa.schema([("ts", AXIS), ("key", pa.int64()), ("v", pa.int64()), ("until", AXIS)])
"""``v`` is an amount in cents, below 100.00, as a bigint."""


@dataclass
class Measured:
    """The measures of one query in one setting: medians over the micro-batches after the first two."""

    setting: str
    query: str
    batch_ms: float
    all_ms: list[int]
    state_rows: int
    live_bytes: int
    disk_bytes: int
    memory_bytes: int


def generate(folder: Path, schema: pa.Schema, batches: int, rows: int, keys: int, per_key_and_hop: float) -> None:
    """Write files of points in time order; each micro-batch spans ``rows / keys / per_key_and_hop`` hops."""
    rng = np.random.default_rng(7)
    span = int(rows / keys / per_key_and_hop * HOP_US)
    folder.mkdir(parents=True)
    for i in range(batches):
        ts = np.sort(rng.integers(i * span, (i + 1) * span, rows)) + 1_700_000_000_000_000
        v = rng.integers(0, 10_000, rows) if schema is CENTS else rng.random(rows) * 100
        until = ts + rng.integers(1, LONGEST_US, rows)
        table = pa.table([pa.array(ts, AXIS), rng.integers(0, keys, rows), v, pa.array(until, AXIS)], schema=schema)
        # at least two row groups, so that both cores read
        pq.write_table(table, folder / f"{i:04d}.parquet", row_group_size=max(1, rows // 8))


def source(spark: SparkSession, folder: Path, *, all_at_once: bool = False) -> DataFrame:
    """Return a streaming DataFrame that reads one file per micro-batch, or all files ``all_at_once``."""
    schema = pq.read_schema(next(folder.glob("*.parquet")))
    reader = spark.readStream.schema(from_arrow_schema(schema))
    return (reader if all_at_once else reader.option("maxFilesPerTrigger", 1)).parquet(str(folder))


class Ran(NamedTuple):
    """An ended query, and the bytes that its state held at the end."""

    query: Any
    live_bytes: int


def live_bytes(spark: SparkSession, checkpoint: str, variable: str | None) -> int:
    """Return the bytes of keys and values in the state store, as Spark's rows, before compression on disk."""
    reader = spark.read.format("statestore").option("path", checkpoint)
    state = (reader.option("stateVarName", variable) if variable else reader).load()
    names = [n for n in state.columns if n != "partition_id"]
    total = state.select(F.sum(sum((row_bytes(state.schema[n].dataType, F.col(n)) for n in names), F.lit(0))))
    return int(total.collect()[0][0] or 0)


def row_bytes(kind: t.DataType, value: Column) -> Column:
    """Return the bytes of a value in Spark's UnsafeRow: a word per field, a bitmap per row, and variable-length data."""
    if isinstance(kind, t.StructType):
        own = F.lit(8 * (1 + (len(kind.fields) - 1) // 64 + len(kind.fields)))
        nested = [row_bytes(f.dataType, value[f.name]) for f in kind.fields if is_variable(f.dataType)]
        return sum(nested, own)
    return F.ceil(F.octet_length(value) / 8) * 8


def is_variable(kind: t.DataType) -> bool:
    return isinstance(kind, t.StructType | t.StringType | t.BinaryType)


def ours(spark: SparkSession, folder: Path, n: int, of: str = "sum", *, lasting: bool = False) -> Ran:
    """Run hopping windows by streamq over all input."""
    files = sq.files(str(folder), maxFilesPerTrigger=1)
    run = windows(files, n, of, lasting=lasting).run(sink="noop", trigger="available_now")
    held = live_bytes(spark, run.checkpoint, "baskets")
    shutil.rmtree(run.checkpoint, ignore_errors=True)
    return Ran(run.query, held)


def native(spark: SparkSession, folder: Path, n: int, of: str = "sum", *, lasting: bool = False) -> Ran:
    """Run hopping windows by Spark over all input."""
    return ended(spark, spark_windows(source(spark, folder), n, of, lasting=lasting, streaming=True))


def ended(spark: SparkSession, grouped: DataFrame) -> Ran:
    """Run a query of Spark's own over all input; return it with its state's bytes."""
    checkpoint = tempfile.mkdtemp()
    writer = grouped.writeStream.format("noop").outputMode("append").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    held = live_bytes(spark, checkpoint, None)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return Ran(query, held)


def measure(setting: str, label: str, ran: Ran) -> Measured:
    """Return the measures of an ended query."""
    reports = [json.loads(p.json) for p in ran.query.recentProgress]
    reports = [p for p in reports if p["numInputRows"]]
    times = [p["durationMs"]["triggerExecution"] for p in reports]
    state = [p["stateOperators"][0] for p in reports]
    steady = times[2:] or times
    disk_bytes = [s.get("customMetrics", {}).get("rocksdbSstFileSize", 0) for s in state]
    return Measured(
        setting,
        label,
        statistics.median(steady),
        times,
        state[-1]["numRowsTotal"],
        ran.live_bytes,
        disk_bytes[-1],
        state[-1]["memoryUsedBytes"],
    )


class Cell(NamedTuple):
    """A comparison with Spark's window of the same hops: ``density`` is events a key and hop."""

    name: str
    density: float
    n: int
    keys: int = 1_000
    of: str = "sum"
    lasting: bool = False


MATRICES = {
    "matrix": [Cell(f"{density} events, n={n}", density, n) for density in DENSITIES for n in HOPS],
    "by_keys": [Cell(f"{keys} keys", 10, 16, keys) for keys in KEYS],
    "by_aggregates": [
        Cell(f"{of} of {'intervals' if lasting else 'points'}", 10, 16, of=of, lasting=lasting)
        for lasting in (False, True)
        for of in COMPARED
    ],
}


def compare(spark: SparkSession, folder: Path, cells: list[Cell], args: argparse.Namespace) -> Iterator[Measured]:
    """Yield the measures of both sides of each cell, and print their ratio."""
    for name, density, n, keys, of, lasting in cells:
        rows = int(min(MOST, COPIES / n) * args.scale)
        files = folder / "cell"
        generate(files, RANDOM, args.batches, rows, keys, density)
        mine = measure(name, "streamq", ours(spark, files, n, of, lasting=lasting))
        other = measure(name, "spark", native(spark, files, n, of, lasting=lasting))
        times = f"{mine.batch_ms:6.0f} {other.batch_ms:6.0f} ms"
        print(f"{name:24} {rows:9,} rows {times} {other.batch_ms / mine.batch_ms:6.2f}", flush=True)
        shutil.rmtree(files)
        yield from (mine, other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows of a micro-batch")
    parser.add_argument("--settings", default="dense,cents,keys")
    parser.add_argument("--only", nargs="*", default=[], help="names of cells of the settings that are tables")
    parser.add_argument("--json", default="streaming_hopping.json")
    args = parser.parse_args()
    settings = args.settings.split(",")
    unknown = set(args.only) - {cell.name for cells in MATRICES.values() for cell in cells}
    if unknown:
        parser.error(f"no cells {sorted(unknown)}")
    spark = sq.session(
        "benchmark", master="local[2]", config={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "6g"}
    )
    results: list[Measured] = []
    folder = Path(tempfile.mkdtemp(prefix="streamq-bench-"))
    try:
        for name, schema in (("dense", RANDOM), ("cents", CENTS)):
            if name in settings:
                generate(folder / name, schema, args.batches, int(2_000_000 * args.scale), 1_000, 60)
                results.append(measure(name, "streamq n=60", ours(spark, folder / name, 60)))
                results.append(measure(name, "spark n=60", native(spark, folder / name, 60)))
        if "keys" in settings:
            generate(folder / "keys", RANDOM, args.batches + 4, int(200_000 * args.scale), 20_000, 1)
            results.append(measure("keys", "streamq n=60", ours(spark, folder / "keys", 60)))
            results.append(measure("keys", "spark tumbling", native(spark, folder / "keys", 1)))
            results.append(measure("keys", "streamq tumbling", ours(spark, folder / "keys", 1)))
        if "many" in settings:
            # 20 hops a micro-batch, 640 before the last eight
            generate(folder / "many", RANDOM, 40, int(200_000 * args.scale), 1_000, 10)
            for n in (1, 512):
                ran = measure("many", f"streamq n={n}", ours(spark, folder / "many", n))
                results.append(replace(ran, batch_ms=statistics.median(ran.all_ms[-8:])))
        for name, cells in MATRICES.items():
            if name in settings:
                chosen = [cell for cell in cells if not args.only or cell.name in args.only]
                results += compare(spark, folder, chosen, args)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()
    for m in results:
        state = (
            f"state {m.state_rows:9} rows {m.live_bytes:12} live {m.disk_bytes:12} on disk {m.memory_bytes:12} memory"
        )
        print(f"{m.setting:8} {m.query:18} {m.batch_ms:9.0f} ms a batch   {state}   {m.all_ms}")
    by = {(m.setting, m.query): m for m in results}
    ratios: dict[str, float] = {}
    for name in ("dense", "cents"):
        if name in settings:
            a, b = by[name, "streamq n=60"], by[name, "spark n=60"]
            ratios[f"{name}: spark / streamq time"] = b.batch_ms / a.batch_ms
            ratios[f"{name}: spark / streamq state rows"] = b.state_rows / a.state_rows
            ratios[f"{name}: spark / streamq state bytes, live"] = b.live_bytes / a.live_bytes
            ratios[f"{name}: spark / streamq state bytes, on disk"] = b.disk_bytes / max(1, a.disk_bytes)
            ratios[f"{name}: spark / streamq state bytes, memory"] = b.memory_bytes / a.memory_bytes
    if "many" in settings:
        ratios["many: n = 512 / n = 1 time"] = by["many", "streamq n=512"].batch_ms / by["many", "streamq n=1"].batch_ms
    if "keys" in settings:
        for label in ("streamq tumbling", "streamq n=60"):
            ratios[f"keys: {label} / spark tumbling time"] = (
                by["keys", label].batch_ms / by["keys", "spark tumbling"].batch_ms
            )
    for name, ratio in ratios.items():
        print(f"{name:50} {ratio:6.2f}")
    Path(args.json).write_text(json.dumps({"measured": [asdict(m) for m in results], "ratios": ratios}, indent=2))


if __name__ == "__main__":
    main()
