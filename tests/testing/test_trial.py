"""A run that fails by Spark's rules is no failure of verify where the oracle fails as well, over late items too."""

from __future__ import annotations

from dataclasses import replace

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.testing.arrival import Item
from streamq.testing.case import Case
from streamq.testing.execution import LITERAL, STREAM, Execution
from streamq.testing.profiles import FAILS, REFUSED
from streamq.testing.trial import Answers, check_answers, fails_in_another_order, fails_on_the_way

HUGE = 2**62
GREATEST = 2**63 - 1


def stays(late: str) -> sq.Stream:
    table = t.table("start bigint, end bigint, v bigint", [])
    return sq.intervals(table, start="start", end="end", name="s", progress=sq.generate(0), late=late)


def reasons(query: sq.Stream, output: OutputForm) -> list[str]:
    """Why a run gives no answer to compare, over an item behind the CTI of one before it: ``v * HUGE`` overflows for it."""
    items = [Item("insert", 4, 6, payload={"v": 1}), Item("insert", 1, 3, payload={"v": 4})]
    case = Case(query.plan, tuple(("s", item) for item in items), (1, 1))
    return check_answers(case, [Execution(STREAM, output)], Answers(case))


@pytest.mark.parametrize("output", [OutputForm.FINAL, OutputForm.CHANGELOG])
@pytest.mark.parametrize("late", ["fail", "drop", "adjust"])
def test_steps_may_fail_over_a_late_item_before_that_is_judged(late: str, output: OutputForm) -> None:
    filtered = stays(late).where(sq.col("v") * HUGE < 7)
    assert reasons(filtered.snapshot_window().select(n=sq.count()), output) == [FAILS]
    moved = stays(late).select(x=sq.col("v") * HUGE).snapshot_window().select(n=sq.max("x"))
    assert reasons(moved, output) == [FAILS]


@pytest.mark.parametrize("late", ["fail", "drop"])
def test_a_late_item_that_is_judged_first_is_not_computed(late: str) -> None:
    moved = stays(late).alter_lifetime(
        start=sq.start(), duration=sq.when(sq.start() < 2, HUGE * sq.start() * 4).otherwise(3)
    )
    assert reasons(moved.snapshot_window().select(n=sq.count()), OutputForm.FINAL) == [
        REFUSED if late == "fail" else ""
    ]


def casts(*items: Item) -> Case:
    """These items, in one micro-batch, and a query that casts their values to integers."""
    rows = t.table("kind string, start bigint, end bigint, new_end bigint, v double", [])
    whole = sq.physical(rows, name="s").select(n=sq.col("v").cast("int"))
    return Case(whole.plan, tuple(("s", item) for item in items), (len(items),))


@pytest.mark.parametrize("how", [Execution(LITERAL), Execution(STREAM, OutputForm.FINAL)], ids=["literal", "stream"])
def test_an_expression_may_fail_over_an_event_that_another_row_deletes(how: Execution) -> None:
    """Though the history, in which the event has never been, has nothing to fail on (docs/concepts.md)."""
    nan = {"v": float("nan")}
    never = Item("insert", 1, 4, payload=nan), Item("retract", 1, 4, 2, nan), Item("retract", 1, 2, 1, nan)
    for items in (never, never[::-1]):
        case = casts(*items)
        assert check_answers(case, [how], Answers(case)) == [FAILS]
    assert not fails_on_the_way(casts(Item("insert", 1, 4, payload={"v": 1.0})), how)


def cancelling(*values: int) -> Case:
    """A session of these values, one a micro-batch, whose sum fits, though that of the first ones does not."""
    items = [Item("insert", at, at + 2, payload={"v": value}) for at, value in enumerate(values)]
    sums = stays("drop").session_window(9).select(total=sq.sum("v"))
    return Case(sums.plan, tuple(("s", item) for item in items), (1,) * len(items))


def test_a_sum_that_is_held_back_must_not_overflow_on_the_way() -> None:
    case = cancelling(GREATEST, 1, -GREATEST)
    assert not fails_on_the_way(case, Execution(STREAM, OutputForm.FINAL))
    assert fails_on_the_way(case, Execution(STREAM, OutputForm.CHANGELOG, early=True))
    assert fails_in_another_order(case) and not fails_in_another_order(cancelling(GREATEST, -1))
    assert check_answers(case, [Execution(LITERAL), Execution(STREAM, OutputForm.FINAL)], Answers(case)) == ["", ""]
    early = Execution(STREAM, OutputForm.CHANGELOG, early=True)
    assert check_answers(case, [early], Answers(case)) == [FAILS]


def test_sums_below_other_windows_may_overflow_on_the_way() -> None:
    case = cancelling(GREATEST, 1, -GREATEST)
    sums = stays("drop").session_window(9).select(total=sq.sum("v"))
    above = replace(case, plan=sums.tumbling_window(99).select(most=sq.max("total")).plan)
    assert fails_on_the_way(above, Execution(STREAM, OutputForm.FINAL))


@pytest.mark.parametrize("cut", [(1, 0, 1, 1), (0, 1, 0, 0, 2)])
def test_an_empty_micro_batch_releases_nothing_at_another_level(cut: tuple[int, ...]) -> None:
    """It is no work for a stage, so that the level counts from the next one on that brings something."""
    plan = stays("drop").select(x=sq.col("v")).plan
    items = [Item("insert", at, at + 2, payload={"v": 1}) for at in (2, 2, 3)]
    case = Case(plan, tuple(("s", item) for item in items), cut)
    how = Execution(STREAM, OutputForm.CHANGELOG, restart=True, blocks=(1, 0))
    assert check_answers(case, [how], Answers(case)) == [""]


# forms of batches


EVENTS = sq.intervals(t.table("start bigint, end bigint, v bigint", []), start="start", end="end", name="s")
