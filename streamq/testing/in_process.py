"""Run cases in-process, all at once or in micro-batches, and check deltas, CTIs and counts after each micro-batch."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import OutputForm
from streamq.compiler.egress import Egress, choose_egress
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.plan_json import plan_from_json, plan_to_json
from streamq.compiler.results import Results, rewritten
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.errors import PlanError
from streamq.operators import Join, JoinTable, Select, Source, Union, Where
from streamq.plan.node import Node, nodes
from streamq.policies import Level
from streamq.run.batch.answers import local_history
from streamq.run.status.history import RunHistory, tables_of
from streamq.run.status.watcher import Listener
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.hosts.readings import Readings
from streamq.runtime.state.baskets import TimeBinSizes
from streamq.testing.arrival import is_event
from streamq.testing.case import Case
from streamq.testing.deltas import ProgressViolation, WrongOutput, apply_upserts, as_history, changes_before, sum_deltas
from streamq.testing.difference import same_history
from streamq.testing.execution import LITERAL, STREAM, Execution
from streamq.testing.expectation import Expectation, expectation, heard_ctis, outside_ctis
from streamq.testing.history import side_by_side
from streamq.testing.late_output import check_set_aside
from streamq.testing.oracle.definitions import JUDGES
from streamq.testing.so_far import check_so_far
from streamq.testing.source_progress import limits, micro_batches, source_reaches
from streamq.testing.sources.model import Reach
from streamq.testing.timeline import interval, shown
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
    histories = []
    for plan, output, out in zip(case.plans, how.outputs(len(case.plans)), play(case, how, expected), strict=True):
        histories.append(sum_deltas(out, output, case.axis))
        if output == OutputForm.CHANGELOG:
            _check_upserts(plan, out, histories[-1])
    return side_by_side(histories)


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


def _check_upserts(plan: Node, out: Sequence[pa.Table], answer: pa.Table) -> None:
    """Raise WrongOutput if a plan allows upserts and they leave another history than ``answer``, that of its changelog.

    Also raised for a tombstone without its row; a plan that allows no upserts passes.
    """
    try:
        key = choose_egress(plan, OutputForm.UPSERT, verb="verify").columns
    except PlanError:
        return
    difference = same_history(apply_upserts(out, key), answer)
    if difference is not None:
        difference = replace(difference, axis=plan.schema.axis)
        raise WrongOutput(f"its upserts by {', '.join((*key, 'start'))} leave another history\n{difference}")


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

    Raises WrongOutput or ProgressViolation if deltas or CTIs are not what they must be at some micro-batch, or counts at the end.
    """
    if expected is None:
        expected = expectation(case, how)
    written = Results(case.plans)
    plan = rewritten(written, how.chosen)
    levels = how.levels[: len(case.cut) + 1] if how.restart else how.levels[:1]
    compiled = [compile_stages(plan, _options(case, how, level), written) for level in levels]
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

    promised, times = heard_ctis(case, how), case.times
    listener, history = Listener(compiled[0], since=min(times, default=0) // 1_000), RunHistory()
    reaches = source_reaches(case, list(micro_batches(case)), promised, [None])
    last = len(case.cut) - 1 if how.ends_with_rows else len(case.cut)
    for number, (batch, ctis, now) in enumerate(zip(case.batches, outside_ctis(case, how), times, strict=True)):
        # of a source that is silent as a whole the others' rows say nothing here
        messages = listener.messages(history, now // 1_000)
        idle_before = {message.table: message.idle_before for message in messages if message.table}
        end, until = ([(None, INFINITY)], case.until) if number == last else ([], None)
        step = partial(run.batch, batch, [*ctis, *end], until, now=now, idle_before=idle_before)
        advance(step)
        _check_repeated(run, [*ctis, *end], until)
        if end:
            break
        history = RunHistory(readings=run.readings or history.readings)
        _check_sources(case, run.program, history.readings, reaches[number + 1])
        if how.restart:
            run = run.go_on(next(programs))
    else:
        advance(partial(run.finish, case.until))
        _check_repeated(run, [(None, INFINITY)], case.until)
    for cti in run.ctis.values():
        if cti != INFINITY:
            raise ProgressViolation(f"the result does not end with its inputs: its CTI is {shown(cti, case.axis)}")
    before_end = [deltas[:-1] for deltas in out]
    check_so_far(case, how, compiled[0], promised, before_end)
    if how.output == OutputForm.CHANGELOG and how.blocks != (0,) and not how.ctis and len(case.plans) == 1:
        _check_blocked(case, how, promised, before_end[0], expected)
    counted: Counter[str] = Counter()
    for totals in run.totals.values():
        counted.update(totals)
    check_set_aside(case, counted, run.late if how.late_output else None, expected)
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


def _check_repeated(run: LocalRun, ctis: Sequence[tuple[str | None, int]], until: int | None) -> None:
    """Send CTIs from outside once more; raise WrongOutput if that changes the result, a count or the late output.

    A change of the state shows later, as the run goes on from it.
    """
    if not ctis:
        return
    totals, late = dict(run.totals), len(run.late)
    run.batch({}, ctis, until)
    changes = [row for deltas in run.deltas for row in deltas.to_pylist()]
    if changes or run.totals != totals or len(run.late) != late:
        raise WrongOutput(f"CTIs that are heard twice, {ctis}, change {changes or 'counts of late items'}")


def _check_sources(case: Case, program: StagedPlan, readings: Readings, reaches: Mapping[str, Reach]) -> None:
    """Raise ProgressViolation if the CTI of a source, as its stage has read it, is not the promise in ``reaches``.

    A source whose stage has not read any passes.
    """
    for relation, table in tables_of(program).items():
        cti = readings.source(relation).cti
        if cti is not None and cti != reaches[table].promised:
            defined = shown(reaches[table].promised, case.axis)
            raise ProgressViolation(f"the CTI of source {table} is {shown(cti, case.axis)}, not {defined}")


BLOCKED = (Source, Where, Select, Union, Join, JoinTable)
"""Operators whose output rows start where an input row starts."""


def _check_blocked(
    case: Case, how: Execution, promised: Sequence[Any], out: Sequence[pa.Table], expected: Expectation
) -> None:
    """Raise WrongOutput if a micro-batch releases an item that the level of consistency holds, or holds one that is due.

    The latter shows only if the answer has exactly one row for each event of one source, and ``expected`` has the case as it is,
    without late items, and without calls that fail and set their event aside. Plans with operators other than BLOCKED are not
    checked. ``promised`` are the CTIs that no row brings, and ``out`` the deltas, of each micro-batch.
    """
    plan = nodes(case.plan)
    if not all(isinstance(node, BLOCKED) for node in plan):
        return
    blocks = [level.block for level in (how.levels if how.restart else how.levels[:1])]
    (first, *_) = case.sources.values()
    name = first.table
    # true if the answer has exactly one row for each event of one source
    whole = (
        len(plan) <= 2
        and first.insert_only
        and not first.ids
        and not isinstance(plan[-1], Where | Union | Join | JoinTable)
    )
    whole = whole and expected.case is case and not expected.failed_calls
    arrived_items = released = 0
    for n, limit, table in zip(case.cut, limits(case, promised, blocks), out, strict=False):
        early = pc.greater_equal(table.column(LE), limit)
        if pc.any(early).as_py():
            row = table.filter(early).to_pylist()[0]
            lifetime = interval(row.pop(LE), row.pop(RE), case.axis)
            raise WrongOutput(f"items from {shown(limit, case.axis)} on must be held, but released is {lifetime} {row}")
        arrived_items, released = arrived_items + n, released + table.num_rows
        arrived = [item for source, item in case.arrival[:arrived_items] if source == name and is_event(item)]
        due = sum(item.start is not None and item.start < limit for item in arrived)
        if whole and released != due:
            limit_text = shown(limit, case.axis)
            raise WrongOutput(f"{due} items before {limit_text} must be released, but {released} are")
