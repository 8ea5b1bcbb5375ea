"""The cost of a micro-batch by what is open: many open events against few, and against Spark's own operators.

    python -m benchmarks.cost_by_change [--in-process] [--only session ...] [--json FILE]

In-process: the operators and sources of ``tests/laws``, and windows that are corrected, without Spark, 2,000 rows a micro-batch,
with 1 M open events and with 10,000, in turn; processor time, and the rows evaluated and bins read. Otherwise on Spark: a first
file of bulk, and then small files that come to both sides in turn, into the noop sink; the time of a micro-batch and the
processor time of all processes.
Nothing that the bulk opens falls due later. The right inputs of joins have few events. Cells are medians without the first two
micro-batches; ratios above 1: many open events cost more than few, or streamq more than Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from benchmarks.processor_time import cpu_seconds
from benchmarks.streaming_hopping import AXIS
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from tests.laws import cost_operators as law
from tests.laws.cost_sources import INGRESS, source_program

FEW, MANY = 10_000, 1_000_000
"""The numbers of open events that are compared."""

GROUPS = (32, 1_000, 300_000)

# in-process: instants in ticks

BULK_SPAN = 900
"""The ticks in which the bulk starts. Patterns of the law have a scope of 1,000, and a micro-batch takes one tick."""

RIGHT_NEW = 20
"""The events a micro-batch of a right input. Their groups are others than on the left: pairs would be output, not cost."""


@dataclass
class Work:
    """The work of each micro-batch."""

    cpu_ms: list[float] = field(default_factory=list)
    evaluated: list[int] = field(default_factory=list)
    bins_read: list[int] = field(default_factory=list)


def events(rng: np.random.Generator, rows: int, groups: int, start: Any) -> pa.Table:
    """Return events that outlast the run, in time order."""
    end = law.FAR + rng.integers(0, law.FAR, rows)
    return pa.table(
        {"start": np.zeros(rows, np.int64) + start, "end": end}
        | {"k": rng.integers(0, groups, rows), "v": rng.integers(0, 100, rows)}
    )


class Trickle(ABC):
    """A query in-process that has processed its bulk, and the work of its micro-batches since."""

    def __init__(self, live: LocalRun):
        self.live = live
        self.work, self.before = Work(), law.work(live)

    def run_batch(self, number: int, new: int) -> None:
        """Process a micro-batch of new events."""
        batch = self.batch(number, new)
        started = time.process_time()
        self.live.batch(*batch)
        self.work.cpu_ms.append(1_000 * (time.process_time() - started))
        after = law.work(self.live)
        self.work.evaluated.append(after[0] - self.before[0])
        self.work.bins_read.append(after[1] - self.before[1])
        self.before = after

    @abstractmethod
    def batch(self, number: int, new: int) -> tuple[Any, ...]:
        """Return the tables of a micro-batch, by source, and CTIs from outside, if any."""


class OperatorTrickle(Trickle):
    """An operator over two sources of intervals."""

    def __init__(self, query: law.Query, groups: int, opened: int, buckets: int):
        """Process the bulk; on the right side every second group has an event."""
        self.rng, self.groups = np.random.default_rng(7), groups
        live = LocalRun(law.program(query, buckets=buckets))
        left = events(self.rng, opened, groups, np.sort(self.rng.integers(0, BULK_SPAN, opened)))
        k = np.arange(0, min(groups, opened), 2)
        right = pa.table({"start": k * 0 + BULK_SPAN - 1, "end": k * 0 + 2 * law.FAR, "k": k, "v": k % 100})
        live.batch({"a": left, "b": right})
        super().__init__(live)

    def batch(self, number: int, new: int) -> tuple[Any, ...]:
        at = BULK_SPAN + number
        left, right = events(self.rng, new, self.groups, at), events(self.rng, RIGHT_NEW, RIGHT_NEW, at)
        elsewhere = pa.array(right.column("k").to_numpy() + self.groups)
        return ({"a": left, "b": right.set_column(right.column_names.index("k"), "k", elsewhere)},)


class SourceTrickle(Trickle):
    """A source, or where its rows wait: each micro-batch has an item of as many groups, or two, as rows are new."""

    def __init__(self, name: str, opened: int, buckets: int):
        """Process the bulk."""
        self.items, query, egress = INGRESS[name]
        live = LocalRun(source_program(self.items, query, egress, buckets))
        live.batch({"s": t.table(self.items.columns, self.items.bulk(opened // law.EACH))}, [(None, 5)])
        super().__init__(live)

    def batch(self, number: int, new: int) -> tuple[Any, ...]:
        return {"s": t.table(self.items.columns, self.items.trickle(10 + number, new))}, [(None, 6 + number)]


HOP, BULK_HOPS = 100, 24
"""The ticks of a hop, and the hops in which the bulk of windows that are corrected starts."""


@dataclass(frozen=True)
class GridWindows:
    """Windows of ``n`` hops that are corrected.

    ``late``: the part of the new rows that belongs to windows reported before. ``early``: windows are sent with their first row.
    """

    n: int
    late: float = 0.0
    early: bool = False


CORRECTED = {
    "hopping, 1 % late": GridWindows(12, 0.01),
    "hopping, all late": GridWindows(12, 1.0),
    "hopping, early": GridWindows(12, early=True),
    "tumbling, 1 % late": GridWindows(1, 0.01),
    "tumbling, all late": GridWindows(1, 1.0),
    "tumbling, early": GridWindows(1, early=True),
}


class CorrectionTrickle(Trickle):
    """Windows on a grid that have reported their bulk, all of which may still be corrected: new rows come, and late ones."""

    def __init__(self, windows: GridWindows, groups: int, opened: int, buckets: int):
        """Process the bulk, and a row that makes all its windows due; the promise lags behind all of that."""
        self.rng, self.groups, self.late = np.random.default_rng(7), groups, windows.late
        self.now = (BULK_HOPS + 2 * windows.n) * HOP + 10
        points = t.table("at bigint, k bigint, v bigint", [])
        source = sq.points(points, time="at", name="a", progress=sq.generate(1_000_000))
        grid = source.group_by("k").hopping_window(windows.n * HOP, HOP)
        query = grid.select(s=sq.sum("v"), n=sq.count(), m=sq.max("v"))
        options: dict[str, Any] = {"early": True} if windows.early else {}
        live = LocalRun(law.program(lambda a, b: query, buckets=buckets, output=OutputForm.CHANGELOG, **options))
        live.batch({"a": self._rows(self._past(opened))})
        live.batch({"a": self._rows(np.array([self.now]))})
        super().__init__(live)

    def batch(self, number: int, new: int) -> tuple[Any, ...]:
        late = self._past(int(self.late * new))
        return ({"a": self._rows(np.concatenate([late, np.full(new - len(late), self.now + 1 + number)]))},)

    def _past(self, rows: int) -> Any:
        """Return instants of the bulk."""
        return np.sort(self.rng.integers(0, BULK_HOPS * HOP, rows))

    def _rows(self, at: Any) -> pa.Table:
        """Return rows at some instants."""
        k, v = self.rng.integers(0, self.groups, len(at)), self.rng.integers(0, 100, len(at))
        return pa.table({"at": at, "k": k, "v": v})


def measure_in_process(name: str, groups: int | None, options: argparse.Namespace) -> dict[str, Any]:
    """Return the work of an operator, or of a source (no groups), with many and with few open events, which take turns."""
    sides: dict[str, Trickle] = {}
    for opening, opened in (("many", options.many), ("few", options.few)):
        if groups is None:
            sides[opening] = SourceTrickle(name, opened, options.buckets)
        elif name in CORRECTED:
            sides[opening] = CorrectionTrickle(CORRECTED[name], groups, opened, options.buckets)
        else:
            sides[opening] = OperatorTrickle(law.OPERATORS[name], groups, opened, options.buckets)
    for number in range(options.batches):
        for side in sides.values():
            side.run_batch(number, options.new)
    many, few = (asdict(side.work) for side in sides.values())
    medians = {key: (median(many[key]), median(few[key])) for key in many}
    ratio = medians["cpu_ms"][0] / medians["cpu_ms"][1]
    cells = [f"{value:,.0f}" for pair in medians.values() for value in pair]
    print(
        "{:<20} {:>8} {:>9} {:>9} {:>10} {:>10} {:>6} {:>6}".format(name, groups or "", *cells),
        f"{ratio:8.2f}",
        flush=True,
    )
    return {"operator": name, "groups": groups, "many": many, "few": few, "ratio": ratio}


def median(values: Sequence[float]) -> float:
    """Return the median without warm-up."""
    return statistics.median(values[2:] or values)


def run_in_process(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every operator with every number of groups, and every source, and print a table."""
    line = "{:<20} {:>8} {:>9} {:>9} {:>10} {:>10} {:>6} {:>6} {:>8}"
    print(line.format("operator", "groups", "CPU ms", "few open", "evaluated", "few open", "bins", "few", "ratio"))
    names = options.only or [*law.OPERATORS, *CORRECTED, *INGRESS]
    cells = [(name, groups) for name in names for groups in ([None] if name in INGRESS else options.groups)]
    return [measure_in_process(name, groups, options) for name, groups in cells]


