"""The benchmark of the levels of consistency has the shape of CEDR's table (docs/benchmarks.md)."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.levels import LEVELS, cells


def test_the_levels_cost_what_cedr_says() -> None:
    *ordered, strong, middle, weak = cells(150, ["windows"])
    assert [cell.level for cell in ordered] == [*LEVELS]
    assert {replace(cell, level="") for cell in ordered} == {replace(ordered[0], level="")}
    assert (ordered[0].blocking_most, ordered[0].retractions, ordered[0].right) == (0, 0, 1)
    # only strong waits, and it writes each row once; the others take back what disorder has made wrong
    assert strong.blocking_most > middle.blocking_most == weak.blocking_most == 0
    assert strong.retractions == 0 < weak.retractions < middle.retractions
    assert strong.inserts == ordered[0].inserts
    # levels that remember are right in the end; the one that does not has less state
    assert strong.right == middle.right == 1 > weak.right
    assert middle.state_most > weak.state_most
