"""Explain: shows the logical plan, the laws that fired and those that did not, the incremental plan, and the stages.

One structure has three forms: text, a page with the same lines, and JSON. The output is deterministic: nothing is printed in
the order of a set, and sources without a name are numbered by place. The part on the run has outputs, levels of consistency
and the policies of sources.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from streamq import html
from streamq.choices import check_word
from streamq.compiler.batch import check_form, is_long, read_without_ends
from streamq.compiler.estimates import LikelyFlows, cost_line, expected_rates, pairs_line, rows_line
from streamq.compiler.explain_graphs import NO_MEASUREMENTS, Measurements, plan_graph, rule_marks, stage_graph
from streamq.compiler.options import Options
from streamq.compiler.plan_graph import PlanGraph, Section, sections_html
from streamq.compiler.rewriter import Firing, RewriteResult, clip_text, read_more_than_once
from streamq.compiler.rules import Rule
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import HOLDING
from streamq.errors import PlanError, counted
from streamq.operators import Select, Source
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.operator import BatchForm, Operator
from streamq.plan.footprint import ExpectedRates
from streamq.plan.node import Node, nodes
from streamq.policies import Level
from streamq.time import show_duration

STAGES_GUIDE = (
    "In the details: keeps, the state that stays from one micro-batch to the next; reads, the part of it that a micro-batch "
    "reads; CTI, the time before which the operator's result no longer changes; final, its rows that no longer change."
)


def stages_section(program: StagedPlan, measured: Measurements, spark_reads: Mapping[str, str]) -> Section:
    """Return the section on the stages of a run.

    Each stage is shown with its buckets, its state and the bound of it, the part of it that is read, the cost, CTI rule and
    finality, and with what it keeps for good. If input is expected, the rows that it takes and keeps are estimated; of a run
    they are measured. ``spark_reads``: see ``explain``.
    """
    options, expected = program.options, program.options.expected
    several, rates = len(program.results) > 1, expected_rates(program.plan, expected)
    forms = {state.name: state.form for state in program.states}
    lines = [f"output{f' {r.number + 1}' if several else ''}: {r.described()}" for r in program.results]
    lines += [_line_on_sharing(program)] if several else []
    lines += _level_lines(options, program.axis)
    for source in (r.source for r in program.sources if r.source):
        lines += [
            _source_line(source, program.axis),
            *([f"  {_reader_line(spark_reads[source.table])}"] if source.table in spark_reads else []),
        ]
        lines += _indented(measured.sources.get(source.shown_name(), ()))
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
    return Section("physical", "stages", lines, lambda: lines, graph=graph, guide=STAGES_GUIDE)


def _indented(measurements: tuple[str, ...]) -> list[str]:
    """Return the measurements of a source or an operator as one indented line, or as none."""
    return [f"  {'; '.join(measurements)}"] if measurements else []


def _line_on_sharing(program: StagedPlan) -> str:
    """Return the line on the operators with state and the stages of all results, and on how many of these each result reads."""
    read = " and ".join(str(len(program.operators_under(result))) for result in program.results)
    together = f"{counted(len(program.states), 'operator')} with state in {counted(len(program.stages), 'stage')}"
    return f"together: {together}; the results read {read} of them"


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
    clock = f"; c follows the clock, {progress.clock.lag_text(axis)}" if progress.clock else ""
    return f"source {source.shown_name()}: {source.policy.shown(axis)}{clock}"


def _reader_line(reason: str) -> str:
    """Return the line on who reads a source's rows in a stream, from what ``why_spark_reads`` returns."""
    return f"rows are {reason or 'read as Arrow where they are combined'}"


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


MODES = ("logical", "rules", "incremental", "physical")
FORMATS = ("text", "json", "html", "fragment", "mermaid")
"""The formats; "html" is a whole page, "fragment" an element for a page of the caller's own, such as a notebook."""

CTI_GUIDE = (
    "A CTI is the time before which nothing changes any more: c is that of the sources, an operator may be behind it."
)

NO_REASONS: Mapping[str, str] = {}

