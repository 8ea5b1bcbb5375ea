"""Plans compiled for streaming: relations, paths from relations, feeds along paths, and stages in order.

A *relation* is a place where rows exist: a source, or a kernel's output. A *path* is the stateless operators from a relation to
a port of a kernel or to a result. A *feed* is a path with the columns that the port or the result takes.
Where each source's lateness is judged is chosen here. Kernels and batch forms are chosen by the operators themselves
(``Evaluation.factory``, ``EvaluatedOperator.batch_forms``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from streamq.choices import CountReason, OutputForm
from streamq.compiler.options import Options
from streamq.compiler.results import Result, Results
from streamq.operators.evaluation import PortColumns
from streamq.operators.operator import set_aside
from streamq.operators.select import Select
from streamq.operators.source import Source
from streamq.operators.step import Step
from streamq.plan.expr import Expr
from streamq.plan.node import Node
from streamq.plan.schema import POINT, Schema
from streamq.runtime.hosts.hosted_kernel import Channel
from streamq.runtime.hosts.identity import OperatorState
from streamq.runtime.hosts.packer import Packer, SourceInfo
from streamq.runtime.hosts.stage import Stage
from streamq.runtime.kernel import Kernel
from streamq.runtime.time.progress import ProgressMap
from streamq.runtime.time.progress_policy import ProgressPolicy

if TYPE_CHECKING:
    from streamq.compiler.rewriter import RewriteResult


from streamq.compiler.rewriter import Consumer, consumers
from streamq.plan.lowering import has_float
from streamq.plan.node import nodes
from streamq.time import WindowEnds


@dataclass(frozen=True)
class Path:
    """The stateless steps from a relation to a port of a kernel, or to a result."""

    relation: str
    """The name of the relation at which it begins."""

    stage: int
    """The number of the first stage that can read it: the one after the stage that makes the relation."""

    schema: Schema
    """The columns of the rows at its end."""

    steps: tuple[Step, ...] = ()
    """The steps, from the relation on."""

    retracts: bool = False
    """True if rows may be retracted."""

    points: bool = False
    """True if every lifetime is one tick, so that ends are not sent."""

    moves: bool = False
    """True if a row may be retracted and inserted again with another end."""

    progress_maps: tuple[ProgressMap, ...] = ()
    """The functions that the steps apply to the relation's progress, in their order."""

    open_end: int | None = None
    """The place of the first step that reads an end which may still move; None if no step does."""

    moving: frozenset[str] = frozenset()
    """The columns that change when such an end moves."""

    @property
    def digest(self) -> str:
        """A hash of the relation and the steps, which identifies the path."""
        return hashlib.sha256(" ".join([self.relation, *(s.digest for s in self.steps)]).encode()).hexdigest()[:16]

    @property
    def multiplies(self) -> bool:
        """True if a step may make several rows of one."""
        return any(step.effect.multiplies for step in self.steps)

    def then(self, step: Step) -> Path:
        """Return the path extended by a step."""
        first = len(self.steps) if self.moves and step.reads_open_end else None
        open_end = first if self.open_end is None else self.open_end
        moving = step.moving_columns(self.moving) if self.moves and isinstance(step, Select) else self.moving
        path = replace(self, schema=step.schema, steps=(*self.steps, step), open_end=open_end, moving=moving)
        if (progress_map := step.effect.progress_map) is None:
            return path
        is_point, moves = step.schema.shape == POINT, self.moves and step.effect.keeps_end
        return replace(path, points=is_point, moves=moves, progress_maps=(*self.progress_maps, progress_map))

    @property
    def filters_open_end(self) -> bool:
        """True if a step that may drop rows is, or comes after, the first step that reads an end which may still move."""
        return self.open_end is not None and any(step.effect.drops for step in self.steps[self.open_end :])

    def first_steps(self, number: int) -> Path:
        """Return the path with only the first ``number`` steps; the step after them reads ends which may still move.

        The ends of its rows may move, and it has retractions.
        """
        steps = self.steps[:number]
        progress_maps = tuple(mapped for step in steps if (mapped := step.effect.progress_map) is not None)
        return Path(
            relation=self.relation,
            stage=self.stage,
            schema=self.steps[number].input.schema,
            steps=steps,
            retracts=True,
            points=False,
            moves=True,
            progress_maps=progress_maps,
        )


