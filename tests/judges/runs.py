"""Judge runs in-process: repeated CTIs, the CTIs of sources, levels of consistency, upserts, and the output on the way.

With early output a changelog must be, after each micro-batch, the whole answer over the rows so far (docs/concepts.md, "Final
rows, changelogs, upserts"), else the rows of that answer that the watermark has reached.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.results import choose_egress
from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import InvalidEvent, PlanError, QueryFailed
from streamq.operators import Join, JoinTable, Select, Source, Union, Where
from streamq.plan.node import Node, nodes
from streamq.runtime.deltas import LE, RE, RETRACT, WEIGHT
from streamq.runtime.hosts.result_rows import DELETE, changelog_rows, upsert_rows
from streamq.runtime.time.progress_rule import Cti, Release
from streamq.testing.arrival import is_event, keys
from streamq.testing.backends import ProgressViolation
from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.expectation import Expectation, expectation, heard_ctis
from streamq.testing.history import (
    WrongOutput,
    from_changelog,
    history,
    interval,
    net,
    result_of,
    same_history,
    shown,
    sum_deltas,
)
from streamq.testing.oracle.run import TooMuch
from streamq.testing.progress_policies import Promises, last_leader, micro_batches, source_reaches, timeless
from streamq.testing.trial import first_micro_batches
from streamq.time import INFINITY, MINUS_INFINITY


def check_run(
    case: Case, how: Execution, program: StagedPlan, out: Sequence[Sequence[pa.Table]], expected: Expectation
) -> None:
    """Raise WrongOutput if the deltas of each query, in each micro-batch and at the end, are not those that they must be."""
    promised = heard_ctis(case, how)
    before_end = [deltas[:-1] for deltas in out]
    _check_so_far(case, how, program, promised, before_end)
    if how.output == OutputForm.CHANGELOG and how.blocks != (0,) and not how.ctis and len(case.plans) == 1:
        _check_blocked(case, how, promised, before_end[0], expected)
    for plan, output, deltas in zip(case.plans, how.outputs(len(case.plans)), out, strict=True):
        if output == OutputForm.CHANGELOG:
            _check_changelog(deltas, case.axis)
            _check_upserts(plan, deltas, case.axis)


MOST = 4
"""The greatest number of micro-batches of a case after which the changelog is compared."""


def _check_so_far(
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


def _answer_so_far(case: Case, how: Execution, promised: Sequence[Any], number: int) -> pa.Table:
    """Return the oracle's answer over the first micro-batches of a case."""
    expected = expectation(first_micro_batches(case, number), how, promised[:number])
    return expected.case.answer(ctis=expected.ctis)


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


def limits(case: Case, promises: Promises, blocks: Sequence[int | None]) -> list[int]:
    """Return, for each micro-batch, the instant from which on items are still held after it.

    ``blocks`` holds, for each micro-batch in turn and then from its first entry again, for how many ticks items are held (None:
    until the CTI; 0: not at all, which gives INFINITY). An item is released once the CTI of all sources is past its sync time, or
    their watermark is that many ticks past it. An item released at one level is not held again at another. A micro-batch without
    items and CTIs releases none, whatever its level, unless a source hears in it which of its partitions are idle.
    """
    batches = list(micro_batches(case))
    sent = [*promises, *([()] * len(batches))]
    reaches = source_reaches(case, batches, sent, [None])[1:]
    sources, least = case.sources, MINUS_INFINITY
    instants: list[int] = []
    listens = timeless(case).plan != case.plan
    for batch, ctis, reach, block in zip(batches, sent, reaches, itertools.cycle(blocks), strict=False):
        if not (batch or ctis or listens):
            instants.append(instants[-1] if instants else MINUS_INFINITY)
            continue
        leaders = [name for name in sources if last_leader(sources, name) == name]
        w = min(max(reach[name].promised, reach[name].w) for name in leaders)
        least = max(least, min(reach[name].promised for name in sources))
        if block and w > MINUS_INFINITY:
            least = max(least, w - block + 1)
        elif block == 0:
            least = max([least, *(one.w + 1 for one in reach.values() if one.w > MINUS_INFINITY)])
        instants.append(INFINITY if block == 0 else least)
    return instants


