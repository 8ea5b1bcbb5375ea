"""Modules over windows in batch: a function against ``applyInPandas`` over precomputed windows, and states against a function;
and in a stream: micro-batches over windows of few and many members.

    python -m benchmarks.modules [--rows 1000000] [--repeat 3] [--only median ...] [--json FILE]
    python -m benchmarks.modules --members [--json FILE]

Point events with a timestamp and a double, 60 events a key and minute, written to the noop sink; 200 keys, 4 where windows
overlap. ``applyInPandas`` and ``applyInArrow`` get events with their window's number in a column, so they need not
assign windows. Both sides run in turn, A B A B, in one session; a cell is the median of its runs. Ratios above 1: ours is
faster by the clock; or, as "cpu ratio", takes less processor time of all processes. Work is counted in-process: the rows passed
to a module, with a merge as one.

With ``--members``, in-process and without Spark: 100 rows a micro-batch over windows that have so many members already and send
each change (``early=True``), by a class with ``remove`` and by one with ``merge``; processor time, in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamq as sq
from benchmarks.processor_time import cpu_seconds
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from tests.programs import compiled

HOP = 60_000_000
N = 60

COUNTED = {"function": 0, "states": 0}
"""The number of rows passed to the modules in this process."""


def middle(v: pd.Series) -> float:
    """Return the median; the same function on both sides."""
    return float(v.median())


def mean(v: pd.Series) -> float:
    """Return the mean of all values of a window, recomputed for each window."""
    COUNTED["function"] += len(v)
    return float(v.mean())


class Balance:
    """A sum from which members are taken off again."""

    def initial(self) -> int:
        return 0

    def add(self, state: int, v: pd.Series) -> int:
        return state + int(v.sum())

    def remove(self, state: int, v: pd.Series) -> int:
        return state - int(v.sum())

    def result(self, state: int) -> int:
        return state


class BalanceRows(Balance):
    """The same as the row of an operator."""

    def result(self, state: int) -> list[int]:  # type: ignore[override]
        return [state]


class Total(Balance):
    """A sum by states that merge."""

    def merge(self, a: int, b: int) -> int:
        return a + b


class Mean:
    """The mean by states that merge."""

    def initial(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, state: tuple[float, int], v: pd.Series) -> tuple[float, int]:
        COUNTED["states"] += len(v)
        return state[0] + float(v.sum()), state[1] + len(v)

    def merge(self, a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
        COUNTED["states"] += 1
        return a[0] + b[0], a[1] + b[1]

    def result(self, state: tuple[float, int]) -> float:
        return state[0] / state[1]


BALANCE = sq.uda("bigint", name="balance")(Balance)
BALANCE_ROWS = sq.udo("x bigint", name="balance_rows")(BalanceRows)
TOTAL = sq.uda("bigint", name="total")(Total)
MIDDLE = sq.uda("double", name="middle")(middle)
MEAN_OF_ALL = sq.uda("double", name="mean_of_all")(mean)
MEAN_OF_STATES = sq.uda("double", name="mean_of_states")(Mean)


@dataclass(frozen=True)
class Cell:
    """A comparison on a ``share`` of --rows; the ratio must be at least ``target``."""

    name: str
    against: str
    target: float
    share: float = 1.0
    keys: int = 200


CELLS = (
    Cell("median", "applyInPandas", 1 / 1.3),
    Cell("median-arrow", "applyInArrow", 1 / 1.3),
    Cell("median-n60", "applyInPandas", 1 / 1.3, share=0.1, keys=4),
    Cell("mean-n60", "a function", 5, share=0.1, keys=4),
    Cell("many-mean-n60", "a function", 5, keys=4),
)


@dataclass(frozen=True)
class RunCost:
    """The time of a run, and the processor time of all processes."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Result:
    """The costs of both sides' runs, in the order of the runs."""

    cell: Cell
    rows: int
    ours: list[RunCost]
    other: list[RunCost]

    @property
    def ratio(self) -> float:
        return statistics.median(run.seconds for run in self.other) / statistics.median(
            run.seconds for run in self.ours
        )

    @property
    def cpu_ratio(self) -> float:
        return statistics.median(run.cpu_seconds for run in self.other) / statistics.median(
            run.cpu_seconds for run in self.ours
        )