FEW_STEPS = 8
"""The most steps from a source, or behind the last stage, that Spark takes where workers could: it plans each, on all before."""


@dataclass(frozen=True)
class Feed:
    """A path into a port of a kernel, or into a result: the port's columns as expressions over the path's rows.

    ``channel``: the channel on which the rows are sent. ``kernel``: the kernel that reads them; or ``result``: the number of the
    result.
    """

    path: Path
    channel: Channel
    columns: tuple[tuple[str, Expr], ...]
    kernel: Kernel | None = None
    result: int | None = None

    @property
    def hashed(self) -> tuple[str, ...]:
        """The columns whose values choose a row's bucket."""
        return self.channel.hashed

    @property
    def lifetimes(self) -> tuple[str, ...]:
        """The columns of lifetime and weight that the port takes beside ``columns``."""
        return self.channel.columns[len(self.columns) :]


@dataclass(frozen=True)
class PortInput:
    """One input of a kernel: the rows of ``paths``, in the columns ``columns`` and ``lifetimes``.

    ``lifetimes`` are some of ``__le``, ``__re`` and ``__w``.
    """

    paths: list[Path]
    columns: PortColumns
    lifetimes: tuple[str, ...]


INGRESS = "ingress"
"""The kind of kernels that make events of a source's items, with which their names begin."""


@dataclass(frozen=True)
class Relation:
    """The rows of a source (with stage 0), or the output of kernel ``number``, which stage ``stage - 1`` makes."""

    name: str
    stage: int
    schema: Schema
    source: Source | None = None
    number: int = -1


