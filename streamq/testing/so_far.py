"""What a stream has told so far: after each micro-batch it is held against the oracle over the rows that have come.

Rows that go early are the batch answer over those rows (docs/concepts.md, "Final rows, changelogs, upserts"); else they are those
rows of it that the watermark has reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamq.choices import OutputForm
from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import InvalidEvent, QueryFailed
from streamq.runtime.event import LE, RE
from streamq.runtime.kernels.settle import SettleKernel
from streamq.runtime.progress_rule import Cti
from streamq.runtime.release import Release
from streamq.testing.case import Case
from streamq.testing.deltas import WrongOutput, summed
from streamq.testing.difference import same_history
from streamq.testing.execution import Execution
from streamq.testing.expectation import expectation, promises
from streamq.testing.oracle.run import TooMuch
from streamq.testing.oracle_answers import answer_of
from streamq.testing.source_progress import micro_batches, source_reaches
from streamq.time import MINUS_INFINITY

MOST = 4
"""Micro-batches of a case after which what has been told is looked at."""


def check_so_far(
    case: Case, how: Execution, program: StagedPlan, promised: Sequence[Any], out: Sequence[pa.Table]
) -> None:
    """Raise WrongOutput where what has been told by the end of a micro-batch is not what the rows so far say.

    ``promised`` are the CTIs that came from outside with each micro-batch, ``out`` the deltas of each.
    """
    release = _release(program, how)
    if release is None:
        return
    remember = [level.remember for level in (how.levels if how.restart else how.levels[:1])]
    reaches = source_reaches(case, list(micro_batches(case)), promised, remember)
    count = len(case.cut)
    for number in sorted({count * part // MOST for part in range(1, MOST + 1)} - {0}):
        try:
            answer = _answer_so_far(case, how, promised, number)
        except (InvalidEvent, QueryFailed, TooMuch):
            # what makes an item an event, or ends it, may be still to come
            continue
        watermark = max((max(source.c, source.w) for source in reaches[number].values()), default=MINUS_INFINITY)
        answer = answer.filter(pa.array(release.lets_go(answer.rename_columns(_ticks(answer)), watermark)))
        # great values that cancel each other out leave what rounding does to them
        difference = same_history(summed(out[:number], how.output, case.axis), answer, tolerance=1e-6)
        if difference is not None:
            difference = replace(difference, axis=case.plan.schema.axis)
            raise WrongOutput(f"told by the end of micro-batch {number} is not what its rows say\n{difference}")


def fails_on_the_way(case: Case, how: Execution) -> bool:
    """Whether the query fails by Spark's rules over some of a case's first micro-batches, whose rows may be taken back."""
    promised = promises(case, how.slack) if how.slack else [()] * len(case.cut)
    for number in range(1, len(case.cut) + 1):
        try:
            _answer_so_far(case, how, promised, number)
        except QueryFailed:
            return True
        except InvalidEvent:
            continue
    return False


def _answer_so_far(case: Case, how: Execution, promised: Sequence[Any], number: int) -> pa.Table:
    """Return the oracle's answer over the first micro-batches of a case."""
    arrived = replace(case, arrival=case.arrival[: sum(case.cut[:number])], cut=case.cut[:number], until=None)
    expected = expectation(arrived, how, promised[:number])
    return answer_of(expected.case, ctis=expected.ctis)


def _ticks(answer: pa.Table) -> list[str]:
    return [{"start": LE, "end": RE}.get(name, name) for name in answer.column_names]


def _release(program: StagedPlan, how: Execution) -> Release | None:
    """Return what lets the rows of a result go before they are final; None where that cannot be told of them.

    It cannot where rows wait before an operator until they are settled; and, if rows go by the watermark, where that is not the
    one of a single source, or is changed on the way, or where several operators hold rows.
    """
    kernels = [hosted.kernel for stage in program.stages for hosted in stage.hosted]
    rules = [kernel.progress_rule for kernel in kernels]
    holding = [rule for rule in rules if rule.holds and not rule.sorts]
    if how.output != OutputForm.CHANGELOG or how.ctis or any(isinstance(k, SettleKernel) for k in kernels):
        return None
    if how.early:
        return Release.AT_ONCE
    changes_progress = any(feed.path.progress_maps for feed in program.feeds)
    changes_progress |= any(rule.cti is not Cti.INPUT for rule in rules if not rule.holds or rule.sorts)
    if len(holding) != 1 or len(program.sources) != 1 or changes_progress or how.blocks != (0,):
        return None
    return holding[0].early


__all__ = ["check_so_far", "fails_on_the_way"]
