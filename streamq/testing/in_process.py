"""Run cases in-process, all at once or in micro-batches, and check after each of these that nothing before a CTI changes."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from streamq.choices import OutputForm
from streamq.compiler.egress import Egress
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.plan_json import plan_from_json, plan_to_json
from streamq.compiler.results import Results
from streamq.compiler.stages import compile_stages
from streamq.errors import PlanError
from streamq.plan.node import Node
from streamq.policies import Level
from streamq.run.batch.answers import local_history
from streamq.run.status.history import RunHistory
from streamq.run.status.watcher import Listener
from streamq.runtime.event import WEIGHT
from streamq.runtime.state.baskets import TimeBinSizes
from streamq.testing.case import Case
from streamq.testing.execution import LITERAL, STREAM, Execution
from streamq.testing.expectation import Expectation, expectation, outside_ctis
from streamq.testing.history import ProgressViolation, as_history, changes_before, shown, side_by_side, sum_deltas
from streamq.testing.oracle.definitions import JUDGES
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.user_code.repository import called_modules, modules


def execute(case: Case, how: Execution, expected: Expectation | None = None) -> pa.Table:
    """Run a case's query in-process and return its history; raise WrongOutput, ProgressViolation, and the query's own errors.

    Only runs in micro-batches are checked.
    ``expected`` is the case's :func:`expectation`, if it has been computed before.
    """
    if how.backend == LITERAL:
        answers = [local_history(read_back(plan), case.tables, how.chosen, case.until) for plan in case.plans]
        return side_by_side([as_history(answer.drop_columns([WEIGHT])) for answer in answers])
    outputs = how.outputs(len(case.plans))
    return side_by_side(
        [sum_deltas(out, form, case.axis) for form, out in zip(outputs, play(case, how, expected), strict=True)]
    )


def read_back(plan: Node) -> Node:
    """Return a plan as it is read from its JSON; the plan itself if it cannot be written, or calls modules that cannot be read.

    These are modules of which the repository has another one under their name, or none.
    """
    for module in called_modules(plan):
        if module.name not in modules or modules.get(module.name).digest != module.with_options({}).digest:
            return plan
    try:
        document = json.dumps(plan_to_json(plan))
    except PlanError:
        return plan
    return plan_from_json(json.loads(document))


def answer_before_end(case: Case, how: Execution) -> pa.Table:
    """Return the history of a case's query, run in-process to its end, without the deltas of the end.

    Of ``how``, only ``output`` and ``early`` count.
    """
    how = Execution(STREAM, how.output, early=how.early, others=how.others)
    histories = []
    for output, (*out, last) in zip(how.outputs(len(case.plans)), play(case, how), strict=True):
        # the empty slice gives the columns if there are no micro-batches
        histories.append(sum_deltas([last.slice(0, 0), *out], output, case.axis))
    return side_by_side(histories)


def play(case: Case, how: Execution, expected: Expectation | None = None) -> list[list[pa.Table]]:
    """Run a case and return, for each query, the deltas of each micro-batch and of the end; ``expected`` as in :func:`execute`.

    The end has none of its own if it comes with the last rows.

    Raises ProgressViolation if deltas or CTIs are not what they must be at some micro-batch; a judge of streamq may raise more.
    """
    if expected is None:
        expected = expectation(case, how)
    written = Results(case.plans)
    levels = how.levels[: len(case.cut) + 1] if how.restart else how.levels[:1]
    compiled = [compile_stages(written, _options(case, how, level), how.chosen) for level in levels]
    watched, time_bins = compiled, TimeBinSizes()
    for judge in JUDGES:
        watched, time_bins = judge.watch(compiled, how)
    programs = itertools.cycle(watched)
    run = LocalRun(next(programs), static=case.static, time_bins=time_bins)
    out: list[list[pa.Table]] = [[] for _ in case.plans]

    def advance(step: Callable[[], Any]) -> None:
        """Make a step and add the deltas of each query to ``out``."""
        for deltas, of_query in zip(_checked(run, case.axis, step), out, strict=True):
            of_query.append(deltas)

    def judge_step(ctis: Sequence[tuple[str | None, int]], until: int | None, number: int | None) -> None:
        for judge in JUDGES:
            judge.after_step(case, how, run, ctis, until, number)

    times = case.times
    listener, history = Listener(compiled[0], since=min(times, default=0) // 1_000), RunHistory()
    last = len(case.cut) - 1 if how.ends_with_rows else len(case.cut)
    for number, (batch, ctis, now) in enumerate(zip(case.batches, outside_ctis(case, how), times, strict=True)):
        # of a source that is silent as a whole the others' rows say nothing here
        messages = listener.messages(history, now // 1_000)
        idle_before = {message.table: message.idle_before for message in messages if message.table}
        end, until = ([(None, INFINITY)], case.until) if number == last else ([], None)
        step = partial(run.batch, batch, [*ctis, *end], until, now=now, idle_before=idle_before)
        advance(step)
        judge_step([*ctis, *end], until, number)
        if end:
            break
        history = RunHistory(readings=run.readings or history.readings)
        if how.restart:
            run = run.go_on(next(programs))
    else:
        advance(partial(run.finish, case.until))
        judge_step([(None, INFINITY)], case.until, None)
    for cti in run.ctis.values():
        if cti != INFINITY:
            raise ProgressViolation(f"the result does not end with its inputs: its CTI is {shown(cti, case.axis)}")
    counted: Counter[str] = Counter()
    for totals in run.totals.values():
        counted.update(totals)
    for judge in JUDGES:
        judge.after_run(case, how, compiled[0], out, expected)
        judge.set_aside(case, counted, run.late if how.late_output else None, expected)
    return out


def _options(case: Case, how: Execution, level: Level) -> Options:
    outputs = how.outputs(len(case.plans))
    egresses = tuple(Egress(output, ctis=how.ctis and output == OutputForm.CHANGELOG) for output in outputs)
    return Options(egresses=egresses, late_output=how.late_output, buckets=how.buckets, level=level, early=how.early)


def _checked(run: LocalRun, axis: str, step: Callable[[], Any]) -> list[pa.Table]:
    """Return a step's deltas of each query; raise ProgressViolation if they change an instant before the CTI before the step."""
    ctis = dict(run.ctis)
    step()
    for number, deltas in enumerate(run.deltas):
        before = ctis.get(number, MINUS_INFINITY)
        if changed := changes_before(before, [deltas], axis):
            raise ProgressViolation(f"the result changes before its CTI {shown(before, axis)}: {changed}")
    return run.deltas