@dataclass
class StagedPlan:
    """Plans compiled for streaming, with the steps that led to them.

    ``written``: the plans before they were rewritten. ``rewriting``: what the rules made of them. ``plan``: the plans that run,
    whose sources have default policies.
    ``relations``: by name. ``stages``: in order. ``feeds``: the connections between relations and kernels or results.
    ``titles``: the lines of explain, by kernel. ``nodes``: the operators that kernels compute, by kernel number. ``states``: the
    states of the kernels, in their order. ``judging``: the places at which lateness is judged, by a source's table.
    """

    written: Results
    rewriting: RewriteResult
    plan: Results
    options: Options
    relations: dict[str, Relation] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    feeds: list[Feed] = field(default_factory=list)
    titles: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)
    states: list[OperatorState] = field(default_factory=list)
    judging: Mapping[str, JudgeChoice] = field(init=False)

    def __post_init__(self) -> None:
        self.judging = choose_judges(self.plan, self.options)

    @property
    def sources(self) -> list[Relation]:
        """The source relations, in the order of the checkpoint, if there is one, then in order of appearance."""
        sources = [r for r in self.relations.values() if r.source is not None]
        places = {f"source:{table}": place for place, table in enumerate(self.options.placement.sources)}
        return sorted(sources, key=lambda relation: places.get(relation.name, len(places)))

    def made_at(self, stage: int) -> list[Relation]:
        """Return the relations that the stage before ``stage`` makes, and that others than itself read."""
        return [r for r in self.relations.values() if r.source is None and r.stage == stage and self.feeds_of(r)]

    def feeds_of(self, relation: Relation) -> list[Feed]:
        """Return the feeds that begin at a relation and lead out of the stage that makes it."""
        return [f for f in self.feeds if f.path.relation == relation.name and f.channel.inner is None]

    def judging_of(self, table: str) -> JudgeChoice:
        """Return the place at which the lateness of a source is judged; UNREAD if the plans do not read it."""
        return self.judging.get(table, UNREAD)

    def place_of(self, name: str) -> int:
        """Return the stage that has an operator's state in the checkpoint that the run goes on from; -1 if none has."""
        return self.options.placement.by_name.get(name, -1)

    @property
    def axis(self) -> str:
        """The time axis of the plans."""
        return self.plan.schema.axis

    @cached_property
    def results(self) -> list[Result]:
        """The results, in the order of the plans."""
        return [
            Result(
                number=number,
                plan=plan,
                egress=egress,
                in_order=self.options.level.block is None and egress.output == OutputForm.CHANGELOG,
            )
            for number, (plan, egress) in enumerate(zip(self.plan.inputs, self.plan.egresses, strict=True))
        ]

    def operators_under(self, result: Result) -> tuple[str, ...]:
        """Return the names of all operators with state that a result depends on, in the order of names."""
        inputs = {hosted.name: hosted.inputs for stage in self.stages for hosted in stage.hosted}
        left = [feed.path.relation for feed in self.result_feeds if feed.result == result.number]
        names: set[str] = set()
        while left:
            relation = left.pop()
            if relation in inputs and relation not in names:
                names.add(relation)
                left += inputs[relation]
        return tuple(sorted(names))

    @property
    def result_feeds(self) -> list[Feed]:
        """The feeds into results."""
        return [f for f in self.feeds if f.result is not None]

    @property
    def packs_results(self) -> bool:
        """True if rows of results leave the last stage packed, so that the frame is as narrow for many results as for two.

        The rows of a single feed are columns of that frame, unless Spark would have to plan many steps over them.
        """
        feeds = self.result_feeds
        return len(self.plan.inputs) > 1 or len(feeds) != 1 or len(feeds[0].path.steps) > FEW_STEPS

    def buckets(self, stage: int, stages: int) -> int:
        """Return the number of buckets of a stage; the last of ``stages`` has one bucket if a result has CTIs."""
        tells_ctis = any(egress.ctis for egress in self.options.egresses)
        return 1 if tells_ctis and stage == stages - 1 else self.options.buckets

    @property
    def clock_policies(self) -> dict[str, ProgressPolicy]:
        """The progress policies that follow the clock, by their sources' relations."""
        policies = {r.name: r.source.policy.progress for r in self.sources if r.source}
        return {relation: policy for relation, policy in policies.items() if policy.clock is not None}

    @property
    def late_reasons(self) -> list[str]:
        """The keys of the counts of late and quarantined rows: ``source|reason``, and ``module|quarantined``."""
        reasons = [reason for reason in CountReason if reason is not CountReason.QUARANTINED]
        judged = [channel.judge.source for stage in self.stages for channel in stage.channels if channel.judge]
        names = dict.fromkeys((*(r.source.shown_name() for r in self.sources if r.source), *judged))
        of_sources = [f"{name}|{reason}" for name in names for reason in reasons]
        return [*of_sources, *(f"{name}|{CountReason.QUARANTINED}" for name in self.quarantining)]

    @property
    def quarantining(self) -> list[str]:
        """The names of the modules that set events aside where they fail."""
        return sorted({aside.module for aside in set_aside(self.plan)})

    def packer(self, relations: Sequence[Relation]) -> Packer:
        """Return the packer that sends the rows of some relations to the kernels of the next stage.

        The relations are one source, or all that a stage makes; if there are none, the next stage is behind the last.
        """
        feeds = [feed for relation in relations for feed in self.feeds_of(relation)]
        kernels = {f.channel.reader: f.kernel for f in feeds if f.kernel is not None}
        source = relations[0].source if len(relations) == 1 else None
        info = None
        if source is not None:
            info = SourceInfo(
                relation=relations[0].name,
                name=source.shown_name(),
                items=source.items,
                progress=source.policy.progress,
                invalid=source.policy.invalid_in(self.options.streaming),
            )
        (stage,) = {relation.stage for relation in relations} or {len(self.stages)}
        return Packer(
            tuple(f.channel for f in feeds),
            kernels,
            self.buckets(stage, len(self.stages)),
            info,
            self.options.late_output,
        )


