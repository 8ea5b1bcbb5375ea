"""CEDR's table of the levels of consistency: what a level blocks, remembers and writes, by the order of its input.

    python -m benchmarks.levels [--events 4000] [--json FILE]

An event a tick, of ten keys, recorded once in order of sync time and once out of order: a third of the items comes up to
``DELAY`` ticks late. One event in ten is shortened by its source. A micro-batch brings what arrives in ``STEP`` ticks, and then
the CTI of a source that knows what is still to come. In-process; all columns are counts, which the seed determines:

* *blocking*: a row of the answer is ready at the first micro-batch from which on the input has it, and the CTI or the greatest
  start has reached the instant at which it is due: a window's end, a pair's start. It waits until the micro-batch that writes it
  for good. In ticks of arrival, ``STEP`` a micro-batch.
* *state*: the rows in state after a micro-batch, those that the level holds back included.
* *output*: the rows of the changelog, inserts and retractions.
* *right*: of the rows that are in the answer or in the result at the end, the part that is in both. Blocking is theirs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.policies import MIDDLE, Level
from streamq.runtime.result_rows import changelog_rows
from streamq.time import INFINITY, MINUS_INFINITY
from tests.laws.cost_operators import program

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

LEVELS = {"strong": Level(None), "middle": MIDDLE, f"weak({REMEMBER})": Level(0, REMEMBER)}


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


Row = tuple[Any, ...]
"""A row of a result: payload, start, end."""


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


class MicroBatch(NamedTuple):
    """The items of a micro-batch, and the CTI at its end: no later item has a sync time before it."""

    items: list[Item]
    cti: int

    def table(self) -> pa.Table:
        """Return the rows of a physical stream."""
        rows = [
            ("insert" if new_end is None else "retract", event.start, event.end, new_end, *event[2:])
            for _, _, event, new_end in self.items
        ]
        return t.table(COLUMNS, rows)


def micro_batches(items: list[Item]) -> list[MicroBatch]:
    """Return the items that arrive in ``STEP`` ticks each; the last micro-batch ends the input."""
    parts = [list(part) for _, part in itertools.groupby(items, lambda item: item.arrival // STEP)]
    ctis = list(itertools.accumulate((min(i.sync for i in part) for part in reversed(parts)), min, initial=INFINITY))
    return [MicroBatch(part, cti) for part, cti in zip(parts, ctis[-2::-1], strict=True)]


@dataclass(frozen=True)
class Question:
    """A query over a stream, and its answer by plain rules from the events; ``due``: the column at which a row is due."""

    query: Callable[[sq.Stream], sq.Stream]
    answer: Callable[[Iterable[Event]], set[Row]]
    due: int


def per_window(events: sq.Stream) -> sq.Stream:
    """Return count and sum of hopping windows per key."""
    return events.group_by("k").hopping_window(SIZE, HOP).select(c=sq.count(), s=sq.sum("v"))


def per_window_answer(events: Iterable[Event]) -> set[Row]:
    """Return the same by adding each event to every window that it overlaps."""
    counts, sums = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for event in events:
        for number in range((event.start - SIZE) // HOP + 1, -(-event.end // HOP)):
            counts[event.k, number * HOP] += 1
            sums[event.k, number * HOP] += event.v
    return {(k, counts[k, start], sums[k, start], start, start + SIZE) for k, start in counts}


def pairs(events: sq.Stream) -> sq.Stream:
    """Return the pairs of an event a and an event b of its key that are alive together."""
    a, b = (events.where(sq.col("type") == side).select("n", "k") for side in "ab")
    return a.join(b, on="k", suffixes=("", "_b")).select("n", "n_b")


def pairs_answer(events: Iterable[Event]) -> set[Row]:
    """Return the same by comparing every two events of a key that start within a lifetime."""
    groups: dict[tuple[int, str], list[Event]] = {}
    for event in sorted(events):
        groups.setdefault((event.k, event.type), []).append(event)
    rows = set()
    for (k, side), group in groups.items():
        others = groups.get((k, "b"), []) if side == "a" else []
        for a in group:
            for b in others[bisect_left(others, (a.start - LIFE,)) : bisect_left(others, (a.end,))]:
                start, end = max(a.start, b.start), min(a.end, b.end)
                if start < end:
                    rows.add((a.n, b.n, start, end))
    return rows


QUESTIONS = {
    "windows": Question(per_window, per_window_answer, due=-1),
    "join": Question(pairs, pairs_answer, due=-2),
}


@dataclass
class Since:
    """The rows that are in a result, and the micro-batch since which each of them is."""

    batches: dict[Row, int] = field(default_factory=dict)

    def update(self, rows: set[Row], number: int) -> None:
        """Replace the rows by those after another micro-batch."""
        self.batches = {row: self.batches.get(row, number) for row in rows}


def ready(question: Question, batches: Iterable[MicroBatch]) -> dict[Row, int]:
    """Return the rows of the answer, and the micro-batch since which the input has them and they are due."""
    live: dict[int, Event] = {}
    since, reached = Since(), MINUS_INFINITY
    for number, batch in enumerate(batches):
        for item in batch.items:
            end = item.event.end if item.new_end is None else item.new_end
            live[item.event.n] = item.event._replace(end=end)
        reached = max(reached, batch.cti, *(item.event.start for item in batch.items))
        since.update({row for row in question.answer(live.values()) if row[question.due] <= reached}, number)
    return since.batches


@dataclass(frozen=True)
class Cell:
    """A level's costs over one input: ticks that rows wait, rows of state, rows written, and the part that is right."""

    query: str
    order: str
    level: str
    blocking_mean: float
    blocking_most: int
    state_mean: float
    state_most: int
    inserts: int
    retractions: int
    right: float


