"""The number of buckets may change at every restart: rows, late rows and ends are as if it had not."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from streamq.policies import MIDDLE, Level
from streamq.runtime.lanes import LANES
from streamq.runtime.spread import Spread
from streamq.runtime.spread_state import MovingStage
from streamq.testing.deltas import net
from streamq.testing.difference import assert_same_history, same_history
from tests.algebra import QUERIES, SIZES, intervals
from tests.laws.test_sharing import STEPS, batches, late_rows, plan_of, queries, source
from tests.mutation.mutant import Edit, Mutant
from tests.programs import compiled

pytestmark = pytest.mark.filterwarnings("ignore:.*overlapping windows:streamq.errors.StreamqWarning")
NUMBERS = st.lists(st.integers(1, 4), min_size=2, max_size=5)


def programs(query: sq.Stream, numbers: list[int], **options: Any) -> list[Any]:
    return [compiled(plan_of(query), buckets=number, **options) for number in numbers]


def sent_by(run: LocalRun, parts: list[Any], others: Sequence[Any] = ()) -> tuple[LocalRun, list[pa.Table]]:
    """Run micro-batches to the end, and go on with another program after each; give what is sent."""
    sent = []
    for number, rows in enumerate(parts):
        sent.append(run.batch(rows))
        run = run.go_on(others[number % len(others)]) if others else run
    sent.append(run.finish())
    return run, sent


def rows_sent(run: LocalRun) -> dict[str, int]:
    """The rows that each kernel has sent and not taken back, as its readings count them."""
    readings = run.readings.of_kernels.items()
    return {relation: (kernel.inserted or 0) - (kernel.retracted or 0) for relation, kernel in readings}


@pytest.mark.slow
@pytest.mark.parametrize("output", [OutputForm.FINAL, OutputForm.CHANGELOG])
@given(
    query=queries(),
    parts=batches(),
    numbers=NUMBERS,
    level=st.sampled_from([MIDDLE, Level(None), Level(4), Level(0, 6)]),
    early=st.booleans(),
)
def test_a_run_goes_on_in_other_buckets(
    output: OutputForm, query: sq.Stream, parts: list[Any], numbers: list[int], level: Level, early: bool
) -> None:
    options: dict[str, Any] = {"output": output, "level": level, "ctis": output == OutputForm.CHANGELOG}
    options["early"] = early and output == OutputForm.CHANGELOG and level.block == 0
    one, *others = programs(query, [1, *numbers], **options)
    steady, of_one = sent_by(LocalRun(one), parts)
    moved, sent = sent_by(LocalRun(one), parts, others)
    assert_same_history(net(sent), net(of_one))
    assert late_rows(moved) == late_rows(steady)
    # in several buckets a kernel may be further than in one, never behind
    assert moved.cti >= steady.cti
    assert {r: s.rows for r, s in moved.readings.of_sources.items()} == {
        r: s.rows for r, s in steady.readings.of_sources.items()
    }
    assert rows_sent(moved) == rows_sent(steady)
    if output == OutputForm.FINAL:
        assert sum(deltas.num_rows for deltas in sent) == sum(deltas.num_rows for deltas in of_one)


def test_buckets_that_stand_at_different_ctis_become_lanes_until_they_have_met() -> None:
    """Sessions over sessions: a bucket whose sessions are over is ahead of one whose session goes on."""
    query = source("s", False)
    for name in ("sessions", "sessions"):
        query = STEPS[name](query, query)
    four, one = programs(query, [4, 1])
    rows = [*((at, "a", 1) for at in range(0, 40, 2)), (0, "b", 1), (10, "c", 1), (20, "d", 1), (60, "d", 1)]
    tables = [
        pa.table(dict(zip(("at", "k", "n"), zip(*part, strict=True), strict=True))) for part in (rows[:23], rows[23:])
    ]
    run = LocalRun(four)
    sent = [run.batch({"s": tables[0]})]
    run = run.go_on(one)
    assert f'"{LANES}"'.encode() in run.stores[0, 0]["manifest"]
    sent.append(run.batch({"s": tables[1]}))
    assert f'"{LANES}"'.encode() not in run.stores[0, 0]["manifest"]
    assert {number for _, number in run.stores} == {0}
    sent.append(run.finish())
    _, expected = sent_by(LocalRun(one), [{"s": table} for table in tables])
    assert_same_history(net(sent), net(expected))


def first_bucket(_: Spread, rows: pa.Table, *others: Any) -> Any:
    return np.zeros(rows.num_rows, np.int64)


PARTS, STATE = "streamq/runtime/state_parts.py", "streamq/runtime/spread_state.py"


def staying(what: str, move: str) -> Mutant:
    return Mutant(what, f"{what} stay where they were", "", edits=(Edit(PARTS, move, "pass"),))


MUTANTS = [
    ("tumbling", Mutant("first", "rows of inputs go to the first bucket", "", ((Spread, "of_input", first_bucket),))),
    ("except", Mutant("sent", "rows sent go to the first bucket", "", ((Spread, "of_result", first_bucket),))),
    ("pairs", staying("rows in bins of time", "self._bins(new[number]).append(mine)")),
    ("left", staying("rows in bins by group", "new[number].append(basket, ROOT, mine, live)")),
    ("tumbling", staying("partial results", "held.add(new[number], mine)")),
    (
        "itself",
        staying("sides of a join", "hold(new[number], self.basket, mine, net_deltas, self.group_columns, self.sizes)"),
    ),
    (
        "sessions sessions",
        Mutant(
            "no lanes",
            "buckets at different CTIs become one state",
            "",
            edits=(Edit(STATE, "if all(lane.ctis == lanes[0].ctis for lane in lanes)", "if lanes"),),
        ),
    ),
    (
        "sessions no key",
        Mutant(
            "old senders",
            "the buckets that there were are still heard",
            "",
            edits=(Edit(STATE, '{**copy.deepcopy(clock), "by": {}}', "copy.deepcopy(clock)"),),
        ),
    ),
]


def random_parts(chance: random.Random) -> list[dict[str, pa.Table]]:
    """Micro-batches of rows of two sources, a little out of order; keys come and go."""
    parts = []
    for now in range(0, 60, 6):
        rows = {
            n: [(now + chance.randrange(8), chance.choice("abcdef"), chance.randrange(5)) for _ in range(4)]
            for n in "st"
        }
        columns = {n: dict(zip(("at", "k", "n"), zip(*some, strict=True), strict=True)) for n, some in rows.items()}
        parts.append({n: pa.table({c: list(values) for c, values in some.items()}) for n, some in columns.items()})
    return parts


@pytest.mark.slow
@pytest.mark.parametrize(("names", "mutant"), MUTANTS, ids=lambda part: getattr(part, "name", ""))
def test_a_mistake_in_a_move_breaks_the_law(names: str, mutant: Mutant) -> None:
    query, other = source("s", False), source("t", False)
    for name in re.findall("no key|[a-z]+", names):
        query = STEPS[name](query, other)
    one, *others = programs(query, [1, 3, 1, 4], output=OutputForm.CHANGELOG)

    def breaks(seed: int) -> bool:
        parts = random_parts(random.Random(seed))
        _, expected = sent_by(LocalRun(one), parts)
        assert same_history(net(sent_by(LocalRun(one), parts, others)[1]), net(expected)) is None
        with mutant.in_place():
            try:
                history = net(sent_by(LocalRun(one), parts, others)[1])
            except Exception:
                return True
        return same_history(history, net(expected)) is not None

    assert any(map(breaks, range(20)))


def stays_behind(stage: MovingStage, chunks: dict[str, bytes]) -> bool:
    """True if the stage refuses to divide a state because it would leave something of it."""
    try:
        stage.divide(dict(chunks), 2)
    except RuntimeError as error:
        return "stays behind" in str(error)
    return False


@pytest.mark.slow
def test_no_part_of_a_state_may_stay_where_it_was() -> None:
    """Every part of every layout has something in some state, and a layout without it is refused."""
    tables = [intervals(seed) for seed in (1, 2)]
    s, t = (
        sq.intervals(table.slice(0, 0), "from", "to", name=name, progress=sq.generate(4))
        for name, table in zip("st", tables, strict=True)
    )
    needed: set[str] = set()
    for query, early in product(QUERIES.values(), (False, True)):
        plan = number_sources(query(s, t, SIZES).plan)[0]
        run = LocalRun(compiled(plan, OutputForm.CHANGELOG, buckets=2, early=early), static={"sizes": SIZES})
        run.batch({name: table.slice(0, 30) for name, table in zip("st", tables, strict=True)})
        for stage in run.program.stages:
            chunks = run.stores[stage.number, 0]
            for whole in MovingStage.of(stage).moving:
                assert not stays_behind(MovingStage(stage.number, 2, (whole,)), chunks)
                for part in whole.parts:
                    without = replace(whole, parts=tuple(other for other in whole.parts if other is not part))
                    if stays_behind(MovingStage(stage.number, 2, (without,)), chunks):
                        needed.add(type(part).__name__)
    assert needed >= {
        "GroupedRows",
        "GridRows",
        "HeldEvents",
        "TimedRows",
        "AnnouncedEnds",
        "OpenLifetimes",
        "LeastValue",
    }
