"""The kernel of patterns' scans: candidates come into the state, and leave it."""

from __future__ import annotations

from collections.abc import Iterator

import streamq as sq
from streamq import testing as t
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.runtime.state.baskets import Baskets, DictStore
from tests.programs import compiled

COLUMNS = "at bigint, v bigint"
SCOPE = 5


def candidates_after(*each: tuple[int, int]) -> Iterator[int]:
    """The number of candidates after each micro-batch, at instants one after another: of an A and a B with these values."""
    a, b = (sq.points(t.table(COLUMNS, []), "at", name=name, progress=sq.generate(0)) for name in "ab")
    matches = sq.cedr(f"EVENT E WHEN SEQUENCE(A AS x FIRST CONSUME, B AS y, {SCOPE}) WHERE x.v = y.v", A=a, B=b)
    run = LocalRun(compiled(rewrite(number_sources(matches.plan)[0]).plan, buckets=1))
    for start, values in enumerate(each):
        run.batch({name: t.table(COLUMNS, [(start, v)]) for name, v in zip("ab", values, strict=True)})
        counts = [Baskets(DictStore(store)).counts.items() for store in run.stores.values()]
        held = [bins.values() for one in counts for name, bins in one if ".candidates" in name]
        yield sum(bin.rows for bins in held for bin in bins)


def test_candidates_go_once_no_scope_of_theirs_can_be_completed() -> None:
    """Each group has one event. Bins are as wide as the scope, or almost."""
    assert max(candidates_after(*((v, -1) for v in range(8 * SCOPE)))) <= 2 * SCOPE


def test_candidates_go_once_they_are_consumed() -> None:
    assert list(candidates_after((1, -1), (-2, 1), (-3, -1), (-4, -1))) == [0, 1, 1, 2]
