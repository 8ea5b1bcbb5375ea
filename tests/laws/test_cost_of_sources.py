"""Cost goes with change at the sources, and where rows wait: not with what waits or is open."""

from __future__ import annotations

import pytest

from streamq import testing as t
from streamq.compiler.local import LocalRun
from streamq.runtime.state.baskets import BinSizes
from tests.laws.cost_operators import BATCHES, HOT, NOTED, WARM, Work, work, work_since
from tests.laws.cost_sources import INGRESS, Egress, Items, OneSource, source_program

pytestmark = pytest.mark.slow

FEW_OF_SOURCE, MANY_OF_SOURCE = 200, 4_000
"""The groups that are compared where bins have the sizes of a run."""


def work_of_items(items: Items, query: OneSource, options: Egress, groups: int) -> Work:
    """The work of all kernels in micro-batches of a few items."""
    live = LocalRun(source_program(items, query, options, buckets=1))
    live.batch({"s": t.table(items.columns, items.bulk(groups))}, [(None, 5)])
    for n in range(BATCHES):
        if n == WARM:
            before = work(live)
        live.batch({"s": t.table(items.columns, items.trickle(10 + n, HOT))}, [(None, 6 + n)])
    return work_since(before, live)


def check_rows(name: str) -> None:
    """Raise AssertionError if the work goes with what waits or is open."""
    few, many = (work_of_items(*INGRESS[name], groups) for groups in (FEW_OF_SOURCE, MANY_OF_SOURCE))
    assert many.evaluated <= 1.1 * few.evaluated + BATCHES * BinSizes().whole_upto, (
        "a bin with few rows is read as a whole"
    )
    assert many.bins <= 4 * few.bins + 4, "each group may lie in a bin of its own"
    assert many.noted <= few.noted + NOTED


@pytest.mark.parametrize("name", INGRESS)
def test_what_waits_or_is_open_at_a_source_costs_nothing(name: str) -> None:
    check_rows(name)
