"""Blocks of basic windows: what a slide reads grows with the logarithm of the window, and no event is lost or read twice."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.run.checkpoint import identity_of
from streamq.runtime.basic_window_blocks import BLOCKS
from streamq.runtime.basket import Baskets, DictStore
from streamq.runtime.event import LE, WEIGHT
from streamq.runtime.group_bins import BinSizes
from tests.laws.cost_operators import program, work
from tests.mutation.mutant import Edit, Mutant
from tests.programs import with_sizes

FILE = "streamq/runtime/basic_window_blocks.py"
COLUMNS = "at bigint, k string, v bigint"
POINTS = sq.points(t.table(COLUMNS, []), time="at", name="s")


def windows(points: sq.Stream, n: int) -> sq.Stream:
    return points.group_by("k").hopping_window(n, 1).select(n=sq.count(), total=sq.sum("v"), most=sq.max("v"))


def rows_of_a_slide(n: int) -> float:
    """The rows that a slide reads on average, of a key with an event in each hop."""
    live = LocalRun(with_sizes(program(lambda a, b: windows(POINTS, n)), BinSizes(blocks_above=0)))
    rows = t.table(COLUMNS, [(at, "a", at) for at in range(2 * n)])
    live.batch({"s": rows}, [(None, 2 * n)])
    before = work(live).evaluated
    for at in range(2 * n, 2 * n + 16):
        live.batch({"s": t.table(COLUMNS, [(at, "a", at)])}, [(None, at + 1)])
    return (work(live).evaluated - before) / 16


def test_a_slide_reads_rows_by_the_logarithm_of_the_windows() -> None:
    few, many = map(rows_of_a_slide, (32, 1_024))
    assert many < 40 and many < 3 * few


UNMERGED = Mutant(
    "no blocks", "no block is ever merged", "", edits=(Edit(FILE, "if upto <= since:", "if upto <= since or before:"),)
)


def test_without_blocks_it_reads_all() -> None:
    with UNMERGED.in_place():
        assert rows_of_a_slide(512) > 512


FAULTS = (
    Mutant("late ones left out", "late events are not added to merged blocks", "", edits=(
        Edit(FILE, "self._append(state, new.filter(pa.array(is_late)), size)", "pass"),)),
    Mutant("a block too far", "a block that begins before the window counts for it", "", edits=(
        Edit(FILE, "self.first <= (cell", "self.first <= 1 + (cell"),)),
    Mutant("a block beyond", "a block that ends behind the window counts for it", "", edits=(
        Edit(FILE, "<= self.end", "<= 1 + self.end"),)),
    Mutant("twice", "a block is read beside a larger one that contains it", "", edits=(
        Edit(FILE, "and not usable.covers(start, larger)", ""),)),
    Mutant("another form", "late rows that are sent at once are not added to merged blocks", "", edits=(
        Edit("streamq/runtime/kernels/window_aggregate.py", "self._blocks.add(state, new)",
             "(self._blocks._hold if self.early else self._blocks.add)(state, new)"),)),
    Mutant("not forgotten", "blocks stay when no window contains them any longer", "", edits=(
        Edit(FILE, "if start < least:", "if False:"),)),
    Mutant("wide bins", "rows that came before there were blocks stay in bins wider than a block", "", edits=(
        Edit(FILE, "state.values[BLOCKS] = {}\n            self._rearrange(state)", "state.values[BLOCKS] = {}"),)),
    Mutant("twice in state", "rows stay where they were when they are moved", "", edits=(
        Edit(FILE, "self.held.forget(state, INFINITY)", "pass"),)),
    Mutant("never given up", "few rows keep their blocks", "", edits=(
        Edit(FILE, "if rows <= self.above // FEWER:", "if False:"),)),
)  # fmt: skip
DELAY = 12


def check(n: int, *forms: dict[str, Any]) -> None:
    """Points in blocks of the least size: the windows are those that counting gives."""
    rng = random.Random(1)
    points = [(rng.randrange(80), rng.choice("ab"), rng.randrange(9)) for _ in range(70)]
    run(points, n, 0, *forms)


def check_crossing(n: int, *forms: dict[str, Any], seed: int = 1) -> None:
    """Points that are dense, sparse and dense: state has blocks, gives them up and has them again, and windows are right."""
    rng = random.Random(seed)
    dense = [(at, rng.choice("ab"), rng.randrange(9)) for at in (*range(30), *range(120, 160)) for _ in "123"]
    points = [*dense, *((at, rng.choice("ab"), rng.randrange(9)) for at in range(30, 120, 9))]
    have_blocks = [have for have, _ in itertools.groupby(run(points, n, 40, *forms))]
    assert have_blocks[:4] == [False, True, False, True]


def run(points: list[tuple[int, str, int]], n: int, above: int, *forms: dict[str, Any]) -> list[bool]:
    """Compare the windows of points that come late and out of order with those that counting gives.

    There are blocks above a number of rows. The ``forms`` of rows are used in turn, for four micro-batches each, on the same
    state. After each micro-batch: state has blocks.
    """
    rng = random.Random(1)
    left = sorted(points, key=lambda point: point[0] + rng.randrange(DELAY))
    source = sq.points(t.table(COLUMNS, []), time="at", name="s", progress=sq.generate(DELAY))
    sizes = BinSizes(block_rank=1, blocks_above=above)
    have_blocks: list[bool] = []
    programs = [with_sizes(program(lambda a, b: windows(source, n), **form), sizes) for form in forms]
    live = LocalRun(programs[0], identity=identity_of(programs[0]))
    history: Counter[tuple[Any, ...]] = Counter()
    for turn in itertools.count():
        if not left:
            break
        form = programs[turn // 4 % len(programs)]
        live = replace(live.go_on(form), identity=identity_of(form))
        new, left = left[:5], left[5:]
        add(history, live.batch({"s": t.table(COLUMNS, new)}))
        assert blocks(live) <= n + DELAY
        stores = [Baskets(DictStore(store)) for store in live.stores.values()]
        have_blocks.append(any(BLOCKS in values for one in stores for values in one.scopes.values()))
    add(history, live.finish())
    assert +history == counted(points, n) and not -history
    return have_blocks


def add(history: Counter[tuple[Any, ...]], deltas: pa.Table) -> None:
    for row in deltas.to_pylist():
        history[tuple(row[name] for name in ("k", "n", "total", "most", LE))] += row[WEIGHT]


def blocks(live: LocalRun) -> int:
    """The blocks in state."""
    stores = [Baskets(DictStore(store)) for store in live.stores.values()]
    return sum(len(one.bins(name)) for one in stores for name in one.names("") if name.endswith(BLOCKS))


def counted(points: list[tuple[int, str, int]], n: int) -> Counter[tuple[Any, ...]]:
    """The windows by the definition."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for start in range(-n, 1 + max(at for at, _, _ in points)):
        for key in "ab":
            values = [v for at, k, v in points if k == key and start <= at < start + n]
            if values:
                rows[key, len(values), sum(values), max(values), start] += 1
    return rows


@pytest.mark.parametrize(("n", "has_blocks"), [(15, False), (16, True)])
def test_explain_says_if_there_are_blocks(n: int, has_blocks: bool) -> None:
    assert ("O(log n) blocks" in (windows(POINTS, n).explanation("physical"))) == has_blocks


EARLY = {"output": OutputForm.CHANGELOG, "early": True}
CHANGELOG, FINAL = {"output": OutputForm.CHANGELOG}, {"output": OutputForm.FINAL}


def check_some() -> None:
    for n, forms in itertools.product((5, 16), ([FINAL], [CHANGELOG], [EARLY, CHANGELOG])):
        check(n, *forms)
        check_crossing(n, *forms)


def test_windows_are_those_that_counting_gives() -> None:
    check_some()


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_seen(fault: Mutant) -> None:
    with fault.in_place(), pytest.raises(AssertionError):
        check_some()
