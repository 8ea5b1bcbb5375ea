"""The cost of keeping the first events of merged states, for messages: against the same states without them.

    python -m benchmarks.first_events [--rows 20000] [--repeat 9] [--json FILE]

A class that merges over hopping windows, in-process, without Spark: points with a double, several per minute, and windows of many
minutes, one per minute. Both sides run in turn, A B A B, in one process; a ratio is the median of the pairs' ratios, in
processor time. It must be 1.05 at most.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import streamq as sq
from benchmarks.modules import MEAN_OF_STATES
from streamq.plan.partial import Ints
from streamq.runtime.user_code.states import PickledState

MINUTE = 60_000
TARGET = 1.05
CELLS = ((60, 60), (60, 4), (60, 1), (2, 4))
"""Minutes per window, events per minute."""

WITH_EVENTS = PickledState._first_events


def without_events(state: PickledState, columns: Mapping[str, pa.Array], ends: Ints) -> list[Any]:
    """Return no events for any group."""
    return [()] * (len(ends) - 1)


def query(rows: int, minutes: int, a_minute: int) -> sq.Stream:
    """Return the means of states over hopping windows of so many minutes."""
    generator = np.random.default_rng(1)
    at = np.sort(generator.integers(0, rows * MINUTE // a_minute, rows))
    points = sq.points(pa.table({"at": at, "v": generator.random(rows)}), time="at")
    return points.hopping_window(minutes * MINUTE, MINUTE).select(x=MEAN_OF_STATES("v"))


def seconds(stream: sq.Stream, first_events: Any) -> float:
    """Return the processor time of an in-process answer, with this function for first events."""
    PickledState._first_events = first_events  # type: ignore[method-assign]
    try:
        begun = time.process_time()
        stream.to_arrow()
        return time.process_time() - begun
    finally:
        PickledState._first_events = WITH_EVENTS  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", type=Path, default=Path("first_events.json"))
    options = parser.parse_args()
    results = []
    row = "{:>8} {:>9} {:>8} {:>10} {:>6} {:>7}"
    print(row.format("minutes", "a minute", "with s", "without s", "ratio", "target"))
    for minutes, a_minute in CELLS:
        stream = query(options.rows, minutes, a_minute)
        seconds(stream, WITH_EVENTS)
        pairs = [(seconds(stream, WITH_EVENTS), seconds(stream, without_events)) for _ in range(options.repeat)]
        ours, other = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        results.append({"minutes": minutes, "a_minute": a_minute, "pairs": pairs, "ratio": ratio})
        print(row.format(minutes, a_minute, f"{ours:.2f}", f"{other:.2f}", f"{ratio:.3f}", f"{TARGET:.2f}"), flush=True)
    options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
