"""Blocks of basic windows: what a slide reads grows with the logarithm of the window, and no event is lost or read twice.

The windows are of points, of intervals, and of events that are taken back.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.run.storage.checkpoint import identity_of
from streamq.runtime.state.baskets import Baskets, BinSizes, DictStore
from streamq.runtime.state.window_bins import BLOCKS
from streamq.testing.history import assert_same_history, net
from streamq.testing.oracle import oracle
from tests.laws.cost_operators import program, work
from tests.programs import with_sizes


class Event(NamedTuple):
    """An event of a group; ``was``: the end with which it came before that moved, None: it did not."""

    start: int
    end: int
    k: str
    v: int
    was: int | None = None


@dataclass(frozen=True)
class Events:
    """A source of events with rows of ``columns``, and the results of its windows."""

    source: Callable[[pa.Table, Any], sq.Stream]
    columns: str
    rows: Callable[[Event], list[tuple[Any, ...]]]
    longest: int
    results: dict[str, sq.Aggregate]

    def stream(self, progress: Any = None) -> sq.Stream:
        return self.source(t.table(self.columns, []), progress)

    def windows(self, n: int, progress: Any = None) -> sq.Stream:
        return self.stream(progress).group_by("k").hopping_window(n, 1).select(**self.results)


COUNTED = {"n": sq.count(), "total": sq.sum("v")}
RESULTS = {**COUNTED, "most": sq.max("v")}
ORDERED = {**COUNTED, "first": sq.first("v"), "last": sq.last("v")}


def of_points(results: Any) -> Events:
    return Events(
        lambda table, progress: sq.points(table, time="at", name="s", progress=progress),
        "at bigint, k string, v bigint",
        lambda event: [(event.start, event.k, event.v)],
        1,
        results,
    )


def of_intervals(longest: int) -> Events:
    return Events(
        lambda table, progress: sq.intervals(table, start="at", end="until", name="s", progress=progress),
        "at bigint, until bigint, k string, v bigint",
        lambda event: [(event.start, event.end, event.k, event.v)],
        longest,
        RESULTS,
    )


def with_ends_that_move(event: Event) -> list[tuple[Any, ...]]:
    start, end, k, v, was = event
    insert = ("insert", start, end if was is None else was, None, k, v)
    return [insert] if was is None else [insert, ("retract", start, was, end, k, v)]


POINTS, ORDERED_POINTS, SHORT, LONG = of_points(RESULTS), of_points(ORDERED), of_intervals(3), of_intervals(40)
TAKEN_BACK = Events(
    lambda table, progress: sq.physical(table, name="s", progress=progress),
    "kind string, start bigint, end bigint, new_end bigint, k string, v bigint",
    with_ends_that_move,
    20,
    COUNTED,
)
KINDS = {"points": POINTS, "ordered": ORDERED_POINTS, "short": SHORT, "long": LONG, "taken back": TAKEN_BACK}
OTHERS = [kind for kind in KINDS if kind != "points"]


def slow_but(fast: str, kinds: Iterable[str]) -> list[Any]:
    """Kinds of events as parameters of a test, of which one is tried in each run."""
    return [kind if kind == fast else pytest.param(kind, marks=pytest.mark.slow) for kind in kinds]


SLIDES = 16
"""The slides over which the rows that they read are counted."""


def rows_of_a_slide(
    n: int, events: Events = POINTS, lasting: Sequence[int] = (), *, filled: int = 2, parts: int = 4
) -> float:
    """The rows that a slide reads on average, of a key with events in each hop, once ``filled`` windows have come in ``parts``.

    The events are ``lasting`` so long; without that, one of them as long as any.
    """
    live = LocalRun(with_sizes(program(lambda a, b: events.windows(n)), BinSizes(blocks_above=0)))

    def rows(*ats: int) -> dict[str, pa.Table]:
        new = [Event(at, at + length, "a", at) for at in ats for length in lasting or [events.longest]]
        return {"s": t.table(events.columns, [row for event in new for row in events.rows(event)])}

    for at in range(0, filled * n, n // parts):
        live.batch(rows(*range(at, at + n // parts)), [(None, at + n // parts)])
    before = work(live).evaluated
    for at in range(filled * n, filled * n + SLIDES):
        live.batch(rows(at), [(None, at + 1)])
    return (work(live).evaluated - before) / SLIDES


@pytest.mark.parametrize("kind", slow_but("points", KINDS))
def test_a_slide_reads_rows_by_the_logarithm_of_the_windows(kind: str) -> None:
    few, many = (rows_of_a_slide(n, KINDS[kind]) for n in (32, 1_024))
    assert many < few + 24


@pytest.mark.slow
def test_of_many_long_lifetimes_it_reads_nodes() -> None:
    def rows() -> float:
        return rows_of_a_slide(64, LONG, range(1, LONG.longest + 1))

    assert rows() < 250


def test_rows_that_came_before_there_were_blocks_are_merged_too() -> None:
    assert rows_of_a_slide(512, filled=1, parts=1) < 100


DELAY = 12


def drawn(rng: random.Random, at: int, events: Events) -> Event:
    """An event that starts at an instant. Of those that may be taken back, some have been."""
    end = at + rng.randrange(1, events.longest + 1)
    was = at + rng.randrange(1, events.longest + 1) if events is TAKEN_BACK and rng.random() < 0.4 else None
    return Event(at, end, rng.choice("ab"), rng.randrange(9), None if was == end else was)


def check(n: int, events: Events, *forms: dict[str, Any]) -> None:
    """Events in blocks of the least size: the windows are those that counting gives."""
    rng = random.Random(1)
    run([drawn(rng, rng.randrange(80), events) for _ in range(70)], events, n, 0, *forms)


def check_crossing(n: int, events: Events, *forms: dict[str, Any], seed: int = 1) -> None:
    """Events that are dense, sparse and dense: state has blocks, gives them up and has them again, and windows are right."""
    rng = random.Random(seed)
    step = 9 * max(1, events.longest // 2)
    again = 30 + 10 * step
    # of an event that lasts there are up to three rows, of others that start with it there may be none beside
    above, each = (40, 3) if events.longest == 1 else (60, 4)
    dense = [at for at in (*range(30), *range(again, again + 40)) for _ in range(each)]
    ats = [*dense, *range(30, again, step)]
    states = run([drawn(rng, at, events) for at in ats], events, n, above, *forms)
    have_blocks = [have for have, _ in itertools.groupby(states)]
    assert have_blocks[:4] == [False, True, False, True]


def run(drawn: list[Event], events: Events, n: int, above: int, *forms: dict[str, Any]) -> list[bool]:
    """Compare the windows of events that come late and out of order with those that counting gives.

    There are blocks above a number of rows. The ``forms`` of rows are used in turn, for four micro-batches each, on the same
    state. After each micro-batch: state has blocks.
    """
    rng = random.Random(1)
    left = sorted(drawn, key=lambda event: event.start + rng.randrange(DELAY))
    sizes = BinSizes(block_rank=1, blocks_above=above)
    have_blocks: list[bool] = []
    query = events.windows(n, sq.generate(DELAY))
    programs = [with_sizes(program(lambda a, b: query, **form), sizes) for form in forms]
    live = LocalRun(programs[0], identity=identity_of(programs[0]))
    out = []
    for turn in itertools.count():
        if not left:
            break
        form = programs[turn // 4 % len(programs)]
        live = replace(live.go_on(form), identity=identity_of(form))
        new, left = left[:5], left[5:]
        rows = [row for one in new for row in events.rows(one)]
        out.append(live.batch({"s": t.table(events.columns, rows)}))
        assert blocks(live) <= n + DELAY
        stores = [Baskets(DictStore(store)) for store in live.stores.values()]
        have_blocks.append(any(BLOCKS in values for one in stores for values in one.scopes.values()))
    every = t.table(events.columns, [row for one in drawn for row in events.rows(one)])
    assert_same_history(net([*out, live.finish()]), oracle(query.plan, {"s": every}))
    return have_blocks


def blocks(live: LocalRun) -> int:
    """The blocks in state."""
    stores = [Baskets(DictStore(store)) for store in live.stores.values()]
    return sum(len(bins) for one in stores for name, bins in one.counts.items() if name.endswith(BLOCKS))


@pytest.mark.parametrize(("n", "has_blocks"), [(15, False), (16, True)])
def test_explain_says_if_there_are_blocks(n: int, has_blocks: bool) -> None:
    for events in KINDS.values():
        assert ("O(log n) blocks" in (events.windows(n).explanation("physical"))) == has_blocks


EARLY = {"output": OutputForm.CHANGELOG, "early": True}
CHANGELOG, FINAL = {"output": OutputForm.CHANGELOG}, {"output": OutputForm.FINAL}


def check_some() -> None:
    for n, forms in itertools.product((5, 16), ([FINAL], [CHANGELOG], [EARLY, CHANGELOG])):
        check(n, POINTS, *forms)
        check_crossing(n, POINTS, *forms)


def check_all() -> None:
    check_some()
    check(16, LONG, EARLY, CHANGELOG)
    for kind in ("long", "taken back"):
        check(8, KINDS[kind], FINAL)
        check_crossing(8, KINDS[kind], EARLY, CHANGELOG)


@pytest.mark.slow
def test_windows_are_those_that_counting_gives() -> None:
    check_some()


@pytest.mark.slow
@pytest.mark.parametrize("kind", OTHERS)
def test_windows_of_other_events_are_those_that_counting_gives(kind: str) -> None:
    for forms in ([FINAL], [EARLY, CHANGELOG]):
        check(16, KINDS[kind], *forms)
    check_crossing(8, KINDS[kind], EARLY, CHANGELOG)
