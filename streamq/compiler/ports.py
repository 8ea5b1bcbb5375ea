"""Ports: the kernels that the compiler collects, with their inputs, and the functions that host them in stages.

Stage k hosts the kernels whose inputs all come from sources and from stages before k, or from kernels of stage k whose rows stay
in their bucket: the rows of a kernel in bucket b must reach the reader in bucket b, and the worker must be able to compute the
steps between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StringType

from streamq.compiler.results import Result
from streamq.compiler.rules.rule import can_fail
from streamq.compiler.staged_plan import Feed, Path, PortInput, Relation, StagedPlan
from streamq.compiler.state_names import StateName, path_key
from streamq.connectors.connector import Connector
from streamq.errors import PlanError
from streamq.functions.logic import EQUAL, conjuncts
from streamq.operators.evaluation import PortColumns, all_columns, copied_before
from streamq.operators.select import Where
from streamq.operators.step import columns_step
from streamq.plan.expr import Call, Col, Lit, show
from streamq.plan.node import Node, expressions
from streamq.plan.schema import Schema, lazy, shown_name
from streamq.plan.spark_types import INTEGRAL
from streamq.runtime.arrow.arrow_types import arrow_schema
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.hosts.hosted_kernel import TECHNICAL, Channel, HostedKernel, InnerPath, ItemPaths, OutputPaths
from streamq.runtime.hosts.identity import OPEN, OperatorState
from streamq.runtime.hosts.stage import Stage
from streamq.runtime.kernel import Judge, Kernel
from streamq.runtime.time.consistency import AlignAt


@dataclass(frozen=True)
class Sharing:
    """The answer if a reader may run in the stage of a kernel: ``inner`` is the path between them, or ``reason`` says why not."""

    inner: InnerPath | None = None
    reason: str = ""


NO_KEY = "no key"
"""The text for rows that are all in one bucket."""

APART = Sharing()
"""The answer for a path from a source, and for a reader that has a stage of its own anyway."""


@dataclass(kw_only=True)
class Port:
    """A kernel that a stage will host, with its inputs.

    ``name``: the name of the kernel, of its state and of its output relation, whose columns are ``schema``. ``final_kernel``: the
    kernel to run instead if rows wait until they are final; None if it cannot hold them back. ``lines``: explain's lines on it.
    ``aligns``: the point at which the level of consistency holds rows back. ``node``: the operator whose result it computes, for
    observers. ``after``: the number of a stage that its own stage must come after. ``place``: the stage that has its state in the
    checkpoint that a run goes on from. ``state``: the parts and modules of its name. ``bucket_columns``: the columns of its
    output that choose a row's bucket, None if no columns do. ``hears_endpoints``: each bucket hears the endpoints of all input.
    ``sharings``: for each path, the answer if it may run in the stage where the path begins.
    ``repeats``: see ``HostedKernel``. ``form``, ``held``, ``partials``: see ``OperatorState``.
    """

    name: str
    kernel: Kernel
    inputs: list[PortInput]
    schema: Schema
    lines: tuple[str, ...]
    aligns: AlignAt | None = None
    node: Node | None = None
    after: int = -1
    place: int = -1
    final_kernel: Kernel | None = None
    state: StateName
    bucket_columns: tuple[str, ...] | None = None
    hears_endpoints: bool = False
    repeats: bool = False
    sharings: Sequence[Sharing] = ()
    form: str = OPEN
    partials: tuple[tuple[str, str], ...] = ()
    held: str = ""

    @property
    def operator_state(self) -> OperatorState:
        """The state of the kernel, for the identity of the query."""
        return OperatorState(
            name=self.name,
            stage=self.stage,
            title=self.lines[0],
            form=self.form,
            parts=self.state.parts,
            modules=self.state.modules,
            held=self.held,
            partials=self.partials,
        )

    @lazy
    def stage(self) -> int:
        """The number of the stage that hosts it: the first that can read all its inputs, after ``after``, not before ``place``.

        It can read a kernel's rows in the kernel's own stage if it may share that, else in the next one.
        """
        earliest = [path.stage - (sharing.inner is not None) for path, sharing in self.shared_paths]
        return max((self.after + 1, self.place, *earliest))

    @lazy
    def shared_paths(self) -> list[tuple[Path, Sharing]]:
        """The paths of all its inputs, each with whether the operator may run in the stage where the path begins."""
        return list(zip(self.paths, self.sharings, strict=True))

    def inner_path(self, path: Path, sharing: Sharing) -> InnerPath | None:
        """Return the path inside the stage, if the path begins at a kernel of the same stage."""
        return sharing.inner if path.stage == self.stage + 1 else None

    @property
    def paths(self) -> list[Path]:
        """The paths of all its inputs."""
        return [p for i in self.inputs for p in i.paths]


def host_kernels(program: StagedPlan, ports: Sequence[Port], results: Sequence[Path]) -> None:
    """Number kernels, stages and channels, and add to the program the stages and the feeds into their kernels.

    ``results`` are the paths that lead to results. Also sets the kernel's number in the relation of its output, its lines of
    explain (``titles``) and its node (``nodes``). Raises PlanError if a source follows itself, or one that is not in the query.
    """
    stages = max(max((p.stage for p in ports), default=-1) + 1, program.options.placement.stages)
    hosted: list[list[HostedKernel]] = [[] for _ in range(stages)]
    read_outside = {path.relation for path in results}
    for port in ports:
        read_outside |= {path.relation for path, s in port.shared_paths if port.inner_path(path, s) is None}
    for number, port in enumerate(ports):
        channels: list[Channel] = []
        shared_paths = iter(port.shared_paths)
        for input_number, port_input in enumerate(port.inputs):
            for path in port_input.paths:
                names = tuple(name for name, _ in port_input.columns.columns)
                channel = Channel(
                    number=len(program.feeds),
                    relation=path.relation,
                    stage=port.stage,
                    reader=number,
                    port=input_number,
                    key=_channel_key(program, path, input_number, channels),
                    columns=(*names, *port_input.lifetimes),
                    hashed=port_input.columns.hashed,
                    judge=_judge(program, path),
                    progress_maps=path.progress_maps,
                    inner=port.inner_path(*next(shared_paths)),
                )
                channels.append(channel)
                program.feeds.append(Feed(path, channel, port_input.columns.columns, port.kernel))
        inputs = tuple(dict.fromkeys(p.relation for p in port.paths))
        sends = port.name in read_outside
        hosted[port.stage].append(
            HostedKernel(
                number,
                port.name,
                port.kernel,
                inputs,
                tuple(channels),
                sends,
                port.aligns,
                port.bucket_columns,
                port.repeats,
            )
        )
        program.titles[port.name] = (*port.lines, *dict.fromkeys(sharing_lines(program, port)))
        program.states.append(port.operator_state)
        if port.node is not None:
            program.nodes[number] = port.node
    sources = {r.name: r.source.policy.progress for r in program.sources if r.source}
    follows = _leaders(program)
    for number, kernels in enumerate(hosted):
        here = tuple(c for h in kernels for c in h.channels)
        behind = hosted[number + 1 :]
        later = frozenset(r for more in behind for h in more for r in h.inputs)
        # at a blocking level, the effective progress of a source depends on that of the others; and in a stage without operators
        # each bucket must run once, to drop the state of those that a changed query lacks
        later |= sources.keys() if not later.isdisjoint(sources) or not all(behind) else set()
        options = program.options
        program.stages.append(
            Stage(
                number=number,
                hosted=tuple(kernels),
                channels=here,
                sources=sources,
                later=later,
                buckets=options.buckets,
                late_output=options.late_output,
                level=options.counted_level,
                follows=follows,
                buckets_behind=program.buckets(number + 1, stages),
            )
        )


def sharings_of(program: StagedPlan, ports: Mapping[str, Port], reader: Port) -> list[Sharing]:
    """Return, for each path to a kernel, the answer if it may run in the stage where the path begins, at one of ``ports``.

    These are by name. A kernel whose stage comes after all others shares none.
    """
    makers = ports if reader.after < 0 else {}
    return [
        share(
            path,
            port_input,
            program.relations[path.relation],
            makers[path.relation].bucket_columns,
            hears_endpoints=reader.hears_endpoints,
            ansi=program.options.ansi,
        )
        if path.relation in makers
        else APART
        for port_input in reader.inputs
        for path in port_input.paths
    ]


def share(
    path: Path,
    port: PortInput,
    relation: Relation,
    bucket_columns: tuple[str, ...] | None,
    *,
    hears_endpoints: bool,
    ansi: bool,
) -> Sharing:
    """Return the answer for a path from a kernel's ``relation`` to a port.

    ``bucket_columns``: the relation's columns that choose a row's bucket, None if no columns do. ``hears_endpoints``: each
    bucket of the port's kernel hears the endpoints of all its input. ``ansi``: Spark computes by its ANSI rules, as Arrow does.

    They share a stage if the port's rows meet no others, so that any bucket will do, or are hashed by the relation's columns, in
    the same order and as they are; and every step is computed in Arrow exactly as by Spark: without ANSI rules these are the
    steps that fail on no row.
    """
    if hears_endpoints:
        return Sharing(reason="each bucket hears the endpoints in all others")
    if not port.columns.meet_none:
        if bucket_columns is None:
            return Sharing(reason="the rows there are not spread by groups")
        if port.columns.hashed_before(path.steps) != bucket_columns:
            there = ", ".join(map(shown_name, bucket_columns)) or NO_KEY
            return Sharing(reason=f"rows are spread by {_hashed_text(port)} here, by {there} there")
    return path_in_arrow(path, port, relation, ansi=ansi)


def path_in_arrow(path: Path, port: PortInput, relation: Relation, *, ansi: bool) -> Sharing:
    """Return a path to a port as a worker computes it, or the reason why only Spark can; see ``share``."""
    steps = []
    for step in path.steps:
        if (table_step := step.table_step) is None:
            return Sharing(reason=f"Spark computes {step.line}")
        if not ansi and any(can_fail(expr, step.input.schema) for expr in expressions(step)):
            return Sharing(reason=f"Spark computes {step.line} without ANSI rules")
        steps.append(table_step)
    columns = columns_step(port.columns.columns, path.schema)
    if columns is None:
        return Sharing(reason="Spark computes the arguments")
    if not ansi and any(can_fail(expr, path.schema) for _, expr in port.columns.columns):
        return Sharing(reason="Spark computes the arguments without ANSI rules")
    names = (*(name for name, _ in port.columns.columns), *port.lifetimes)
    payload = arrow_schema(relation.schema)
    return Sharing(InnerPath(payload, (*steps, columns), names, port.columns.hashed, only_value(path)))


def feed_in_arrow(program: StagedPlan, feed: Feed, relation: Relation) -> Sharing:
    """Return the path of a relation's rows to a channel as a worker computes it, or the reason why only Spark can."""
    port = PortInput([feed.path], PortColumns(feed.columns, feed.hashed), feed.lifetimes)
    return path_in_arrow(feed.path, port, relation, ansi=program.options.ansi)


