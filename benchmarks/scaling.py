"""Costs as input grows: hopping windows in batch against Spark's own, and streams by disorder and retractions.

    python -m benchmarks.scaling [--by rows keys hops input] [--rows 100000 1000000] [--repeat 2] [--json FILE]

*rows*, *keys*, *hops*: as ``benchmarks.batch_hopping``, sum, count and max, in turn; ratios above 1: streamq is faster. Rows and
keys have windows of 16 hops and 10 events a key and hop; hops have 60 events a key and hop, 1,000 keys. Rows also have the peak
memory of each side, in a process of its own that reads the same files and runs once: the resident memory of the Python driver,
the JVM and the workers together, garbage that the JVM has not collected yet included.

*input*: hopping windows in-process, without Spark: 10,000 rows a micro-batch of 1,000 keys, sum, count and max, n = 12. A part of
the rows comes up to ``DELAY`` ticks out of order, or takes back an event of the micro-batch before. Medians of the processor time
of a micro-batch, in turn, by that of ordered points; final rows, and a changelog at the middle level.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import streamq as sq
from benchmarks.batch_hopping import Cell, events, measure, seconds, sides
from benchmarks.cost_by_change import Trickle, median
from benchmarks.processor_time import peak_memory
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from tests.laws.cost_operators import program

ROWS, ALL_KEYS, ALL_HOPS = (100_000, 1_000_000), (10, 1_000, 100_000, 1_000_000), (1, 4, 16, 60, 512)
SIDES = ("streamq", "Spark")
HEAP = "3g"
"""The JVM's memory."""


def cells(by: str, options: argparse.Namespace) -> Iterator[tuple[int, Cell]]:
    """Yield the cells of an axis, each with its rows."""
    if by == "rows":
        yield from ((rows, Cell(f"{rows} rows", 10, 16, 0)) for rows in options.rows)
    elif by == "keys":
        yield from ((options.keys_rows, Cell(f"{keys} keys", 10, 16, 0, keys=keys)) for keys in ALL_KEYS)
    else:
        yield from ((options.hops_rows, Cell(f"{n} hops", 60, n, 0)) for n in ALL_HOPS)


def session() -> SparkSession:
    """Return a session on two cores."""
    return sq.session(
        "scaling", master="local[2]", config={"spark.driver.memory": HEAP, "spark.sql.shuffle.partitions": 4}
    )