def events(spark: SparkSession, folder: Path, rows: int, keys: int) -> DataFrame:
    """Return events roughly in time order, written once."""
    path = folder / f"{rows}-{keys}"
    if not path.exists():
        span = rows / keys / 60 * HOP
        ts = F.timestamp_micros((F.col("id") * (span / rows) + F.rand(1) * HOP).cast("bigint"))
        key = (F.rand(2) * keys).cast("int")
        ids = spark.range(rows, numPartitions=4)
        ids.select(key.alias("key"), ts.alias("ts"), (F.rand(3) * 100).alias("v")).write.parquet(str(path))
    return spark.read.parquet(str(path))


def with_windows(df: DataFrame, n: int) -> DataFrame:
    """Return events with the number of each of their windows."""
    last = F.floor(F.unix_micros("ts") / HOP)
    return df.select("key", F.explode(F.sequence(last - (n - 1), last)).alias("window"), "v")


def ours(df: DataFrame, module: Any, n: int) -> DataFrame:
    """Return the results of a module over windows of ``n`` minutes, one per minute."""
    windows = sq.points(df, time="ts").group_by("key").hopping_window(f"{n} minutes", "1 minute")
    return windows.select(x=module("v")).to_df()


def in_pandas(df: DataFrame, function: Callable[[pd.Series], float]) -> DataFrame:
    """Return the results of the same function over precomputed windows."""

    def of_window(frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"key": frame.key[:1], "window": frame.window[:1], "x": [function(frame.v)]})

    return df.groupBy("key", "window").applyInPandas(of_window, "key int, window bigint, x double")


def in_arrow(df: DataFrame, function: Callable[[pd.Series], float]) -> DataFrame:
    """Return the same, by a function of Arrow tables."""

    def of_window(table: pa.Table) -> pa.Table:
        x = pa.array([function(table.column("v").to_pandas())])
        return pa.table({"key": table.column("key")[:1], "window": table.column("window")[:1], "x": x})

    return df.groupBy("key", "window").applyInArrow(of_window, "key int, window bigint, x double")


def cost(query: Callable[[], DataFrame]) -> RunCost:
    """Return the cost of writing a query's result to the noop sink."""
    cpu, begun = cpu_seconds(), time.perf_counter()
    query().write.format("noop").mode("overwrite").save()
    return RunCost(time.perf_counter() - begun, cpu_seconds() - cpu)


def sides(
    cell: Cell, df: DataFrame, folder: Path, rows: int
) -> tuple[Callable[[], DataFrame], Callable[[], DataFrame]]:
    """Return the query that is measured, and the one it is measured against; precomputed windows are written before."""
    n = N if cell.name.endswith("n60") else 1
    if cell.against == "a function":
        return lambda: ours(df, MEAN_OF_STATES, n), lambda: ours(df, MEAN_OF_ALL, n)
    path = folder / f"windows-{rows}-{n}"
    if not path.exists():
        with_windows(df, n).write.parquet(str(path))
    windows = df.sparkSession.read.parquet(str(path))
    other = in_arrow if cell.against == "applyInArrow" else in_pandas
    return lambda: ours(df, MIDDLE, n), lambda: other(windows, middle)


def counted_work(rows: int = 20_000) -> dict[str, int]:
    """Return the number of rows passed to each module for the same windows in-process, after checking that results agree."""
    generator = np.random.default_rng(1)
    at = np.sort(generator.integers(0, rows * 1_000_000, rows))
    table = pa.table({"ts": pc.cast(pa.array(at), pa.timestamp("us", "UTC")), "v": generator.random(rows)})
    windows = sq.points(table, time="ts").hopping_window(f"{N} minutes", "1 minute")
    COUNTED.update(function=0, states=0)
    answer = windows.select(a=MEAN_OF_ALL("v"), b=MEAN_OF_STATES("v")).to_arrow()
    assert np.allclose(answer.column("a"), answer.column("b"))
    first = dict(COUNTED)
    COUNTED.update(function=0, states=0)
    windows.select(b=MEAN_OF_STATES("v")).to_arrow()
    return {"function": first["function"], "states": COUNTED["states"]}


MEMBERS = (2_000, 20_000, 200_000)
"""The numbers of members of a window that are compared."""

BATCHES, WARM, NEW, LONG = 22, 4, 100, 10_000_000
"""The micro-batches, those not measured, the rows of each, and the ticks of a window, in which all of them are."""


