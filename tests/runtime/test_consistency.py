"""Levels of consistency: the same input through all of them, with the differences that docs/consistency.md predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.policies import Level, consistency_of
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.runtime.time.consistency import AlignAt, HeldRows, progress_at_level
from streamq.runtime.time.progress import LevelProgress
from streamq.sources.literal import Item
from streamq.time import INFINITY, MINUS_INFINITY
from tests.programs import compiled

NEVER = MINUS_INFINITY
STRONG, MIDDLE, BRIEF = Level(None), Level(0), Level(8)
EMPTY = pa.table({"at": pa.array([], pa.int64()), "k": pa.array([], pa.string())})
CLICKS = sq.points(EMPTY, time="at", name="clicks", progress=sq.generate(30))
VIEWS = sq.points(EMPTY, time="at", name="views", progress=sq.generate(30))

QUERIES: dict[str, sq.Stream] = {
    "rows": CLICKS.where(sq.col("k") != "x"),
    "windows": CLICKS.group_by("k").tumbling_window(10).select(n=sq.count()),
    "snapshots": CLICKS.set_duration(7).snapshot_window().select(n=sq.count()),
    "join": CLICKS.set_duration(7).join(VIEWS.set_duration(5), on="k"),
    "anti join": CLICKS.set_duration(7).left_anti_join(VIEWS.set_duration(5), on="k"),
    "signal": CLICKS.to_signal("k"),
}
ARRIVAL = [1, 12, 3, 25, 14, 60, 31, 44, 99, 80, 76]
"""Out of order by at most 29."""


def started(query: sq.Stream, level: Level, output: str = OutputForm.CHANGELOG) -> LocalRun:
    return LocalRun(compiled(rewrite(query.plan).plan, output, buckets=2, level=level))


def clicks(*times: int, k: str = "a") -> dict[str, pa.Table]:
    table = pa.table({"at": pa.array(times, pa.int64()), "k": [k] * len(times)})
    return {"clicks": table, "views": table}


def through(query: sq.Stream, level: Level, times: Sequence[int] = ARRIVAL) -> list[pa.Table]:
    run = started(query, level)
    names = {n.table for n in [*_sources(query)]}
    out = [run.batch({n: t for n, t in clicks(at).items() if n in names}) for at in times]
    return [*out, run.finish()]


def _sources(query: sq.Stream) -> list[Any]:
    from streamq.operators import Source
    from streamq.plan.node import nodes

    return [n for n in nodes(query.plan) if isinstance(n, Source)]


def taken_back(out: Sequence[pa.Table]) -> int:
    return sum(1 for table in out for w in table.column(WEIGHT).to_pylist() if w < 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_nothing_is_taken_back_for_disorder_at_the_strong_level(name: str) -> None:
    """What is taken back in order as well (a last row has no end yet) is no work of disorder."""
    because = [
        taken_back(through(QUERIES[name], level)) - taken_back(through(QUERIES[name], level, sorted(ARRIVAL)))
        for level in (STRONG, MIDDLE)
    ]
    assert because[0] <= 0
    # single rows and pairs are never wrong for want of others
    assert because[1] > 0 or name in ("rows", "join")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_the_longer_input_is_blocked_the_later_comes_what_comes(name: str) -> None:
    def when(level: Level) -> float:
        out = through(QUERIES[name], level)
        return sum(i * t.num_rows for i, t in enumerate(out)) / sum(t.num_rows for t in out)

    assert when(STRONG) > when(MIDDLE)
    assert when(STRONG) >= when(BRIEF) >= when(MIDDLE)


def test_strong_rows_come_in_order_of_time() -> None:
    out = through(QUERIES["rows"], STRONG)
    starts = [sorted(t.column(LE).to_pylist()) for t in out]
    assert [s for part in starts for s in part] == sorted(ARRIVAL)


def test_a_weak_level_adjusts_what_the_source_has_not_given_up() -> None:
    stays = sq.intervals(
        pa.table({"s": pa.array([], pa.int64()), "e": pa.array([], pa.int64())}),
        start="s",
        end="e",
        name="stays",
        progress=sq.generate(1_000),
        late="fail",
    )

    def given(*rows: tuple[int, int]) -> dict[str, pa.Table]:
        return {"stays": pa.table({"s": [a for a, _ in rows], "e": [b for _, b in rows]})}

    run = started(stays, Level(0, 10))
    run.batch(given((100, 101)))
    out = run.batch(given((50, 95), (20, 30)))
    assert [(r[LE], r[RE]) for r in out.to_pylist()] == [(90, 95)]
    assert {k: n for t in run.totals.values() for k, n in t.items()} == {"stays|adjusted": 1, "stays|dropped": 1}


@pytest.mark.slow
def test_a_weak_level_bounds_state_without_any_progress() -> None:
    """Explicit CTIs that never come: only what is remembered is kept."""
    log = sq.physical(pa.table({n: pa.array([], pa.string() if n == "kind" else pa.int64()) for n in KIND}), name="log")
    query = log.snapshot_window().select(n=sq.count())
    sizes: dict[int | None, list[int]] = {}
    for remember in (50, None):
        run = started(query, Level(0, remember))
        sizes[remember] = []
        for i in range(120):
            row = {"kind": ["insert"], "start": [10 * i], "end": [10 * i + 15], "new_end": [None]}
            run.batch({"log": pa.table(row, schema=pa.schema(list(KIND.items())))})
            sizes[remember].append(sum(k.state_rows or 0 for k in run.readings.of_kernels.values()))
    assert max(sizes[50][60:]) <= 1.1 * max(sizes[50][20:60])
    assert sizes[None][-1] > 2 * sizes[50][-1]


KIND = {"kind": pa.string(), "start": pa.int64(), "end": pa.int64(), "new_end": pa.int64()}


def test_several_sources_are_released_together() -> None:
    """What one source says is held until the others have come as far: the least over the query's sources."""
    query = CLICKS.union(VIEWS)
    run = started(query, STRONG)
    assert run.batch({"clicks": clicks(10, 50)["clicks"]}).num_rows == 0
    assert run.batch({"views": clicks(20)["views"]}).num_rows == 0
    out = run.batch({"views": clicks(45)["views"]})
    assert sorted(out.column(LE).to_pylist()) == [10]
    assert sorted(run.finish().column(LE).to_pylist()) == [20, 45, 50]


