"""The kernel that hosts evaluators: it hands on differences, forgets what is not needed, gives final rows once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from streamq.runtime.arrow.columnar import with_column
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluator import SettledProgress
from streamq.runtime.kernels.recompute import RecomputeKernel
from streamq.runtime.state.baskets import BinSizes
from streamq.runtime.time.progress_rule import ProgressRule, Release
from streamq.stream import Stream
from streamq.time import INFINITY
from tests.programs import compiled


def events(*rows: tuple[Any, ...]) -> Stream:
    return sq.events([(a, b, {"k": k}) for a, b, k in rows], name="s")


def run(query: Any, output: str = OutputForm.CHANGELOG, **given: Any) -> LocalRun:
    """A query over ``s``; ``given`` are parameters of its kernel."""
    program = compiled(number_sources(query(events((0, 1, 0))).plan)[0], output, buckets=1)
    program.stages = [
        replace(
            stage,
            hosted=tuple(
                replace(h, kernel=replace(h.kernel, **given)) if isinstance(h.kernel, RecomputeKernel) else h
                for h in stage.hosted
            ),
        )
        for stage in program.stages
    ]
    return LocalRun(program)


def fed(live: LocalRun, *rows: tuple[Any, ...], c: int | None = None) -> list[tuple[Any, ...]]:
    """The deltas of a micro-batch."""
    tables = events(*rows).tables if rows else {}
    found = live.batch(tables, [(None, c)] if c is not None else [])
    names = [n for n in found.column_names if n not in (LE, RE, "__w")]
    return sorted((r[LE], r[RE], *(r[n] for n in names), r["__w"]) for r in found.to_pylist())


def signal(s: Stream) -> Stream:
    return s.to_signal("k")


def test_what_is_unchanged_is_not_handed_on_again() -> None:
    live = run(signal)
    assert fed(live, (1, 2, 7), (2, 3, 8)) == [(1, INFINITY, 7, 1)], "the watermark speaks for rows before 2"
    assert fed(live, (5, 6, 7)) == [(1, 5, 7, 1), (1, INFINITY, 7, -1), (2, INFINITY, 8, 1)]
    assert fed(live, (5, 6, 9)) == []
    assert fed(live, c=9) == [(5, INFINITY, 7, 1), (5, INFINITY, 9, 1)]


def test_a_window_is_reported_once_the_watermark_is_at_its_end() -> None:
    live = run(lambda s: s.tumbling_window(10).select(n=sq.count_distinct("k")))
    assert fed(live, (3, 4, 7), (9, 10, 7)) == []
    assert fed(live, (10, 11, 8)) == [(0, 10, 1, 1)]


def test_final_rows_are_given_once() -> None:
    live = run(signal, OutputForm.FINAL)
    assert fed(live, (1, 2, 7), (5, 6, 7)) == []
    assert fed(live, c=5) == [], "at its end a row may still grow"
    assert fed(live, c=6) == [(1, 5, 7, 1)]
    assert fed(live, (8, 9, 7), c=20) == [(5, 8, 7, 1)]
    assert live.finish().num_rows == 1
    assert set(live.stores[0, 0]) == {"manifest"}


@pytest.mark.slow
def test_large_state_does_not_grow_by_what_is_settled() -> None:
    """Few chunks, in which a micro-batch leaves thousands of events behind."""
    live = run(signal)
    sizes = []
    for i in range(8):
        fed(live, *((3_000 * i + k, 3_000 * i + k + 1, k % 7) for k in range(3_000)), c=3_000 * i + 2_999)
        sizes.append(sum(len(v) for store in live.stores.values() for v in store.values()))
    assert max(sizes) < 1.1 * max(sizes[:2])


def test_a_point_at_the_end_outlives_its_window() -> None:
    live = run(
        lambda s: s.snapshot_window(stamp="point_at_end").select(n=sq.count()),
        sizes=BinSizes(whole_upto=0),
    )
    assert fed(live, (16, 17, 7), c=18) == [(17, 18, 1, 1)]
    assert fed(live, c=19) == [], "at c = 18 its row is not settled yet: it must still be known"


@dataclass(frozen=True)
class Same(SettledProgress):
    """The history itself; ``asked`` counts evaluations."""

    asked: list[int] = field(default_factory=list)
    group_columns = (("k",),)

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        self.asked.append(inputs[0].num_rows)
        return inputs[0]

    def needed(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> list[Any]:
        return [rows.column(RE).to_numpy() >= c]


def test_nothing_is_evaluated_while_nothing_moves() -> None:
    same = Same()
    live = run(signal, evaluator=same, pointwise=(), sizes=BinSizes(whole_upto=0))
    fed(live, (1, 4, 7), (2, 9, 7), c=3)
    assert fed(live, c=3) == []
    assert same.asked == [2]
    fed(live, c=5)
    fed(live, c=6)
    assert same.asked == [2], "nothing is due"
    fed(live, (21, 22, 8), (22, 30, 7), c=22)
    fed(live, (24, 40, 7), c=23)
    assert same.asked == [2, 4, 2], "settled events of groups that rows touch are forgotten"


class Drifting(Same):
    """As floats that add up in another order each time; rows are final at their ends."""

    def rows(self, inputs: Sequence[pa.Table], since: int, upto: int) -> pa.Table:
        table = super().rows(inputs, since, upto)
        return with_column(table, "k", pc.add(table.column("k"), len(self.asked)))

    @property
    def progress_rule(self) -> ProgressRule:
        return replace(super().progress_rule, final=Release.AT_END)


@pytest.mark.parametrize("output", [OutputForm.CHANGELOG, OutputForm.FINAL])
def test_a_result_that_was_final_does_not_change_because_it_is_computed_once_more(output: str) -> None:
    live = run(signal, output, evaluator=Drifting(), pointwise=(), sizes=BinSizes(whole_upto=0))
    first = fed(live, (1, 5, 7), (2, 9, 7), c=5)
    assert (1, 5, 8, 1) in first
    assert [row for row in fed(live, c=6) if row[:2] == (1, 5)] == []