def run_on_spark(by: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the cells of an axis, and print a table."""
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        spark = session()
        for rows, cell in cells(by, options):
            (result,) = measure(spark, Path(folder), rows, options.repeat, [cell])
            results.append({"by": by, **asdict(result), "ratio": result.ratio})
            ours, other = statistics.median(result.ours), statistics.median(result.other)
            print(f"{cell.name:>16} {ours:8.2f} {other:8.2f} s {result.ratio:6.2f}", flush=True)
        spark.stop()
        for record in results if by == "rows" else []:
            record["bytes"] = {side: memory(side, record["rows"], folder) for side in SIDES}
            shown = ", ".join(f"{side} {peak / 2**20:,.0f} MiB" for side, peak in record["bytes"].items())
            print(f"{record['rows']:>11} rows {shown}", flush=True)
    return results


def memory(side: str, rows: int, folder: str) -> int:
    """Return the peak memory of a side of the cell of some rows, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scaling", "--rows", str(rows), "--job", side, folder]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(run.stdout.split()[-1])


def run_job(side: str, folder: str, options: argparse.Namespace) -> None:
    """Run a side of the first cell by rows once, and print its peak memory."""
    ((rows, cell),) = cells("rows", options)
    df = events(session(), Path(folder), rows, cell.density, cell.lone, cell.keys)
    with peak_memory() as peak:
        seconds(sides(cell)[SIDES.index(side)], df)
    print(peak.bytes)


# in-process

HOP, SPAN = 100, 400
"""The ticks of a hop and of a micro-batch."""

DELAY = 2 * SPAN
"""The ticks by which an item may be late."""


@dataclass(frozen=True)
class Arrival:
    """The part of the rows that is out of order, and the part that takes back an event; None: the source has inserts only."""

    late: float = 0.0
    taken_back: float | None = None

    @property
    def name(self) -> str:
        if self.taken_back is None:
            return f"points, {self.late:.0%} out of order"
        return f"physical, {self.taken_back:.0%} retractions"


ARRIVALS = (
    *(Arrival(late) for late in (0.0, 0.1, 0.5)),
    *(Arrival(taken_back=part) for part in (0.0, 0.01, 0.1, 0.5)),
)
POINTS = "start bigint, k bigint, v bigint"


class ArrivalTrickle(Trickle):
    """Hopping windows over rows that arrive in some way."""

    def __init__(self, arrival: Arrival, output: OutputForm, *, hops: int, **aggregates: Any):
        """Compile the query: ``aggregates`` over windows of so many hops."""
        self.arrival, self.rng, self.last_rows = arrival, np.random.default_rng(7), t.table(POINTS, [])
        progress = sq.generate(DELAY)
        if arrival.taken_back is None:
            source = sq.points(self.last_rows, time="start", name="a", progress=progress)
        else:
            rows = t.table(f"kind string, {POINTS}, end bigint, new_end bigint", [])
            source = sq.physical(rows, name="a", progress=progress)
        query = source.group_by("k").hopping_window(hops * HOP, HOP).select(**aggregates)
        super().__init__(LocalRun(program(lambda a, b: query, output=output)))

    def batch(self, number: int, new: int) -> tuple[Any, ...]:
        retracted = int(new * (self.arrival.taken_back or 0)) if number else 0
        inserted = new - retracted
        start = np.sort(self.rng.integers(0, SPAN, inserted)) + number * SPAN
        start = start - (self.rng.random(inserted) < self.arrival.late) * self.rng.integers(0, DELAY, inserted)
        columns = {"start": start, "k": self.rng.integers(0, 1_000, inserted), "v": self.rng.integers(0, 100, inserted)}
        rows = pa.table(columns)
        if self.arrival.taken_back is None:
            return ({"a": rows},)
        again = self.last_rows.slice(0, retracted)
        # the next micro-batch takes some of these back
        self.last_rows = rows.take(self.rng.permutation(inserted))
        return ({"a": pa.concat_tables([items(rows, "insert"), items(again, "retract")])},)


def items(points: pa.Table, kind: str) -> pa.Table:
    """Return points as the items of a physical stream; a retraction deletes its point."""
    start = points.column("start").to_numpy()
    new_end = pa.array(start) if kind == "retract" else pa.nulls(len(points), pa.int64())
    columns = {"kind": pa.array([kind] * len(points), pa.string()), "end": pa.array(start + 1), "new_end": new_end}
    return pa.table(columns | {name: points.column(name) for name in points.column_names})


def run_in_process(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure ways of arrival, and print a table."""
    results = []
    for output in (OutputForm.FINAL, OutputForm.CHANGELOG):
        aggregates = {"s": sq.sum("v"), "n": sq.count(), "m": sq.max("v")}
        trickles = {arrival: ArrivalTrickle(arrival, output, hops=12, **aggregates) for arrival in ARRIVALS}
        for number in range(options.batches):
            for trickle in trickles.values():
                trickle.run_batch(number, 10_000)
        ordered = median(trickles[ARRIVALS[0]].work.cpu_ms)
        for arrival, trickle in trickles.items():
            ms = median(trickle.work.cpu_ms)
            print(f"{output:<10} {arrival.name:<28} {ms:8.1f} ms {ms / ordered:6.2f}", flush=True)
            results.append({"by": "input", "of": arrival.name, "output": output, "cpu_ms": ms, "ratio": ms / ordered})
    return results


AXES = ("rows", "keys", "hops", "input")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--by", nargs="*", choices=AXES, default=AXES)
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS, help="10000000, 100000000 take minutes each")
    parser.add_argument("--keys-rows", type=int, default=1_000_000, help="the rows of the cells by keys")
    parser.add_argument("--hops-rows", type=int, default=100_000, help="the rows of the cells by hops")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--batches", type=int, default=16, help="in-process: the micro-batches")
    parser.add_argument("--json", type=Path, default=Path("scaling.json"))
    parser.add_argument(
        "--job", nargs=2, metavar=("SIDE", "FOLDER"), help="run one side once, print its memory and end"
    )
    options = parser.parse_args()
    if options.job:
        side, folder = options.job
        run_job(side, folder, options)
        return
    results: list[dict[str, Any]] = []
    for by in options.by:
        results += run_in_process(options) if by == "input" else run_on_spark(by, options)
    settings = {name: str(value) for name, value in vars(options).items()} | {"load": os.getloadavg()}
    options.json.write_text(json.dumps({"options": settings, "results": results}, indent=2))


if __name__ == "__main__":
    main()
