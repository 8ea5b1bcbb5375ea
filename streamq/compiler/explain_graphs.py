"""The graphs that explain draws: a plan with the rules that change it, and the stages of a run with their measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamq.choices import CountReason
from streamq.compiler.plan_graph import OperatorBox, OperatorBoxKind, PlanGraph
from streamq.compiler.results import Results
from streamq.compiler.rewriter import RewriteResult
from streamq.compiler.staged_plan import Feed, StagedPlan
from streamq.errors import counted
from streamq.operators import Source
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.plan.node import Node, nodes


@dataclass(frozen=True)
class Measurements:
    """Lines on operators, by kernel, the times of stages in milliseconds, by number, and lines on sources.

    The lines on an operator have its rows, its state and its processor time; ``slowest`` is the kernel of the one that took most
    of that in the last micro-batch, None if there is one operator only, or none took any.
    The lines on a source, by its name, have its rows so far, and those of them that were late, invalid or repeated, if any were.
    """

    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    times: Mapping[int, float] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slowest: str | None = None

    @classmethod
    def of_metrics(cls, metrics: Mapping[str, Any], program: StagedPlan) -> Measurements:
        """Return the measurements in the metrics of a run of ``program``; docs/operations.md lists the fields."""
        operators, times, cpu_ms = {}, {}, {}
        for stage, own in zip(program.stages, metrics["stages"], strict=True):
            if own["time_ms"] is not None:
                times[stage.number] = float(own["time_ms"])
            for hosted, fields in zip(stage.hosted, own["operators"], strict=True):
                cpu_ms[hosted.name] = fields["cpu_ms"]
                operators[hosted.name] = (
                    f"so far: {counted(fields['inserted'], 'row')} inserted, {fields['retracted']:,} retracted",
                    f"state: {counted(fields['state_rows'], 'row')}, {counted(fields['state_bytes'], 'byte')}",
                    f"{fields['cpu_ms']:,.1f} ms of processor time in the last micro-batch",
                )
        sources = {name: _source_lines(fields) for name, fields in metrics["sources"].items()}
        slowest = max(cpu_ms, key=cpu_ms.__getitem__) if len(cpu_ms) > 1 and any(cpu_ms.values()) else None
        return cls(operators, times, sources, slowest)

    def frame(self, stage: int) -> str:
        """Return what follows a stage's title: its time, and whether no other took longer; "" if there is none."""
        if stage not in self.times:
            return ""
        slowest = ", the slowest" if len(self.times) > 1 and self.times[stage] == max(self.times.values()) else ""
        return f", {self.times[stage]:,.0f} ms in the last micro-batch{slowest}"


NOT_USED = {
    CountReason.DROPPED: "late and dropped",
    CountReason.ADJUSTED: "late and adjusted",
    CountReason.INVALID: "invalid",
    CountReason.DUPLICATES: "repeated",
}
"""The words for a source's rows that were not used, or not as they came."""


