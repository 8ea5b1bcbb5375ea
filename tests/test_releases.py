"""What ``why()`` says would release rows does release them, and nothing less does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest

import streamq as sq
from streamq.run.rehearsal import Rehearsal
from streamq.run.status.why import Wait
from tests.rehearsed import counted, events, intervals, others, rehearsal, rehearsed, spans

# a release that is one

SOAK = bool(os.environ.get("STREAMQ_SOAK"))

TOLD = re.compile(r"run\.advance\((-?\d+)")


RELEASED: dict[str, Callable[[], sq.Stream]] = {
    "tumbling": lambda: counted(events("a", 1, 8, 14, 31, delay=7)),
    "CTIs on a grid": lambda: counted(events("a", *range(30), delay=3, every=10), 5),
    "windows without rows between": lambda: counted(events("a", 5, 500, delay=20)),
    "windows with gaps between": lambda: (
        intervals("a", (5, 6, "a"), (7, 60, "b"), (500, 501, "a"), delay=30).hopping_window(5, 10).select(n=sq.count())
    ),
    "long and short rows": lambda: spans().group_by("k").hopping_window(6, 2).select(n=sq.count()),
    "rows that never end": lambda: counted(intervals("a", (1, None, "a"), (14, 15, "a"))),
    "hopping, moved": lambda: events("a", 1, 8, 14, delay=3).shift(4).hopping_window(6, 2, 1).select(n=sq.count()),
    "hopping, extended back": lambda: (
        events("a", 1, 8, 14, delay=3, length=9).extend(-4).hopping_window(6, 2).select(n=sq.count())
    ),
    "a window over windows": lambda: (
        events("a", 1, 8, 14, delay=3)
        .hopping_window(6, 3)
        .select(n=sq.count())
        .tumbling_window(9)
        .select(n=sq.sum("n"))
    ),
    "a union": lambda: counted(
        events("a", 1, 8, 14).select("k").union(events("b", 2, 3, delay=2).shift(-5).select("k"))
    ),
    "a median": lambda: events("a", 1, 8, 14, delay=5).tumbling_window(4).select(m=sq.median("v")),
    "a median of few": lambda: events("a", 4, 800, delay=5).tumbling_window(4).select(m=sq.median("v")),
    "a median on the grid": lambda: events("a", 4, 8).tumbling_window(4).select(m=sq.median("v")),
    "top_k": lambda: spans().hopping_window(10, 5).top_k(1, by="v"),
    "sessions": lambda: spans().group_by("k").session_window(5).select(n=sq.count()),
    "sessions, of one row a tick": lambda: events("a", *range(40)).session_window(5).select(n=sq.count()),
    "snapshots": lambda: spans().snapshot_window().select(n=sq.count()),
    "snapshots, time-weighted": lambda: spans().snapshot_window().select(n=sq.time_weighted_avg("v")),
    "sliding": lambda: events("a", 1, 4, 9).sliding_window(5).select(n=sq.count()),
    "count": lambda: events("a", 1, 4, 9, 10, 12, 20, delay=7).count_window(3).select(n=sq.count()),
    "rows": lambda: events("a", 1, 4, 9, 10, 12, 20, delay=7).rows_window(3).select(n=sq.count()),
    "landmark": lambda: spans().landmark_window(7, period=21).select(n=sq.count()),
    "pieces": lambda: spans().chop(6),
    "pieces on the grid": lambda: events("a", 6, 12, length=20).chop(6),
    "clipped": lambda: spans().clip(others(), on="k"),
    "a signal": lambda: events("a", 1, 4, 9, delay=3).to_signal("k"),
    "last rows": lambda: events("a", 1, 4, 9, 11, delay=3).last_rows(2),
    "an anti join": lambda: spans().left_anti_join(others(3), on="k"),
    "a semi join": lambda: spans().join(others(), on="k", how="semi"),
    "a left join": lambda: spans().join(others(3), on="k", how="left", suffixes=("", "_b")),
    "except": lambda: spans().select("k").except_(others(30).select("k")),
    "rows that settle": lambda: sq.events(
        [sq.insert(1, None, v=1), sq.insert(2, 9, v=2), sq.retract(2, 9, 30, v=2), sq.insert(20, 22, v=2), sq.cti(12)],
        name="a",
    ).where(sq.end() > sq.start() + 1),
}


@sq.udo("v bigint", name="great")
def great(values: Any) -> Any:
    yield from (int(v) for v in values if v > 20)


@sq.udso("v bigint", initial=None, name="leap")
def leap(last: int | None, v: int) -> tuple[int, list[int]]:
    return v, [v - last] if last is not None and v - last > 9 else []


def in_pairs() -> sq.Stream:
    every = events("a", 1, 28, 44, 61).select("v")
    return every.windowed_join(every.rename(v="w"), size=5, where=lambda l, r: l.v + r.w != 56)


def chosen(selection: str) -> sq.Stream:
    every = events("a", 1, 9, 10, 17).to_points()
    small, great = every.where(sq.col("v") < 9), every.where(sq.col("v") >= 9)
    return sq.cedr(f"EVENT e WHEN SEQUENCE(S AS x {selection}, G AS y, 9)", S=small, G=great)


MAY_BE_NONE: dict[str, Callable[[], sq.Stream]] = {
    "an operator's rows": lambda: events("a", 1, 28, 44, 61).tumbling_window(5).select(great("v")),
    "pairs": in_pairs,
    "a scan": lambda: events("a", 1, 8, 19, 31).to_points().group_by("k").scan(leap("v")),
    "a pattern that consumes": lambda: chosen("FIRST CONSUME"),
    "a pattern that selects": lambda: chosen("LAST"),
}
"""What progress lets go may be nothing here, and some of it is rows."""


def advanced(run: Rehearsal, wait: Wait) -> tuple[list[Any], list[Any]]:
    """The rows of a tick before what is told, and of that."""
    call = TOLD.search(" ".join(wait.release))
    assert call is not None
    before, then = (run.advance(int(call[1]) - less).to_pylist() for less in (1, 0))
    return before, then


LEVELS = ("strong", sq.level(4), sq.weak(9))
AT_LEVELS = ("tumbling", "windows without rows between", "a window over windows", "sessions", "an anti join")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "level"),
    [*((name, "middle") for name in RELEASED), *((name, level) for name in AT_LEVELS for level in LEVELS)],
    ids=str,
)
def test_what_would_release_a_window_does_and_not_a_tick_earlier(name: str, level: Any) -> None:
    run = rehearsal(RELEASED[name](), "final", level)
    run.arrive()
    released = exact = 0
    for _ in range(12):
        waits = [w for w in run.why().waits if w.goal is not None]
        if not waits:
            break
        wait = waits[-1]
        before, then = advanced(run, wait)
        if wait.exact:
            exact += 1
            assert not before and then
            assert wait.window is None or all((row["start"], row["end"]) == wait.window for row in then)
        released += len(before) + len(then)
    assert released and exact


@pytest.mark.parametrize("name", MAY_BE_NONE)
def test_a_release_of_what_may_be_nothing_says_so(name: str) -> None:
    run = rehearsal(MAY_BE_NONE[name]())
    sizes = []
    for _ in range(4):
        sizes.append(run.arrive(a=1).num_rows)
        assert [(w.exact, w.proviso[:18]) for w in run.why().waits] == [(False, "rows come only if ")]
    assert any(sizes) and not all(sizes[1:])


ROW = re.compile(r"a row of a at or after (-?\d+)")

EARLY: dict[str, Callable[[sq.Stream], sq.Stream]] = {
    "tumbling": lambda s: counted(s),
    "a median": lambda s: s.tumbling_window(4).select(m=sq.median("v")),
    "sessions": lambda s: s.session_window(5).select(n=sq.count()),
    "snapshots": lambda s: s.snapshot_window().select(n=sq.count()),
    "landmark": lambda s: s.landmark_window(7, period=21).select(n=sq.count()),
    "pieces": lambda s: s.chop(6),
    "a signal": lambda s: s.to_signal("k"),
}


def outputs_in_turn() -> list[tuple[str, str, Any]]:
    """The operators at every level, each with one output in turn, in a soak with both."""
    both = [(name, level) for name in EARLY for level in ("middle", *LEVELS)]
    outputs = ("final", "changelog")
    return [(n, o, l) for i, (n, l) in enumerate(both) for o in (outputs if SOAK else outputs[(i + i // 4) % 2 :][:1])]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "output", "level"), outputs_in_turn(), ids=str)
def test_the_row_that_would_release_others_does_and_none_earlier(name: str, output: str, level: Any) -> None:
    def arrived(every: int | None, length: int, *starts: int) -> Rehearsal:
        source = events("a", *starts, delay=5, length=length, every=every)
        run = rehearsal(EARLY[name](source), output, level)
        run.arrive(a=len(base))
        return run

    tried = 0
    for every, length, base in [(None, 1, (-40, 3, 100)), (None, 7, (1, 8, 14)), (10, 7, (-40, 3, 100))]:
        wait = next(iter(arrived(every, length, *base).why().waits[-1:]), None)
        row = wait and ROW.match(wait.release[0])
        if wait and wait.exact and row:
            at = int(row[1])
            assert arrived(every, length, *base, at - 1).arrive(a=1).num_rows == 0, (wait, every, length, base)
            assert arrived(every, length, *base, at).arrive(a=1).num_rows > 0, (wait, every, length, base)
            tried += 1
    # at other levels what is released goes on to the operator, which holds it again
    assert tried or level != "middle"


def test_what_is_not_exact_is_told_as_that() -> None:
    taken_back = sq.events(
        [sq.insert(2, 9, v=2), sq.retract(2, 9, 2, v=2), sq.insert(31, 32, v=2), sq.cti(2)], name="p"
    )
    run = rehearsal(counted(taken_back))
    run.arrive(p=1)
    run.arrive(p=3)
    diagnosis = run.why()
    assert (diagnosis.waits[-1].window, diagnosis.waits[-1].exact) == ((0, 10), False)
    assert diagnosis.summary.endswith("nothing comes if all rows of that window have been taken back.")
    assert str(diagnosis).splitlines()[-1] == "  nothing comes if all rows of that window have been taken back"
    assert (diagnosis.to_dict()["waits"][-1]["exact"], run.advance(10).num_rows) == (False, 0)

    run = rehearsal(
        events("a", *range(0, 40, 3)).left_anti_join(others(), on="k").session_window(5).select(n=sq.count())
    )
    run.arrive()
    run.advance(14)
    wait = run.why().waits[-1]
    assert (wait.exact, wait.proviso) == (False, "whether that is enough depends on the rows")

    ends = sq.events([sq.insert(1, 50, v=1), sq.insert(2, 9, v=2), sq.cti(3)], name="a")
    run = rehearsal(ends.tumbling_window(5).select(longest=sq.max(sq.duration())))
    run.arrive()
    assert (run.why().waits[-1].window, run.why().waits[-1].exact) == ((0, 5), False)
    assert run.why().waits[-1].proviso == "nothing comes while the ends of its members may still move"

    run = rehearsal(
        events("a", 1, 12, 31).tumbling_window(5).select(n=sq.count()).snapshot_window().select(n=sq.sum("n"))
    )
    run.arrive()
    wait = run.why().waits[-1]
    assert not wait.exact and wait.proviso.startswith("what that releases goes on to snapshot")
    assert [(w.exact, w.goal) for w in rehearsed(counted(events("a", 1))).why().waits] == [(True, 10)]


@pytest.mark.parametrize(
    ("query", "released"),
    [
        (lambda: events("a", *range(20)).count_window(50).select(n=sq.count()), "more rows: a window takes 50 different starts"),
        (lambda: spans().count_window(50, by="end").select(n=sq.count()), "more rows: a window takes 50 different ends"),
        (
            lambda: events("a", *range(20)).group_by("k").rows_window(50).select(n=sq.count()),
            "more rows: a window takes 50 of one group",
        ),
        (
            lambda: intervals("a", (1, None, "a"), (2, 3, "a")).session_window(5).select(n=sq.count()),
            "an end of what has none: a row that never ends is held, and so is what it is part of",
        ),
        (
            lambda: intervals("a", (20, None, "a")).clip(others(), on="k", ),
            "a row that cuts one of those that have no end",
        ),
        (lambda: events("a", 4).to_signal("k"), "the next row of a key: until then its last one has no end"),
        (lambda: events("a", 4, 5).last_rows(2), "later rows of a key: until then its last ones have no end"),
    ],
)  # fmt: skip
def test_what_no_progress_releases_does_not_promise_that_some_does(
    query: Callable[[], sq.Stream], released: str
) -> None:
    run = rehearsed(query())
    run.advance(1_000)
    diagnosis = run.why()
    wait = diagnosis.waits[-1]
    assert (wait.release[0], wait.goal, wait.exact) == (released, None, False)
    assert diagnosis.summary == f"Rows are held back, waiting for {released}." and "advance" not in str(diagnosis)
    assert any("finish" in way for way in wait.release) == bool(run.finish().num_rows)


def test_what_is_kept_for_rows_to_come_is_not_held_back() -> None:
    run = rehearsed(events("a", 1, 8, 14).session_window(4).select(n=sq.count()))
    run.advance(18)
    assert run.metrics["stages"][0]["state_rows"] and not run.why().waits