_fragments = itertools.count(1)

SHOWN = 2
"""The number of firings shown per rule; the others are counted."""


Notes = dict[str, str | list[str]]
"""The notes below a node, by title; a note of several lines is shown without its title."""


@dataclass(frozen=True)
class PlanLine:
    """A node of a plan as explain shows it, after ``prefix``, the lines of the tree, and with ``notes`` below.

    ``label``: its label if it is read more than once. ``again``: it has been shown before, so only its label is.
    """

    prefix: str
    node: Node
    text: str
    label: str = ""
    again: bool = False
    notes: Notes = field(default_factory=dict)


def explain(
    program: StagedPlan,
    mode: str | None = None,
    format: str = "text",
    before: Sequence[Section] = (),
    form: BatchForm | None = None,
    measured: Measurements = NO_MEASUREMENTS,
    spark_reads: Mapping[str, str] = NO_REASONS,
) -> str:
    """Explain how the plans of a program are executed; ``mode`` selects one part (MODES), ``format`` is one of FORMATS.

    ``before``: parts to show first, each with its own mode. ``form``: the batch form that the user asks for. ``measured``:
    measurements of a run. ``spark_reads``: by a source's table, why Spark reads its rows in a stream, "" if workers do. Raises
    PlanError for a mode or format that does not exist, and for a form that no operator can take.
    """
    modes = (*(part.mode for part in before), *MODES)
    if mode is not None:
        check_word(mode, modes, "mode", "explain")
    check_word(format, FORMATS, "format", "explain")
    asked = modes if mode is None else (mode,)
    own = explain_sections(program, asked, form, measured, spark_reads)
    parts = [*(part for part in before if part.mode in asked), *own]
    if format == "json":
        return json.dumps({part.mode: part.data() for part in parts}, indent=2)
    if format == "html":
        return html.whole_page(f"streamq explain: {_sources(program)}", sections_html(parts))
    if format == "fragment":
        return sections_html(parts, next(_fragments))
    if format == "mermaid":
        graphs = [part.graph for part in parts if part.graph is not None]
        if len(graphs) != 1:
            wrong, hint = "Mermaid draws one plan", 'Give mode="logical", mode="incremental" or mode="physical".'
            raise PlanError("explain", wrong, f"found mode={mode!r}", hint)
        return graphs[0]().mermaid
    return "\n\n".join("\n".join([part.heading, *(f"  {line}".rstrip() for line in part.lines)]) for part in parts)


def _sources(program: StagedPlan) -> str:
    """Return the names of a program's sources, for the title of its page."""
    names = (node.shown_name() for node in nodes(program.written) if isinstance(node, Source))
    return ", ".join(dict.fromkeys(names))


def print_explanation(written: Callable[[str], str], format: str) -> None:
    """Print what ``written`` returns for a format; instead of text, a notebook shows the HTML."""
    html.print_or_display(written(format), lambda: written("fragment"), rich=format == "text")


def state_section(state: str, reason: str) -> Section:
    """Return the part that shows the state of a run, with the error or the reason why it is over, if there is one."""
    first, *rest = f"{state}: {reason}".split("\n") if reason else [state]
    return Section("state", "state of the run", [first, *rest], lambda: {"state": state, "reason": reason or None})


def explain_sections(
    program: StagedPlan,
    modes: tuple[str, ...] = MODES,
    form: BatchForm | None = None,
    measured: Measurements = NO_MEASUREMENTS,
    spark_reads: Mapping[str, str] = NO_REASONS,
) -> list[Section]:
    """Return the parts ``modes`` of an explanation, in the order of MODES."""
    plan, done, expected = program.written, program.rewriting, program.options.expected
    rates, likely = expected_rates(done.plan, expected), None if expected is None else LikelyFlows(expected)
    check_form(done.plan, form, "explain")
    by_stages = form is None and any(map(is_long, done.plan.children))
    lasting = frozenset() if form else frozenset().union(*map(read_without_ends, done.plan.children))
    makers: dict[str, Callable[[], Section]] = {
        "logical": lambda: _plan_part(
            "logical", "logical plan", plan, _nothing, partial(rule_marks, done, before=True)
        ),
        "rules": lambda: _rules_part(done, likely),
        "incremental": lambda: replace(
            _plan_part(
                "incremental",
                f"incremental plan (CTI: c, unless said otherwise{'; in a batch by the stages below' if by_stages else ''})",
                done.plan,
                partial(_notes, rates, likely, form, by_stages, lasting),
                partial(rule_marks, done, before=False),
            ),
            guide=CTI_GUIDE,
        ),
        "physical": lambda: stages_section(program, measured, spark_reads),
    }
    return [makers[mode]() for mode in MODES if mode in modes]