def why_spark_reads(program: StagedPlan, tables: Mapping[str, Any]) -> dict[str, str]:
    """Return how Spark reads the rows of a source in a stream, and why, "" if workers do, by its table; only of connectors."""
    reasons: dict[str, str] = {}
    for relation in program.sources:
        table = None if relation.source is None else tables.get(relation.source.table)
        if relation.source is not None and isinstance(table, Connector):
            paths = item_paths(program, relation)
            passed = paths if isinstance(paths, str) else ""
            unread = table.not_split()
            who = "read by workers, and go through Spark" if table.is_decoded and not unread else "read by Spark"
            reasons[relation.source.table] = f"{who}, because {unread or passed}" if unread or passed else ""
    return reasons


def item_paths(program: StagedPlan, relation: Relation) -> ItemPaths | str:
    """Return the paths of a source's items as workers follow them, or the reason why only Spark can."""
    source = relation.source
    assert source is not None
    if not source.item_rules.is_exact:
        return "Spark tells what its rows are"
    direct: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    others = []
    for feed in program.feeds_of(relation):
        # what is no event yet goes to its kernel without a step
        if not feed.path.steps and not {*feed.lifetimes} <= {*TECHNICAL}:
            direct[feed.channel.number] = (feed.channel.columns, feed.hashed)
            continue
        sharing = feed_in_arrow(program, feed, relation)
        if sharing.inner is None:
            return sharing.reason
        others.append((feed.channel.number, sharing.inner))
    return ItemPaths(direct, OutputPaths(others) if others else None)


