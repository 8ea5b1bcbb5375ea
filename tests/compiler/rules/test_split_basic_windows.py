from __future__ import annotations

import re

import pytest

from streamq.aggregates import built_in
from streamq.aggregates.basic import COUNT
from streamq.choices import Stamp
from streamq.compiler.rules.window_aggregates import split_basic_windows
from streamq.operators import MergePartials, Select, WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col
from streamq.plan.node import Node
from tests.compiler.rules.law import HOPPING, STAYS, TRIPS, holds, why_not

V, W = Col("v"), Col("w")


def split(node: Node) -> tuple[Select, MergePartials]:
    made = split_basic_windows(node)
    assert isinstance(made, Select)
    assert isinstance(made.input, MergePartials)
    return made, made.input


def test_points_and_intervals_give_the_same_answer_split() -> None:
    names = ("count", "sum", "avg", "min", "max", "var", "var_pop", "stddev", "stddev_pop")
    aggregates = (
        ("all", Aggregate(COUNT, ())),
        *((f"{n}_{c.name}", Aggregate(built_in()[n], (c,))) for n in names for c in (V, W)),
    )
    for source in (TRIPS, STAYS):
        for keys in ((), ("k",)):
            for stamp in (Stamp.ALIGN, Stamp.POINT_AT_END):
                left = WindowAggregate(source, keys, HOPPING, aggregates, stamp=stamp)
                holds(split_basic_windows, left, split(left)[0])


def test_equal_parts_are_computed_once() -> None:
    """A mean takes the sum and the count that stand beside it; all deviations of a column share its moments."""
    names = ("count", "sum", "avg", "var", "stddev", "stddev_pop")
    _, partial = split(
        WindowAggregate(TRIPS, ("k",), HOPPING, tuple((n, Aggregate(built_in()[n], (W,))) for n in names))
    )
    assert [one.title for one in partial.partials] == ["sum", "moments"]


def test_a_count_of_its_own_is_a_partial_result() -> None:
    made, partial = split(WindowAggregate(TRIPS, (), HOPPING, (("n", Aggregate(COUNT, (V,))),)))
    assert [(one.title, one.exact) for one in partial.partials] == [("count", True)]
    assert re.fullmatch("n = count_[0-9a-f]{3}", made.detail())


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("count", "sum"), None),
        (("sum", "count_distinct"), "count_distinct does not merge: a stream counts their values, beside "),
        (("sum", "collect", "count_distinct"), "collect and count_distinct do not merge: a stream counts "),
    ],
)
def test_the_aggregates_that_do_not_merge_are_the_reason_why_not(names: tuple[str, ...], reason: str | None) -> None:
    window = WindowAggregate(TRIPS, ("k",), HOPPING, tuple((n, Aggregate(built_in()[n], (V,))) for n in names))
    assert (split_basic_windows(window) is None) == (reason is not None)
    stated = why_not(split_basic_windows, window)
    assert (stated or "").startswith(reason or "") and bool(stated) == bool(reason)
