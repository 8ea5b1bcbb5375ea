"""Compare a changelog, after some of its micro-batches, with the oracle's answer over the rows that have arrived.

With early output the changelog must be the whole answer over those rows (docs/concepts.md, "Final rows, changelogs, upserts"),
else the rows of that answer that the watermark has reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamq.choices import OutputForm
from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import InvalidEvent, QueryFailed
from streamq.operators import WindowAggregate
from streamq.operators.step import Step
from streamq.plan.node import Node, expanded, nodes
from streamq.runtime.event import INSERT, LE, RE, RETRACT
from streamq.runtime.time.progress_rule import Cti
from streamq.runtime.time.release import Release
from streamq.testing.arrival import OPEN, Item
from streamq.testing.case import Case
from streamq.testing.deltas import WrongOutput, sum_deltas
from streamq.testing.difference import same_history
from streamq.testing.execution import Execution
from streamq.testing.expectation import expectation, heard_ctis
from streamq.testing.history import result_of
from streamq.testing.oracle.aggregates import SumOverflow
from streamq.testing.oracle.run import TooMuch
from streamq.testing.source_progress import micro_batches, source_reaches
from streamq.time import MINUS_INFINITY

MOST = 4
"""The greatest number of micro-batches of a case after which the changelog is compared."""


def check_so_far(
    case: Case, how: Execution, program: StagedPlan, promised: Sequence[Any], out: Sequence[Sequence[pa.Table]]
) -> None:
    """Raise WrongOutput if the output up to a micro-batch is not the oracle's answer over the rows up to it.

    ``promised`` are the CTIs that no row has brought, by micro-batch, ``out`` the deltas of each query in each of them, or in the
    first ones. At most MOST micro-batches, spread evenly, are looked at. Nothing is compared where the rows so far cannot be
    predicted, or where the oracle fails over them.
    """
    release = _release(program, how)
    if release is None:
        return
    remember = [level.remember for level in (how.levels if how.restart else how.levels[:1])]
    reaches = source_reaches(case, list(micro_batches(case)), promised, remember)
    count, outputs = len(case.cut), how.outputs(len(case.plans))
    for number in sorted({count * part // MOST for part in range(1, MOST + 1)} & set(range(1, len(out[0]) + 1))):
        try:
            answer = _answer_so_far(case, how, promised, number)
        except (InvalidEvent, QueryFailed, TooMuch):
            # a later item may make an item an event, or end it
            continue
        watermark = max((max(source.c, source.w) for source in reaches[number].values()), default=MINUS_INFINITY)
        for place, (form, deltas) in enumerate(zip(outputs, out, strict=True), start=1):
            if form != OutputForm.CHANGELOG:
                continue
            expected = answer if len(outputs) == 1 else result_of(answer, place)
            expected = expected.filter(pa.array(release.lets_go(expected.rename_columns(_ticks(expected)), watermark)))
            # great values that cancel out leave their rounding errors, hence the tolerance
            difference = same_history(sum_deltas(deltas[:number], form, case.axis), expected, tolerance=1e-6)
            if difference is not None:
                difference = replace(difference, axis=case.plan.schema.axis)
                of_query = f" of query {place}" * (len(outputs) > 1)
                wrong = f"the output{of_query} up to micro-batch {number} is not the answer over the rows up to it"
                raise WrongOutput(f"{wrong}\n{difference}")


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
        arrived = _first_micro_batches(case, number)
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
        arrived = _first_micro_batches(case, number)
        with suppress(InvalidEvent, QueryFailed, TooMuch):
            arrived.answer(set_aside=failed_calls)
        if failed_calls:
            return True
    return False


def _answer_so_far(case: Case, how: Execution, promised: Sequence[Any], number: int) -> pa.Table:
    """Return the oracle's answer over the first micro-batches of a case."""
    expected = expectation(_first_micro_batches(case, number), how, promised[:number])
    return expected.case.answer(ctis=expected.ctis)


def _first_micro_batches(case: Case, number: int) -> Case:
    """Return a case of which only the first micro-batches have come."""
    return replace(case, arrival=case.arrival[: sum(case.cut[:number])], cut=case.cut[:number], until=None)


def _ticks(answer: pa.Table) -> list[str]:
    return [{"start": LE, "end": RE}.get(name, name) for name in answer.column_names]


def _release(program: StagedPlan, how: Execution) -> Release | None:
    """Return the rule by which a result's rows are released before they are final; None if the rows so far cannot be predicted.

    If rows are released by the watermark, they cannot if there are several sources or queries, if a step changes the watermark,
    if several operators hold rows, or if some rows of the result pass by the one that does.
    """
    hosted_kernels = [hosted for stage in program.stages for hosted in stage.hosted]
    rules = [hosted.kernel.progress_rule for hosted in hosted_kernels]
    holding = [rule for rule in rules if rule.holds and not rule.sorts]
    if OutputForm.CHANGELOG not in how.outputs(len(program.results)) or how.ctis:
        return None
    if how.early:
        return Release.AT_ONCE
    changes_progress = any(feed.path.progress_maps for feed in program.feeds)
    changes_progress |= any(
        rule.cti not in (Cti.INPUT, Cti.UNSETTLED) for rule in rules if not rule.holds or rule.sorts
    )
    if (
        len(holding) != 1
        or len(program.sources) != 1
        or len(program.results) != 1
        or changes_progress
        or how.blocks != (0,)
    ):
        return None
    held = {hosted.name for hosted in hosted_kernels if hosted.kernel.progress_rule in holding}
    for hosted in hosted_kernels:
        if hosted.channels and all(channel.relation in held for channel in hosted.channels):
            held.add(hosted.name)
    passes_by = any(feed.path.relation not in held for feed in program.feeds if feed.result is not None)
    return None if passes_by else holding[0].early