def only_value(path: Path) -> tuple[str, str | int] | None:
    """Return a column, where a path begins, of which one text or integer alone passes the path's filters, with that value.

    None if there is none: what could fail for a row before such a filter must see all rows, so none behind it counts.
    """
    for place, step in enumerate(path.steps):
        schema = step.input.schema
        for part in conjuncts(step.predicate) if isinstance(step, Where) else expressions(step):
            match part:
                case Call(function=function, args=(Col() as column, Lit(value=str() | int() as value))) if (
                    isinstance(step, Where) and function == EQUAL and not isinstance(value, bool)
                ):
                    kind = schema.type_of(column.name)
                    is_alike = kind == StringType() if isinstance(value, str) else isinstance(kind, INTEGRAL)
                    name = copied_before(path.steps[:place], column)
                    if is_alike and name is not None:
                        return name, value
            if can_fail(part, schema):
                return None
    return None


def _hashed_text(port: PortInput) -> str:
    """Return the hashed columns of a port as text."""
    exprs = dict(port.columns.columns)
    return ", ".join("start" if name == LE else show(exprs[name]) for name in port.columns.hashed) or NO_KEY


def passed_columns(ports: Mapping[str, Port], port: Port) -> tuple[str, ...] | None:
    """Return the columns by which rows are spread that a kernel passes on one by one, in the stage of the kernel that made them.

    None if they come from elsewhere, or do not all hold these columns.
    """
    if len(port.paths) != 1 or not port.inputs[0].columns.meet_none:
        return None
    ((path, sharing),) = port.shared_paths
    if port.inner_path(path, sharing) is None:
        return None
    spread = ports[path.relation].bucket_columns
    columns = {copied_before(path.steps, expr): name for name, expr in port.inputs[0].columns.columns}
    if spread is None or not all(columns.get(column) in port.schema.names for column in spread):
        return None
    return tuple(columns[column] for column in spread)


