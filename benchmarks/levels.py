"""CEDR's table of the levels of consistency: what a level blocks, remembers and writes, by the order of its input.

    python -m benchmarks.levels [--events 4000] [--json FILE]

An event a tick, of ten keys, recorded once in order of sync time and once out of order: a third of the items comes up to
``DELAY`` ticks late. One event in ten is shortened by its source. A micro-batch brings what arrives in ``STEP`` ticks, and then
the CTI of a source that knows what is still to come. The costs are those of ``sq.compare_levels``, all counts, which the seed
determines; a wait is in ticks of arrival, ``STEP`` a micro-batch.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import streamq as sq
from streamq import testing as t
from streamq.levels.compare_levels import LevelCosts
from streamq.time import INFINITY

COLUMNS = "kind string, start bigint, end bigint, new_end bigint, n bigint, k bigint, v bigint, type string"

KEYS = 10
LIFE, CUT = 20, 10
"""The ticks that an event lives, and those of one that its source shortens."""

DELAY, STEP = 400, 50
"""The ticks by which an item may be late, and those that a micro-batch brings."""

REMEMBER = 50
"""The ticks that the weak level remembers."""

SIZE, HOP = 40, 10
"""The ticks of a hopping window and of its hop."""

ORDERS = {"ordered": 0.0, "disordered": 1 / 3}
"""The part of the items that are late."""

LEVELS = ("strong", "middle", sq.weak(REMEMBER))


class Event(NamedTuple):
    """An event as far as its items have come; ``type`` is a or b, the sides of the join."""

    start: int
    end: int
    n: int
    k: int
    v: int
    type: str


class Item(NamedTuple):
    """An insert or a retraction of an event, which arrives at some tick."""

    arrival: int
    sync: int
    event: Event
    new_end: int | None


def recorded(events: int, late: float) -> list[Item]:
    """Return the items of some events in order of arrival; the part ``late`` of them is late. The events are always the same."""
    rng, lags = np.random.default_rng(7), np.random.default_rng(8)
    items = []
    for start in range(events):
        k, v, b = (int(number) for number in rng.integers(0, (KEYS, 100, 2)))
        event = Event(start, start + LIFE, start, k, v, "ab"[b])
        arrival = start + lag(lags, late)
        items.append(Item(arrival, start, event, None))
        if rng.random() < 0.1:
            cut = start + CUT
            items.append(Item(max(arrival, cut + lag(lags, late)), cut, event, cut))
    return sorted(items, key=lambda item: item.arrival)


def lag(rng: np.random.Generator, late: float) -> int:
    """Return the ticks by which an item is late: none, or up to the delay."""
    return int(rng.integers(1, DELAY)) if rng.random() < late else 0


def micro_batches(items: list[Item]) -> list[pa.Table]:
    """Return the items that arrive in ``STEP`` ticks each as rows of a physical stream, with the CTI behind them."""
    parts = [list(part) for _, part in itertools.groupby(items, lambda item: item.arrival // STEP)]
    ctis = list(itertools.accumulate((min(i.sync for i in part) for part in reversed(parts)), min, initial=INFINITY))
    return [t.table(COLUMNS, _rows(part, cti)) for part, cti in zip(parts, ctis[-2::-1], strict=True)]


def _rows(items: list[Item], cti: int) -> Iterator[tuple[object, ...]]:
    """Yield items as rows, and the CTI behind them, the least sync time of those to come; the end of the input needs none."""
    for _, _, event, new_end in items:
        yield ("insert" if new_end is None else "retract", event.start, event.end, new_end, *event[2:])
    if cti != INFINITY:
        yield ("cti", cti, *[None] * 6)


def per_window(events: sq.Stream) -> sq.Stream:
    """Return count and sum of hopping windows per key."""
    return events.group_by("k").hopping_window(SIZE, HOP).select(c=sq.count(), s=sq.sum("v"))


def pairs(events: sq.Stream) -> sq.Stream:
    """Return the pairs of an event a and an event b of its key that are alive together."""
    a, b = (events.where(sq.col("type") == side).select("n", "k") for side in "ab")
    return a.join(b, on="k", suffixes=("", "_b")).select("n", "n_b")


QUESTIONS: dict[str, Callable[[sq.Stream], sq.Stream]] = {"windows": per_window, "join": pairs}


@dataclass(frozen=True)
class Cell:
    """The costs of a query at a level over one input."""

    query: str
    order: str
    costs: LevelCosts


def cells(events: int, queries: Iterable[str] = QUESTIONS) -> Iterator[Cell]:
    """Yield the costs of queries at all levels, over ordered and over disordered input."""
    for order, late in ORDERS.items():
        batches = micro_batches(recorded(events, late))
        for query in queries:
            stream = QUESTIONS[query](sq.physical(batches[0], name="events"))
            compared = sq.compare_levels(stream, [{"events": batch} for batch in batches], levels=LEVELS)
            yield from (Cell(query, order, costs) for costs in compared.costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=4_000)
    parser.add_argument("--only", nargs="*", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--json", type=Path, default=Path("levels.json"))
    options = parser.parse_args()
    line = "{:<8} {:<10} {:<9} {:>8} {:>6} {:>8} {:>6} {:>8} {:>8} {:>6}"
    print(line.format("query", "input", "level", "blocking", "most", "state", "most", "inserts", "retracts", "right"))
    results = []
    for cell in cells(options.events, options.only):
        costs = cell.costs
        blocking, state = f"{STEP * costs.batches_mean:.1f}", f"{costs.state_mean:.0f}"
        counts = costs.inserts, costs.retractions, f"{costs.right:.3f}"
        columns = cell.query, cell.order, costs.level, blocking, STEP * costs.batches_most, state, costs.state_most
        print(line.format(*columns, *counts), flush=True)
        results.append(asdict(cell))
    options.json.write_text(json.dumps({"events": options.events, "results": results}, indent=2))


if __name__ == "__main__":
    main()
