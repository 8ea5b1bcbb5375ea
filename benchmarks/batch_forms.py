"""The forms in which a batch merges hopping windows, each over the same events: ``costs_an_event`` is fitted to their times.

    python -m benchmarks.batch_forms [--rows 1000000] [--repeat 2] [--json FILE]

Points of 1,000 keys; sum, count and max (for the form *difference* count alone) into the noop sink. A row of the table has the
least time of each form, the one that the costs choose for these events, and its time as a part of the least.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame

import streamq as sq
from benchmarks.batch_hopping import KEYS, events, seconds
from benchmarks.hopping import windows
from streamq.operators.operator import BatchForm
from streamq.operators.window_forms import costs_an_event

DENSITIES = (60, 10, 1, 0.1)
HOPS = (2, 4, 8, 16, 60)
MOST_COPIES = 30
"""A form that copies is left out where it would make more copies an event."""


def copies_an_event(form: BatchForm, hops: int, per_event: float) -> float:
    """Return how many copies of an event, or of its part of a partial result, a form makes."""
    return {BatchForm.DIRECT: hops, BatchForm.EXPLODE: hops * per_event}.get(form, 1)


def time_of(form: BatchForm, df: DataFrame, hops: int, repeat: int) -> float:
    """Return the least time of some runs in one form."""
    of = "count" if form is BatchForm.DIFFERENCE else "sum"
    return min(seconds(lambda rows: windows(rows, hops, of).to_df(form=form), df) for _ in range(repeat))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--json", type=Path, default=Path("batch_forms.json"))
    options = parser.parse_args()
    spark = sq.session("forms", master="local[2]", config={"spark.sql.shuffle.partitions": 4})
    forms = (BatchForm.DIRECT, BatchForm.EXPLODE, BatchForm.BLOCKS, BatchForm.DIFFERENCE)
    row = "{:>7} {:>5} " + "{:>11} " * len(forms) + "{:>11} {:>6}"
    print(row.format("density", "hops", *forms, "chosen", "ratio"))
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for density in DENSITIES:
            df, per_event = events(spark, Path(folder), options.rows, density, False, KEYS), min(1, 1 / density)
            time_of(BatchForm.BLOCKS, df, 2, 1)  # warm-up
            for hops in HOPS:
                tried = [form for form in forms if copies_an_event(form, hops, per_event) <= MOST_COPIES]
                times = {form: time_of(form, df, hops, options.repeat) for form in tried}
                costs = costs_an_event(hops, per_event, exact=False)
                chosen = min(costs, key=lambda form: costs[form])
                least = min(time for form, time in times.items() if form in costs)
                ratio = times[chosen] / least
                shown = (f"{times[form]:.2f}" if form in times else "-" for form in forms)
                print(row.format(density, hops, *shown, chosen, f"{ratio:.2f}"), flush=True)
                results.append({"density": density, "hops": hops, "seconds": times, "chosen": chosen, "ratio": ratio})
        spark.stop()
    options.json.write_text(json.dumps({"rows": options.rows, "results": results}, indent=2))


if __name__ == "__main__":
    main()
