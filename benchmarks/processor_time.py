"""The processor time of a benchmark: its own, and that of the JVM and the workers below it."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds() -> float:
    """Return the processor time so far of this process and its descendants, those that have ended included."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            values = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process = int(stat.parent.name)
        parents[process], ticks[process] = int(values[1]), sum(map(int, values[11:15]))
    family, generation = {os.getpid()}, {os.getpid()}
    while generation:
        generation = {process for process, parent in parents.items() if parent in generation}
        family |= generation
    return sum(ticks.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")