# the parts


def test_what_a_source_s_progress_counts_as() -> None:
    promises = {"a": (40, 60), "b": (10, 90)}
    assert progress_at_level(MIDDLE, promises, {}) == {"a": LevelProgress(40, 60, 40), "b": LevelProgress(10, 90, 10)}
    assert progress_at_level(STRONG, promises, {}) == {
        "a": LevelProgress(10, NEVER, 40),
        "b": LevelProgress(10, NEVER, 10),
    }
    assert progress_at_level(Level(5), promises, {}) == {"a": LevelProgress(10, 55, 40), "b": LevelProgress(10, 55, 10)}
    assert progress_at_level(Level(0, 25), promises, {}) == {
        "a": LevelProgress(40, 60, 40),
        "b": LevelProgress(35, 90, 10),
    }
    assert progress_at_level(MIDDLE, promises, {"b": "a"}) == {
        "a": LevelProgress(40, 60, 40),
        "b": LevelProgress(40, 90, 40),
    }
    # one that has promised more than it has brought, or has ended, holds nobody back
    assert progress_at_level(Level(5), {"a": (40, 60), "b": (70, NEVER)}, {})["a"] == LevelProgress(40, 55, 40)
    assert progress_at_level(Level(0, 25), {"a": (10, 60), "b": (INFINITY, 9)}, {})["a"] == LevelProgress(35, 60, 10)
    # of those that have no progress of their own nobody need wait
    assert progress_at_level(Level(5), {**promises, "b": (10, 3)}, {"b": "a"})["a"] == LevelProgress(40, 55, 40)


def deltas(*rows: tuple[int, int, int]) -> pa.Table:
    le, re, w = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table({"v": ["x"] * len(rows), LE: pa.array(le, pa.int64()), RE: pa.array(re, pa.int64()), WEIGHT: w})


