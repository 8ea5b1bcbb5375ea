"""What a query does over some of the rows of a case: fail by Spark's rules, or set events aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from streamq.choices import OutputForm
from streamq.errors import InvalidEvent, QueryFailed
from streamq.operators import WindowAggregate
from streamq.operators.step import Step
from streamq.plan.node import Node, expanded, nodes
from streamq.runtime.event import INSERT, RETRACT
from streamq.testing.arrival import OPEN, Item
from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.expectation import expectation, heard_ctis
from streamq.testing.oracle.aggregates import SumOverflow
from streamq.testing.oracle.run import TooMuch


def fails_on_the_way(case: Case, how: Execution) -> bool:
    """True if the query fails by Spark's rules over rows that are taken back later, or are late: over a prefix or one event.

    Expressions are computed when an event arrives (docs/concepts.md), before it is judged, and before the other rows of its
    micro-batch change it or delete it. If all rows are read at once, only single events count. The whole case is one of the
    prefixes; those over which the oracle raises InvalidEvent do not count. Sums that wait until they are final overflow over
    no prefix.
    """
    return _fails_over_one_event(case) or (not how.whole and _fails_over_a_prefix(case, how))


def _fails_over_one_event(case: Case) -> bool:
    """True if the query fails by Spark's rules over one of its events alone, with one of the lifetimes that the event has."""
    for name, item in {repr(pair): pair for pair in _events(case)}.values():
        alone = replace(case, arrival=((name, item),), cut=(1,), until=None)
        try:
            alone.answer()
        except QueryFailed:
            return True
        except (InvalidEvent, TooMuch):
            continue
    return False


def _events(case: Case) -> Iterator[tuple[str, Item]]:
    """Yield the events of each source as inserts, also with the ends that retractions replace and set; of edges the starts."""
    for name, item in case.arrival:
        if item.kind == RETRACT:
            inserted = replace(item, kind=INSERT, new_end=None)
            yield name, inserted
            yield name, replace(inserted, end=item.new_end)
        elif item.kind in (INSERT, OPEN):
            yield name, item


def _fails_over_a_prefix(case: Case, how: Execution) -> bool:
    """True if the query fails by Spark's rules over some of the first micro-batches of a case, late rows counted or not."""
    promised = heard_ctis(case, how)
    all_final = set(how.outputs(len(case.plans))) == {OutputForm.FINAL}
    waits = all_final and all(_holds_sums_back(expanded(plan)) for plan in case.plans)
    overflow = SumOverflow.NONE if waits else SumOverflow.TOTAL
    for number in range(1, len(case.cut) + 1):
        arrived = first_micro_batches(case, number)
        expected = expectation(arrived, how, promised[:number])
        for seen in (arrived,) if expected.case is arrived else (expected.case, arrived):
            try:
                seen.answer(ctis=expected.ctis, overflow=overflow)
            except QueryFailed:
                return True
            except InvalidEvent:
                continue
    return False


def _holds_sums_back(plan: Node) -> bool:
    """True if only steps read the results of windows with sums, so that these come out once they are final, and not before."""
    if isinstance(plan, Step):
        return all(map(_holds_sums_back, plan.children))
    below = (node for child in plan.children for node in nodes(child))
    return not any(isinstance(node, WindowAggregate) for node in below)


def fails_in_another_order(case: Case) -> bool:
    """True if a sum of the query overflows when its values are added in some order, as Spark's sum may do in a batch."""
    try:
        case.answer(overflow=SumOverflow.ON_THE_WAY)
    except QueryFailed:
        return True
    return False


def sets_aside_on_the_way(case: Case) -> bool:
    """True if a module with quarantine fails over the items of some of the first micro-batches of a case.

    A run without a late output may then fail, even if the events are taken back later, or are late.
    """
    for number in range(1, len(case.cut) + 1):
        failed_calls = Counter[str]()
        arrived = first_micro_batches(case, number)
        with suppress(InvalidEvent, QueryFailed, TooMuch):
            arrived.answer(set_aside=failed_calls)
        if failed_calls:
            return True
    return False


def first_micro_batches(case: Case, number: int) -> Case:
    """Return a case of which only the first micro-batches have come."""
    return replace(case, arrival=case.arrival[: sum(case.cut[:number])], cut=case.cut[:number], until=None)
