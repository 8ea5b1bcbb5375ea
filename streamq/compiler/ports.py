"""Kernels with what they take, before levels are numbered; and how they become the stages of a program.

Level k hosts all kernels whose inputs are made below k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamq.compiler.program import Feed, Path, Program, Relation
from streamq.errors import PlanError, sentence
from streamq.plan.expr import Col, Expr
from streamq.plan.schema import Schema
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.consistency import AlignAt
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Judge, Kernel
from streamq.runtime.kernels.ctis import CtisKernel
from streamq.runtime.stage import Channel, Hosted, Stage


@dataclass
class Input:
    """What a port of a kernel takes: from which paths, which columns of them, hashed by which."""

    paths: list[Path]
    columns: tuple[tuple[str, Expr], ...]
    lifetimes: tuple[str, ...]
    hashed: tuple[str, ...]


@dataclass
class Port:
    """A kernel to be hosted, before levels are numbered."""

    name: str
    kernel: Kernel
    inputs: list[Input]
    schema: Schema
    title: tuple[str, ...]
    level: int = 0
    aligns: AlignAt | None = None

    @property
    def paths(self) -> list[Path]:
        """The paths of all its inputs."""
        return [p for i in self.inputs for p in i.paths]


def host(program: Program, ports: Sequence[Port]) -> None:
    """Number levels and channels: the feeds into kernels, and the stages that host them."""
    levels = max((p.level for p in ports), default=-1) + 1
    hosted: list[list[Hosted]] = [[] for _ in range(levels)]
    for number, port in enumerate(ports):
        channels = []
        for at, taken in enumerate(port.inputs):
            for path in taken.paths:
                channel = Channel(
                    len(program.feeds),
                    path.relation,
                    port.level,
                    number,
                    at,
                    (*(n for n, _ in taken.columns), *taken.lifetimes),
                    taken.hashed,
                    _judge(program, path),
                    path.carried,
                )
                channels.append(channel)
                program.feeds.append(Feed(path, channel, taken.columns, taken.lifetimes, taken.hashed, port.kernel))
        relation = program.relations[port.name]
        program.relations[port.name] = Relation(port.name, relation.level, relation.schema, None, number)
        inputs = tuple(dict.fromkeys(p.relation for p in port.paths))
        hosted[port.level].append(Hosted(number, port.name, port.kernel, inputs, tuple(channels), port.aligns))
        program.titles[port.name] = port.title
    sources = frozenset(r.name for r in program.sources)
    follows = _follows(program)
    for level, kernels in enumerate(hosted):
        here = tuple(c for h in kernels for c in h.channels)
        later = frozenset(r for more in hosted[level + 1 :] for h in more for r in h.inputs)
        options = program.options
        program.stages.append(
            Stage(
                level,
                tuple(kernels),
                here,
                sources,
                # what a source's progress counts as can depend on that of the others
                later | sources if later & sources else later,
                options.buckets,
                options.late_output,
                options.level,
                follows,
            )
        )


def _follows(program: Program) -> dict[str, str]:
    """Whose progress a source has that makes none of its own; of a chain the last."""
    policies = {r.source.table: r.source.policy for r in program.sources if r.source}
    shown = {r.source.table: r.source.shown_name() for r in program.sources if r.source}
    found: dict[str, str] = {}
    for table, policy in policies.items():
        seen, of = [table], policy.follow
        while of is not None:
            if of not in policies:
                others = ", ".join(name for t, name in shown.items() if t != table)
                hint = f"It follows one of: {others}." if others else "The query has no other source."
                raise PlanError(
                    sentence("stream", f"source {shown[table]} follows a source that is not in the query", "", hint)
                )
            if of in seen:
                raise PlanError(sentence("stream", f"source {shown[table]} follows itself", ""))
            seen.append(of)
            of = policies[of].follow
        if len(seen) > 1:
            found[f"source:{table}"] = f"source:{seen[-1]}"
    return found


def with_ctis(program: Program, ports: list[Port], paths: list[Path]) -> Path:
    """The result by way of one bucket, which hears of all feeds and buckets and so knows the result's CTI."""
    schema = program.plan.schema
    lifetimes = (LE, RE, WEIGHT)
    inputs = [Input(paths, tuple((n, Col(n)) for n in schema.names), lifetimes, ())]
    opened = [p.upto(p.open_end) for p in paths if p.open_end is not None]
    if opened:
        inputs.append(Input(opened, (), lifetimes, ()))
    in_order = program.options.level.block is None
    kernel = CtisKernel(pa.schema([(f.name, arrow_type(f.type)) for f in schema.fields]), in_order, bool(opened))
    kept = [
        *(["rows that the CTI has not passed"] if in_order else []),
        *(["rows whose open ends are read"] if opened else []),
    ]
    lines = (
        f"ctis: the result in one bucket, {'in order of time, ' if in_order else ''}with its CTI when it has moved",
        f"basket: {'; '.join(kept) or 'none'}",
        f"CTI: {kernel.progress_rule.cti.shown()}",
    )
    level = max(p.level for p in paths)
    name = f"ctis:{program.plan.digest}"
    ports.append(Port(name, kernel, inputs, schema, lines, level))
    program.relations[name] = Relation(name, level + 1, schema)
    return Path(name, level + 1, schema, retracts=True)


def feed_result(program: Program, paths: Sequence[Path]) -> None:
    """The feeds of the result, behind the last stage."""
    columns = tuple((n, Col(n)) for n in program.plan.schema.names)
    for path in paths:
        lifetimes = (LE, RE, WEIGHT)
        channel = Channel(
            len(program.feeds),
            path.relation,
            len(program.stages),
            -1,
            0,
            (*(n for n, _ in columns), *lifetimes),
        )
        program.feeds.append(Feed(path, channel, columns, lifetimes, (), None))


def _judge(program: Program, path: Path) -> Judge | None:
    source = program.relations[path.relation].source
    if source is None:
        return None
    invalid = source.policy.invalid_in(program.options.streaming)
    return Judge(source.shown_name(), source.policy.late, invalid, source.schema.axis)
