"""Queries rehearsed in-process, whose runs are asked why they give no rows."""

from __future__ import annotations

import datetime as dt
from typing import Any

import streamq as sq
from streamq.run.rehearsal import Rehearsal

NOON = dt.datetime(2024, 5, 1, 12)


class Clock:
    """A minute later each time it is asked."""

    def __init__(self) -> None:
        self.now = dt.datetime(2024, 6, 1, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        self.now += dt.timedelta(minutes=1)
        return self.now


def rehearsal(query: sq.Stream, output: str = "final", level: Any = "middle") -> Rehearsal:
    return Rehearsal(query, output, Clock(), level)


def events(name: str, *starts: int, delay: int | None = 0, length: int = 1, every: int | None = None) -> sq.Stream:
    progress = sq.explicit() if delay is None else sq.generate(delay, every=every)
    return sq.events([(s, s + length, {"k": "a", "v": s}) for s in starts], name=name, progress=progress)


def intervals(name: str, *rows: tuple[int, int | None, str], delay: int = 0) -> sq.Stream:
    lifetimes = [(s, e, {"k": k, "v": s}) for s, e, k in rows]
    return sq.events(lifetimes, name=name, progress=sq.generate(delay))


def at(minutes: int) -> dt.datetime:
    return NOON + dt.timedelta(minutes=minutes)


def trips(*minutes: int, name: str = "trips") -> sq.Stream:
    rows = [(at(m), at(m + 1), {"k": "a", "v": m}) for m in minutes]
    return sq.events(rows, name=name, progress=sq.generate("5 minutes"))


def counted(s: sq.Stream, size: int = 10) -> sq.Stream:
    return s.tumbling_window(size).select(n=sq.count())


SPANS = ((0, 3, "a"), (2, 9, "b"), (5, 6, "a"), (7, 20, "a"), (11, 12, "b"), (30, 41, "a"))


def spans(name: str = "a", delay: int = 2) -> sq.Stream:
    return intervals(name, *SPANS, delay=delay)


def others(delay: int = 0) -> sq.Stream:
    return intervals("b", (1, 2, "a"), (4, 8, "b"), (10, 15, "a"), delay=delay)


def rehearsed(query: sq.Stream) -> Rehearsal:
    run = rehearsal(query)
    run.arrive()
    return run
