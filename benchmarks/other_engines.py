"""Hopping windows by streamq, Flink SQL, Polars and DuckDB over the same files, in turn.

    python -m benchmarks.other_engines [--rows 10000000] [--only flink polars duckdb] [--hops 60] [--repeat 3] [--json FILE]

Points in time order, 1,000 keys, 60 events a key and hop; count, sum and maximum a key and window of n hops. All have two cores.

* *Flink*: ``TABLE(HOP(...))`` in streaming mode over CSV files (batch mode takes some five times as long), written to its
  blackhole, against streamq over the same files, as a batch and as a stream that ends with them. *Whole job*: in a process of its
  own, with its start; *steady*: the last of some runs in one process. It has a fifth of the rows.
* *Polars*: ``group_by_dynamic`` over Parquet; *DuckDB*: partial results by minute, then each in its n windows, in SQL by hand;
  against streamq as a batch over the same files.

Every engine must count as many events in as many windows. An engine that is not installed is left out, with a message; they are
the extra ``benchmarks``. Ratios above 1: streamq is faster.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamq as sq

KEYS, DENSITY = 1_000, 60
"""The keys, and the events of each in a minute."""

SCHEMA = "k bigint, ts timestamp, v double"
HOPS, FLINK_HOPS = (1, 16, 60, 512), (60, 512)
FILES = 4
JAVA = Path(__file__).parent / "flink" / "Statements.java"
OPENED = ["--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"]

Seconds = float
Way = Callable[[], Seconds]


def generate(folder: Path, rows: int) -> None:
    """Write points in time order: Parquet files that follow each other, and one CSV file."""
    rng = np.random.default_rng(7)
    at = np.sort(rng.integers(0, rows * 60_000 // (KEYS * DENSITY), rows)) + 1_704_067_200_000
    columns = {"k": rng.integers(0, KEYS, rows), "ts": pa.array(at, pa.timestamp("ms")), "v": rng.random(rows)}
    points = pa.table(columns)
    for kind in ("parquet", "csv"):
        (folder / kind).mkdir(parents=True)
    for number in range(FILES):
        first, end = (rows * n // FILES for n in (number, number + 1))
        part = points.slice(first, end - first)
        utc = part.set_column(1, "ts", part.column("ts").cast(pa.timestamp("us", "UTC")))
        pq.write_table(utc, folder / "parquet" / f"{number}.parquet", row_group_size=max(1, rows // FILES // 4))
        # one CSV file, which one reader reads: with more of them Flink would drop what it takes for late
        with (folder / "csv" / "points.csv").open("ab") as file:
            pc.write_csv(part, file, pc.WriteOptions(include_header=False, quoting_style="none"))


def session() -> SparkSession:
    config = {"spark.driver.memory": "5g", "spark.sql.shuffle.partitions": 2}
    return sq.session("other engines", master="local[2]", config=config)


def windows(folder: Path, hops: int) -> sq.Stream:
    """Return the windows by streamq over all files of a folder."""
    files = sq.files(folder, format=folder.name, schema=SCHEMA)
    groups = sq.points(files, time="ts", name="points").group_by("k").hopping_window(f"{hops} minutes", "1 minute")
    return groups.select(n=sq.count("v"), total=sq.sum("v"), top=sq.max("v"))


def seconds(action: Callable[[], Any]) -> Seconds:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def batch(folder: Path, hops: int) -> Seconds:
    """Return the seconds of streamq as a batch over all files of a folder."""
    rows = windows(folder, hops).to_df()
    return seconds(lambda: rows.write.format("noop").mode("overwrite").save())


def stream(folder: Path, hops: int) -> Seconds:
    """Return the seconds of streamq as a stream that ends with the files of a folder."""
    return seconds(lambda: windows(folder, hops).run(sink="noop", trigger="available_now", finish=True))


def counted_by_streamq(folder: Path, hops: int) -> tuple[int, int]:
    """Return the number of windows, and of the events in all of them."""
    one = windows(folder, hops).to_df().agg(F.count("n"), F.sum("n")).first()
    assert one is not None
    return one[0], one[1]


def polars_windows(folder: Path, hops: int) -> Any:
    """Return a lazy frame of Polars with the windows."""
    import polars as pl

    points = pl.scan_parquet(folder / "*.parquet").set_sorted("ts")
    groups = points.group_by_dynamic("ts", every="1m", period=f"{hops}m", offset=f"-{hops - 1}m", group_by="k")
    return groups.agg(n=pl.len(), total=pl.sum("v"), top=pl.max("v"))


def polars(folder: Path, hops: int) -> Seconds:
    return seconds(lambda: polars_windows(folder, hops).collect())


def counted_by_polars(folder: Path, hops: int) -> tuple[int, int]:
    rows = polars_windows(folder, hops).collect()
    return len(rows), int(rows["n"].sum())


def duckdb_windows(folder: Path, hops: int) -> str:
    """Return SQL for the windows: partial results by minute, which are merged in each of their windows."""
    return f"""
        with parts as (
            select k, epoch_ms(ts) // 60000 as minute, count(v) as n, sum(v) as total, max(v) as top
            from read_parquet('{folder}/*.parquet') group by all
        )
        select k, minute - back as start, sum(n)::bigint as n, sum(total) as total, max(top) as top
        from parts, range({hops}) as hops(back) group by all
    """


def duckdb_connection() -> Any:
    from duckdb import connect

    connection = connect(config={"threads": 2})
    connection.execute("set timezone = 'UTC'")
    return connection


def duckdb(connection: Any, folder: Path, hops: int) -> Seconds:
    return seconds(lambda: connection.sql(duckdb_windows(folder, hops)).to_arrow_table())


def counted_by_duckdb(folder: Path, hops: int) -> tuple[int, int]:
    sql = f"select count(*), sum(n) from ({duckdb_windows(folder, hops)})"
    number, events = duckdb_connection().execute(sql).fetchone()
    return number, int(events)


def flink_jars() -> Path:
    """Return the folder of Flink's jars, as ``apache-flink-libraries`` has them."""
    package = importlib.util.find_spec("pyflink")
    folders = None if package is None else package.submodule_search_locations
    if not folders:
        raise RuntimeError("Flink is not installed: pip install 'streamq[benchmarks]'")
    return Path(next(iter(folders))) / "lib"


