"""The processor time and the memory of a benchmark: its own, and that of the JVM and the workers below it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PAUSE = 0.1
"""The seconds between two looks at the memory."""


def family() -> Mapping[int, list[str]]:
    """Return this process and its descendants, and what Linux says of each, from its state on (``/proc/PID/stat``)."""
    processes = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            processes[int(stat.parent.name)] = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
    members, generation = {os.getpid()}, {os.getpid()}
    while generation:
        generation = {process for process, values in processes.items() if int(values[1]) in generation}
        members |= generation
    return {process: values for process, values in processes.items() if process in members}


def cpu_seconds() -> float:
    """Return the processor time so far of this process and its descendants, those that have ended included."""
    return sum(sum(map(int, values[11:15])) for values in family().values()) / os.sysconf("SC_CLK_TCK")


def resident_bytes() -> int:
    """Return the memory of this process and its descendants; what several of them share counts once for each."""
    return sum(int(values[21]) for values in family().values()) * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Peak:
    """The greatest memory seen."""

    bytes: int = 0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Look at the memory of this process and its descendants from time to time; yield the greatest."""
    peak, ended = Peak(), threading.Event()

    def watch() -> None:
        while not ended.wait(PAUSE):
            peak.bytes = max(peak.bytes, resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()