# plans


def _plan_part(
    mode: str, heading: str, root: Node, notes: Callable[[Node], Notes], marks: Callable[[], Mapping[str, str]]
) -> Section:
    """Return the part that shows a plan as a tree, with the notes that ``notes`` returns below each node, and as a graph.

    ``marks`` returns why operators of the graph are highlighted, by their lines.
    """
    # the root over a single plan is not shown
    plan = root.children[0] if len(root.children) == 1 else root
    tree = list(_tree(plan, notes))

    def graph() -> PlanGraph:
        return plan_graph(heading, plan, lambda node: _note_lines(notes(node)), marks())

    lines = [text for line in tree for text in _lines(line)]
    return Section(mode, heading, lines, partial(_tree_data, tree), graph=graph)


def _tree(plan: Node, notes: Callable[[Node], Notes]) -> Iterator[PlanLine]:
    """Yield the nodes from the result down; a single input is directly below its node, several inputs are branches.

    A node that is read more than once has a label. Where it is met again, its line has the label only, and no inputs below.
    """
    shared = read_more_than_once(plan)
    labels: dict[str, str] = {}
    todo: list[tuple[Node, str, str]] = [(plan, "", "")]
    while todo:
        node, first, rest = todo.pop()
        if node.digest in labels:
            yield PlanLine(first, node, describe_node(node), labels[node.digest], again=True)
            continue
        label = ""
        if node.digest in shared:
            label = labels[node.digest] = f"@{len(labels) + 1}"
        yield PlanLine(first, node, describe_node(node), label, notes=notes(node))
        inputs = node.children
        if len(inputs) == 1:
            todo.append((inputs[0], rest, rest))
            continue
        for i, child in enumerate(reversed(inputs)):
            todo.append((child, rest + "├ ", rest + "│ ") if i else (child, rest + "└ ", rest + "  "))


def _lines(line: PlanLine) -> Iterator[str]:
    """Yield the text of a node: its line in the tree, then its notes."""
    yield line.prefix + (line.label if line.again else f"{line.label + ' ' if line.label else ''}{line.text}")
    below = line.prefix.replace("├", "│").replace("└", " ") + ("│     " if len(line.node.children) > 1 else "      ")
    yield from (f"{below}{text}" for text in _note_lines(line.notes))


def _note_lines(notes: Notes) -> Iterator[str]:
    """Yield notes as lines; one of several lines has no title."""
    for name, note in notes.items():
        yield from [f"{name}: {note}"] if isinstance(note, str) else note


def _tree_data(tree: list[PlanLine]) -> list[dict[str, Any]]:
    """Return the nodes of a tree as JSON, each once; inputs are numbers of nodes."""
    numbers = {line.node.digest: i for i, line in enumerate((first for first in tree if not first.again), 1)}
    return [
        {
            "id": numbers[line.node.digest],
            "operator": line.node.title,
            "text": line.text,
            "inputs": [numbers[c.digest] for c in line.node.children],
            "schema": {f.name: f.type.simpleString() for f in line.node.schema.fields},
            "shape": line.node.schema.shape,
            "axis": line.node.schema.axis,
            **line.notes,
        }
        for line in tree
        if not line.again
    ]


