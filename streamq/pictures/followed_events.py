"""Run queries in-process row by row, and follow each event of a result until it is taken back, and by what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamq.pictures.panel_history import DELETED, STANDS, PanelHistory, row_numbers
from streamq.plan.node import Node
from streamq.runtime.arrow.columnar import concat, ints
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.time import INFINITY, MINUS_INFINITY

MOST_STEPS = 200
"""The most micro-batches of a rehearsal for a picture: of longer tables several rows arrive at once."""

MOST_ROWS = 20_000
"""The most rows of all tables that a picture follows one by one."""


@dataclass(frozen=True)
class ResultChanges:
    """The deltas of a result, a table for each micro-batch, and its CTIs, ascending."""

    steps: list[pa.Table] = field(default_factory=list)
    ctis: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class RehearsalRecord:
    """The changes of several results, and the number of rows that sources left out, by reason."""

    changes: list[ResultChanges]
    left_out: Mapping[str, int]


def rehearse_changes(plans: Sequence[Node], tables: Mapping[str, pa.Table], until: int | None) -> RehearsalRecord:
    """Run plans as one stream in-process over tables and to the end of their input; return the changes of each result.

    In each micro-batch one row of each table arrives, or several if a table has more than MOST_STEPS. ``until``, in ticks,
    bounds windows over endless lifetimes.
    """
    from streamq.choices import OutputForm
    from streamq.compiler.egress import Egress
    from streamq.compiler.local import LocalRun
    from streamq.compiler.options import Options
    from streamq.compiler.results import Results, rewritten
    from streamq.compiler.stages import compile_stages
    from streamq.plan.node import number_sources

    root, names = number_sources(Results(tuple(plans)))
    egress = Egress(OutputForm.CHANGELOG, ctis=True)
    options = Options(egresses=(egress,) * len(plans), buckets=1, streaming=False)
    static = {names[name]: table for name, table in tables.items() if name in names}
    run = LocalRun(compile_stages(rewritten(root), options, root), static=static)
    arriving = {r.source.table: static[r.source.table] for r in run.program.sources if r.source is not None}
    changes = [ResultChanges() for _ in plans]
    for batch in micro_batches(arriving):
        run.batch(batch)
        _record(run.deltas, run.ctis, changes)
    run.finish(until)
    _record(run.deltas, run.ctis, changes)
    left_out = sum((Counter(totals) for totals in run.totals.values()), Counter[str]())
    return RehearsalRecord(changes, {reason: count for reason, count in left_out.items() if count})


def micro_batches(tables: Mapping[str, pa.Table]) -> Iterator[dict[str, pa.Table]]:
    """Yield tables in micro-batches: a row of each table, or as many as make MOST_STEPS of the longest."""
    longest = max((table.num_rows for table in tables.values()), default=0)
    at_once = -(-longest // MOST_STEPS) or 1
    for first in range(0, longest, at_once):
        slices = {name: table.slice(first, at_once) for name, table in tables.items()}
        yield {name: rows for name, rows in slices.items() if rows.num_rows}


def _record(deltas: Sequence[pa.Table], ctis: Mapping[int, int], changes: Sequence[ResultChanges]) -> None:
    """Add the deltas and CTIs after a micro-batch to the changes of their results."""
    for number, (table, result) in enumerate(zip(deltas, changes, strict=True)):
        result.steps.append(table)
        cti = ctis.get(number, MINUS_INFINITY)
        if cti not in (MINUS_INFINITY, INFINITY, *result.ctis[-1:]):
            result.ctis.append(cti)


def history_of_changes(
    changes: ResultChanges, title: str, axis: str, keys: tuple[str, ...], *, has_points: bool, note: str = ""
) -> PanelHistory:
    """Return the events that a result ever had, each with its successor if it was taken back.

    What replaces an event appears in the same micro-batch: the same event with another end, else an event of the same key and
    start, else one of the same key that overlaps it. An event without an end that gets one was not taken back.
    """
    deltas = concat(changes.steps)
    rows = deltas.drop_columns([LE, RE, WEIGHT])
    follower = _Follower(
        ints(deltas, LE), ints(deltas, RE), row_numbers(rows)[0], row_numbers(rows.select(list(keys)))[0]
    )
    first, weights = 0, ints(deltas, WEIGHT)
    for step in changes.steps:
        follower.follow(range(first, first + step.num_rows), weights)
        first += step.num_rows
    events = np.array(follower.events, np.int64)
    return PanelHistory(
        title=title,
        axis=axis,
        payload=rows.take(pa.array(events)),
        starts=follower.starts[events],
        ends=np.array(follower.last_ends, np.int64),
        successors=np.array(follower.successors, np.int64),
        ctis=changes.ctis,
        keys=keys,
        has_points=has_points,
        note=note,
    )


Identity = tuple[int, int, int]
"""The number of a payload, and a lifetime."""


class _Follower:
    """Follows deltas micro-batch by micro-batch.

    ``events`` are the rows that inserted an event, ``last_ends`` their ends, ``successors`` what replaced them.
    """

    def __init__(self, starts: np.ndarray, ends: np.ndarray, payloads: np.ndarray, keys: np.ndarray) -> None:
        self.starts, self.ends = starts, ends
        self._payloads, self._keys = payloads, keys
        self._alive: dict[Identity, list[int]] = defaultdict(list)
        self.events: list[int] = []
        self.last_ends: list[int] = []
        self.successors: list[int] = []

    def _identity(self, row: int) -> Identity:
        return int(self._payloads[row]), int(self.starts[row]), int(self.ends[row])

    def follow(self, rows: range, weights: np.ndarray) -> None:
        """Take the deltas of a micro-batch: what they add and take back at once never was an event."""
        net: Counter[Identity] = Counter()
        row_of: dict[Identity, int] = {}
        for row in rows:
            identity = self._identity(row)
            net[identity] += int(weights[row])
            row_of.setdefault(identity, row)
        self._give_ends(net)
        inserted = [self._insert(row_of[identity]) for identity, weight in net.items() for _ in range(weight)]
        for identity, weight in net.items():
            for _ in range(-weight):
                event = self._alive[identity].pop()
                self.successors[event] = self._successor(event, inserted)

    def _insert(self, row: int) -> int:
        """Return the number of a new event."""
        event = len(self.events)
        self._alive[self._identity(row)].append(event)
        self.events.append(row)
        self.last_ends.append(int(self.ends[row]))
        self.successors.append(STANDS)
        return event

    def _give_ends(self, net: Counter[Identity]) -> None:
        """Give ends to events without one; the deltas that do so no longer count."""
        ended = [identity for identity, weight in net.items() if weight < 0 and identity[2] == INFINITY]
        for opened in ended:
            closed = [i for i, weight in net.items() if weight > 0 and i[:2] == opened[:2] and i[2] != INFINITY]
            for identity in closed:
                for _ in range(min(-net[opened], net[identity])):
                    event = self._alive[opened].pop()
                    self._alive[identity].append(event)
                    self.last_ends[event] = identity[2]
                    net[opened] += 1
                    net[identity] -= 1

    def _successor(self, event: int, inserted: list[int]) -> int:
        """Return the event among those ``inserted`` at once that replaces an event, or DELETED."""
        row = self.events[event]

        def likeness(other: int) -> int:
            """Return 3 for the same event with another end, 2 for an equal key and start, 1 for a key that overlaps, else 0."""
            place = self.events[other]
            if self._keys[place] != self._keys[row]:
                return 0
            if self.starts[place] == self.starts[row]:
                return 3 if self._payloads[place] == self._payloads[row] else 2
            return int(self.starts[place] < self.last_ends[event] and self.starts[row] < self.last_ends[other])

        best = max(inserted, key=likeness, default=DELETED)
        return best if best != DELETED and likeness(best) else DELETED