def started(module: Any, members: int, windows: int) -> LocalRun:
    """Return a run over this many overlapping windows whose members have come."""
    rows = t.table("at bigint, k bigint, v bigint", [])
    points = sq.points(rows, time="at", name="s", progress=sq.generate(0)).group_by("k")
    windowed = points.hopping_window(LONG, LONG // windows)
    query = windowed.select(module("v")) if module is BALANCE_ROWS else windowed.select(n=sq.count(), x=module("v"))
    plan = rewrite(number_sources(query.plan)[0]).plan
    live = LocalRun(compiled(plan, OutputForm.CHANGELOG, early=True, buckets=1))
    live.batch({"s": members_from(0, members)})
    return live


def members_from(at: int, count: int) -> pa.Table:
    """Return members of three groups that start within 1,000 ticks."""
    generator = np.random.default_rng(at)
    start = np.sort(generator.integers(at, at + 1_000, count))
    return pa.table({"at": start, "k": generator.integers(0, 3, count), "v": generator.integers(0, 100, count)})


def members_cost(windows: int) -> dict[str, list[float]]:
    """Return the processor time in ms of a micro-batch, by module, for each number of members."""
    modules = {"remove": BALANCE, "operator": BALANCE_ROWS, "merge": TOTAL}
    runs = {(name, n): started(module, n, windows) for name, module in modules.items() for n in MEMBERS}
    taken: dict[tuple[str, int], list[float]] = {key: [] for key in runs}
    for batch in range(BATCHES):
        rows = members_from(2_000 + 1_000 * batch, NEW)
        for key, live in runs.items():
            begun = time.process_time()
            live.batch({"s": rows})
            taken[key].append(1_000 * (time.process_time() - begun))
    return {name: [statistics.median(taken[name, n][WARM:]) for n in MEMBERS] for name in modules}


def print_members(path: Path) -> None:
    """Measure and print the cost of windows by their members, and write it as JSON."""
    costs = {windows: members_cost(windows) for windows in (1, 4)}
    row = "{:<8} {:<8} {:>9} {:>9} {:>9} {:>12} {:>14}"
    print(row.format("windows", "module", *(f"{n:,}" for n in MEMBERS), "most : least", "against merge"))
    for windows, by_module in costs.items():
        for name, of_members in by_module.items():
            shown = [f"{ms:.1f} ms" for ms in of_members]
            ratios = of_members[-1] / of_members[0], of_members[-1] / by_module["merge"][-1]
            print(row.format(windows, name, *shown, *(f"{ratio:.2f}" for ratio in ratios)))
    path.write_text(json.dumps({"members": MEMBERS, "ms": costs}, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=[cell.name for cell in CELLS])
    parser.add_argument("--json", type=Path, default=Path("modules.json"))
    parser.add_argument("--members", action="store_true", help="only a stream over few and many members, in-process")
    options = parser.parse_args()
    if options.members:
        print_members(options.json)
        return
    work = counted_work()
    print(
        f"rows handed to a module, n = {N}: {work['function']:,} to a function, {work['states']:,} to states that merge"
    )
    spark = sq.session("modules", master="local[2]", config={"spark.sql.shuffle.partitions": 4})
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        row = "{:<14} {:>10} {:>8} {:<14} {:>8} {:>7} {:>9} {:>7}"
        print(row.format("cell", "rows", "ours s", "against", "other s", "ratio", "cpu ratio", "target"))
        for cell in (cell for cell in CELLS if not options.only or cell.name in options.only):
            count = int(options.rows * cell.share)
            mine, other = sides(cell, events(spark, Path(temporary), count, cell.keys), Path(temporary), count)
            few = events(spark, Path(temporary), count // 20, cell.keys)
            for warm in sides(cell, few, Path(temporary), count // 20):
                cost(warm)
            pairs = [(cost(mine), cost(other)) for _ in range(options.repeat)]
            result = Result(cell, count, *(list(runs) for runs in zip(*pairs, strict=True)))
            met = result.ratio >= cell.target
            mine_s, other_s = (
                f"{statistics.median(run.seconds for run in runs):.2f}" for runs in (result.ours, result.other)
            )
            ratios = (f"{result.ratio:.2f}", f"{result.cpu_ratio:.2f}", f"{cell.target:.2f}{'' if met else ' !'}")
            print(row.format(cell.name, count, mine_s, cell.against, other_s, *ratios), flush=True)
            results.append({**asdict(result), "ratio": result.ratio, "cpu_ratio": result.cpu_ratio, "met": met})
    spark.stop()
    settings = {name: str(value) for name, value in vars(options).items()}
    options.json.write_text(json.dumps({"options": settings, "work": work, "results": results}, indent=2))


if __name__ == "__main__":
    main()
