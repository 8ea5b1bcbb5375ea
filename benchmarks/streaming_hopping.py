"""Streaming hopping windows against Spark's own, batch by batch, in one run: time a micro-batch, rows and bytes of state.

Settings, each with points in time order, a micro-batch a file, ``sum, count, max`` of ``v``:

* dense: 2 M events a micro-batch, 1,000 keys, 60 events a key and hop, n = size / hop = 60, random doubles, against Spark's
  own hopping windows; cents: the same with amounts in cents (bigint), whose partial results compress;
* keys: 200 k events a micro-batch, 20,000 keys, tumbling and n = 60, against Spark's own *tumbling* windows.

Prints a table and writes JSON. ``python -m benchmarks.streaming_hopping --help``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq

HOP_US = 60_000_000
AXIS = pa.timestamp("us", tz="UTC")
RANDOM = pa.schema([("ts", AXIS), ("k", pa.int64()), ("v", pa.float64())])
"""``v`` is a random double: nothing of it compresses."""
CENTS = pa.schema([("ts", AXIS), ("k", pa.int64()), ("v", pa.int64())])
"""``v`` is an amount in cents, below 100.00, a bigint."""


@dataclass
class Measured:
    """One query over one setting: medians over the micro-batches after the first two."""

    setting: str
    query: str
    batch_ms: float
    all_ms: list[int]
    state_rows: int
    state_bytes: int
    state_memory: int


def generate(folder: Path, schema: pa.Schema, batches: int, rows: int, keys: int, per_key_and_hop: float) -> None:
    """Files of points in time order; each micro-batch spans ``rows / keys / per_key_and_hop`` hops."""
    rng = np.random.default_rng(7)
    span = int(rows / keys / per_key_and_hop * HOP_US)
    folder.mkdir(parents=True)
    for i in range(batches):
        ts = np.sort(rng.integers(i * span, (i + 1) * span, rows)) + 1_700_000_000_000_000
        v = rng.integers(0, 10_000, rows) if schema is CENTS else rng.random(rows)
        table = pa.table([pa.array(ts, AXIS), rng.integers(0, keys, rows), v], schema=schema)
        # two row groups and more, so that both cores read
        pq.write_table(table, folder / f"{i:04d}.parquet", row_group_size=max(1, rows // 8))


def source(spark: SparkSession, folder: Path) -> DataFrame:
    schema = pq.read_schema(next(folder.glob("*.parquet")))
    return spark.readStream.schema(from_arrow_schema(schema)).option("maxFilesPerTrigger", 1).parquet(str(folder))


def ours(spark: SparkSession, folder: Path, n: int) -> Any:
    stream = sq.points(source(spark, folder), time="ts", name="points")
    size = f"{n} minutes"
    q = stream.group_by("k").hopping_window(size, "1 minute").select(s=sq.sum("v"), c=sq.count(), m=sq.max("v"))
    run = q.run(sink="noop", trigger="available_now")
    shutil.rmtree(run.checkpoint, ignore_errors=True)
    return run.query


def native(spark: SparkSession, folder: Path, n: int) -> Any:
    df = source(spark, folder).withWatermark("ts", "0 seconds")
    grouped = df.groupBy(F.window("ts", f"{n} minutes", "1 minute"), "k").agg(F.sum("v"), F.count("*"), F.max("v"))
    checkpoint = tempfile.mkdtemp()
    writer = grouped.writeStream.format("noop").outputMode("append").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    shutil.rmtree(checkpoint, ignore_errors=True)
    return query


def measure(setting: str, label: str, query: Any) -> Measured:
    reports = [json.loads(p.json) for p in query.recentProgress]
    reports = [p for p in reports if p["numInputRows"]]
    times = [p["durationMs"]["triggerExecution"] for p in reports]
    state = [p["stateOperators"][0] for p in reports]
    steady = times[2:] or times
    found = [s.get("customMetrics", {}).get("rocksdbSstFileSize", 0) for s in state]
    return Measured(
        setting,
        label,
        statistics.median(steady),
        times,
        state[-1]["numRowsTotal"],
        found[-1],
        state[-1]["memoryUsedBytes"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows of a micro-batch")
    parser.add_argument("--settings", default="dense,cents,keys")
    parser.add_argument("--json", default="streaming_hopping.json")
    args = parser.parse_args()
    spark = sq.session(
        "benchmark", master="local[2]", config={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "6g"}
    )
    found: list[Measured] = []
    folder = Path(tempfile.mkdtemp(prefix="streamq-bench-"))
    try:
        for name, schema in (("dense", RANDOM), ("cents", CENTS)):
            if name in args.settings:
                generate(folder / name, schema, args.batches, int(2_000_000 * args.scale), 1_000, 60)
                found.append(measure(name, "streamq n=60", ours(spark, folder / name, 60)))
                found.append(measure(name, "spark n=60", native(spark, folder / name, 60)))
        if "keys" in args.settings:
            generate(folder / "keys", RANDOM, args.batches + 4, int(200_000 * args.scale), 20_000, 1)
            found.append(measure("keys", "streamq n=60", ours(spark, folder / "keys", 60)))
            found.append(measure("keys", "spark tumbling", native(spark, folder / "keys", 1)))
            found.append(measure("keys", "streamq tumbling", ours(spark, folder / "keys", 1)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()
    for m in found:
        state = f"state {m.state_rows:9} rows {m.state_bytes:12} bytes {m.state_memory:12} in memory"
        print(f"{m.setting:8} {m.query:18} {m.batch_ms:9.0f} ms a batch   {state}   {m.all_ms}")
    by = {(m.setting, m.query): m for m in found}
    ratios: dict[str, float] = {}
    for name in ("dense", "cents"):
        if name in args.settings:
            a, b = by[name, "streamq n=60"], by[name, "spark n=60"]
            ratios[f"{name}: spark / streamq time"] = b.batch_ms / a.batch_ms
            ratios[f"{name}: spark / streamq state rows"] = b.state_rows / a.state_rows
            ratios[f"{name}: spark / streamq state bytes"] = b.state_bytes / max(1, a.state_bytes)
    if "keys" in args.settings:
        for label in ("streamq tumbling", "streamq n=60"):
            ratios[f"keys: {label} / spark tumbling time"] = (
                by["keys", label].batch_ms / by["keys", "spark tumbling"].batch_ms
            )
    for name, ratio in ratios.items():
        print(f"{name:50} {ratio:6.2f}")
    Path(args.json).write_text(json.dumps({"measured": [asdict(m) for m in found], "ratios": ratios}, indent=2))


if __name__ == "__main__":
    main()