def _source_lines(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the lines on a source from its metrics: its rows, and those that were not used, or not as they came."""
    unused = [f"{fields[reason]:,} {words}" for reason, words in NOT_USED.items() if fields.get(reason)]
    return f"so far: {counted(fields['rows'], 'row')}", *([f"of these {'; '.join(unused)}"] if unused else [])


NO_MEASUREMENTS = Measurements()
"""Nothing has been measured: the query does not run."""


def plan_graph(title: str, root: Node, notes: Callable[[Node], Iterable[str]], marks: Mapping[str, str]) -> PlanGraph:
    """Return the graph of a plan; ``notes`` returns a node's details, ``marks`` has why nodes are highlighted, by their lines.

    The root over several plans is not shown.
    """
    parts = [node for node in nodes(root) if not isinstance(node, Results)]
    names = {node.digest: f"n{number}" for number, node in enumerate(parts, 1)}
    boxes = tuple(
        OperatorBox(
            name=names[node.digest],
            kind=_kind(node),
            title=node.title,
            text=node.detail(),
            details=(*notes(node), f"rows: {node.schema.describe()}"),
            mark=marks.get(node.line, ""),
        )
        for node in parts
    )
    edges = tuple((names[below.digest], names[node.digest]) for node in parts for below in node.children)
    return PlanGraph(title, boxes, edges)


def _kind(node: Node) -> OperatorBoxKind:
    if isinstance(node, Source):
        return OperatorBoxKind.SOURCE
    return OperatorBoxKind.STATE if isinstance(node, EvaluatedOperator) else OperatorBoxKind.STEP


def rule_marks(done: RewriteResult, *, before: bool) -> dict[str, str]:
    """Return the rules that replaced operators, or that made them, by the operators' lines; and why a rule did not fire."""
    marks: dict[str, list[str]] = {}
    for firing in done.firings:
        for node in firing.changed(firing.left if before else firing.right):
            marks.setdefault(node.line, []).append(firing.rule.name)
    shown = {line: ", ".join(dict.fromkeys(rules)) for line, rules in marks.items()}
    for skipped in done.skipped:
        shown.setdefault(skipped.node.line, f"not {skipped.rule.name}: {skipped.reason}")
    return shown


def stage_graph(heading: str, program: StagedPlan, frames: Sequence[str], measured: Measurements) -> PlanGraph:
    """Return the graph of a run: sources, the operators with state in the frames of their stages, and results.

    ``frames``: the titles of the stages. ``measured``: measurements of a run; the slowest operator is highlighted.
    """
    boxes: list[OperatorBox] = []
    edges: list[tuple[str, str]] = []
    names: dict[str, str] = {}
    for number, relation in enumerate(program.sources):
        assert relation.source is not None
        names[relation.name] = f"s{number}"
        boxes.append(
            OperatorBox(
                name=f"s{number}",
                kind=OperatorBoxKind.SOURCE,
                title=relation.source.title,
                text=relation.source.detail(),
                measured=measured.sources.get(relation.source.shown_name(), ()),
            )
        )

    def add_feeds(reader: str, feeds: Iterable[Feed]) -> None:
        """Add the edges from the relations of some feeds to their reader, with a box for the steps of each between."""
        for feed in feeds:
            above = names[feed.path.relation]
            if feed.path.steps:
                boxes.append(_steps(f"p{feed.channel.number}", feed))
                edges.append((above, boxes[-1].name))
                above = boxes[-1].name
            edges.append((above, reader))

    for stage in program.stages:
        for hosted in stage.hosted:
            names[hosted.name] = f"k{hosted.number}"
            add_feeds(f"k{hosted.number}", (program.feeds[channel.number] for channel in hosted.channels))
            operator, *details = program.titles[hosted.name]
            title, text = _split(operator, program.nodes.get(hosted.number))
            boxes.append(
                OperatorBox(
                    name=names[hosted.name],
                    kind=OperatorBoxKind.STATE,
                    title=title,
                    text=text,
                    details=tuple(details),
                    measured=measured.operators.get(hosted.name, ()),
                    mark="slowest operator" if hosted.name == measured.slowest else "",
                    band=2 * stage.number + 1,
                )
            )
    for result in program.results:
        name = f"r{result.number}"
        add_feeds(name, (feed for feed in program.result_feeds if feed.result == result.number))
        text, last = result.described(), 2 * len(program.stages) + 1
        boxes.append(OperatorBox(name=name, kind=OperatorBoxKind.RESULT, title="result", text=text, band=last))
    shown = tuple((2 * stage.number + 1, text) for stage, text in zip(program.stages, frames, strict=True))
    return PlanGraph(heading, tuple(boxes), tuple(edges), shown)


def _steps(name: str, feed: Feed) -> OperatorBox:
    """Return the box of the stateless operators on a path, in the stage of the kernels that they lie between, if they do."""
    first, *rest = feed.path.steps
    inside = feed.channel.inner is not None
    return OperatorBox(
        name=name,
        kind=OperatorBoxKind.STEP,
        title=first.title,
        text="; ".join([first.detail(), *(step.line for step in rest)]),
        details=tuple(step.line for step in feed.path.steps),
        band=2 * feed.channel.stage + 1 if inside else 2 * feed.path.stage,
    )


def _split(operator: str, node: Node | None) -> tuple[str, str]:
    """Return the title of an operator's line, and the rest: the node's title, if it begins so, else the first word."""
    title = node.title if node is not None and operator.startswith(node.title) else operator.split(" ", 1)[0]
    return title, operator[len(title) :].strip()