@dataclass(frozen=True, kw_only=True)
class JudgeChoice:
    """The place at which a source's lateness is judged: a stage of its own for a ``reason``, else the kernel that reads it first.

    ``ends``: the ends of the windows that read the source, to which its CTI is rounded down; None unless all that reads the
    source are fixed windows, and no step before them moves a start. ``spread``: the columns by which a stage of its own spreads
    the source's events, those of all that reads them one by one; () for their starts.
    """

    reason: str = ""
    ends: WindowEnds | None = None
    spread: tuple[str, ...] = ()


UNREAD = JudgeChoice(reason="no operator reads the source once the rules are applied")
"""The choice for a source of the query that rules have taken out of the plan."""


def choose_judges(plan: Node, options: Options) -> dict[str, JudgeChoice]:
    """Return the place at which lateness is judged for every source of a plan, by its table.

    Of ``options`` only ``late_output`` counts.
    """
    ways = consumers(plan)
    sources = [node for node in nodes(plan) if isinstance(node, Source)]
    return {source.table: _judging(source, ways[source.digest], options) for source in sources}


def _judging(source: Source, ways: Sequence[Consumer], options: Options) -> JudgeChoice:
    """Return the place at which a source's lateness is judged; ``ways`` lead to the operators that read it first."""
    if source.ingress is not None:
        # by the kernel that makes events of its items
        return JudgeChoice()
    way = ways[0] if len(ways) == 1 else None
    ends = None if way is None else way.ends
    reason = _reason_for_a_stage(source, ways, options)
    return JudgeChoice(reason=reason, ends=ends, spread=_common_spread(source, ways))


def _common_spread(source: Source, ways: Sequence[Consumer]) -> tuple[str, ...]:
    """Return the columns by which all operators that read a source's events one by one spread them; () if there are none."""
    asked = {way.spread for way in ways if way.spread is not None}
    spread = asked.pop() if len(asked) == 1 else ()
    return spread if can_spread(source.schema, spread) else ()


def can_spread(schema: Schema, names: Sequence[str]) -> bool:
    """Return True if events can be spread by these columns and pass on as they are: floats would be normalized to be keys."""
    return all(name in schema.names and not has_float(schema.type_of(name)) for name in names)


def _reason_for_a_stage(source: Source, ways: Sequence[Consumer], options: Options) -> str:
    """Return the reason why lateness must be judged in a stage of its own; "" if the first kernel can judge it."""
    if source.ids:
        return "each id counts once"
    if options.late_output:
        return "late rows are an output"
    if len(ways) > 1:
        return "the source is read several times"
    (way,) = ways
    if len(way.steps) > FEW_STEPS:
        return "many steps are before what reads the source, and workers take them"
    if not way.has_state:
        return "no operator with state reads the source"
    if way.reads_judged_rows:
        return "windows of several sizes read the source"
    keeps_order = _drops_what_is_late(source) and way.moves_alike and way.window is None
    if way.changes_rows and not keeps_order:
        return "rows are judged before they are moved, or become several"
    if way.reads_lifetime and not keeps_order:
        return "what may be adjusted is read from the CTI on only"
    # the input has come further than a late point
    if way.bounds_windows and (not source.gives_points or way.changes_rows):
        return "late events must not decide how far windows go at the end"
    grid = None if way.window is None else way.window.traits.grid
    if grid is not None and not grid.divides:
        return "what is left of a late event cannot be told from windows that overlap unevenly"
    return ""


def _drops_what_is_late(source: Source) -> bool:
    """Return True if a late item is dropped, wherever steps would move it: nothing of a point is adjusted or shown."""
    return source.gives_points and not source.policy.late.shows_items