def sharing_lines(program: StagedPlan, port: Port) -> Iterator[str]:
    """Yield explain's lines on the kernels that a kernel reads: those in its stage, and the reason why others are not."""
    for path, sharing in port.shared_paths:
        if sharing is APART:
            continue
        before = program.titles[path.relation][0]
        if port.inner_path(path, sharing) is not None:
            yield f"in the stage of ({before}), because rows stay in their bucket"
        elif sharing.inner is not None:
            why = "its state is in this one" if port.place == port.stage else "another input is there only now"
            yield f"not in the stage of ({before}), because {why}"
        else:
            yield f"not in the stage of ({before}), because {sharing.reason}"


def _leaders(program: StagedPlan) -> dict[str, str]:
    """Return, for each source that follows another one, the source at the end of its chain, both by relation.

    In a batch all input is there, and a source may follow one that is not in the query. Else raises PlanError for that, and for a
    source that follows itself.
    """
    policies = {r.source.table: r.source.policy.progress for r in program.sources if r.source}
    shown = {r.source.table: r.source.shown_name() for r in program.sources if r.source}
    leaders: dict[str, str] = {}
    for table, policy in policies.items():
        chain, leader = [table], policy.leader
        while leader is not None:
            if leader not in policies:
                if not program.options.streaming:
                    break
                others = ", ".join(name for t, name in shown.items() if t != table)
                hint = f"It follows one of: {others}." if others else "The query has no other source."
                raise PlanError("stream", f"source {shown[table]} follows a source that is not in the query", "", hint)
            if leader in chain:
                raise PlanError("stream", f"source {shown[table]} follows itself", "")
            chain.append(leader)
            leader = policies[leader].leader
        if len(chain) > 1:
            leaders[f"source:{table}"] = f"source:{chain[-1]}"
    return leaders


def _channel_key(program: StagedPlan, path: Path, port: int, others: Sequence[Channel]) -> str:
    """Return the key of a kernel's channel for a path: its port, the path, and the number of equal ones before it."""
    key = f"{port}.{path_key(program, path)}"
    repeated = sum(other.key.partition("~")[0] == key for other in others)
    return f"{key}~{repeated}" if repeated else key


def feed_result(program: StagedPlan, result: Result, paths: Sequence[Path]) -> None:
    """Add the feeds that bring the rows of ``paths`` to a result, after the last stage."""
    columns = all_columns(result.plan.schema)
    names = (*result.plan.schema.names, LE, RE, WEIGHT)
    for path in paths:
        number, behind = len(program.feeds), len(program.stages)
        channel = Channel(number=number, relation=path.relation, stage=behind, reader=-1, port=0, columns=names)
        program.feeds.append(Feed(path, channel, columns, result=result.number))


def _judge(program: StagedPlan, path: Path) -> Judge | None:
    """Return the policies on late and invalid items that a kernel applies to a path from a source; None for other paths."""
    source = program.relations[path.relation].source
    if source is None:
        return None
    invalid = source.policy.invalid_in(program.options.streaming)
    judging = program.judging_of(source.table)
    ends = None if judging.reason else judging.ends
    return Judge(source.shown_name(), source.policy.late, invalid, source.schema.axis, source.gives_points, ends)