def flink_numbers(statements: Sequence[str], runs: int, connector: str = "") -> list[list[int]]:
    """Run statements of Flink SQL in a process of its own; ``connector`` is a folder with more jars.

    Returns the milliseconds of each run of a SELECT, and those of processors in it; of no runs, the number of its rows.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(";\n".join(statements))
        file.flush()
        job = ["java", *OPENED, "-Xmx5g", "-cp", f"{flink_jars()}/*:{connector}/*", str(JAVA), file.name, str(runs)]
        done = subprocess.run(job, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Flink's job failed:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")
    lines = [line.split() for line in done.stdout.splitlines()]
    return [[int(number) for number in line[1:]] for line in lines if line and line[0] in ("milliseconds", "rows")]


def flink_csv(name: str, columns: str, folder: Path) -> str:
    """Return the statement of Flink SQL that makes a table of the CSV files in a folder."""
    options = f"'connector' = 'filesystem', 'path' = '{folder}', 'format' = 'csv'"
    return f"CREATE TABLE {name} ({columns}) WITH ({options})"


def flink_windows(folder: Path, hops: int) -> tuple[str, str]:
    """Return the statements of Flink SQL for the table of points, and for the windows."""
    columns = "k BIGINT, ts TIMESTAMP(3), v DOUBLE, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
    windows = f"HOP(TABLE points, DESCRIPTOR(ts), INTERVAL '1' MINUTES, INTERVAL '{hops}' MINUTES(4))"
    select = (
        f"SELECT k, window_start, COUNT(v), SUM(v), MAX(v) FROM TABLE({windows}) GROUP BY k, window_start, window_end"
    )
    return flink_csv("points", columns, folder), select


def flink(folder: Path, hops: int, runs: int) -> list[Seconds]:
    """Return the seconds of each run of Flink's job in a process of its own."""
    return [ms / 1_000 for ms, _ in flink_numbers(flink_windows(folder, hops), runs)]


def counted_by_flink(folder: Path, hops: int) -> tuple[int, int]:
    points, select = flink_windows(folder, hops)
    with tempfile.TemporaryDirectory() as out:
        results = flink_csv(
            "results", "k BIGINT, s TIMESTAMP(3), n BIGINT, total DOUBLE, top DOUBLE", Path(out, "rows")
        )
        flink_numbers([points, results, f"INSERT INTO results {select}"], 0)
        numbers = [int(line.split(",")[2]) for file in Path(out).rglob("*") if file.is_file() for line in file.open()]
    return len(numbers), sum(numbers)


@dataclass(frozen=True)
class Cell:
    """The seconds of both sides' runs, in the order of the runs."""

    against: str
    of: str
    n: int
    rows: int
    ours: list[Seconds]
    other: list[Seconds]

    @property
    def ratio(self) -> float:
        return statistics.median(self.other) / statistics.median(self.ours)

    @property
    def shown(self) -> str:
        ours, other = statistics.median(self.ours), statistics.median(self.other)
        return f"{self.against:<8} {self.of:<28} {self.n:>4} {self.rows:>11,} {ours:>9.2f} {other:>9.2f} {self.ratio:>7.2f}"


