"""Cost goes with change: a micro-batch computes with the rows that came, the groups they touch, and what falls due."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.operators.operator import Operator
from streamq.plan.node import nodes, number_sources
from streamq.runtime.state.baskets import Baskets, BinSizes, DictStore
from tests.laws.cost_operators import (
    BATCHES,
    BY_START,
    EARLY,
    FAR,
    FEW,
    HOT,
    MANY,
    NOTED,
    OPERATORS,
    PARTS,
    SMALL,
    WARM,
    WHOLE_GROUPS,
    Work,
    program,
    rows,
    source,
    work,
    work_of_hot_groups,
    work_of_trickle,
)
from tests.programs import with_sizes

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("STREAMQ_SOAK"))


IN_SMALL_BINS = 120
"""The groups of which a small bin holds at most ten."""


def in_turn(turn: int) -> list[str]:
    """Every other operator, the others at the other turn; in a soak all."""
    return list(OPERATORS) if SOAK else list(OPERATORS)[turn::2]


def check_trickle(operator: str, groups: tuple[int, int] = (FEW, MANY), **options: Any) -> Work:
    """Check that what is open costs nothing; return the work of the many groups."""
    few, many = (work_of_trickle(OPERATORS[operator], number, **options) for number in groups)
    assert many.evaluated <= 1.1 * few.evaluated + 100
    return many


@pytest.mark.parametrize("operator", in_turn(0))
def test_what_is_open_costs_nothing(operator: str) -> None:
    assert check_trickle(operator).noted <= work_of_trickle(OPERATORS[operator], FEW).noted + NOTED


@pytest.mark.parametrize("operator", in_turn(1))
def test_what_is_open_costs_nothing_where_rows_are_sent_at_once(operator: str) -> None:
    check_trickle(operator, (FEW, IN_SMALL_BINS), sizes=SMALL, **EARLY)


BINS = (BATCHES - WARM) * 3 * HOT
"""The bins that may be read: those of the touched groups, of two inputs and of the rows sent."""
MORE_BINS = {"first consume": 2}
"""The factor by which more may be read where those of a group are also bins of time."""


def check_small_bins(operator: str) -> None:
    """Check that a micro-batch evaluates no more if there are many groups beside those that it touches, in many bins."""
    check_trickle(operator, (HOT, IN_SMALL_BINS), sizes=SMALL, by_start=operator in BY_START)


def check_bins(operator: str) -> None:
    """Check that bins of groups that nobody touches are not read."""
    many = work_of_trickle(OPERATORS[operator], IN_SMALL_BINS, SMALL, by_start=operator in BY_START)
    assert many.bins <= MORE_BINS.get(operator, 1) * BINS


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_bin_that_nobody_touched_is_not_read(operator: str) -> None:
    check_bins(operator)


def test_states_of_groups_that_come_one_after_another_lie_in_small_bins() -> None:
    """Their events are forgotten soon, so that a bin never has many."""
    live = LocalRun(with_sizes(program(OPERATORS["scan"]), SMALL))
    for n in range(20):
        new = [(10 + n, FAR, n * HOT + i, n) for i in range(HOT)] * 3
        live.batch({"a": rows(*new), "b": rows(*new)})
    baskets = [Baskets(DictStore(store)) for store in live.stores.values()]
    states = [
        bin.rows
        for one in baskets
        for name, bins in one.counts.items()
        if name.endswith(".states")
        for bin in bins.values()
    ]
    assert sum(states) > SMALL.split_above and max(states) <= SMALL.split_above


# random histories

GROUPS, LIVES = 100, 25
TIMES = 3
"""The times that the rows of a group may be evaluated for each of its events, and each input: when it comes, and when its start
and end, or those of its window, fall due. If all groups were evaluated in each micro-batch, it would be more."""
SEEDS = range(20 if SOAK else 1)


def times_evaluated(operator: str, seed: int) -> float:
    """The times that a random history with a row in each micro-batch has the rows of a group evaluated, as TIMES counts them."""
    random = np.random.default_rng(seed)
    number = np.arange(GROUPS)
    start = np.concatenate([-number if operator in BY_START else number % 5, 10 + np.arange(LIVES)])
    end = np.maximum(start, 0) + random.integers(1, LIVES, len(start))
    groups = np.concatenate([number, random.integers(0, GROUPS, LIVES)])
    events = [(int(a), int(z), int(k), i) for i, (a, z, k) in enumerate(zip(start, end, groups, strict=True))]
    live = LocalRun(with_sizes(program(OPERATORS[operator]), BinSizes(whole_upto=0)))
    live.batch({"a": rows(*events[:GROUPS]), "b": rows(*events[:GROUPS])})
    for event in events[GROUPS:]:
        live.batch({"a": rows(event), "b": rows(event)})
    _, sizes = np.unique(start if operator in BY_START else groups, return_counts=True)
    inputs = {source.name for source in live.program.sources}
    evaluated = sum(k.evaluated or 0 for name, k in live.readings.of_kernels.items() if not name.startswith("ingress:"))
    return evaluated / (len(inputs) * float((sizes**2).sum()))


def check_history(operator: str) -> None:
    """Check how often random histories have the rows of a group evaluated."""
    assert max(times_evaluated(operator, seed) for seed in SEEDS) <= TIMES


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_rows_evaluated_are_those_that_came_were_touched_or_fell_due(operator: str) -> None:
    check_history(operator)


# a group with many events

IN_GROUP = (25, 250)
"""The events that a group has open, few and many."""


def check_hot_groups(operator: str) -> None:
    """Check that a micro-batch evaluates no more if the groups that it touches have many events open."""
    few, many = (work_of_hot_groups(OPERATORS[operator], each) for each in IN_GROUP)
    assert many.evaluated <= 1.1 * few.evaluated + 100
    assert many.noted <= few.noted + NOTED


@pytest.mark.parametrize("operator", PARTS)
def test_what_is_open_in_a_touched_group_costs_nothing(operator: str) -> None:
    check_hot_groups(operator)


@pytest.mark.parametrize("operator", WHOLE_GROUPS)
def test_what_is_open_in_a_touched_group_costs_where_groups_are_opened_as_a_whole(operator: str) -> None:
    few, many = (work_of_hot_groups(OPERATORS[operator], each) for each in IN_GROUP)
    assert many.evaluated > 3 * few.evaluated


def sums_of_floats(a: sq.Stream, b: sq.Stream) -> sq.Stream:
    return a.group_by("k").snapshot_window().select(s=sq.sum(sq.col("v") / 7), d=sq.stddev(sq.col("v") / 7))


def test_sums_of_floats_cost_as_others_before_they_are_final() -> None:
    few, many = (work_of_hot_groups(sums_of_floats, each, output=OutputForm.CHANGELOG) for each in IN_GROUP)
    assert many.evaluated <= 1.1 * few.evaluated + 100


NOT_CONDENSED = ("snapshot", "sliding", "session", "landmark", "rows", "top_k", "top_k of snapshots")
"""The operators that condense events, unless rows are sent at once."""


@pytest.mark.parametrize("operator", NOT_CONDENSED)
def test_the_statement_names_the_runs_in_which_all_events_of_a_group_are_opened(operator: str) -> None:
    plan = rewrite(number_sources(OPERATORS[operator](source("a"), source("b")).plan)[0]).plan
    assert any("all its events" in node.footprint.opens for node in nodes(plan) if isinstance(node, Operator))
    few, many = (work_of_hot_groups(OPERATORS[operator], each, **EARLY) for each in IN_GROUP)
    assert many.evaluated > 3 * few.evaluated


# a slide of rows

STEPS = 64
"""The steps of a window of rows."""


SLIDES = {
    "rows of members": lambda a, b, n, step: a.rows_window(n, step).where(sq.col("v") >= 0).group_by("k"),
    "last rows": lambda a, b, n, step: a.last_rows(n, step).where(sq.col("v") >= 0).group_by("k"),
    "pairs": lambda a, b, n, step: a.windowed_join(b, on="v", rows=n, step=step, suffixes=("", "_b")),
}
"""Q1 of DataCell over the last n rows, and over their lifetimes, and Q2, where a row meets one of the other side's window."""


