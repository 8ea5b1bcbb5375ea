"""Readings: the plain numbers and texts that a stage reports about its sources and kernels in every micro-batch.

Each reading is a running total or an instant, so that the latest one is enough. All of them come from values that the stage
has at hand. They travel as columns called ``reading|relation``, a JSON object for each bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa

from streamq.runtime.arrow.columnar import ints
from streamq.runtime.deltas import LE, RE, WEIGHT, with_ends, with_weights
from streamq.runtime.kernel import Arrival, Output
from streamq.runtime.state.baskets import Work
from streamq.runtime.time.progress import StartSummary

LATEST = "latest_readings"
"""The name under which a bucket's state has its latest readings."""

TALLIES = "tallies"
"""The name under which a bucket's state has the running totals of sources and kernels, by relation."""

LATE_COUNTS = "totals"
"""The name under which a bucket's state has its counts of late, invalid and repeated items, by ``source|reason``."""

Reading = int | str

ARRIVED = "arrived"
"""The reading of a kernel's port, before the port's number: the deltas that have reached it."""


def _reading(combine: Callable[[Iterable[Any]], Any]) -> Any:
    """Return a field for a reading, None by default, with the function that combines it over buckets in its metadata.

    ``max``: all buckets report the same value, or only one reports it. ``min``: the bucket that is furthest behind decides.
    ``sum``: each bucket reports its own rows.
    """
    return field(default=None, metadata={"combine": combine})


@dataclass(frozen=True, kw_only=True)
class SourceReadings:
    """A stage's report about a source; None: nothing yet. Times of day are in milliseconds since 1970, starts in ticks.

    An infinite instant is a value, too: CTI and watermark are MINUS_INFINITY before anything has come, the CTI is INFINITY after
    the end.
    """

    cti: int | None = _reading(max)
    watermark: int | None = _reading(max)
    moved_at: int | None = _reading(max)
    """The time of day at which its CTI last moved."""
    heard_at: int | None = _reading(max)
    """The time of day at which it last brought events."""
    rows: int | None = _reading(max)
    """Rows read so far, including late and invalid rows and those that filters drop."""
    new_rows: int | None = _reading(max)
    """Rows read in this micro-batch."""
    least_start: int | None = _reading(min)
    middle_start: int | None = _reading(max)
    """A start in the middle of the last rows."""
    round: int | None = _reading(max)
    """The number of the last round, a micro-batch with rows of some part, from 1; only for policies that keep parts apart."""
    quiet_round: int | None = _reading(min)
    """The round in which the part that has been silent for longest last had rows."""
    straggler: str | None = _reading(max)
    """The part that holds the CTI back, as users name it."""
    straggler_cti: int | None = _reading(max)
    """The CTI of this part alone."""


@dataclass(frozen=True, kw_only=True)
class KernelReadings:
    """A stage's report about a kernel; None: nothing yet. Rows count since the checkpoint began, except those ``_now``."""

    output_cti: int | None = _reading(min)
    due: int | None = _reading(min)
    """The least progress that lets the next of its rows go; None: no row waits."""
    inserted: int | None = _reading(sum)
    """Rows it has inserted."""
    inserted_now: int | None = _reading(sum)
    """Rows it has inserted in this micro-batch."""
    retracted: int | None = _reading(sum)
    """Rows it has retracted."""
    evaluated: int | None = _reading(sum)
    """Rows it has computed with: those that came, and those of its state."""
    bins_read: int | None = _reading(sum)
    """Bins of its state that it has read."""
    cpu_us_now: int | None = _reading(sum)
    """Processor time in microseconds in Python that it has taken in this micro-batch, without that of rows on their way."""
    state_rows: int | None = _reading(sum)
    state_bytes: int | None = _reading(sum)
    held_rows: int | None = _reading(sum)
    """Rows that the level of consistency holds back before or behind it."""
    held_from: int | None = _reading(min)
    """The least start of the rows held back."""
    arrived: Mapping[int, int] = field(default_factory=dict)
    """By port, the deltas that have reached it, counted after the map side has combined them."""


_COMBINE: Mapping[str, Callable[[Iterable[Any]], Any]] = {
    ARRIVED: sum,
    **{f.name: f.metadata["combine"] for kind in (SourceReadings, KernelReadings) for f in fields(kind) if f.metadata},
}
_OF_SOURCES = [f.name for f in fields(SourceReadings)]


@dataclass(frozen=True)
class Readings:
    """The readings of a stage, or of all stages, by the relations that the sources and the kernels make."""

    of_sources: Mapping[str, SourceReadings] = field(default_factory=dict)
    of_kernels: Mapping[str, KernelReadings] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.of_sources or self.of_kernels)

    def source(self, relation: str) -> SourceReadings:
        """Return the readings of a source; empty ones where it has none."""
        return self.of_sources.get(relation, SourceReadings())

    def kernel(self, relation: str) -> KernelReadings:
        """Return the readings of a kernel; empty ones where it has none."""
        return self.of_kernels.get(relation, KernelReadings())

    @staticmethod
    def from_columns(columns: Mapping[str, Any]) -> Readings:
        """Return the readings in columns ``reading|relation``, and ``arrived 0|relation`` for port 0; None counts as missing.

        Raises TypeError for a reading that does not exist.
        """
        by_source: dict[str, dict[str, Any]] = {}
        by_kernel: dict[str, dict[str, int]] = {}
        arrived: dict[str, dict[int, int]] = {}
        for column, value in columns.items():
            if value is None:
                continue
            name, _, relation = column.partition("|")
            if name.startswith(ARRIVED):
                arrived.setdefault(relation, {})[int(name.removeprefix(ARRIVED))] = value
            else:
                (by_source if name in _OF_SOURCES else by_kernel).setdefault(relation, {})[name] = value
        return Readings(
            {relation: SourceReadings(**values) for relation, values in by_source.items()},
            {
                relation: KernelReadings(**by_kernel.get(relation, {}), arrived=arrived.get(relation, {}))
                for relation in dict.fromkeys([*by_kernel, *arrived])
            },
        )