def test_items_are_held_folded_and_released_by_sync_time() -> None:
    scope = Baskets(DictStore({})).scoped("align")

    def step(c: int, *rows: tuple[int, int, int]) -> list[tuple[int, int, int]]:
        found = HeldRows(scope).release(deltas(*rows) if rows else None, c, NEVER)
        return [] if found is None else sorted((r[LE], r[RE], r[WEIGHT]) for r in found.to_pylist())

    assert step(5, (3, 9, 1), (7, 20, 1)) == [(3, 9, 1)]
    # a retraction of what is held is folded into it, one of what is out waits for its own time
    assert step(6, (7, 20, -1), (7, 15, 1), (3, 9, -1), (3, 8, 1)) == []
    assert step(8) == [(7, 15, 1)]
    assert step(9) == [(3, 8, 1), (3, 9, -1)]
    assert list(scope.basket("held")) == []
    assert step(10, (40, 50, 1), (90, 99, 1)) == []
    assert step(INFINITY) == [(40, 50, 1), (90, 99, 1)]


def test_an_end_that_an_edge_brings_is_due_at_its_own_time() -> None:
    """Until then its event goes on without one; or, where its payload comes with it, it waits."""
    opened = [
        (5, [("x", 1, 20, 1), ("x", 7, 9, 1)], [("x", 1, INFINITY, 1)], (3, 7)),
        (6, [("x", 1, 20, -1), ("x", 1, 10, 1)], [], (3, 7)),
        (8, [], [("x", 7, INFINITY, 1)], (4, 9)),
        (11, [], [("x", 1, 10, 1), ("x", 1, INFINITY, -1), ("x", 7, 9, 1), ("x", 7, INFINITY, -1)], (0, INFINITY)),
        # another level let an end go on ahead of its time
        (12, [("x", 2, 30, -1), ("x", 2, 25, 1)], [], (2, 25)),
        (26, [], [("x", 2, 25, 1), ("x", 2, 30, -1)], (0, INFINITY)),
    ]
    closed = [
        (5, [("x", 1, INFINITY, 1), ("z", 2, 20, 1)], [("x", 1, INFINITY, 1)], (1, 20)),
        (6, [("x", 1, INFINITY, -1), ("y", 1, 10, 1)], [], (3, 10)),
        (11, [], [("x", 1, INFINITY, -1), ("y", 1, 10, 1)], (1, 20)),
        (INFINITY, [], [("z", 2, 20, 1)], (0, INFINITY)),
    ]
    columns = f"v string, {LE} bigint, {RE} bigint, {WEIGHT} bigint"
    for ends, steps in ((AlignAt.EDGE_OPEN, opened), (AlignAt.EDGE_CLOSE, closed)):
        held = HeldRows(Baskets(DictStore({})).scoped("align"), ends, ["k"])
        for c, items, released, backlog in steps:
            table = t.table(columns, items).append_column("k", pa.array(["a"] * len(items), pa.string()))
            found = held.release(table if items else None, c, NEVER)
            rows = [] if found is None else [(r["v"], r[LE], r[RE], r[WEIGHT]) for r in found.to_pylist()]
            assert (sorted(rows), held.backlog()) == (released, backlog)


def test_bins_of_what_is_held_stay_few() -> None:
    """However narrow the first rows lay; all of it comes out again, and nothing is left."""
    scope = Baskets(DictStore({})).scoped("align")
    starts = [7, *(1_000_003 * n % 10_000_019 for n in range(4_000))]
    for at in range(0, len(starts), 500):
        HeldRows(scope).release(deltas(*((t, t + 1, 1) for t in starts[at : at + 500])), NEVER, NEVER)
        assert len(list(scope.basket("held"))) <= 4 * 64
    found = [HeldRows(scope).release(None, c, NEVER) for c in (5_000_000, INFINITY)]
    assert sorted(t for part in found if part is not None for t in part.column(LE).to_pylist()) == sorted(starts)
    assert list(scope.basket("held")) == []