def _check_upserts(plan: Node, out: Sequence[pa.Table], axis: str) -> None:
    """Raise WrongOutput if a plan allows upserts and they leave another history than its changelog.

    Also raised for a tombstone without its row; a plan that allows no upserts passes.
    """
    try:
        key = choose_egress(plan, OutputForm.UPSERT, verb="verify").columns
    except PlanError:
        return
    difference = same_history(apply_upserts(out, key), sum_deltas(out, OutputForm.CHANGELOG, axis))
    if difference is not None:
        difference = replace(difference, axis=plan.schema.axis)
        raise WrongOutput(f"its upserts by {', '.join((*key, 'start'))} leave another history\n{difference}")


def apply_upserts(out: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """Write the deltas of each micro-batch as upserts, and return the history that remains of them in the end.

    For each ``key`` and start that is the last row, unless it is a tombstone. Raises WrongOutput for a tombstone whose row does
    not exist, and IndexError without micro-batches.
    """
    names = [name for name in out[0].column_names if name != WEIGHT]
    ticked = [{LE: "start", RE: "end"}.get(name, name) for name in names]
    tables_of_batches = []
    rows: dict[Any, tuple[int, int]] = {}
    for number, deltas in enumerate(out):
        upserts = upsert_rows(deltas, key)
        tables_of_batches.append(history(upserts.select(ticked)))
        row_keys = keys(upserts.select([*key, "start"]))
        for place, (one, op) in enumerate(zip(row_keys, upserts["op"].to_pylist(), strict=True)):
            if op != DELETE:
                rows[one] = number, place
            elif rows.pop(one, None) is None:
                row = dict(zip((*key, "start"), one, strict=True))
                raise WrongOutput(f"a tombstone for a row that does not exist: {row}")
    before = list(itertools.accumulate((t.num_rows for t in tables_of_batches), initial=0))
    places = [before[number] + place for number, place in rows.values()]
    return pa.concat_tables(tables_of_batches).take(pa.array(places, pa.int64()))


def check_repeated(run: LocalRun, ctis: Sequence[tuple[str | None, int]], until: int | None) -> None:
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


def check_sources(case: Case, how: Execution, run: LocalRun, number: int) -> None:
    """Raise ProgressViolation if the CTI of a source, as its stage has read it, is not its promise after a micro-batch.

    A source whose stage has not read any in this micro-batch passes.
    """
    if not run.readings:
        return
    reaches = source_reaches(case, list(micro_batches(case)), heard_ctis(case, how), [None])[number + 1]
    for relation, table in {r.name: r.source.table for r in run.program.sources if r.source}.items():
        cti = run.readings.source(relation).cti
        if cti is not None and cti != reaches[table].promised:
            defined = shown(reaches[table].promised, case.axis)
            raise ProgressViolation(f"the CTI of source {table} is {shown(cti, case.axis)}, not {defined}")


def _check_changelog(out: Sequence[pa.Table], axis: str) -> None:
    """Raise WrongOutput if the rows of a changelog are not ordered by sync time, or are not those of its deltas."""
    difference = same_history(net([_read_back(deltas, axis) for deltas in out], axis), net(out, axis))
    if difference is not None:
        raise WrongOutput(f"the rows of the changelog are not those of its deltas\n{replace(difference, axis=axis)}")


def _read_back(deltas: pa.Table, axis: str) -> pa.Table:
    """Return deltas converted to changelog rows and back; raise WrongOutput if these are not ordered by sync time."""
    payload = [name for name in deltas.column_names if name not in (LE, RE, WEIGHT)]
    # a payload column may be called like one of the changelog's
    numbers = {name: f"p{number}" for number, name in enumerate(payload)}
    rows = changelog_rows(deltas.rename_columns([numbers.get(name, name) for name in deltas.column_names]))
    _check_order(rows, axis)
    names = {number: name for name, number in numbers.items()}
    deltas_again = from_changelog(rows)
    return deltas_again.rename_columns([names.get(name, name) for name in deltas_again.column_names])


def _check_order(rows: pa.Table, axis: str) -> None:
    """Raise WrongOutput if a changelog row of one micro-batch follows one with a later sync time."""
    latest = MINUS_INFINITY
    for row in rows.select(["kind", "start", "end", "new_end"]).to_pylist():
        ends = [INFINITY if row[n] is None else row[n] for n in ("end", "new_end")]
        sync = min(ends) if row["kind"] == RETRACT else row["start"]
        if sync < latest:
            raise WrongOutput(
                f"a changelog row with sync time {shown(sync, axis)} follows one with {shown(latest, axis)}"
            )
        latest = sync
