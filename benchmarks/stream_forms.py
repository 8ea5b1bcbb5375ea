"""The forms of a stream's windows, in-process: partial results combined before the shuffle, against windows from their members.

    python -m benchmarks.stream_forms [--rows 50000] [--batches 4] [--only merged|counted] [--json FILE]

Points at random, a hop a micro-batch, final rows. *merged*: count, sum and max; *counted*: a median of one of some values.
Processor time of a micro-batch in milliseconds, medians, both forms in turn over the same events, once windows are full;
``stream_costs_an_event`` is fitted to these times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import streamq as sq
from streamq.compiler.egress import Egress
from streamq.compiler.form_hint import in_stream_form
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Results, rewritten
from streamq.compiler.stages import compile_stages
from streamq.operators.stream_form import StreamForm
from streamq.plan.aggregate import Aggregate
from streamq.plan.node import number_sources

HOP = 60_000_000
MERGED = {"n": sq.count(), "total": sq.sum("v"), "most": sq.max("v")}
COUNTED = {"middle": sq.median("v")}
DENSITIES = (100, 10, 1, 0.1)
MOST = 1_000_000
"""The values of an event where next to none are equal."""


@dataclass(frozen=True)
class Cell:
    """The processor time of a micro-batch in milliseconds and the kilobytes of state, by form."""

    aggregates: str
    hops: int
    density: float
    values: int
    combined: float
    evaluated: float
    combined_kb: int
    evaluated_kb: int

    @property
    def shown(self) -> str:
        times = f"{self.combined:>9.0f} {self.evaluated:>9.0f} {self.evaluated / self.combined:>6.1f}"
        state = f"{self.combined_kb:>9,} {self.evaluated_kb:>9,}"
        return f"{self.aggregates:<8} {self.hops:>4} {self.density:>7} {self.values:>9,} {times} {state}"


def program(hops: int, aggregates: dict[str, Aggregate], form: StreamForm) -> LocalRun:
    """Return a run of hopping windows in a form."""
    rows = pa.table({name: pa.array([], pa.int64()) for name in ("at", "k", "v")})
    groups = sq.points(rows, time="at", name="s", progress=sq.generate(0)).group_by("k")
    query = groups.hopping_window(hops * HOP, HOP).select(**aggregates)
    root, _ = number_sources(Results((query.plan,)))
    return LocalRun(compile_stages(rewritten(in_stream_form(root, form)), Options(egresses=(Egress(),), buckets=4)))


def measure(hops: int, density: float, values: int, kind: str, options: argparse.Namespace) -> Cell:
    """Measure both forms over the same events; ``density``: events a group and hop."""
    aggregates = MERGED if kind == "merged" else COUNTED
    runs = {form: program(hops, aggregates, form) for form in StreamForm}
    times: dict[StreamForm, list[float]] = {form: [] for form in StreamForm}
    rng, keys = np.random.default_rng(1), max(1, int(options.rows / density))
    for number in range(hops + 1 + options.batches):
        at = np.sort(rng.integers(number * HOP, (number + 1) * HOP, options.rows))
        k, v = rng.integers(0, keys, options.rows), rng.integers(0, values, options.rows)
        rows = {}
        for form in StreamForm if number % 2 else reversed(StreamForm):
            before = time.process_time()
            rows[form] = runs[form].batch({"s": pa.table({"at": at, "k": k, "v": v})}).num_rows
            if number > hops:
                times[form].append(1_000 * (time.process_time() - before))
        assert len(set(rows.values())) == 1, rows
    of = {form: statistics.median(one) for form, one in times.items()}
    kb = {form: sum(len(b) for s in run.stores.values() for b in s.values()) // 1_000 for form, run in runs.items()}
    one, other = StreamForm.COMBINED, StreamForm.EVALUATED
    return Cell(kind, hops, density, values, of[one], of[other], kb[one], kb[other])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000, help="a micro-batch")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--only", choices=("merged", "counted"))
    parser.add_argument("--json", type=Path, default=Path("stream_forms.json"))
    options = parser.parse_args()
    print("           n density    values  combined evaluated  ratio  kB: combined, evaluated")
    cells = []
    if options.only != "counted":
        for hops in (1, 4, 16):
            # members of 16 windows of one event in ten hops take seconds a micro-batch
            for density in DENSITIES if hops < 16 else DENSITIES[:-1]:
                cells.append(measure(hops, density, MOST, "merged", options))
                print(cells[-1].shown, flush=True)
    if options.only != "merged":
        for hops in (1, 4):
            for density, values in ((1_000, 10), (1_000, 1_000), (100, 10), (100, MOST), (10, 10), (10, MOST)):
                cells.append(measure(hops, density, values, "counted", options))
                print(cells[-1].shown, flush=True)
    options.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=2))


if __name__ == "__main__":
    main()