def test_levels_by_name_and_by_number() -> None:
    assert consistency_of("strong", "integer", "run") == STRONG
    assert consistency_of("middle", "integer", "run") == MIDDLE
    assert consistency_of(sq.weak(7), "integer", "run") == Level(0, 7)
    assert consistency_of(sq.level("1 second", "1 minute"), "timestamp", "run") == Level(1_000_000, 60_000_000)
    with pytest.raises(sq.StreamqError, match="run: no level of consistency; found 'string'. Did you mean 'strong'"):
        consistency_of("string", "integer", "run")
    with pytest.raises(sq.StreamqError, match="run: no level of consistency; found 3. There are: 'strong'"):
        consistency_of(3, "integer", "run")  # type: ignore[arg-type]
    with pytest.raises(sq.StreamqError, match="an integer number of ticks"):
        consistency_of(sq.weak("1 minute"), "integer", "run")


@pytest.mark.parametrize(
    ("block", "remember", "message"),
    [
        (
            9,
            8,
            "consistency: items blocked for longer than history .*; found items blocked for 9, history .* for 8. In ",
        ),
        (
            "1 minute",
            "1 second",
            "items blocked for longer than history is remembered; found items blocked for '1 minute'",
        ),
        (None, 8, "found items blocked for ever, history remembered for 8"),
        (-1, None, "consistency: block is negative; found -1. None is for ever."),
        (0, "-1 second", "consistency: remember is negative; found '-1 second'"),
        (
            5,
            "1 second",
            "a duration with a unit beside one without; found 5 and '1 second'. Give both a unit, or none.",
        ),
        ("soon", None, "consistency: not a duration; found 'soon'. Units: "),
    ],
)
def test_a_level_that_cannot_be_is_refused_where_it_is_made(block: Any, remember: Any, message: str) -> None:
    with pytest.raises(sq.StreamqError, match=message):
        sq.level(block, remember)


# What was reported is corrected by what arrives late or is taken back: by exactly the rows that change, and no others.

Deltas = list[tuple[Any, ...]]


def items(name: str, *given: Item) -> sq.Stream:
    """A stream in which a row may be a hundred ticks late; it holds a retraction so that its items may be taken back."""
    spare = (sq.insert(-99, 1, k=0), sq.retract(-99, 1, -99, k=0))
    return sq.events([*spare, *given], name=name, progress=sq.generate(100))


def told(query: Callable[[sq.Stream, sq.Stream], sq.Stream], *batches: tuple[str, Item]) -> list[Deltas]:
    """The deltas ``start, end, weight`` of micro-batches of one item each of stream l or r."""
    run = LocalRun(compiled(rewrite(query(items("l"), items("r")).plan).plan, OutputForm.CHANGELOG, buckets=1))
    out = []
    for name, item in batches:
        table = items(name, item).tables[name].slice(2)
        found = run.batch({name: table}).to_pylist()
        out.append(sorted((r["__le"], None if r["__re"] == 2**63 - 1 else r["__re"], r["__w"]) for r in found))
    assert not run.totals
    return out


LEFT, NOW = ("l", sq.insert(1, 10, k=1)), ("r", sq.insert(50, 51, k=2))


@pytest.mark.parametrize(
    ("query", "cut"),
    [
        (lambda a, b: a.join(b, on="k", how="anti"), [(1, 4), (6, 10)]),
        (lambda a, b: a.except_(b), [(1, 4), (6, 10)]),
        (lambda a, b: a.clip(b, on="k"), [(1, 4)]),
    ],
    ids=["anti join", "except_", "clip"],
)
def test_a_late_right_event_splits_a_reported_left_piece(query: Any, cut: list[tuple[int, int]]) -> None:
    """
    left    [1,10)            reported as it is
    right       [4,6)         comes late, and is taken back again
    """
    late, gone = ("r", sq.insert(4, 6, k=1)), ("r", sq.retract(4, 6, 4, k=1))
    further = ("l", sq.insert(60, 61, k=3))
    found = told(query, LEFT, NOW, further, late, gone)
    whole = (1, 10)
    assert (*whole, 1) in [row for deltas in found[:3] for row in deltas], "reported before the right event came"
    assert found[3] == sorted([(*whole, -1), *((*piece, 1) for piece in cut)])
    assert found[4] == sorted([(*whole, 1), *((*piece, -1) for piece in cut)])
