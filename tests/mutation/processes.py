"""Work in processes of its own, one a task, that may end as they like: bounded in time and memory, several at once."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

MEMORY = 6 << 30
"""Bytes of address space beyond those of the process that starts the others."""

WALL = 20.0
"""How many times as long as its seconds of CPU a task may take."""


@dataclass(frozen=True)
class Ended:
    """How a task ended: with ``result``; or, if that is None, as ``reason`` says, after it had said ``last``."""

    result: Any
    reason: str = ""
    last: Any = None


class Speaker:
    """What a task says as it goes on; each word gives it so many seconds of CPU more."""

    def __init__(self, connection: Connection):
        self._connection = connection

    def say(self, word: Any, seconds: float) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        until = int(used.ru_utime + used.ru_stime + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
        self._connection.send((word, seconds, None))

    def end(self, result: Any) -> None:
        self._connection.send((None, 0.0, Ended(result)))


Task = Callable[[Speaker], Any]


def _work(task: Task, connection: Connection) -> None:
    here = _address_space()
    resource.setrlimit(resource.RLIMIT_AS, (here + MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    speaker = Speaker(connection)
    try:
        speaker.end(task(speaker))
    except BaseException:
        connection.send((None, 0.0, Ended(None, traceback.format_exc())))
    sys.stdout.flush()
    # nothing that the task has loaded is asked to tidy up
    os._exit(0)


def _address_space() -> int:
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def in_processes(tasks: Iterable[tuple[Any, Task]], at_once: int) -> Iterator[tuple[Any, Ended]]:
    """Each task's key and how it ended, in the order in which they end."""
    fork = multiprocessing.get_context("fork")
    waiting = iter(tasks)
    running: dict[Connection, tuple[Any, Any, list[Any]]] = {}

    def start() -> None:
        for key, task in waiting:
            ours, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=_work, args=(task, theirs))
            process.start()
            theirs.close()
            running[ours] = (key, process, [None, time.monotonic() + WALL * 60])
            return

    try:
        for _ in range(at_once):
            start()
        while running:
            heard = wait(list(running), timeout=5.0)
            for connection in [*heard, *(c for c, (_, _, (_, until)) in running.items() if time.monotonic() > until)]:
                if connection not in running:
                    continue
                key, process, state = running[connection]
                ended = _heard(connection, state) if connection in heard else Ended(None, "does not end", state[0])
                if ended is None:
                    continue
                if connection not in heard:
                    process.kill()
                process.join()
                if ended.reason == "gone":
                    ended = Ended(None, _gone(process.exitcode), state[0])
                connection.close()
                del running[connection]
                # whoever asks may have something to run first
                yield key, ended
                start()
    finally:
        for _, process, _ in running.values():
            process.kill()
            process.join()


def _heard(connection: Any, state: list[Any]) -> Ended | None:
    """What a task has said at its end; None as long as it goes on."""
    try:
        word, seconds, ended = connection.recv()
    except EOFError:
        return Ended(None, "gone")
    if ended is None:
        state[:] = [word, time.monotonic() + WALL * seconds + 60]
    elif ended.result is None:
        return Ended(None, ended.reason, state[0])
    return ended


def _gone(code: int) -> str:
    return "does not end" if code == -signal.SIGXCPU else f"the process ended by itself: {code}"


__all__ = ["Ended", "Speaker", "Task", "in_processes"]
