"""Stages that kernels share give the answers of stages of their own: rows, late rows and ends; their CTIs come no later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Placement
from streamq.compiler.rewriter import rewrite
from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import StreamqError
from streamq.plan.node import number_sources
from streamq.policies import MIDDLE, Level
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.testing.history import assert_same_history, net
from tests.programs import compiled

C = sq.col
pytestmark = pytest.mark.filterwarnings("ignore:.*overlapping windows:streamq.errors.StreamqWarning")
KEYS = [None, "a", "b", "c", "d", "e"]
Step = Callable[[sq.Stream, sq.Stream], sq.Stream]


@sq.udf("bigint")
def same(n: int) -> int:
    return n


@sq.udso("v bigint", initial=0)
def running(last: int, n: int | None) -> tuple[int, list[int]]:
    return last + (n or 0), [last + (n or 0)]


STEPS: dict[str, Step] = {
    "tumbling": lambda s, _: s.group_by("k").tumbling_window(6).select(n=sq.sum("n")),
    "hopping": lambda s, _: s.group_by("k").hopping_window(8, 4).select(n=sq.max("n")),
    "median": lambda s, _: s.group_by("k").tumbling_window(5).select(n=sq.percentile("n", 0.5).cast("bigint")),
    "sessions": lambda s, _: s.group_by("k").session_window(3).select(n=sq.count()),
    "rows": lambda s, _: s.group_by("k").rows_window(4, 2).select(n=sq.sum("n")),
    "snapshots": lambda s, _: s.group_by("k").snapshot_window().select(n=sq.sum("n")),
    "best": lambda s, _: s.group_by("k").tumbling_window(7).top_k(1, by="n").select("k", "n"),
    "join": lambda s, other: s.join(other, on="k", suffixes=("", "_r")).select("k", n=C("n") + C("n_r")),
    "itself": lambda s, _: s.join(s.shift(3), on="k", suffixes=("", "_r")).select("k", n=C("n_r")),
    "anti": lambda s, other: s.left_anti_join(other, on="k"),
    "clip": lambda s, other: s.clip(other, on="k"),
    "signal": lambda s, _: s.to_signal(key="k"),
    "except": lambda s, _: s.select("k", "n").except_(s.where(C("n") > 2).select("k", "n")),
    "scan": lambda s, _: s.to_points().group_by("k").scan(running("n")).select("k", n=C("v")),
    "pairs": lambda s, other: s.windowed_join(other, on="k", size=6, suffixes=("", "_r")).select("k", n=C("n_r")),
    "distinct": lambda s, _: s.distinct_ids(4, id="k"),
    "left": lambda s, other: s.join(other, on="k", how="left", suffixes=("", "_r")).select("k", n=C("n_r")),
    "filter": lambda s, _: s.where((C("n") > 1) | C("k").is_null()),
    "more": lambda s, _: s.select("k", n=sq.when(C("n") > 3, C("n") * 2).otherwise(C("n") - 1)),
    "halves": lambda s, _: s.where(C("n") / 2 > 1),
    "above the mean": lambda s, _: (
        s.join(s.group_by("k").hopping_window(6, 3).select(m=sq.avg("n")), on="k", suffixes=("", "_r"))
        .where(C("n") > C("m"))
        .select("k", "n")
    ),
    "held for a while": lambda s, _: s.set_duration(5).clip(s, on="k"),
    "chopped": lambda s, _: s.chop(3),
    "shift": lambda s, _: s.shift(2).extend(1),
    "no key": lambda s, _: s.tumbling_window(4).select(k=sq.min("k"), n=sq.count()),
    "function": lambda s, _: s.select("k", n=same("n")),
}


def source(name: str, ids: bool) -> sq.Stream:
    empty = pa.table({"at": pa.array([], pa.int64()), "k": pa.array([], pa.string()), "n": pa.array([], pa.int64())})
    how: dict[str, Any] = {"id": "k"} if ids else {}
    return sq.points(empty, "at", name=name, progress=sq.generate(3), late="drop", **how).select("k", "n")


@st.composite
def queries(draw: st.DrawFn) -> sq.Stream:
    """Two to four steps on each other, over one stream or two."""
    query, other = source("s", draw(st.booleans())), source("t", False)
    names = draw(st.lists(st.sampled_from(list(STEPS)), min_size=2, max_size=4))
    for name in names:
        query = STEPS[name](query, other)
    return query


@st.composite
def batches(draw: st.DrawFn) -> list[dict[str, pa.Table]]:
    """Micro-batches of rows of two sources, some of them late."""
    parts, now = [], 0
    for _ in range(draw(st.integers(1, 5))):
        now += draw(st.integers(0, 9))
        tables = {}
        for name in "st":
            row = st.tuples(st.integers(max(0, now - 7), now + 4), st.sampled_from(KEYS), st.integers(0, 5))
            rows = draw(st.lists(row, max_size=6))
            columns = zip(*rows, strict=True) if rows else ([], [], [])
            kinds = {"at": pa.int64(), "k": pa.string(), "n": pa.int64()}
            tables[name] = pa.table(
                {
                    column: pa.array(list(values), kind)
                    for (column, kind), values in zip(kinds.items(), columns, strict=True)
                }
            )
        parts.append(tables)
    return parts


def apart(query: sq.Stream, shared: StagedPlan, **options: Any) -> StagedPlan:
    """The same program with a stage for each kernel, as in a checkpoint that has them so."""
    names = [hosted.name for stage in shared.stages for hosted in sorted(stage.hosted, key=lambda h: h.number)]
    order = sorted(names, key=lambda name: shared.relations[name].number)
    placement = Placement(by_name={name: place for place, name in enumerate(order)}, stages=len(order), sources=())
    return compiled(plan_of(query), placement=placement, **options)


def plan_of(query: sq.Stream) -> Any:
    return rewrite(number_sources(query.plan)[0]).plan


def late_rows(run: LocalRun) -> Counter[str]:
    counts: Counter[str] = Counter()
    for totals in run.totals.values():
        counts.update(totals)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("output", [OutputForm.FINAL, OutputForm.CHANGELOG])
@given(
    query=queries(),
    parts=batches(),
    level=st.sampled_from([MIDDLE, Level(None), Level(4), Level(0, 6)]),
    early=st.booleans(),
    restarts=st.booleans(),
)
def test_a_shared_stage_gives_what_stages_of_their_own_give(
    output: OutputForm, query: sq.Stream, parts: list[dict[str, pa.Table]], level: Level, early: bool, restarts: bool
) -> None:
    options: dict[str, Any] = {"output": output, "level": level, "ctis": output == OutputForm.CHANGELOG, "buckets": 3}
    options["early"] = early and output == OutputForm.CHANGELOG and level.block == 0
    shared = compiled(plan_of(query), **options)
    runs = [LocalRun(shared), LocalRun(apart(query, shared, **options))]
    assert all(len(stage.hosted) <= 1 for stage in runs[1].program.stages)
    sent: list[list[pa.Table]] = [[], []]
    for rows in [*parts, None]:
        for number, run in enumerate(runs):
            sent[number].append(run.finish() if rows is None else run.batch(rows))
            runs[number] = run.restart() if restarts else run
        assert runs[0].cti >= runs[1].cti
    assert_same_history(net(sent[0]), net(sent[1]))
    assert late_rows(runs[0]) == late_rows(runs[1])
    if output == OutputForm.FINAL:
        assert sum(deltas.num_rows for deltas in sent[0]) == sum(deltas.num_rows for deltas in sent[1])


def test_most_of_the_queries_share_a_stage() -> None:
    """The law would hold of any others, too."""
    counts = Counter[bool]()

    @given(queries())
    def count(query: sq.Stream) -> None:
        counts[any(stage.inner_channels for stage in compiled(plan_of(query)).stages)] += 1

    count()
    assert counts[True] > counts[False] / 2


def extremes(payload: pa.Schema) -> pa.Table:
    """Deltas with the least, the greatest and no values in all columns."""

    def values(kind: pa.DataType) -> list[int | None]:
        if not pa.types.is_integer(kind):
            return [None] * 4
        beyond = 1 << (kind.bit_width - 1)
        return [-beyond, beyond - 1, 0, None]

    columns = {f.name: pa.array(values(f.type), f.type) for f in payload}
    return pa.table({LE: [1] * 4, RE: [2] * 4, WEIGHT: [1] * 4, **columns})


@given(queries())
def test_without_ansi_rules_steps_in_a_shared_stage_fail_on_no_row(query: sq.Stream) -> None:
    """Spark would give another number there."""
    for stage in compiled(plan_of(query), ansi=False).stages:
        for channel in (one for channels in stage.inner_channels.values() for one in channels):
            assert channel.inner is not None
            assert channel.inner.tables(extremes(channel.inner.payload))


def test_by_ansi_rules_arithmetic_is_shared() -> None:
    query = source("s", False)
    for name in ("tumbling", "more", "snapshots"):
        query = STEPS[name](query, query)
    (shared,) = compiled(plan_of(query)).stages
    ((channel,),) = shared.inner_channels.values()
    assert channel.inner is not None
    with pytest.raises(StreamqError, match="ARITHMETIC_OVERFLOW"):
        channel.inner.tables(extremes(channel.inner.payload))
    assert len(compiled(plan_of(query), ansi=False).stages) == 2
