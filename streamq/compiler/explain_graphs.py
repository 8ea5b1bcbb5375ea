"""The graphs that explain draws: a plan with the rules that change it, and the stages of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from streamq.compiler.measured import Measured
from streamq.compiler.plan_graph import OperatorBox, OperatorBoxKind, PlanGraph
from streamq.compiler.results import Results
from streamq.compiler.rewriter import RewriteResult
from streamq.compiler.staged_plan import Feed, StagedPlan
from streamq.operators import Source
from streamq.operators.operator import Operator
from streamq.plan.node import Node, nodes


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
    return OperatorBoxKind.STATE if isinstance(node, Operator) and node.keeps_state else OperatorBoxKind.STEP


def rule_marks(done: RewriteResult, *, before: bool) -> dict[str, str]:
    """Return the rules that replaced operators, or that made them, by the operators' lines; and why a rule did not fire."""
    marks: dict[str, list[str]] = {}
    for firing in done.firings:
        for node in firing.replaced if before else firing.replacing:
            marks.setdefault(node.line, []).append(firing.rule.name)
    shown = {line: ", ".join(dict.fromkeys(rules)) for line, rules in marks.items()}
    for skipped in done.skipped:
        shown.setdefault(skipped.node.line, f"not {skipped.rule.name}: {skipped.reason}")
    return shown


def stage_graph(title: str, program: StagedPlan, frames: Sequence[str], measured: Measured) -> PlanGraph:
    """Return the graph of a run: sources, the operators with state in the frames of their stages, and results.

    ``frames``: the titles of the stages. ``measured``: measurements of a run; the slowest operator is highlighted.
    """
    last = 2 * len(program.stages) + 1
    boxes = [
        OperatorBox(
            name=f"s{number}",
            kind=OperatorBoxKind.SOURCE,
            title=relation.source.title,
            text=relation.source.detail(),
            measured=measured.sources.get(relation.source.shown_name(), ()),
        )
        for number, relation in enumerate(program.sources)
        if relation.source is not None
    ]
    names = {relation.name: f"s{number}" for number, relation in enumerate(program.sources)}
    readers: dict[int, str] = {}
    for stage in program.stages:
        for hosted in stage.hosted:
            names[hosted.name] = readers[hosted.number] = f"k{hosted.number}"
    for result in program.results:
        name = f"r{result.number}"
        boxes.append(
            OperatorBox(name=name, kind=OperatorBoxKind.RESULT, title="result", text=result.described(), band=last)
        )
    edges: list[tuple[str, str]] = []
    for number, feed in enumerate(program.feeds):
        reader = f"r{feed.result}" if feed.result is not None else readers[feed.channel.reader]
        above = names[feed.path.relation]
        if feed.path.steps:
            boxes.append(_steps(f"p{number}", feed))
            edges.append((above, f"p{number}"))
            above = f"p{number}"
        edges.append((above, reader))
    for stage in program.stages:
        for hosted in stage.hosted:
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
    shown = tuple((2 * stage.number + 1, text) for stage, text in zip(program.stages, frames, strict=True))
    return PlanGraph(title, _inputs_first(boxes, edges), tuple(edges), shown)


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


def _inputs_first(boxes: Sequence[OperatorBox], edges: Sequence[tuple[str, str]]) -> tuple[OperatorBox, ...]:
    """Return the boxes in an order in which each is behind its inputs; otherwise their order stays."""
    inputs: dict[str, set[str]] = {box.name: set() for box in boxes}
    for above, reader in edges:
        inputs[reader].add(above)
    ordered: list[OperatorBox] = []
    left = list(boxes)
    while left:
        done = {box.name for box in ordered}
        ready = [box for box in left if inputs[box.name] <= done]
        ordered += ready
        left = [box for box in left if box not in ready]
    return tuple(ordered)


__all__ = ["plan_graph", "rule_marks", "stage_graph"]
