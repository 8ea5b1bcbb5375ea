"""Progress per partition, 10,000 partitions against one, in turn in one run: the time of a micro-batch on Spark.

Each micro-batch is a file of 20,000 points in time order, two a device; the query counts them in tumbling windows, by region. Its
source makes progress per device, per a column that has one value, or as a whole. ``python -m benchmarks.partitions --help``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import streamq as sq
from benchmarks.streaming_hopping import AXIS, source

SPAN_US = 60_000_000
"""What a micro-batch spans."""

PER = {"10,000 partitions": "device", "one partition": "fleet", "the whole source": None}


def generate(folder: Path, batches: int, devices: int) -> None:
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True)
    for i in range(batches):
        ts = np.sort(rng.integers(i * SPAN_US, (i + 1) * SPAN_US, 2 * devices)) + 1_700_000_000_000_000
        number = rng.permutation(np.repeat(np.arange(devices), 2))
        columns = {
            "ts": pa.array(ts, AXIS),
            "device": [f"device-{n:06d}" for n in number],
            "fleet": ["all"] * len(number),
            "region": number % 50,
        }
        # two row groups and more, so that both cores read
        pq.write_table(pa.table(columns), folder / f"{i:04d}.parquet", row_group_size=devices // 4)


def times(spark: SparkSession, folder: Path, per: str | None) -> list[int]:
    """The milliseconds of each micro-batch, the first two left out."""
    rows = sq.points(source(spark, folder), time="ts", name="points", progress=sq.generate("1 minute", per=per))
    query = rows.group_by("region").tumbling_window("1 minute").select(n=sq.count())
    run = query.run(sink="noop", trigger="available_now")
    reports = [json.loads(p.json) for p in run.query.recentProgress]
    shutil.rmtree(run.checkpoint, ignore_errors=True)
    return [p["durationMs"]["triggerExecution"] for p in reports if p["numInputRows"]][2:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--json", default="partitions.json")
    args = parser.parse_args()
    spark = sq.session("benchmark", master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
    folder = Path(tempfile.mkdtemp(prefix="streamq-bench-"))
    found: dict[str, list[int]] = {name: [] for name in PER}
    try:
        generate(folder / "points", args.batches, args.devices)
        times(spark, folder / "points", None)
        for _ in range(args.repeat):
            for name, per in PER.items():
                found[name] += times(spark, folder / "points", per)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()
    medians = {name: statistics.median(some) for name, some in found.items()}
    for name, median in medians.items():
        print(f"{name:18} {median:6.0f} ms a batch   {sorted(found[name])}")
    many, one, whole = medians.values()
    ratios = {"10,000 partitions / one": many / one, "one partition / the whole source": one / whole}
    for name, ratio in ratios.items():
        print(f"{name:34} {ratio:5.2f}")
    Path(args.json).write_text(json.dumps({"ms": medians, "ratios": ratios}, indent=2))


if __name__ == "__main__":
    main()
