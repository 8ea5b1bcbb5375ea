"""Windows of several sizes over one stream, in-process: on the basic windows of the longest ones against by themselves.

Prints the ratios of processor time, and of the bytes of state, for sets of windows in minutes (``60:1`` is a size and a hop) and
micro-batches that last a hop, or a tenth of one. ``python -m benchmarks.window_sizes --help``; ``--json FILE`` has the ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import streamq as sq
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Egress, Results
from streamq.compiler.rules import window_aggregates
from streamq.compiler.stages import compile_stages
from streamq.plan.node import number_sources

MINUTE = 60_000_000
SETS = ("60:1,15:1", "60:1,15:1,5:1", "60:1,20:5", "60:1,5:5")


def program(windows: Sequence[tuple[int, int]]) -> LocalRun:
    """Return a run of count and sum in windows of these sizes and hops, a result each."""
    rows = pa.table({name: pa.array([], pa.int64()) for name in ("at", "k", "v")})
    keyed = sq.points(rows, time="at", name="s", progress=sq.generate(0)).group_by("k")
    grids = [keyed.hopping_window(size * MINUTE, hop * MINUTE) for size, hop in windows]
    root, _ = number_sources(Results.from_plans([grid.select(n=sq.count(), s=sq.sum("v")).plan for grid in grids]))
    return LocalRun(compile_stages(root, Options(egresses=(Egress(),) * len(grids), buckets=2)))


def state_bytes(run: LocalRun) -> int:
    """Return the size of a run's state."""
    return sum(len(body) for store in run.stores.values() for body in store.values())


def measure(windows: Sequence[tuple[int, int]], span: int, options: argparse.Namespace) -> tuple[float, float]:
    """Return the ratios of processor time, a median of pairs, and of state: shared by apart; a micro-batch lasts ``span``."""
    shared = program(windows)
    with patch.object(window_aggregates, "consists_of_basic", lambda window, longest: window == longest):
        apart = program(windows)
    rng, ratios = np.random.default_rng(1), []

    def points(rows: int, start: int, length: int) -> dict[str, Any]:
        at, k = np.sort(rng.integers(start, start + length, rows)), rng.integers(0, options.keys, rows)
        return {"s": pa.table({"at": at, "k": k, "v": rng.integers(0, 100, rows)})}

    begin = max(size for size, _ in windows)
    for minute in range(begin):
        batch = points(options.rows, minute * MINUTE, MINUTE)
        for run in (shared, apart):
            run.batch(batch)
    for number in range(options.batches):
        batch = points(options.rows * span // MINUTE, begin * MINUTE + number * span, span)
        spent = {}
        for run in (shared, apart) if number % 2 else (apart, shared):
            before = time.process_time()
            run.batch(batch)
            spent[run is shared] = time.process_time() - before
        ratios.append(spent[True] / spent[False])
    return statistics.median(ratios), state_bytes(shared) / state_bytes(apart)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000, help="a minute")
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--json", type=Path, default=Path("window_sizes.json"))
    options = parser.parse_args()
    results = []
    for text in options.sets:
        windows = [(int(size), int(hop)) for size, _, hop in (one.partition(":") for one in text.split(","))]
        for span in (MINUTE, MINUTE // 10):
            processor_time, state = measure(windows, span, options)
            print(
                f"{text:<16} micro-batch {span / MINUTE:g} min: time {processor_time:.2f}, state {state:.2f}",
                flush=True,
            )
            results.append({"windows": text, "hops": span / MINUTE, "time": processor_time, "state": state})
    settings = {"rows": options.rows, "keys": options.keys, "batches": options.batches}
    options.json.write_text(json.dumps({**settings, "results": results}, indent=2))


if __name__ == "__main__":
    main()
