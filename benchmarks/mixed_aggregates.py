"""Aggregates that merge, beside one that reads the members of its window: together, and each alone.

    python -m benchmarks.mixed_aggregates [--hops 12] [--rows 2000] [--batches 10] [--json FILE]

Hopping windows in-process over points of 1,000 keys. Where one aggregate keeps the members, sum and maximum are computed from
these, too, instead of having partial results of their own. A micro-batch's processor time shows whether that is the cheaper way:
it is if both together take less time than sum and maximum alone and the other alone. All queries run in turn.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import streamq as sq
from benchmarks.scaling import Arrival, ArrivalTrickle
from streamq.choices import OutputForm


@sq.uda("double")
def spread(values: Any) -> float:
    """Return the greatest value minus the least."""
    return float(values.max() - values.min())


MERGING: dict[str, Callable[[], Any]] = {"total": lambda: sq.sum("v"), "top": lambda: sq.max("v")}
OTHERS: dict[str, Callable[[], Any]] = {
    "median": lambda: sq.median("v"),
    "collect": lambda: sq.collect("v"),
    "time_weighted_avg": lambda: sq.time_weighted_avg("v"),
    "a function of the user": lambda: spread("v"),
}


def measure(output: OutputForm, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the processor time of a micro-batch with each of the other aggregates, alone and with those that merge."""

    def trickle(*aggregates: dict[str, Callable[[], Any]]) -> ArrivalTrickle:
        columns = {name: aggregate() for some in aggregates for name, aggregate in some.items()}
        return ArrivalTrickle(Arrival(), output, hops=options.hops, **columns)

    merging = trickle(MERGING)
    alone = {name: trickle({"other": other}) for name, other in OTHERS.items()}
    together = {name: trickle({"other": other}, MERGING) for name, other in OTHERS.items()}
    for number in range(options.batches):
        for one in (merging, *alone.values(), *together.values()):
            one.run_batch(number, options.rows)
    ms = {name: [median(one.work.cpu_ms) for one in (merging, alone[name], together[name])] for name in OTHERS}
    return [
        {
            "output": output,
            "hops": options.hops,
            "with": name,
            "merging": a,
            "alone": b,
            "together": c,
            "ratio": (a + b) / c,
        }
        for name, (a, b, c) in ms.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hops", type=int, default=12, help="the hops of a window")
    parser.add_argument("--rows", type=int, default=2_000, help="of a micro-batch")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--json", type=Path, default=Path("mixed_aggregates.json"))
    options = parser.parse_args()
    results = []
    print(f"{'output':<10} {'with':<24} {'merging':>9} {'alone':>9} {'together':>9} {'apart / together':>17}")
    for output in (OutputForm.FINAL, OutputForm.CHANGELOG):
        for r in measure(output, options):
            print(
                f"{output:<10} {r['with']:<24} {r['merging']:9.1f} {r['alone']:9.1f} {r['together']:9.1f} {r['ratio']:17.2f}",
                flush=True,
            )
            results.append(r)
    options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
