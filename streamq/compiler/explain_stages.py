"""The part of explain on the run: outputs, levels of consistency, the policies of sources, and the stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from streamq.compiler.estimates import cost_line, expected_rates
from streamq.compiler.explain_graphs import Measured, stage_graph
from streamq.compiler.explain_html import Section
from streamq.compiler.options import NOWHERE, Options
from streamq.compiler.results import Results
from streamq.compiler.stage_lines import HOLDING
from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import counted
from streamq.operators import Source
from streamq.plan.footprint import Expected
from streamq.policies import Level
from streamq.time import show_duration

STAGES_GUIDE = (
    "In the details: keeps, the state that stays from one micro-batch to the next; reads, the part of it that a micro-batch "
    "reads; CTI, the time before which the operator's result no longer changes; final, its rows that no longer change."
)


def stages_section(
    plan: Results, options: Options, expected: Expected | None, measured: Measured, written: Results
) -> Section:
    """Return the part on the run of plans, which were ``written`` otherwise before they were rewritten.

    Each stage is shown with its buckets, its state and the bound of it, the part of it that is read, the cost, CTI rule and
    finality, and with what it keeps for good, the rows that it takes and keeps if input is expected, and those of a run if they
    are measured.
    """
    from streamq.compiler.stages import compile_stages

    program = compile_stages(plan, options, written)
    several, rates = len(program.results) > 1, expected_rates(program.plan, expected)
    forms = {state.name: state.form for state in program.states}
    lines = [f"output{f' {r.number + 1}' if several else ''}: {r.described()}" for r in program.results]
    lines += [_savings(program, plan, options, written)] if several else []
    lines += _level_lines(options, program.axis)
    for source in (r.source for r in program.sources if r.source):
        lines += [_source_line(source, program.axis), *_indented(measured.sources.get(source.shown_name(), ()))]
    lines += ["early: rows are told as soon as they are there, and corrected until they are final"] * options.early
    # operators over one stream are one whatever its policy, which their plan therefore has not
    lags = {r.source.table: r.source.policy.progress.lag for r in program.sources if r.source}
    count = len(program.stages)
    frames = [
        f"stage {number + 1} of {count}, {_buckets(program, number)}{measured.frame(number)}" for number in range(count)
    ]
    for stage, frame in zip(program.stages, frames, strict=True):
        lines.append(frame)
        for hosted in stage.hosted:
            title, *rest = program.titles[hosted.name]
            lines.append(f"  {title}")
            lines += [f"    {line}" for line in (*rest, f"name of its state: {hosted.name}")]
            lines += [f"  {line}" for line in _indented(measured.operators.get(hosted.name, ()))]
            node = program.nodes.get(program.relations[hosted.name].number)
            if expected is not None and node is not None:
                lines.append(f"    {cost_line(node, rates, expected, lags, forms[hosted.name])}")
    graph = partial(stage_graph, "stages", program, frames, measured)
    return Section("physical", "stages", lines, lines, graph=graph, guide=STAGES_GUIDE)


def _indented(measurements: tuple[str, ...]) -> list[str]:
    """Return the measurements of a source or an operator as one indented line, or as none."""
    return [f"  {'; '.join(measurements)}"] if measurements else []


def _savings(program: StagedPlan, plan: Results, options: Options, written: Results) -> str:
    """Return the line that compares operators with state and stages of all results together with those of each alone."""
    from streamq.compiler.stages import compile_stages

    settings = [replace(options, egresses=(egress,), placement=NOWHERE) for egress in options.egresses]
    alone = [compile_stages(Results((one,)), own, written) for one, own in zip(plan.inputs, settings, strict=True)]
    operators, stages = sum(len(one.states) for one in alone), sum(len(one.stages) for one in alone)
    judging = "; one more judges the late rows of a source for all" if len(program.states) > operators else ""
    together = f"{counted(len(program.states), 'operator')} with state in {counted(len(program.stages), 'stage')}"
    return f"together: {together}; each result alone: {operators} in {stages}{judging}"


def _buckets(program: StagedPlan, stage: int) -> str:
    """Return the number of buckets of a stage that have rows as text, with the reason if no key spreads them, and the cure."""
    buckets = program.buckets(stage, len(program.stages))
    if buckets == 1:
        return "1 bucket"
    if any(feed.hashed for feed in program.feeds if feed.channel.stage == stage):
        return f"up to {buckets} buckets"
    return "1 bucket: without a key all rows are in one task; group by a column to spread them"


def _source_line(source: Source, axis: str) -> str:
    """Return the line that shows a source's policies and, if its CTI follows the clock, at which distance."""
    progress = source.policy.progress
    clock = f"; c follows the clock, {progress.clock.behind(axis)}" if progress.clock else ""
    return f"source {source.shown_name()}: {source.policy.shown(axis)}{clock}"


def _level_lines(options: Options, axis: str) -> Iterator[str]:
    """Yield the lines on the level of consistency, and on what it holds."""
    level = options.counted_level
    yield f"consistency: {_level(level, options.only_final, axis)}"
    if level.block != 0:
        yield from (f"  {line}" for line in HOLDING.state_lines())


def _level(level: Level, only_final: bool, axis: str) -> str:
    """Return the name of a level of consistency and its effect, as one line; ``only_final``: its results have final rows."""
    block, remember = level.block, level.remember
    forgotten = "" if remember is None else f"history is forgotten {show_duration(remember, axis)} behind the watermark"
    if only_final:
        # final rows wait for the CTI whatever the level
        return f"weak ({forgotten})" if forgotten else "any (final rows wait for the CTI)"
    if block is None:
        return "strong (items wait until the CTI of every source has passed them)"
    if block == 0:
        return f"weak ({forgotten})" if forgotten else "middle (items at once, repaired until the CTI)"
    blocked = f"items wait until every CTI has passed them or every watermark is {show_duration(block, axis)} beyond"
    return f"level ({'; '.join(filter(None, [blocked, forgotten]))})"


__all__ = ["stages_section"]
