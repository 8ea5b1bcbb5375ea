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
from streamq.runtime.event import WEIGHT

HOW: Mapping[str, str] = {
    "cti": "max",  # of a source
    "watermark": "max",
    "moved": "max",  # when its CTI last moved, in milliseconds since 1970
    "heard": "max",  # when it last brought rows
    "rows": "max",  # events read so far, those of the late and of filters too
    "fresh": "max",  # those of this micro-batch
    "least": "min",  # the least start so far
    "midst": "max",  # a start in the midst of the last rows
    "out": "min",  # of a kernel: its CTI
    "taken": "sum",  # deltas (combined ones where the map side combines) that reached it
    "given": "sum",  # rows it has handed on
    "back": "sum",  # rows it has taken back
    "state_rows": "sum",
    "state_bytes": "sum",
}
"""What there is, and the aggregate over buckets: "max" where all say the same, or one speaks for all."""

OF_SOURCES = ("cti", "watermark", "moved", "heard", "rows", "fresh", "least", "midst")
OF_KERNELS = ("out", "taken", "given", "back", "state_rows", "state_bytes")

SAMPLE = 256
"""Rows of a table, evenly spread, whose median stands for the midst of all."""

_AGGREGATES: Mapping[str, Callable[[Iterable[int]], int]] = {"max": max, "min": min, "sum": sum}


def together(told: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The readings of several buckets as one."""
    found: dict[str, list[int]] = {}
    for readings in told:
        for name, value in readings.items():
            found.setdefault(name, []).append(value)
    return {name: _AGGREGATES[HOW[name.partition("|")[0]]](values) for name, values in found.items()}


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


def of_sources(
    held: dict[str, int],
    clocks: Mapping[str, tuple[int, int]],
    before: Mapping[str, tuple[int, int]],
    looked: Mapping[str, Sequence[int]],
    now: int,
) -> dict[str, int]:
    """c and W of the sources that a stage knows, and what their rows were; ``held`` keeps it from batch to batch."""
    told: dict[str, int] = {}
    for source, (c, w) in clocks.items():
        found = looked.get(source) or [0]
        if c != before[source][0]:
            held[f"moved|{source}"] = now
        if found[0]:
            _, least, midst = found
            held[f"heard|{source}"] = now
            held[f"rows|{source}"] = held.get(f"rows|{source}", 0) + found[0]
            held[f"least|{source}"] = min(least, held.get(f"least|{source}", least))
            held[f"midst|{source}"] = midst
        told |= {f"cti|{source}": c, f"watermark|{source}": w, f"fresh|{source}": found[0]}
        told |= {name: held[name] for what in OF_SOURCES if (name := f"{what}|{source}") in held}
    return told


def of_kernel(
    held: dict[str, int], name: str, taken: Sequence[pa.Table], given: pa.Table | None, c: int, state: tuple[int, int]
) -> dict[str, int]:
    """A kernel's CTI, how many rows reached and left it so far, and its state; ``held`` keeps the totals."""
    inserted, retracted = weighed(given)
    new = {"taken": sum(t.num_rows for t in taken), "given": inserted, "back": retracted}
    for what, n in new.items():
        held[f"{what}|{name}"] = held.get(f"{what}|{name}", 0) + n
    rows, size = state
    totals = {key: held[key] for what in new if (key := f"{what}|{name}")}
    return {f"out|{name}": c, **totals, f"state_rows|{name}": rows, f"state_bytes|{name}": size}


def weighed(table: pa.Table | None) -> tuple[int, int]:
    """Rows put in and rows taken back."""
    if table is None or not table.num_rows:
        return 0, 0
    if WEIGHT not in table.column_names:
        return table.num_rows, 0
    weight = ints(table, WEIGHT)
    inserted = int(weight[weight > 0].sum())
    return inserted, inserted - int(weight.sum())


def names(sources: Iterable[str], kernels: Iterable[str]) -> list[str]:
    """All that the stages over these sources and kernels may say."""
    return [f"{what}|{s}" for s in sources for what in OF_SOURCES] + [f"{what}|{k}" for k in kernels for what in OF_KERNELS]