def measure(query: str, order: str, level: str, batches: Iterable[MicroBatch]) -> Cell:
    """Return the costs of a query at a level over some micro-batches."""
    question = QUESTIONS[query]
    stream = question.query(sq.physical(t.table(COLUMNS, []), name="events"))
    live = LocalRun(program(lambda a, b: stream, output=OutputForm.CHANGELOG, level=LEVELS[level]))
    written, kinds, state = Since(), Counter[str](), []
    for number, batch in enumerate(batches):
        changes = changelog_rows(live.batch({"events": batch.table()}, [(None, batch.cti)]))
        kinds.update(changes.column("kind").to_pylist())
        written.update(applied(set(written.batches), changes), number)
        state.append(sum(kernel.state_rows or 0 for kernel in live.readings.of_kernels.values()))
    expected = ready(question, batches)
    right = written.batches.keys() & expected.keys()
    # a level that forgets may be early: it drops an item, and later what takes the item back
    waits = [STEP * max(0, written.batches[row] - expected[row]) for row in right]
    return Cell(
        query=query,
        order=order,
        level=level,
        blocking_mean=statistics.fmean(waits),
        blocking_most=max(waits),
        state_mean=statistics.fmean(state),
        state_most=max(state),
        inserts=kinds["insert"],
        retractions=kinds["retract"],
        right=len(right) / len(expected | written.batches),
    )


def applied(rows: set[Row], changes: pa.Table) -> set[Row]:
    """Return the rows after some changes; no two of a result are equal."""
    for kind, *row, new_end in zip(*(column.to_pylist() for column in changes.columns), strict=True):
        if kind == "insert":
            rows.add((*row,))
        else:
            rows.remove((*row,))
            if new_end is None or new_end > row[-2]:
                rows.add((*row[:-1], new_end))
    return rows


def cells(events: int, queries: Iterable[str] = QUESTIONS) -> Iterator[Cell]:
    """Yield the costs of queries at all levels, over ordered and over disordered input."""
    for order, late in ORDERS.items():
        batches = micro_batches(recorded(events, late))
        for query in queries:
            for level in LEVELS:
                yield measure(query, order, level, batches)


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
        blocking, state = f"{cell.blocking_mean:.1f}", f"{cell.state_mean:.0f}"
        counts = cell.inserts, cell.retractions, f"{cell.right:.3f}"
        columns = cell.query, cell.order, cell.level, blocking, cell.blocking_most, state, cell.state_most, *counts
        print(line.format(*columns), flush=True)
        results.append(asdict(cell))
    options.json.write_text(json.dumps({"events": options.events, "results": results}, indent=2))


if __name__ == "__main__":
    main()
