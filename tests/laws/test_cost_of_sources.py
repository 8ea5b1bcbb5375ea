"""Cost goes with change at the sources, and where rows wait: not with what waits or is open."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from streamq import testing as t
from streamq.compiler.local import LocalRun
from streamq.runtime.state.baskets import BinSizes
from tests.laws.cost_mutants import EVERY_GROUP, EVERY_TIME
from tests.laws.cost_operators import BATCHES, HOT, NOTED, WARM, Work, work, work_since
from tests.laws.cost_sources import INGRESS, Egress, Items, OneSource, source_program
from tests.mutation.mutant import Mutant

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


def check_rows(name: str, mutant: Mutant | None = None) -> None:
    """Raise AssertionError if the work goes with what waits or is open; the many rows are those of a ``mutant``, if any."""
    few = work_of_items(*INGRESS[name], FEW_OF_SOURCE)
    with mutant.in_place() if mutant else nullcontext():
        many = work_of_items(*INGRESS[name], MANY_OF_SOURCE)
    assert many.evaluated <= 1.1 * few.evaluated + BATCHES * BinSizes().whole_upto, (
        "a bin with few rows is read as a whole"
    )
    assert many.bins <= 4 * few.bins + 4, "each group may lie in a bin of its own"
    assert many.noted <= few.noted + NOTED


@pytest.mark.parametrize("name", INGRESS)
def test_what_waits_or_is_open_at_a_source_costs_nothing(name: str) -> None:
    check_rows(name)


WAITING = (
    "settle", "settle endless rows", "CTIs", "attempt", "blocked rows", "blocked edges", "both blocked and settled",
    "blocked edges with payloads of ends",
)  # fmt: skip
"""The sources whose rows lie in bins by the instant that they wait for."""
BROKEN: dict[str, tuple[str, Mutant]] = {
    **{f"{name}, every group": (name, EVERY_GROUP) for name in INGRESS if name != "blocked rows"},
    **{f"{name}, every time": (name, EVERY_TIME) for name in WAITING},
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_source_that_evaluates_everything_breaks_the_law(broken: str) -> None:
    name, mutant = BROKEN[broken]
    with pytest.raises(AssertionError):
        check_rows(name, mutant)
