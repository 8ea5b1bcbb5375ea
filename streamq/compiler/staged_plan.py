"""What a plan compiled for streaming is made of: relations, the paths from them, the feeds along those, stages in order.

A *relation* is where rows exist: a source's, or a kernel's output. A *path* is the stateless operators from a relation to a
port of a kernel or to the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from streamq.choices import CountReason, OutputForm
from streamq.compiler.options import Options
from streamq.compiler.results import Result, Results
from streamq.compiler.strategy import Strategy, choose
from streamq.operators.operator import set_aside
from streamq.operators.source import Source
from streamq.operators.step import Step
from streamq.plan.expr import Expr
from streamq.plan.node import Node, WrittenPattern
from streamq.plan.schema import POINT, Schema
from streamq.runtime.hosted_kernel import Channel
from streamq.runtime.kernel import Kernel
from streamq.runtime.packer import Packer, SourceInfo
from streamq.runtime.progress_map import ProgressMap
from streamq.runtime.progress_policy import ProgressPolicy
from streamq.runtime.stage import Stage


@dataclass(frozen=True)
class Path:
    """The stateless steps from a relation to a port of a kernel, or to a result."""

    relation: str
    """The instant at which it begins."""

    stage: int
    """The number of the first stage that can read it: of the one behind that which makes the relation."""

    schema: Schema
    """The columns of the rows at its end."""

    steps: tuple[Step, ...] = ()
    """From the relation on."""

    retracts: bool = False
    """Whether rows may be taken back."""

    points: bool = False
    """Whether every lifetime is one tick, so that no end travels."""

    moves: bool = False
    """Whether a row may be taken back and put in again with another end."""

    progress_maps: tuple[ProgressMap, ...] = ()
    """What the steps make of the relation's progress, in their order."""

    open_end: int | None = None
    """The place among the steps of the first that reads an end which may still move."""

    moving: frozenset[str] = frozenset()
    """The columns that change as such an end moves."""

    @property
    def digest(self) -> str:
        """What tells it from every other path: where it begins, and its steps."""
        return hashlib.sha256(" ".join([self.relation, *(s.digest for s in self.steps)]).encode()).hexdigest()[:16]

    @property
    def multiplies(self) -> bool:
        """True if a step may make several rows of one."""
        return any(step.multiplies for step in self.steps)

    def then(self, step: Step) -> Path:
        """One more step."""
        first = len(self.steps) if self.moves and step.reads_open_end else None
        open_end = first if self.open_end is None else self.open_end
        moving = step.moving_columns(self.moving) if self.moves else self.moving
        path = replace(self, schema=step.schema, steps=(*self.steps, step), open_end=open_end, moving=moving)
        if step.progress_map is None:
            return path
        is_point, moves = step.schema.shape == POINT, self.moves and step.keeps_end
        return replace(path, points=is_point, moves=moves, progress_maps=(*self.progress_maps, step.progress_map))

    @property
    def filters_open_end(self) -> bool:
        """Whether a filter follows where such an end is read."""
        return self.open_end is not None and any(step.may_drop for step in self.steps[self.open_end :])

    def upto(self, at: int) -> Path:
        """The path without the steps from ``at`` on, which is where ends that may still move are first read."""
        steps = self.steps[:at]
        progress_maps = tuple(step.progress_map for step in steps if step.progress_map is not None)
        return Path(
            relation=self.relation,
            stage=self.stage,
            schema=self.steps[at].input.schema,
            steps=steps,
            retracts=True,
            points=False,
            moves=True,
            progress_maps=progress_maps,
        )


@dataclass(frozen=True)
class Feed:
    """A path into a port of a kernel, or into a result: the port's columns as expressions over the path's rows.

    ``channel`` says how those rows travel; ``kernel`` is the one that takes them, or ``result`` the number of the result.
    """

    path: Path
    channel: Channel
    columns: tuple[tuple[str, Expr], ...]
    kernel: Kernel | None = None
    result: int | None = None

    @property
    def hashed(self) -> tuple[str, ...]:
        """The columns whose values decide on the bucket."""
        return self.channel.hashed

    @property
    def lifetimes(self) -> tuple[str, ...]:
        """The columns of lifetimes and weights that the port takes beside those."""
        return self.channel.columns[len(self.columns) :]