def describe_node(node: Node) -> str:
    """Return a node as one line; a source's line has the columns of its events."""
    if isinstance(node, Source):
        return f"{node.title} {node.detail()}  [{node.schema.describe()}]"
    if isinstance(node, Select) and not node.columns:
        return f"{node.title} no column"
    return node.line


def _nothing(node: Node) -> Notes:
    """Return no notes."""
    return {}


def _notes(
    rates: ExpectedRates,
    likely: LikelyFlows | None,
    form: BatchForm | None,
    by_stages: bool,
    lasting: frozenset[str],
    node: Node,
) -> Notes:
    """Return the notes on a node of the incremental plan.

    They are its CTI, unless that is c, the rows that are expected, its batch form, if it has several, and the notes on modules
    of the user's own. ``by_stages``: in a batch no operator has a form of its own. ``lasting``: the operators of which a batch
    computes the last snapshots alone, by their digests.
    """
    notes: Notes = {}
    rows = None if likely is None else rows_line(node, rates, likely)
    if rows is not None:
        notes["expected"] = rows
    if isinstance(node, Operator):
        if node.progress != "c":
            notes["CTI"] = node.progress
        if not by_stages and (forms := node.batch_forms(rates)) is not None:
            last = node.digest in lasting
            notes["batch"] = "the last snapshot of each group, which has no end" if last else str(forms.choose(form))
        lifetimes = [_lifetimes(node, port, child) for port, child in enumerate(node.children)]
        # of one input of points its source, or set_duration, says so already
        is_told = len(lifetimes) > 1 or (isinstance(node, EvaluatedOperator) and node.children[0].traits.longest != 1)
        if is_told and any(lifetimes):
            notes["lifetimes"] = "; ".join(one or "of any length" for one in lifetimes)
        if node.module_notes:
            notes["modules"] = list(node.module_notes)
    return notes


def _lifetimes(operator: Operator, port: int, child: Node) -> str:
    """Return what is known of the lifetimes of an input, and how long a stream keeps the events by it; "" if nothing is."""
    axis, lifetimes, bound = (
        child.schema.axis,
        child.traits.lifetimes(child.schema.axis),
        operator.footprint.bound(port),
    )
    if not lifetimes or bound is None or bound.rows or child.traits.retracts or child.traits.longest is None:
        return lifetimes
    return f"{lifetimes}, kept in a stream until c is {show_duration(bound.ticks, axis)} past the start"


# rules


def _rules_part(done: RewriteResult, likely: LikelyFlows | None) -> Section:
    """Return the part on rules: examples of those that fired, and nodes where an expected one did not, with the reason.

    Of rules that read what is expected it also says what they save.
    """
    lines: list[str] = []
    for rule in dict.fromkeys(f.rule for f in done.firings):
        lines += _fired(rule, [f for f in done.firings if f.rule == rule], likely)
    lines += [] if done.firings else ["none fired"]
    lines += ["did not fire"] if done.skipped else []
    for s in done.skipped:
        lines += [f"  {s.rule.name} at {clip_text(describe_node(s.node))}", f"      {s.reason}"]

    def data() -> dict[str, Any]:
        at = [{"rule": s.rule.name, "at": describe_node(s.node), "reason": s.reason} for s in done.skipped]
        fired = [
            {"rule": f.rule.name, "law": f.rule.law, "before": before, "after": after}
            for f in done.firings
            for before, after in [f.sketches]
        ]
        return {"fired": fired, "did not fire": at}

    return Section("rules", "rules", lines, data)


def _fired(rule: Rule, firings: list[Firing], likely: LikelyFlows | None) -> Iterator[str]:
    """Yield the lines on a rule that fired: its law, its first firings with what they save, and the number of the others."""
    yield f"{rule.name}: {rule.law}"
    for firing in firings[:SHOWN]:
        before, after = firing.sketches
        yield f"      {before}"
        yield f"   => {after}"
        if likely is not None and rule.reads_rates:
            yield f"      {pairs_line(firing.left, firing.right, likely)}"
    if len(firings) > SHOWN:
        yield f"      and {len(firings) - SHOWN} more"
