"""CTIs are as high as the rules of operators allow, and nothing is left in state once the input has ended."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.operators import Source, written_operators
from streamq.plan.node import nodes, number_sources
from streamq.runtime.state.baskets import Baskets
from streamq.time import INFINITY
from tests.drawn.queries import RESETTING_SUM
from tests.programs import compiled

Rule = Callable[[int], int]
COLUMNS = "kind string, start bigint, end bigint, new_end bigint, k string, v int"
A = sq.physical(t.table(COLUMNS, []), name="a")
B = sq.physical(t.table(COLUMNS, []), name="b")
NAMES = t.table("name string, city string", [("x", "Rome")])

SOAK = bool(os.environ.get("STREAMQ_SOAK"))

EVENTS = [(0, 10), (3, 7), (3, 18), (12, 14), (21, 30), (40, 44)]
"""Of source a; b has the same a tick later."""
CTIS = [0, 1, 3, 4, 8, 10, 11, 13, 15, 19, 20, 22, 31, 32, 33, 41, 45, 46, 60]


def as_told(c: int) -> int:
    return c


def moved(by: int) -> Rule:
    return lambda c: c + by


def first_open_window(size: int, hop: int) -> Rule:
    """The start of the earliest window that ends after c: final are those that end at or before it."""
    return lambda c: ((c - size) // hop + 1) * hop


def least_open_start(gap: int) -> Rule:
    """The least start of a session that is not final; c if there is none. A session ends ``gap`` after its last instant."""
    sessions = [(0, 17 + gap), (21, 29 + gap), (40, 43 + gap)]
    return lambda c: min([c, *(start for start, end in sessions if start < c < end)])


def first_open_snapshot(c: int) -> int:
    """Of snapshots that are time-sensitive, or whose ends are read: the start of the earliest that is not final, which takes
    c beyond its end.
    """
    ends = sorted({e for event in EVENTS for e in event})
    windows = list(itertools.pairwise(ends))
    return min([c, *(a for a, b in windows if a < c <= b and any(s < b and e > a for s, e in EVENTS))])


def least_that_may_change(c: int) -> int:
    """Of expressions that read ends: c, and the starts of events whose ends may still move."""
    return min([c, *(start for start, end in EVENTS if start < c <= end)])


OPERATORS: dict[str, tuple[sq.Stream, Rule]] = {
    "where": (A.where(sq.col("v") >= 0), as_told),
    "select": (A.select(x=sq.col("v") + 1), as_told),
    "where that reads ends": (A.where(sq.duration() > 5), least_that_may_change),
    "select that reads ends": (A.select(x=sq.duration()), least_that_may_change),
    "union": (A.union(B), as_told),
    "join_table": (A.join_table(NAMES, on=[("k", "name")], name="names"), as_told),
    "to_points": (A.to_points(), as_told),
    "to_points_at_end": (A.to_points_at_end(), as_told),
    "set_duration": (A.set_duration(4), as_told),
    "shift": (A.shift(5), moved(5)),
    "shift back": (A.shift(-5), moved(-5)),
    "extend": (A.extend(4), as_told),
    "extend by less than nothing": (A.extend(-2), moved(-2)),
    "clip": (A.clip(B, on="k"), as_told),
    "to_signal": (A.to_signal("k"), as_told),
    "chop": (A.chop(4), as_told),
    "explode": (A.tumbling_window(4).select(all=sq.collect("v")).explode("all"), first_open_window(4, 4)),
    "scan": (A.to_points().group_by("k").scan(RESETTING_SUM("v")), as_told),
    # which of two comes first can depend on their ends: where those may move it waits for them
    "distinct_ids": (A.distinct_ids(3, id="k"), least_that_may_change),
    "alter_lifetime": (A.alter_lifetime(sq.start() + sq.col("v"), duration=2, within=2), moved(-2)),
    "last_rows": (A.last_rows(2), as_told),
    "windowed_join": (A.windowed_join(B, on="k", size=6, hop=6, suffixes=("", "_b")), first_open_window(6, 6)),
    "top_k": (A.tumbling_window(6).top_k(1, by="v"), first_open_window(6, 6)),
    "join": (A.join(B, on="k", suffixes=("", "_b")), as_told),
    "left join": (A.join(B, on="k", how="left", suffixes=("", "_b")), as_told),
    "semi join": (A.join(B, on="k", how="semi"), as_told),
    "anti join": (A.left_anti_join(B, on="k"), as_told),
    "except_": (A.except_(B), as_told),
    "hopping": (A.hopping_window(10, 5).select(n=sq.count()), first_open_window(10, 5)),
    "tumbling": (A.group_by("k").tumbling_window(6).select(n=sq.sum("v")), first_open_window(6, 6)),
    "hopping, point_at_end": (A.hopping_window(10, 5, stamp="point_at_end").select(n=sq.count()), as_told),
    "snapshot": (A.snapshot_window().select(n=sq.count()), as_told),
    "sliding": (A.sliding_window(3).select(n=sq.count()), as_told),
    "snapshot, time-sensitive": (A.snapshot_window().select(x=sq.time_weighted_avg("v")), first_open_snapshot),
    "hopping, right-clipped": (A.tumbling_window(6).select(x=sq.time_weighted_avg("v")), first_open_window(6, 6)),
    "count": (A.count_window(2).select(n=sq.count()), as_told),
    "count by end": (A.count_window(2, by="end").select(n=sq.count()), as_told),
    "rows": (A.rows_window(4, 2).select(n=sq.count()), as_told),
    "landmark": (A.landmark_window(5, start=0).select(n=sq.count()), as_told),
    "session, point_at_end": (A.session_window(3, stamp="point_at_end").select(n=sq.count()), as_told),
    "session": (A.session_window(3).select(n=sq.count()), least_open_start(3)),
}


def greatest_start_below(c: int) -> int:
    """Of windows of two instants, or rows: the start of the one whose second is still to come; c if nothing has begun."""
    return max((start for start, _ in EVENTS if start < c), default=c)


def last_landmark(start: int, period: int | None) -> Rule:
    """The landmark since which windows are not final; c before the first."""
    if period is None:
        return lambda c: min(c, start)
    return lambda c: start + (c - start) // period * period


WINDOWS: dict[str, tuple[Callable[..., Any], Rule, Rule]] = {
    "hopping": (lambda s, **how: s.hopping_window(10, 5, **how), first_open_window(10, 5), as_told),
    "tumbling": (lambda s, **how: s.tumbling_window(6, **how), first_open_window(6, 6), as_told),
    "hopping with gaps": (lambda s, **how: s.hopping_window(4, 9, **how), first_open_window(4, 9), as_told),
    "count": (lambda s, **how: s.count_window(2, **how), greatest_start_below, as_told),
    "rows": (lambda s, **how: s.rows_window(2, 1, **how), greatest_start_below, as_told),
    "session": (lambda s, **how: s.session_window(3, **how), least_open_start(3), as_told),
    "landmark": (lambda s, **how: s.landmark_window(5, start=0, **how), last_landmark(0, None), as_told),
    "landmarks": (lambda s, **how: s.landmark_window(5, period=20, **how), last_landmark(0, 20), as_told),
    "snapshot": (lambda s, **how: s.snapshot_window(**how), as_told, as_told),
}
"""By name: the window over a stream, its CTI rule where a result lives on its window, and where it is a point at its end."""

READERS: dict[str, Callable[[Any], sq.Stream]] = {
    "nothing": lambda w: w.select(n=sq.count()),
    "its start": lambda w: w.select(s=sq.window_start()),
    "its end": lambda w: w.select(e=sq.window_end()),
    "its end beside an aggregate": lambda w: w.select(n=sq.count(), e=sq.window_end()),
    "its end beside one that is not split": lambda w: w.select(x=sq.median("v"), e=sq.window_end()),
    "its end beside a time-sensitive one": lambda w: w.select(x=sq.time_weighted_avg("v"), e=sq.window_end()),
    "the end of a result": lambda w: w.select(n=sq.count()).select(e=sq.end()),
    "the length of a result": lambda w: w.select(n=sq.count()).with_columns(long=sq.duration()),
    "the end of a ranked row": lambda w: w.top_k(1, by="v").select(e=sq.end()),
    "a filter": lambda w: w.select(n=sq.count()).where(sq.end() > sq.start()),
    "another duration": lambda w: w.select(n=sq.count()).alter_lifetime(duration=sq.duration() * 2),
    "a window above": lambda w: w.select(e=sq.window_end()).snapshot_window().select(e=sq.max("e")),
    "a group above": lambda w: w.select(e=sq.window_end()).group_by("e").snapshot_window().select(n=sq.count()),
    "an aggregate above": lambda w: w.select(n=sq.count()).snapshot_window().select(e=sq.max(sq.duration())),
    "ids above": lambda w: w.select(e=sq.window_end()).distinct_ids(2, id="e").select(long=sq.duration()),
    "a filter before a union": lambda w: (
        w.select(v=sq.count()).where(sq.duration() > 0).union(A.select(v=sq.lit(1).cast("bigint")))
    ),
}
"""Who reads the bounds of windows, which a final window has for good."""


def rows(name: str, before: int, after: int) -> list[tuple[Any, ...]]:
    by = 0 if name == "a" else 1
    return [("insert", start + by, end + by, None, "x", 1) for start, end in EVENTS if after <= start + by < before]


def started(query: sq.Stream, output: str, buckets: int = 2) -> LocalRun:
    plan, names = number_sources(query.plan)
    tables = {names[n]: table for n, table in query.tables.items() if names[n] == "names"}
    program = compiled(rewrite(plan).plan, output, ctis=output == OutputForm.CHANGELOG, buckets=buckets)
    return LocalRun(program, static=tables)


def fed(run: LocalRun, before: int, after: int) -> None:
    run.batch({name: t.table(COLUMNS, rows(name, before, after)) for name in "ab"}, [(None, before)])


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_ctis_are_as_high_as_the_rule_says(name: str) -> None:
    """After each CTI c, all that starts before c being there; nothing is left once the input has ended."""
    query, rule = OPERATORS[name]
    run = started(query, OutputForm.CHANGELOG)
    assert ctis_of(run, CTIS) == [rule(c) for c in CTIS]
    run.finish()
    assert is_empty(run)


def ctis_of(run: LocalRun, promises: Sequence[int]) -> list[int]:
    """The CTI of the output after each micro-batch, which brings what starts before a promise, and the promise."""
    ctis = []
    for before, after in zip(promises, [-1, *promises], strict=False):
        fed(run, before, after)
        ctis.append(run.cti)
    return ctis


def is_empty(run: LocalRun) -> bool:
    return all(set(store) == {"manifest"} for store in run.stores.values())


def rule_of(window: str, stamp: str, reader: str) -> Rule:
    """Reading a window's bounds waits for nothing that the window itself does not wait for.

    But for snapshots that hand on the CTI: their last ones are there and may still grow.
    """
    _, aligned, at_end = WINDOWS[window]
    if stamp == "point_at_end":
        return at_end
    if window == "snapshot" and reader not in ("nothing", "its start"):
        return first_open_snapshot
    # where windows leave gaps, the next one can begin after c
    return (lambda c: min(c, aligned(c))) if "union" in reader else aligned


STAMPS = ("align", "point_at_end")


def meetings() -> list[tuple[str, str, str]]:
    """Windows, stamps and readers: of each two all that meet, of all three every other; in a soak every one."""
    every = itertools.product(enumerate(WINDOWS), enumerate(STAMPS), enumerate(READERS))
    return [(w, s, r) for (i, w), (j, s), (k, r) in every if SOAK or (i + j + k) % 2 == 0]


@pytest.mark.slow
@pytest.mark.parametrize(("window", "stamp", "reader"), meetings())
def test_who_reads_the_bounds_of_a_window_waits_for_nothing_more(window: str, stamp: str, reader: str) -> None:
    """Every window, stamp and clip; each clip and every other promise in turn, all of them in a soak."""
    clips = ["full", "right", "left", "none"]
    turn = list(WINDOWS).index(window) + list(READERS).index(reader)
    promises = CTIS if SOAK else CTIS[turn // 4 % 2 :: 2]
    # what reads an end that is not cut at the window's waits for that
    if "time-sensitive" in reader:
        clips = [] if window in ("count", "rows") else clips[:2]
    for clip in clips if SOAK else clips[turn % len(clips) :][:1] if clips else []:
        make, _, _ = WINDOWS[window]
        run = started(READERS[reader](make(A, clip_input=clip, stamp=stamp)), OutputForm.CHANGELOG)
        assert ctis_of(run, promises) == [rule_of(window, stamp, reader)(c) for c in promises], clip


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_nothing_is_left_of_final_rows(name: str) -> None:
    run = started(OPERATORS[name][0], OutputForm.FINAL)
    ctis_of(run, CTIS if SOAK else CTIS[::3])
    run.finish()
    assert is_empty(run)


LASTING = [
    ("insert", 2, None, None, "x", 2),
    ("retract", 2, None, 13, "x", 2),
    ("insert", 14, None, None, "x", 3),
    ("insert", 33, 90, None, "x", 4),
]
"""Events beside the others: two without an end, one of which ends after all, and one that ends beyond the last CTI."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_a_cti_or_the_end_that_is_heard_twice_changes_nothing(name: str) -> None:
    """Neither the rows that come out, nor the CTI, nor the chunks of the state."""
    for output in (OutputForm.CHANGELOG, OutputForm.FINAL):
        run = started(OPERATORS[name][0], output)
        for before, after in itertools.pairwise([-1, 4, 15, 32, 60]):
            lasting = [row for row in LASTING if before <= (row[3] or row[1]) < after]
            tables = {source: t.table(COLUMNS, [*rows(source, after, before), *lasting]) for source in "ab"}
            run.batch(tables, [(None, after)])
            check_unchanged(run, after)
        run.finish()
        check_unchanged(run, INFINITY)
        assert is_empty(run)