INGRESS = "ingress:"
"""The names of ingress relations begin with it; the source's table follows."""


@dataclass(frozen=True)
class Relation:
    """Rows at one point of the chain: of a source (stage 0) or of kernel ``number`` (made in stage ``stage - 1``)."""

    name: str
    stage: int
    schema: Schema
    source: Source | None = None
    number: int = -1


@dataclass
class StagedPlan:
    """Plans compiled for streaming: relations, stages in order, and the feeds that connect them; ``nodes`` by kernel number.

    ``patterns`` are those that the plans had before they were rewritten.
    """

    plan: Results
    options: Options
    relations: dict[str, Relation] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    feeds: list[Feed] = field(default_factory=list)
    titles: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)
    patterns: tuple[WrittenPattern, ...] = ()
    strategy: Strategy = field(init=False)

    def __post_init__(self) -> None:
        self.strategy = choose(self.plan, self.options)

    @property
    def sources(self) -> list[Relation]:
        """The source relations, in order of appearance."""
        return [r for r in self.relations.values() if r.source is not None]

    def made_at(self, stage: int) -> list[Relation]:
        """The relations that the stage before ``stage`` makes."""
        return [r for r in self.relations.values() if r.source is None and r.stage == stage]

    def feeds_of(self, relation: Relation) -> list[Feed]:
        """The feeds that start at a relation."""
        return [f for f in self.feeds if f.path.relation == relation.name]

    @property
    def axis(self) -> str:
        """The time axis of all its plans."""
        return self.plan.schema.axis

    @cached_property
    def results(self) -> list[Result]:
        """Its results, in the order of its plans."""
        strong, several = self.options.level.block is None, len(self.plan.inputs) > 1
        return [
            Result(
                number=number,
                plan=plan,
                egress=egress,
                column=f"__result{number}" if several else None,
                in_order=strong and egress.output == OutputForm.CHANGELOG,
            )
            for number, (plan, egress) in enumerate(zip(self.plan.inputs, self.options.egresses, strict=True))
        ]

    @property
    def result_feeds(self) -> list[Feed]:
        """The feeds of its results."""
        return [f for f in self.feeds if f.result is not None]

    def buckets(self, stage: int, stages: int) -> int:
        """How many buckets a stage has, of so many stages: the last has one where a result tells its CTIs."""
        tells_ctis = any(egress.ctis for egress in self.options.egresses)
        return 1 if tells_ctis and stage == stages - 1 else self.options.buckets

    @property
    def clock_policies(self) -> dict[str, ProgressPolicy]:
        """The progress policies that follow the clock, by their sources' relations; none if the plan has no stages."""
        policies = {r.name: r.source.policy.progress for r in self.sources if r.source and self.stages}
        return {relation: policy for relation, policy in policies.items() if policy.follows_clock}

    @property
    def late_reasons(self) -> list[str]:
        """What is counted: ``source|reason``, and ``module|quarantined``."""
        reasons = [reason for reason in CountReason if reason is not CountReason.QUARANTINED]
        of_sources = [f"{r.source.shown_name()}|{reason}" for r in self.sources if r.source for reason in reasons]
        return [*of_sources, *(f"{name}|{CountReason.QUARANTINED}" for name in self.quarantining)]

    @property
    def quarantining(self) -> list[str]:
        """The modules, by name, that set aside what they fail for."""
        return sorted({aside.module for aside in set_aside(self.plan)})

    def packer(self, relations: Sequence[Relation]) -> Packer:
        """The map side behind some relations."""
        feeds = [feed for relation in relations for feed in self.feeds_of(relation)]
        kernels = {f.channel.reader: f.kernel for f in feeds if f.kernel is not None}
        source = relations[0].source if len(relations) == 1 else None
        info = None
        if source is not None:
            streaming = self.options.streaming
            info = SourceInfo(
                relation=relations[0].name,
                name=source.shown_name(),
                items=source.items,
                progress=source.policy.progress,
                invalid=source.policy.invalid_in(streaming),
                streaming=streaming,
            )
        (stage,) = {relation.stage for relation in relations} or {len(self.stages)}
        return Packer(
            tuple(f.channel for f in feeds),
            kernels,
            self.buckets(stage, len(self.stages)),
            info,
            self.options.late_output,
        )