def work_of_slides(query: str, each: int) -> int:
    """The rows that slides evaluate, beside those that come; a step has so many.

    For each row that comes of a side, pairs also read one that it meets, and write half a row anew.
    """
    n = STEPS * each
    live = LocalRun(program(lambda a, b: SLIDES[query](a, b, n, each).select(n=sq.count(), s=sq.sum("v"))))
    evaluated, slides, sides = 0, 8, ("a", "b") if query == "pairs" else ("a",)
    for slide in range(STEPS + slides):
        if slide == STEPS:
            evaluated = work(live).evaluated
        at = range(slide * each, slide * each + each)
        live.batch(dict.fromkeys(sides, rows(*((i, FAR, i % HOT, i * 7 % n) for i in at))), [(None, at.stop)])
    met = 3 * each if query == "pairs" else 0
    return work(live).evaluated - evaluated - slides * (len(sides) * each + met)


def check_slides(query: str) -> None:
    """Check that a slide reads the newest step, and merges a row for each step and group, however many rows a step has."""
    few, many = (work_of_slides(query, each) for each in (HOT, 100 * HOT))
    assert 0 < many <= 1.1 * few


@pytest.mark.parametrize("query", SLIDES)
def test_a_slide_of_rows_reads_the_newest_step_and_merges_a_row_for_each_step_and_group(query: str) -> None:
    check_slides(query)


class Counted(dict[str, bytes]):
    """A store of a bucket that counts the bytes written into it."""

    written = 0

    def __setitem__(self, key: str, value: bytes) -> None:
        self.written += len(value)
        super().__setitem__(key, value)


def bytes_of_a_long_batch(windows: int) -> int:
    """The bytes of state that one micro-batch over so many windows writes; all but the last are final behind it."""
    live = LocalRun(program(lambda a, _: a.to_points().group_by("k").hopping_window(10, 5).select(n=sq.count())))
    live.stores = {(stage.number, 0): Counted() for stage in live.program.stages}
    live.batch({"a": rows(*((10 * n, FAR, k, n) for n in range(windows) for k in range(HOT)))})
    return sum(store.written for store in live.stores.values() if isinstance(store, Counted))


def check_final_windows() -> None:
    """Check that windows that begin and end in one micro-batch are not written into the state."""
    few, many = bytes_of_a_long_batch(10), bytes_of_a_long_batch(1_000)
    assert 0 < many <= 1.2 * few


def test_windows_that_are_final_in_their_first_micro_batch_are_not_written() -> None:
    check_final_windows()