def in_turn(ours: Way, other: Way, repeat: int) -> tuple[list[Seconds], list[Seconds]]:
    """Return the seconds of two ways, which take turns after one run each."""
    ours(), other()
    pairs = [(ours(), other()) for _ in range(repeat)]
    return [mine for mine, _ in pairs], [theirs for _, theirs in pairs]


def against_polars(folder: Path, rows: int, all_hops: Sequence[int], repeat: int) -> Iterator[Cell]:
    session()
    for hops in all_hops:
        check(counted_by_streamq(folder, hops), counted_by_polars(folder, hops))
        ours, theirs = partial(batch, folder, hops), partial(polars, folder, hops)
        yield Cell("Polars", "batch, Parquet", hops, rows, *in_turn(ours, theirs, repeat))


def against_duckdb(folder: Path, rows: int, all_hops: Sequence[int], repeat: int) -> Iterator[Cell]:
    session()
    connection = duckdb_connection()
    for hops in all_hops:
        check(counted_by_streamq(folder, hops), counted_by_duckdb(folder, hops))
        ours, theirs = partial(batch, folder, hops), partial(duckdb, connection, folder, hops)
        yield Cell("DuckDB", "batch, Parquet", hops, rows, *in_turn(ours, theirs, repeat))


def against_flink(folder: Path, rows: int, all_hops: Sequence[int], repeat: int) -> Iterator[Cell]:
    session()
    ways = {"batch": batch, "stream": stream}
    for hops in all_hops:
        check(counted_by_streamq(folder, hops), counted_by_flink(folder, hops))
        for name, way in ways.items():
            ours = [way(folder, hops) for _ in range(repeat)]
            theirs = flink(folder, hops, repeat)
            yield Cell("Flink", f"{name}, CSV, steady", hops, rows, ours[-1:], theirs[-1:])
        for name in ways:
            whole = [
                sys.executable,
                "-m",
                __spec__.name if __spec__ else __name__,
                "--job",
                name,
                str(folder),
                str(hops),
            ]
            mine = partial(seconds, partial(subprocess.run, whole, check=True, capture_output=True))
            theirs_whole = partial(seconds, partial(flink, folder, hops, 1))
            pairs = [(mine(), theirs_whole()) for _ in range(repeat)]
            yield Cell("Flink", f"{name}, CSV, whole job", hops, rows, *map(list, zip(*pairs, strict=True)))


def check(ours: tuple[int, int], theirs: tuple[int, int]) -> None:
    """Raise RuntimeError unless both count as many windows, and events in them."""
    if ours != theirs:
        raise RuntimeError(f"streamq counts {ours[0]} windows with {ours[1]} events, the other engine {theirs}")


@dataclass(frozen=True)
class Engine:
    """An engine to measure against: the package that it needs, its files, the fraction of the rows that it has, and the hops."""

    package: str
    files: str
    share: float
    hops: Sequence[int]
    cells: Callable[[Path, int, Sequence[int], int], Iterator[Cell]]


ENGINES = {
    "polars": Engine("polars", "parquet", 1, HOPS, against_polars),
    "duckdb": Engine("duckdb", "parquet", 1, HOPS, against_duckdb),
    "flink": Engine("pyflink", "csv", 0.2, FLINK_HOPS, against_flink),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--hops", type=int, nargs="*", help="the hops of a window, instead of those of each engine")
    parser.add_argument("--json", type=Path, default=Path("other_engines.json"))
    parser.add_argument("--job", nargs=3, metavar=("WAY", "FOLDER", "HOPS"), help="run one of streamq's jobs and end")
    options = parser.parse_args(arguments)
    if options.job:
        way, folder, hops = options.job
        session()
        {"batch": batch, "stream": stream}[way](Path(folder), int(hops))
        return
    print(f"{'':<8} {'':<28} {'n':>4} {'rows':>11} {'streamq s':>9} {'other s':>9} {'ratio':>7}")
    cells = []
    for name in options.only:
        engine = ENGINES[name]
        if importlib.util.find_spec(engine.package) is None:
            print(f"{name}: not installed, left out; pip install 'streamq[benchmarks]'")
            continue
        rows = int(options.rows * engine.share)
        with tempfile.TemporaryDirectory() as folder:
            generate(Path(folder), rows)
            for cell in engine.cells(Path(folder) / engine.files, rows, options.hops or engine.hops, options.repeat):
                print(cell.shown, flush=True)
                cells.append({**asdict(cell), "ratio": cell.ratio})
    options.json.write_text(json.dumps({"rows": options.rows, "cells": cells}, indent=2))


if __name__ == "__main__":
    main()