NO_READINGS = Readings()
"""The readings before the first micro-batch."""


def combine_readings(columns_of_buckets: Iterable[Mapping[str, Reading]]) -> Readings:
    """Return the readings of several buckets, each given as columns, as one; a bucket without a column does not count for it."""
    return Readings.from_columns(combine_columns(columns_of_buckets))


def combine_columns(columns_of_buckets: Iterable[Mapping[str, Reading]]) -> dict[str, Reading]:
    """Return the columns of several buckets, or tallies of theirs, as those of one."""
    values: dict[str, list[Reading]] = {}
    for columns in columns_of_buckets:
        for column, value in columns.items():
            values.setdefault(column, []).append(value)
    # a column is ``reading|relation``, or ``arrived 0|relation``
    return {c: _COMBINE[c.partition("|")[0].partition(" ")[0]](some) for c, some in values.items()}


# On executors readings are plain columns: the classes above would travel with every stage.


def source_columns(
    relation: str,
    tally: dict[str, int],
    *,
    cti: int,
    watermark: int,
    has_moved: bool,
    starts: StartSummary | None,
    refused: int,
    now: int,
    of_parts: Mapping[str, Reading],
) -> dict[str, Reading]:
    """Return the readings of a source in a micro-batch as columns; ``tally`` keeps totals and instants from one to the next.

    It is updated: the rows so far, the least start, the middle start of the last events, and the times at which the CTI moved
    and events came.
    ``starts`` are those of the events it has brought, ``refused`` counts its rows that are no events, and ``now`` is the time
    of day in milliseconds. ``of_parts`` are readings of the parts that its policy keeps apart.
    ``cti``, ``watermark`` and ``new_rows`` are always returned, even if infinite or 0; what ``tally`` lacks so far is left out.
    """
    new_rows = refused
    if has_moved:
        tally["moved_at"] = now
    if starts is not None:
        new_rows += starts.rows
        least = min(starts.least, tally.get("least_start", starts.least))
        tally |= {"heard_at": now, "least_start": least, "middle_start": starts.middle}
    if new_rows:
        tally["rows"] = tally.get("rows", 0) + new_rows
    readings = {"cti": cti, "watermark": watermark, "new_rows": new_rows, **tally, **of_parts}
    return {f"{name}|{relation}": value for name, value in readings.items()}


def kernel_columns(
    relation: str,
    tally: dict[str, int],
    arrivals: Iterable[Arrival],
    output: Output,
    work: Work,
    *,
    sizes: Sequence[tuple[int, int]],
    backlogs: Sequence[tuple[int, int]],
) -> dict[str, int]:
    """Return the readings of a kernel after a micro-batch as columns; ``tally`` keeps its totals from one to the next.

    The counts of this micro-batch are added to it: rows arrived at each port, inserted, retracted and evaluated, and bins read.
    ``sizes`` are rows and bytes of its state, and of what the level of consistency holds back for it; ``backlogs`` are the
    rows held back, each with their least start (INFINITY: there are none).
    ``held_from`` is the least of these, INFINITY if no row is held back. Left out are only ``due``, if the output has none, and
    ``arrived`` of ports at which nothing has arrived yet.
    """
    inserted, retracted = count_weights(output.table)
    new = [(f"{ARRIVED} {arrival.port}", arrival.table.num_rows) for arrival in arrivals]
    evaluated = work.rows + sum(rows for _, rows in new) if output.evaluated is None else output.evaluated
    counts = {"inserted": inserted, "retracted": retracted, "evaluated": evaluated, "bins_read": work.bins}
    for name, rows in (*new, *counts.items()):
        tally[name] = tally.get(name, 0) + rows
    readings = {
        "output_cti": output.c,
        "inserted_now": inserted,
        "cpu_us_now": work.cpu_us,
        "state_rows": sum(rows for rows, _ in sizes),
        "state_bytes": sum(size for _, size in sizes),
        "held_rows": sum(rows for rows, _ in backlogs),
        "held_from": min(least for _, least in backlogs),
        **tally,
    }
    if output.due is not None:
        readings["due"] = output.due
    return {f"{name}|{relation}": value for name, value in readings.items()}


def count_weights(table: pa.Table | None) -> tuple[int, int]:
    """Return the number of rows that deltas insert, and the number that they retract, both by weight and not negative.

    CTIs are neither.
    """
    if table is None or not table.num_rows:
        return 0, 0
    # a CTI travels as an empty lifetime
    table = with_weights(with_ends(table))
    weight = ints(table, WEIGHT)[ints(table, RE) > ints(table, LE)]
    inserted = int(weight[weight > 0].sum())
    return inserted, inserted - int(weight.sum())
