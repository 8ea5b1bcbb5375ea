"""What a stage says of itself in every micro-batch: plain numbers under names ``what|whose``, for whoever watches the query.

Each is a running total or an instant, so that the latest is enough; what it is says how those of several buckets are put
together. All of it is read off what the stage has in its hands anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import ints
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Output

OBSERVED = "streamq_readings"
"""Under which Spark's reports have them, in ``observedMetrics``."""

HOW: Mapping[str, str] = {
    "cti": "max",  # the CTI of a source
    "watermark": "max",
    "moved": "max",  # when its CTI last moved, in milliseconds since 1970
    "heard": "max",  # when it last brought events
    "rows": "max",  # rows read so far, those of the late and of filters, and those that are no events, too
    "fresh": "max",  # those of this micro-batch
    "least": "min",  # the least start so far
    "midst": "max",  # a start in the midst of the last rows
    "out": "min",  # the CTI of a kernel
    "due": "min",  # the least progress that lets the next of its rows go; not told where none waits
    "taken": "sum",  # deltas (combined ones where the map side combines) that reached a port of it so far
    "given": "sum",  # rows it has handed on
    "made": "sum",  # those of this micro-batch
    "back": "sum",  # rows it has taken back
    "state_rows": "sum",  # what it keeps
    "state_bytes": "sum",
    "held": "sum",  # rows that the level of consistency holds back before or behind it
    "first": "min",  # the least start of those
}
"""What there is, and the aggregate over buckets: "max" where all say the same, or one speaks for all."""

OF_SOURCES = ("cti", "watermark", "moved", "heard", "rows", "fresh", "least", "midst")
OF_KERNELS = ("out", "due", "given", "made", "back", "state_rows", "state_bytes", "held", "first")

SAMPLE = 256
"""Rows of a table, evenly spread, whose median stands for the midst of all."""

_AGGREGATES: Mapping[str, Callable[[Iterable[int]], int]] = {"max": max, "min": min, "sum": sum}


def together(told: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The readings of several buckets as one."""
    found: dict[str, list[int]] = {}
    for readings in told:
        for name, value in readings.items():
            found.setdefault(name, []).append(value)
    return {name: _AGGREGATES[how(name)](values) for name, values in found.items()}


# the map side


def looked_at(starts: Any) -> list[int]:
    """Starts of a table's events as ``[rows, least, midst]``; nothing of none."""
    if not len(starts):
        return []
    values = starts.to_numpy()
    some = values[:: max(1, len(values) // SAMPLE)]
    return [len(values), int(values.min()), int(np.partition(some, (len(some) - 1) // 2)[(len(some) - 1) // 2])]


def both(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """What was looked at twice; the midst is that of the greater part."""
    if not (a and b):
        return list(a or b)
    return [a[0] + b[0], min(a[1], b[1]), a[2] if a[0] >= b[0] else b[2]]


# a stage


def of_source(
    held: dict[str, int], source: str, c: int, w: int, moved: bool, looked: Sequence[int], refused: int, wall: int
) -> dict[str, int]:
    """c and W of a source, and what its rows were, ``refused`` of them no events; ``held`` keeps it from batch to batch."""
    if moved:
        held["moved"] = wall
    fresh = refused
    if looked:
        n, least, midst = looked
        fresh += n
        held |= {"heard": wall, "least": min(least, held.get("least", least)), "midst": midst}
    if fresh:
        held["rows"] = held.get("rows", 0) + fresh
    told = {"cti": c, "watermark": w, "fresh": fresh, **held}
    return {f"{what}|{source}": n for what, n in told.items()}


def of_kernel(
    known: dict[str, int],
    name: str,
    arrivals: Iterable[Arrival],
    output: Output,
    sizes: Sequence[tuple[int, int]],
    backlogs: Sequence[tuple[int, int]],
) -> dict[str, int]:
    """A kernel's CTI, how many rows reached and left it so far, and its state; ``known`` keeps the totals.

    sizes: rows and bytes of its state, and of what the level of consistency holds back for it; backlogs: rows held back, and
    their least start (INFINITY: there are none).
    """
    inserted, retracted = weighed(output.table)
    new = [(f"taken {a.port}", a.table.num_rows) for a in arrivals]
    for total, n in (*new, ("given", inserted), ("back", retracted)):
        known[total] = known.get(total, 0) + n
    told = {
        "out": output.c,
        "made": inserted,
        "state_rows": sum(rows for rows, _ in sizes),
        "state_bytes": sum(size for _, size in sizes),
        "held": sum(rows for rows, _ in backlogs),
        "first": min(least for _, least in backlogs),
        **known,
    }
    if output.due is not None:
        told["due"] = output.due
    return {f"{what}|{name}": n for what, n in told.items()}


def weighed(table: pa.Table | None) -> tuple[int, int]:
    """Rows put in and rows taken back."""
    if table is None or not table.num_rows:
        return 0, 0
    if WEIGHT not in table.column_names:
        return table.num_rows, 0
    # a CTI travels as an empty lifetime
    weight = ints(table, WEIGHT)[ints(table, RE) > ints(table, LE)]
    inserted = int(weight[weight > 0].sum())
    return inserted, inserted - int(weight.sum())


def names(sources: Iterable[str], kernels: Mapping[str, Iterable[int]]) -> list[str]:
    """All that the stages over these sources, and kernels with these ports, may say."""
    return [
        *(f"{what}|{source}" for source in sources for what in OF_SOURCES),
        *(f"{what}|{kernel}" for kernel in kernels for what in OF_KERNELS),
        *(f"taken {port}|{kernel}" for kernel, ports in kernels.items() for port in ports),
    ]


def how(name: str) -> str:
    """How readings of this name from several buckets are put together: "max", "min" or "sum"."""
    return HOW[name.partition("|")[0].partition(" ")[0]]