# on Spark

SECOND = 1_000_000
HOUR = 3_600 * SECOND
START = 19_675 * 24 * HOUR
"""Midnight, in microseconds since 1970. The bulk takes an hour, and each file after it ten seconds."""

STEP = 10 * SECOND
SCHEMA = pa.schema([("at", AXIS), ("until", AXIS), ("k", pa.int64()), ("v", pa.int64()), ("kind", pa.string())])


@dataclass(frozen=True)
class Feed:
    """The rows of one side: a bulk that stays open, and files of new rows."""

    opened: int
    new: int
    groups: int

    def write(self, folder: Path, batches: int) -> list[Path]:
        """Write a file a micro-batch, in time order; return their paths."""
        folder.mkdir(parents=True)
        rng = np.random.default_rng(7)
        files = []
        for i in range(1 + batches):
            rows, start, span = (self.new, HOUR + (i - 1) * STEP, STEP) if i else (self.opened, 0, HOUR)
            at = START + start + np.sort(rng.integers(0, span, rows))
            until = START + 2 * HOUR + rng.integers(0, HOUR, rows)
            columns = [at, until, rng.integers(0, self.groups, rows), rng.integers(0, 100, rows)]
            table = pa.table([*columns, np.array(["a", "b"])[rng.integers(0, 2, rows)]], names=SCHEMA.names)
            files.append(folder / f"{i:04d}.parquet")
            # at least two row groups, so that both cores read
            pq.write_table(table.cast(SCHEMA), files[-1], row_group_size=max(1, rows // 8))
        return files


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a streaming DataFrame that reads one file per micro-batch."""
    reader = spark.readStream.schema(from_arrow_schema(SCHEMA)).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def of_kind(spark: SparkSession, folder: Path, kind: str) -> DataFrame:
    """Return the events of one kind."""
    return stream_of(spark, folder).where(F.col("kind") == kind).select("at", "k")


def our_session(spark: SparkSession, folder: Path) -> sq.Stream:
    """Return sessions by streamq."""
    points = sq.points(stream_of(spark, folder).select("at", "k", "v"), time="at", name="points")
    return points.group_by("k").session_window("2 hours").select(n=sq.count(), s=sq.sum("v"))


def spark_session(spark: SparkSession, folder: Path) -> DataFrame:
    """Return sessions by Spark."""
    points = stream_of(spark, folder).withWatermark("at", "0 seconds")
    return points.groupBy(F.session_window("at", "2 hours"), "k").agg(F.count("*"), F.sum("v"))


def our_snapshot(spark: SparkSession, folder: Path) -> sq.Stream:
    """Return count, sum and maximum of snapshots by streamq."""
    rows = stream_of(spark, folder).select("at", "until", "k", "v")
    stream = sq.intervals(rows, start="at", end="until", name="intervals")
    return stream.group_by("k").snapshot_window().select(n=sq.count(), s=sq.sum("v"), m=sq.max("v"))


def spark_tumbling(spark: SparkSession, folder: Path) -> DataFrame:
    """Return count, sum and maximum of tumbling windows by Spark, in a window that stays open."""
    rows = stream_of(spark, folder).withWatermark("at", "0 seconds")
    return rows.groupBy(F.window("at", "4 hours"), "k").agg(F.count("*"), F.sum("v"), F.max("v"))


def our_anti_join(spark: SparkSession, folder: Path) -> sq.Stream:
    """Return the events of kind a without one of kind b in the two hours after them, by streamq."""
    a, b = (sq.points(of_kind(spark, folder, kind), time="at", name=kind) for kind in "ab")
    return a.left_anti_join(b.shift("-2 hours").extend("2 hours"), on="k")


def spark_outer_join(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the same by Spark's stream-stream left outer join."""
    a = of_kind(spark, folder, "a").withWatermark("at", "0 seconds")
    b = (
        of_kind(spark, folder, "b")
        .select(F.col("at").alias("b"), F.col("k").alias("k2"))
        .withWatermark("b", "0 seconds")
    )
    within = F.col("b").between(F.col("at"), F.expr("at + INTERVAL 2 HOURS"))
    return a.join(b, (F.col("k") == F.col("k2")) & within, "leftOuter").where(F.col("b").isNull())


Query = Callable[[SparkSession, Path], Any]


@dataclass(frozen=True)
class Cell:
    """A comparison of two queries: the ratio of their times is to be at most ``mark``."""

    feeds: tuple[Feed, Feed]
    queries: tuple[Query, Query]
    mark: float


def against_spark(feed: Feed, ours: Query, other: Query, mark: float) -> Cell:
    return Cell((feed, feed), (ours, other), mark)


def against_few_open(query: Query, groups: int) -> Cell:
    feed = Feed(MANY, 2_000, groups)
    return Cell((feed, replace(feed, opened=FEW)), (query, query), 1.5)


CELLS = {
    "session": against_spark(Feed(400_000, 2_000, 20_000), our_session, spark_session, 1.0),
    "session, 50 k new": against_spark(Feed(400_000, 50_000, 20_000), our_session, spark_session, 1.0),
    "anti join": against_spark(Feed(400_000, 2_000, 400_000), our_anti_join, spark_outer_join, 1.0),
    "snapshot": against_spark(Feed(400_000, 2_000, 20_000), our_snapshot, spark_tumbling, 1.5),
    "session, 32 groups": against_few_open(our_session, 32),
    "session, 300 k groups": against_few_open(our_session, 300_000),
    "snapshot, 32 groups": against_few_open(our_snapshot, 32),
    "snapshot, 300 k groups": against_few_open(our_snapshot, 300_000),
}


class Side:
    """A query that waits for files in a folder of its own, and the times of its micro-batches."""

    def __init__(self, spark: SparkSession, folder: Path, query: Query):
        """Start the query."""
        folder.mkdir()
        self.folder, self.checkpoint = folder, str(folder) + "-checkpoint"
        rows = query(spark, folder)
        if isinstance(rows, DataFrame):
            writer = rows.writeStream.format("noop").outputMode("append")
            self.query = writer.option("checkpointLocation", self.checkpoint).start()
        else:
            self.query = rows.run(sink="noop", checkpoint=self.checkpoint).query
        self.times: dict[str, list[float]] = {"ms": [], "cpu": []}

    def process(self, file: Path) -> None:
        """Process one file, and add its time and the processor time of all processes meanwhile."""
        before = cpu_seconds()
        coming = self.folder.parent / "coming"
        shutil.copy(file, coming)
        coming.rename(self.folder / file.name)
        self.query.processAllAvailable()
        self.times["cpu"].append(cpu_seconds() - before)
        reports = [json.loads(p.json) for p in self.query.recentProgress]
        self.times["ms"].append([p["durationMs"]["triggerExecution"] for p in reports if p["numInputRows"]][-1])


def measure(spark: SparkSession, folder: Path, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the times of both sides of a cell, the bulk left out; print their medians and ratios."""
    cell = CELLS[name]
    scale = partial(scaled, scale=options.scale)
    files = {feed: scale(feed).write(folder / f"files-{i}", options.batches) for i, feed in enumerate(set(cell.feeds))}
    sides = [Side(spark, folder / f"side-{i}", query) for i, query in enumerate(cell.queries)]
    try:
        for number in range(1 + options.batches):
            for side, feed in zip(sides, cell.feeds, strict=True):
                side.process(files[feed][number])
    finally:
        for side in sides:
            side.query.stop()
    one, two = ({unit: some[1:] for unit, some in side.times.items()} for side in sides)
    ratio, cpu_ratio = median(one["ms"]) / median(two["ms"]), median(one["cpu"]) / median(two["cpu"])
    ms, cpu = (f"{median(one[m]):8.{d}f} {median(two[m]):8.{d}f}" for m, d in (("ms", 0), ("cpu", 2)))
    print(f"{name:<22} {ms} {ratio:6.2f} {cell.mark:5.1f} {cpu} {cpu_ratio:6.2f}   {one['ms']} {two['ms']}", flush=True)
    return {"cell": name, "one": one, "other": two, "ratio": ratio, "cpu_ratio": cpu_ratio, "mark": cell.mark}


def scaled(feed: Feed, scale: float) -> Feed:
    """Return a feed with a fraction of its rows and groups."""
    return Feed(*(max(16, int(n * scale)) for n in (feed.opened, feed.new, feed.groups)))


def run_on_spark(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure cells on Spark, and print a table."""
    config = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "6g"}
    spark = sq.session("cost by change", master="local[2]", config=config)
    line = "{:<22} {:>8} {:>8} {:>6} {:>5} {:>8} {:>8} {:>6}   {}"
    print(line.format("cell", "ms", "other", "ratio", "mark", "CPU s", "other", "ratio", "each micro-batch"))
    results = []
    for name in options.only or CELLS:
        with tempfile.TemporaryDirectory(prefix="streamq-bench-", ignore_cleanup_errors=True) as temporary:
            results.append(measure(spark, Path(temporary), name, options))
    spark.stop()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--in-process", action="store_true", help="the operators without Spark")
    parser.add_argument("--only", nargs="*", choices=[*CELLS, *law.OPERATORS, *CORRECTED, *INGRESS])
    parser.add_argument("--batches", type=int, default=12, help="after the bulk")
    parser.add_argument("--scale", type=float, default=1.0, help="on Spark: the fraction of rows and groups")
    parser.add_argument("--groups", type=int, nargs="*", default=GROUPS, help="in-process")
    parser.add_argument("--many", type=int, default=MANY, help="in-process: the open events")
    parser.add_argument("--few", type=int, default=FEW, help="in-process: the open events compared with")
    parser.add_argument("--new", type=int, default=2_000, help="in-process: the rows of a micro-batch")
    parser.add_argument("--buckets", type=int, default=4, help="in-process")
    parser.add_argument("--json", type=Path, default=Path("cost_by_change.json"))
    options = parser.parse_args()
    results = run_in_process(options) if options.in_process else run_on_spark(options)
    settings = {name: str(value) for name, value in vars(options).items()} | {"load": os.getloadavg()}
    options.json.write_text(json.dumps({"options": settings, "results": results}, indent=2))


if __name__ == "__main__":
    main()
