"""Progress per partition, for 10,000 partitions against one: the time of a micro-batch on Spark, three runs taking turns.

Each micro-batch is a file of 20,000 points in time order, two a device; the query counts them in tumbling windows, by region. Its
source makes progress per device, per a column with one value, or as a whole. ``python -m benchmarks.partitions --help``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import streamq as sq
from benchmarks.streaming_hopping import AXIS, source

SPAN_US = 60_000_000
"""The span of a micro-batch, in microseconds."""

PER = {"10,000 partitions": "device", "one partition": "fleet", "the whole source": None}


def generate(folder: Path, batches: int, devices: int) -> None:
    """Write a file per micro-batch, with two points per device, in time order."""
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
        # at least two row groups, so that both cores read
        pq.write_table(pa.table(columns), folder / f"{i:04d}.parquet", row_group_size=devices // 4)


def started(spark: SparkSession, folder: Path, per: str | None) -> Any:
    """Return a run that waits for files in a folder."""
    rows = sq.points(source(spark, folder), time="ts", name="points", progress=sq.generate("1 minute", per=per))
    query = rows.group_by("region").tumbling_window("1 minute").select(n=sq.count())
    return query.run(sink="noop")


def last_batch_ms(run: Any) -> int:
    """Return the time of the last micro-batch with rows."""
    reports = [json.loads(p.json) for p in run.query.recentProgress]
    return int([p["durationMs"]["triggerExecution"] for p in reports if p["numInputRows"]][-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--json", default="partitions.json")
    args = parser.parse_args()
    spark = sq.session("benchmark", master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
    folder = Path(tempfile.mkdtemp(prefix="streamq-bench-"))
    ms_by_run: dict[str, list[int]] = {name: [] for name in PER}
    runs = {}
    try:
        generate(folder / "points", args.batches, args.devices)
        files = sorted((folder / "points").iterdir())
        for name in PER:
            (folder / name).mkdir()
            shutil.copy(files[0], folder / name)
            runs[name] = started(spark, folder / name, PER[name])
        for file in files[1:]:
            for name, run in runs.items():
                run.process_all_available()
                shutil.copy(file, folder / "coming")
                (folder / "coming").rename(folder / name / file.name)
                run.process_all_available()
                ms_by_run[name].append(last_batch_ms(run))
    finally:
        for run in runs.values():
            run.stop()
            shutil.rmtree(run.checkpoint, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()
    steady = {name: some[2:] for name, some in ms_by_run.items()}
    many, one, whole = steady.values()
    for name, some in steady.items():
        print(f"{name:18} {statistics.median(some):6.0f} ms a batch   {some}")
    ratios = {
        "10,000 partitions / one": statistics.median(a / b for a, b in zip(many, one, strict=True)),
        "one partition / the whole source": statistics.median(a / b for a, b in zip(one, whole, strict=True)),
    }
    for name, ratio in ratios.items():
        print(f"{name:34} {ratio:5.2f}")
    Path(args.json).write_text(json.dumps({"ms": steady, "ratios": ratios}, indent=2))


if __name__ == "__main__":
    main()
