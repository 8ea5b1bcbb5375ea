"""Ctis: the result's CTI is the least over all that it is made of."""

from __future__ import annotations

import pyarrow as pa

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.runtime.deltas import LE, RE
from streamq.runtime.kernel import Clock
from streamq.runtime.kernels.settle import CtisKernel
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.time import MINUS_INFINITY
from tests.programs import compiled


def test_a_cti_is_told_once() -> None:
    """As an empty lifetime, and only where there is one."""
    kernel, state = CtisKernel(pa.schema([("v", pa.string())])), Baskets(DictStore()).scoped("ctis")
    told = [kernel.advance(state, [], Clock(c, c, c, c)).table for c in (MINUS_INFINITY, 5, 5, 6)]
    assert [t if t is None else t.select([LE, RE]).to_pylist() for t in told] == [
        None,
        [{LE: 5, RE: 5}],
        None,
        [{LE: 6, RE: 6}],
    ]


def ctis_of(query: sq.Stream, *batches: dict[str, list[int]], buckets: int = 3) -> list[int]:
    """The result's CTI after each micro-batch of rows by number."""
    plan, outputs = rewrite(number_sources(query.plan)[0]).plan, []
    run = LocalRun(compiled(plan, OutputForm.CHANGELOG, ctis=True, buckets=buckets))
    for batch in batches:
        run.batch({name: query.tables[name].take(rows) for name, rows in batch.items()})
        run = run.restart()
        outputs.append(run.cti)
    return outputs


def test_the_ctis_of_several_feeds_and_levels() -> None:
    """The least over what the result is made of: both sources, and windows of the one, which are not final at c."""
    one, two = (
        sq.events([sq.insert(1, 2, v=1), sq.cti(14), sq.cti(23)], name=name, progress=sq.explicit()) for name in "ab"
    )
    query = one.union(two.shift(4), one.tumbling_window(10).select(v=sq.sum("v")))
    arriving = [{"a": [0], "b": [0]}, {"a": [1]}, {"b": [1]}, {"b": [2]}, {"a": [2]}]
    assert ctis_of(query, *arriving) == [MINUS_INFINITY, MINUS_INFINITY, 10, 10, 20]


def test_a_filter_that_reads_open_ends_holds_the_cti_back() -> None:
    """An event that a filter drops may come in when its end moves, until it is settled: the CTI stops at its start."""
    items = [sq.insert(3, 9, v=1), sq.cti(8), sq.retract(3, 9, 12, v=1), sq.cti(12), sq.cti(13)]
    s = sq.events(items, name="s", progress=sq.explicit())
    arriving = [{"s": [i]} for i in range(5)]
    assert ctis_of(s.where(sq.end() == 12), *arriving) == [MINUS_INFINITY, 3, 3, 3, 13]
    assert ctis_of(s.shift(5).select(last=sq.end()), *arriving) == [MINUS_INFINITY, 8, 8, 8, 18]
    assert ctis_of(s.where(sq.start() == 3), *arriving) == [MINUS_INFINITY, 8, 8, 12, 13]