def check_unchanged(run: LocalRun, heard: int) -> None:
    """Send a CTI that has been heard once more."""
    before = run.cti, [chunks(store) for store in run.stores.values()]
    assert run.batch({}, [(None, heard)]).num_rows == 0
    assert (run.cti, [chunks(store) for store in run.stores.values()]) == before


def chunks(store: dict[str, bytes]) -> dict[str, bytes]:
    return {name: body for name, body in store.items() if name != Baskets.MANIFEST}


def test_no_operator_is_forgotten() -> None:
    seen = {type(n) for query, _ in OPERATORS.values() for n in nodes(query.plan)}
    assert {kind for kind in written_operators() if not issubclass(kind, Source)} <= seen


BOUNDED = {"landmark": A.landmark_window(5, period=40).select(n=sq.count())}
"""In place of a query whose windows never end."""

MANY = 1_000 if SOAK else 24
"""Micro-batches with a moving CTI: what comes, and its pauses, are as before after every four."""


def check_flat(sizes: Sequence[int]) -> None:
    """Hold what state needs in the second half of a run against the first: what comes repeats after more than a quarter."""
    half = len(sizes) // 2
    assert max(sizes[half:]) <= 1.05 * max(sizes[:half]) + 100


@pytest.mark.slow
@pytest.mark.parametrize("output", [OutputForm.CHANGELOG, OutputForm.FINAL] if SOAK else [OutputForm.CHANGELOG])
@pytest.mark.parametrize("name", OPERATORS)
def test_state_stays_flat(name: str, output: str) -> None:
    """Bytes of state over many micro-batches stay within what the first half needed."""
    run = started(BOUNDED.get(name, OPERATORS[name][0]), output, buckets=2 if SOAK else 1)
    sizes = []
    for i in range(MANY):
        # with a pause now and then, for a session without an end keeps all of its events
        at = 10 * i + 100 * (i // 4)
        rows = [("insert", at + n, at + n + 3 + 7 * n, None, "xy"[(i + n) % 2], (i + n) % 4) for n in range(0, 10, 3)]
        table = t.table(COLUMNS, rows)
        run.batch({"a": table, "b": table}, [(None, at)])
        sizes.append(sum(len(v) for store in run.stores.values() for v in store.values()))
    check_flat(sizes)


DELIVERED = "kind string, at bigint, til bigint, new_end bigint, id string, v int"
ROWS = t.table(DELIVERED, [])
NAMED = sq.physical(ROWS, start="at", end="til", id="id", name="s")
AT_LEAST_ONCE: dict[str, sq.Stream] = {
    "points": sq.points(ROWS, "at", id="id", name="s", progress=sq.explicit()),
    "intervals": sq.intervals(ROWS, "at", "til", id="id", name="s", progress=sq.explicit()),
    "edges": sq.edges(
        ROWS, "at", edge="kind", key="id", open="insert", close="retract", name="s", progress=sq.explicit()
    ),
    "physical": NAMED,
    "deleted": NAMED,
}


def delivered(name: str, i: int) -> list[tuple[Any, ...]]:
    """The rows of the i-th micro-batch, as they come for the first time."""
    made: list[tuple[Any, ...]] = []
    for n in (0, 3, 6, 9):
        start, end, whose = 10 * i + n, 10 * i + n + 3 + 7 * n, (f"{i}/{n}", n)
        match name:
            case "points" | "intervals":
                made += [("insert", start, end, None, *whose)]
            case "edges":
                made += [("insert", start, None, None, *whose), ("retract", end, None, None, *whose)]
            case "physical":
                made += [("insert", start, None, None, *whose), ("retract", start, None, end, *whose)]
            case _:
                made += [("insert", start, None, None, *whose), ("retract", start, None, start, *whose)]
    return made


@pytest.mark.slow
@pytest.mark.parametrize("output", [OutputForm.FINAL, OutputForm.CHANGELOG])
@pytest.mark.parametrize("name", AT_LEAST_ONCE)
def test_state_of_a_source_that_delivers_rows_again_stays_flat(name: str, output: str) -> None:
    """Every row comes again in its own micro-batch and in the next one, and is counted; at the end nothing is left."""
    run = started(AT_LEAST_ONCE[name], output)
    sizes, before = [], []
    for i in range(MANY):
        rows = delivered(name, i)
        run.batch({"s": t.table(DELIVERED, [*rows, *before, *rows])}, [(None, 10 * i)])
        before = rows
        sizes.append(sum(len(v) for store in run.stores.values() for v in store.values()))
    check_flat(sizes)
    each = len(delivered(name, 0))
    counted = [totals.get("s|duplicates", 0) for totals in run.totals.values()]
    assert sum(counted) == each * (2 * MANY - 1)
    assert not {key for totals in run.totals.values() for key in totals} - {"s|duplicates"}
    run.finish()
    assert is_empty(run)
