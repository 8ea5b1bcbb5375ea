"""Mistakes at the sources: corrections lost, events lost or kept, what is on time and what is late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import CountReason
from streamq.runtime import lateness
from streamq.runtime.columnar import ints
from streamq.runtime.event import LE, NEW_END, RE
from streamq.runtime.kernels import edges
from streamq.runtime.kernels.edges import EdgesKernel
from streamq.runtime.kernels.physical import PhysicalKernel
from streamq.runtime.packer import Packer
from streamq.runtime.physical_matching import Matching, event_place
from streamq.time import INFINITY
from tests.mutation.mutant import LATE_OUTPUT, MISCOUNTED, Mutant, wrapped


def early_retraction_lost(kernel: PhysicalKernel, *given: Any) -> None:
    """Nothing waits."""


def extension_lost(right: Any, matched: Matching, i: int, number: int, new: int, batch: Any) -> None:
    if new <= matched.rows[i][RE]:
        right(matched, i, number, new, batch)
    else:
        matched.rows[i][RE] = new


def a_tick_too_eager(right: Any, packer: Packer, batch: pa.Table, message: Any) -> None:
    right(packer, batch, message)
    if packer.source.progress.lag < INFINITY:
        message.c += 1


def tried_twice(matched: Matching, open_moves: Any, batch: Any) -> Any:
    where: dict[Any, list[int]] = {}
    for i, row in enumerate(matched.rows):
        where.setdefault(event_place(row), []).append(i)
    for _ in range(2):
        unmatched = []
        for number, move in open_moves:
            events = where.get(event_place(move))
            if not events:
                unmatched.append((number, move))
                continue
            i = events.pop()
            matched._move(i, number, move[NEW_END], batch)
            matched.applied.append(number)
            where.setdefault(event_place(matched.rows[i]), []).append(i)
        open_moves = unmatched
    return open_moves


def adjusted_not_written(right: Any, table: Any, mask: Any, reason: Any, judge: Any, c: Any, totals: Any) -> None:
    written = list(totals.rows)
    right(table, mask, reason, judge, c, totals)
    if reason == CountReason.ADJUSTED:
        totals.rows[:] = written


def as_adjusted(right: Any, source: str, reason: str, table: pa.Table, c: int | None) -> pa.Table:
    rows = right(source, reason, table, c)
    late = reason in (CountReason.DROPPED, CountReason.ADJUSTED) and c is not None
    return rows if not late else rows.set_column(2, "start", pc.max_element_wise(rows.column("start"), c))


def duplicates_dropped(right: Any, table: pa.Table, *given: Any) -> pa.Table:
    return right(table.group_by(table.column_names, use_threads=False).aggregate([]), *given)


def nothing_repeats(fresh: pa.Table, *given: Any) -> Any:
    return np.zeros(fresh.num_rows, bool)


def open_start_forgotten(right: Any, kernel: EdgesKernel, state: Any, rows: Any, tied: Any, chains: Any, judge: Any,
                         clock: Any, totals: Any) -> None:  # fmt: skip
    right(kernel, state, rows, tied, chains, judge, clock, totals)
    kept = state.read_all("edges")
    if kept is not None:
        state.replace("edges", "0", kept.filter(pa.array(ints(kept, LE) >= clock.c)))


MUTANTS = (
    Mutant(
        "early retraction lost",
        "a retraction that comes before its insert does not wait for it",
        "physical",
        ((PhysicalKernel, "_wait", early_retraction_lost),),
    ),
    Mutant(
        "extension lost",
        "a retraction that moves an end onward changes nothing",
        "physical",
        (wrapped(Matching, "_move", extension_lost),),
    ),
    Mutant(
        "a tick less of delay",
        "generated CTIs are one tick too high",
        "intervals",
        (wrapped(Packer, "_read_progress", a_tick_too_eager),),
        MISCOUNTED,
    ),
    Mutant(
        "moves tried twice",
        "of three moves of one event that come in reverse the last one finds no end to move",
        "physical",
        ((Matching, "apply", tried_twice),),
    ),
    Mutant(
        "adjusted rows not written",
        "the late output has the rows that are dropped, and lacks those that are adjusted",
        "intervals",
        (wrapped(lateness, "count_late", adjusted_not_written),),
        LATE_OUTPUT,
    ),
    Mutant(
        "late rows written as they act",
        "a late row stands in the late output with the start that is left of it",
        "intervals",
        (wrapped(lateness, "late_rows", as_adjusted),),
        LATE_OUTPUT,
    ),
    Mutant(
        "duplicates dropped",
        "equal events of a micro-batch are taken for one",
        "intervals",
        (wrapped(lateness, "judged_inserts", duplicates_dropped),),
    ),
    Mutant(
        "repetition taken for another row",
        "an edge that is delivered again is one more of its key and instant",
        "edges",
        ((edges, "repeats", nothing_repeats),),
        MISCOUNTED,
    ),
    Mutant(
        "open start forgotten",
        "a start edge is forgotten once the CTI has passed it, though no end has come",
        "edges",
        (wrapped(EdgesKernel, "_keep", open_start_forgotten),),
        MISCOUNTED,
    ),
)
