"""Compile a plan (a DAG) to one linear chain of stages: choose the kernels, and the paths that feed them.

The compiler visits the plan bottom up. For each node it returns the *paths* whose rows together are the node's result; a step
extends paths, and a stateful operator ends them in a kernel, from whose output a new path begins. Kernels that the compiler adds
beside those of operators have their footprints here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamq.choices import OutputForm
from streamq.compiler.copies import Copy, is_copy, repeated_operators, with_copies, with_relays
from streamq.compiler.options import Options
from streamq.compiler.ports import Port, feed_result, host_kernels, passed_columns, sharings_of
from streamq.compiler.results import Result, Results, as_results, unsettled_nodes, without_policies
from streamq.compiler.rewriter import rewrite, without_unread_columns
from streamq.compiler.rules import RULES, Rule
from streamq.compiler.staged_plan import INGRESS, Path, PortInput, Relation, StagedPlan, can_spread
from streamq.compiler.state_names import StateName, columns_text, free_name, ingress_state, placed_spread, state_name
from streamq.errors import PlanError
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import Evaluation, KernelSite, PortColumns, all_columns
from streamq.operators.operator import PassThrough
from streamq.operators.select import Select
from streamq.operators.source import Ingress, Source
from streamq.operators.source_arguments import SourcePolicy
from streamq.operators.step import Step
from streamq.plan.expr import fold
from streamq.plan.footprint import Footprint
from streamq.plan.node import Node, Traits, nodes
from streamq.plan.passes import answers_kept, infer
from streamq.plan.schema import POINT, Schema
from streamq.runtime.arrow.arrow_types import arrow_schema, arrow_type
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.hosts.identity import EARLY, FINAL, OF_CTIS, OF_LATEST, OF_RESULT, OPEN
from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.insert_ingress import InsertIngressKernel
from streamq.runtime.kernels.latest_rows import LatestRowsKernel
from streamq.runtime.kernels.settle import CtisKernel, SettleKernel
from streamq.runtime.time.progress_rule import Cti

AT_ONCE, IN_THE_END = "corrected", "settle"
"""The kinds of settle kernels before what reads ends: rows go at once, or once they are settled."""

OF_COPY, SECOND = "_final", "a second one: its final rows wait for no other result"
"""The text behind the kind of kernels that compute final rows beside others of the same operator, and explain's line on them."""


class _Compiler:
    """A compiler for the plans of one program: it collects kernels in ``ports`` and relations in ``program``, then numbers both.

    ``policies``: the policies of the sources, by table; the sources in the plans have default policies. ``unread``: the sources
    of the queries that rules have taken out of the plans.
    """

    def __init__(self, program: StagedPlan, policies: Mapping[str, SourcePolicy], unread: Sequence[Source]):
        self.program = program
        self.options = program.options
        self.policies = {**policies, **{source.table: source.policy for source in unread}}
        self.unread = unread
        self.written = {node.table: node for node in nodes(program.written) if isinstance(node, Source)}
        self.ports: dict[str, Port] = {}
        self.unsettled = unsettled_nodes(program.plan)
        self.repeated = repeated_operators(program.plan)
        self.result_paths: list[list[Path]] = []
        self.settled: dict[str, Path] = {}

    def compile(self) -> StagedPlan:
        """Compile the plans; may be called only once."""
        fold(self.program.plan, self._visit)
        for source in self.unread:
            self._judge_unread(source)
        results = self.program.results
        paths = [self._of_result(result, paths) for result, paths in zip(results, self.result_paths, strict=True)]
        last = max((port.stage for port in self.ports.values()), default=-1)
        last = max(last, self.options.placement.stages - 2)
        for result in results:
            if result.egress.ctis:
                paths[result.number] = [self._host_ctis(result, paths[result.number], last)]
            if result.egress.output == OutputForm.LATEST:
                paths[result.number] = [self._host_latest(result, paths[result.number])]
        host_kernels(self.program, list(self.ports.values()), [path for of_result in paths for path in of_result])
        for result in results:
            feed_result(self.program, result, paths[result.number])
        return self.program

    def _of_result(self, result: Result, paths: list[Path]) -> list[Path]:
        """Return the paths of a result in the form that its output needs: final rows have no retractions.

        For these a kernel is replaced by its final form, or one is added that holds the rows until they are settled.
        """
        if result.egress.output != OutputForm.FINAL:
            return paths
        paths = [self._hold_until_final(p) for p in paths]
        moving = [p for p in paths if p.retracts]
        if not moving:
            return paths
        settled = self._host_settle(moving, result.plan.schema, f"{OF_RESULT}:{result.plan.digest}")
        return [*(p for p in paths if p not in moving), settled]

    def _hold_until_final(self, path: Path) -> Path:
        """Let the kernel at which a path begins hold its rows back until they are final, if it can; return the path.

        A kernel can if it has a final form, no other kernel reads its rows, and no result that is not final does. The path then
        has no retractions; otherwise it is returned unchanged, and the caller adds a settle kernel.
        """
        port = self.ports.get(path.relation)
        if port is None or port.final_kernel is None or port.node is None or port.node.digest in self.unsettled:
            return path
        if any(p.relation == path.relation for other in self.ports.values() for p in other.paths):
            return path
        port.kernel, port.form = port.final_kernel, FINAL
        return replace(path, retracts=False, moves=False)

    def _visit(self, node: Node, inputs: list[list[Path]]) -> list[Path]:
        """Return the paths whose rows together are a node's result; ``inputs`` are the paths of each of its inputs.

        Hosts the node's kernel if it has one. The inputs of the root become ``result_paths``, and it has no path itself. Raises
        PlanError for a node without a streaming form.
        """
        if isinstance(node, Results):
            self.result_paths = inputs
            return []
        if isinstance(node, Source):
            return [self._events_of_source(self._source(node))]
        if isinstance(node, Step):
            return [self._step(node, path) for path in inputs[0]]
        if isinstance(node, PassThrough | Copy):
            return [path for paths in inputs for path in paths]
        if isinstance(node, EvaluatedOperator):
            return [self._host_evaluation(node, inputs)]
        raise PlanError("stream", f"no streaming form of {type(node).__name__}")

    def _step(self, step: Step, path: Path) -> Path:
        """Append a step to a path.

        If the step changes lifetimes, progress waits until the ends that it or an earlier step of the path reads no longer move.
        """
        path = path.then(step)
        return self._settle_before_open_end(path, step) if step.effect.progress_map is not None else path

    # operators that have an evaluator

    def _host_evaluation(self, node: EvaluatedOperator, inputs: list[list[Path]]) -> Path:
        """Host the kernel of an operator that has an evaluator; return the path of the operator's result.

        If it reads ends that may still move, its waiting evaluator is taken, or else a settle kernel before it. That is also put
        before a step that reads such ends, unless there is a waiting evaluator and group and order of rows do not depend on the
        step.
        """
        evaluation = node.evaluation
        ports = []
        for columns, child, paths in zip(evaluation.inputs, node.children, inputs, strict=True):
            waits = evaluation.waiting is not None
            paths = [
                self._settle_before_open_end(p, node) if not waits or moves_members(p, columns) else p for p in paths
            ]
            moving = [p for p in paths if p.moves]
            reads_ends = evaluation.reads_ends or columns.reads_ends or any(p.open_end is not None for p in paths)
            if moving and reads_ends:
                if evaluation.waiting is not None:
                    evaluation = replace(evaluation, evaluator=evaluation.waiting, pointwise=())
                else:
                    settled = self._host_settle(moving, child.schema, self._settling(node, child.digest))
                    paths = [*(p for p in paths if not p.moves), settled]
            lifetimes = (LE,) if all(p.points for p in paths) else (LE, RE)
            if any(p.retracts for p in paths):
                lifetimes = (*lifetimes, WEIGHT)
            ports.append(PortInput(paths, columns, lifetimes))
        all_paths = [p for port in ports for p in port.paths]
        factory = evaluation.factory
        final = factory.always_holds and node.digest not in self.unsettled
        site = kernel_site(node, evaluation, ports[0].paths, self.options, final=final)
        kernel = factory.make(evaluation, site)
        holds = factory.can_hold and not factory.always_holds
        named = [replace(port, columns=factory.columns_of_state(port.columns)) for port in ports]
        path = self._host(
            (factory.kind or node.title.replace(" ", "_")) + OF_COPY * is_copy(node),
            kernel,
            ports,
            evaluation.schema,
            (*factory.lines(node, kernel), *[SECOND] * is_copy(node)),
            state_name(self.program, factory.state(node, evaluation, kernel), node.line, named, [node]),
            retracts=not final and (factory.corrects or any(p.retracts for p in all_paths)),
            moves=evaluation.moves.may_move(any(p.moves for p in all_paths)),
            final_kernel=factory.make(evaluation, replace(site, final=True)) if holds else None,
            aligns=factory.aligns,
            node=node,
            partials=factory.partials_of_state(),
            bucket_columns=evaluation.bucket_columns,
            hears_endpoints=node.hears_endpoints,
            repeats=node.digest in self.repeated,
            form=FINAL if final else EARLY if self.options.early and factory.corrects else OPEN,
        )
        return (
            path.then(Select(SchemaLeaf.with_schema(path.schema), evaluation.outputs)) if evaluation.outputs else path
        )

    def _host(
        self,
        kind: str,
        kernel: Kernel,
        inputs: list[PortInput],
        schema: Schema,
        lines: tuple[str, ...],
        state: StateName,
        *,
        retracts: bool,
        moves: bool = False,
        **facts: Any,
    ) -> Path:
        """Host a kernel, whose name begins with ``kind``; return the path that begins at its output.

        ``facts``: further fields of its port. ``retracts``: the output has retractions; ``moves``: some of them are followed by
        the same event with another end.
        """
        name = free_name(self.program, f"{kind}:{state.digest}", dict(facts.get("partials", ())))
        port = Port(name=name, kernel=kernel, inputs=inputs, schema=schema, lines=lines, state=state, **facts)
        port.place = self.program.place_of(name)
        port.sharings = sharings_of(self.program, self.ports, port)
        if port.bucket_columns is None:
            port.bucket_columns = passed_columns(self.ports, port)
        self.program.relations[name] = Relation(name, port.stage + 1, schema, number=len(self.ports))
        self.ports[name] = port
        return Path(name, port.stage + 1, schema, retracts=retracts, moves=moves)

    def _settling(self, node: Node, rows: str) -> str:
        """Return the name of the settle kernel between ``rows`` and a node: they wait if only final rows of the node are read."""
        return f"{AT_ONCE if node.digest in self.unsettled else IN_THE_END}:{rows}"

    def _settle_before_open_end(self, path: Path, node: Node) -> Path:
        """Put a settle kernel before the first step of a path to ``node`` that reads ends which may still move.

        Returns the path from that kernel through the remaining steps; a path without such a step is returned as it is.
        """
        if path.open_end is None:
            return path
        base = path.first_steps(path.open_end)
        # below a union several paths lead to one node, so the kernel is named after the path, not after the node
        settled = self._host_settle([base], base.schema, self._settling(node, base.digest))
        for step in path.steps[path.open_end :]:
            settled = settled.then(step)
        return settled

    # sources

    def _source(self, node: Source) -> Path:
        """Register a source's relation; return the path from it."""
        name = f"source:{node.table}"
        self.program.relations[name] = Relation(name, 0, node.schema, replace(node, policy=self.policies[node.table]))
        return Path(name, 0, node.schema, points=node.schema.shape == POINT)

    def _events_of_source(self, path: Path) -> Path:
        """Return the path from a source, or from the source's ingress kernel, if it has one.

        A source has an ingress kernel if its items are not events yet (physical streams, edges), if it has ids, or if lateness
        must be judged before the first stateful operator.
        """
        source = self.program.relations[path.relation].source
        assert source is not None
        node = replace(source, policy=SourcePolicy())
        if node.ingress is not None:
            return self._host_ingress(path, node.ingress)
        judging = self.program.judging_of(node.table)
        placed = placed_spread(self.program, path)
        if not judging.reason and placed is None:
            return path
        spread = judging.spread if placed is None else placed
        kernel = InsertIngressKernel(path.points, judging.ends, node.ids)
        title = f"each id once ({', '.join(node.ids)}), judge lateness" if node.ids else "judge lateness"
        # of columns that a changed query has no more nobody is left who would meet events there
        hashed = node.ids or (spread if can_spread(path.schema, spread) else ()) or (LE,)
        ingress = Ingress(kernel, () if path.points else (RE,), hashed, title)
        return self._host_ingress(path, ingress, () if node.ids else spread)

    def _judge_unread(self, source: Source) -> None:
        """Host the ingress kernel of a source that rules have taken out of the plans; nobody reads its events.

        The source stays one of the queries': its progress counts at the level of consistency and for the sources that follow
        it, and its late and invalid rows are counted.
        """
        events = self._events_of_source(self._source(source))
        # rows that nobody reads need not be held back
        self.ports[events.relation].aligns = None

    def _host_ingress(self, path: Path, ingress: Ingress, spread: tuple[str, ...] = ()) -> Path:
        """Host the kernel that turns a source's items into events; return the path of the events.

        ``spread``: the columns by which they are spread for those that read them.
        """
        source = self.program.relations[path.relation].source
        assert source is not None
        lines = (
            f"ingress of {source.shown_name()}: {ingress.title}",
            *source.footprint.lines(ingress.kernel.progress_rule.cti.shown()),
            *(
                (f"late rows are judged here: {reason}",)
                if (reason := self.program.judging_of(source.table).reason)
                else ()
            ),
        )
        read = (LE, *ingress.columns, *source.beside_columns.values())
        items = PortInput([path], PortColumns(all_columns(path.schema), ingress.hashed), read)
        return self._host(
            INGRESS,
            ingress.kernel,
            [items],
            path.schema,
            lines,
            ingress_state(self.program, path, spread),
            retracts=not source.insert_only,
            moves=not source.insert_only,
            aligns=ingress.aligns,
            bucket_columns=None if LE in ingress.hashed else ingress.hashed,
            held=columns_text(self.written[source.table]),
        )

    def _host_settle(self, paths: list[Path], schema: Schema, name: str) -> Path:
        """Host a settle kernel for the rows of ``paths``; return the path of its rows, whose ends do not move behind its CTI.

        It has retractions only if the kernel sends rows at once. The kernel is hosted once for each ``name``, which begins with
        its kind, and shared by all operators that need it.
        """
        if name in self.settled:
            return self.settled[name]
        kind = name.partition(":")[0]
        kernel = SettleKernel(at_once=kind == AT_ONCE)
        does = (
            "pass rows on, and let time wait for their ends" if kernel.at_once else "pass on what can no longer change"
        )
        footprint = settle_footprint(at_once=kernel.at_once)
        lines = (f"settle: {does}", *footprint.lines(kernel.progress_rule.cti.shown()))
        rows = PortInput(paths, PortColumns(all_columns(schema), (LE,)), (LE, RE, WEIGHT))
        state = state_name(self.program, kind, kind, [rows])
        form = OPEN if kernel.at_once else FINAL
        path = self._host(kind, kernel, [rows], schema, lines, state, retracts=kernel.at_once, form=form)
        self.settled[name] = path
        return path

    # results

    def _host_ctis(self, result: Result, paths: list[Path], after: int) -> Path:
        """Host a kernel that passes on a result's rows, with its CTIs; return the path of its rows.

        It runs in a single bucket, because only a bucket that reads all paths and the progress of all buckets knows the result's
        CTI. So its stage comes after all others, the last of which is ``after``.
        """
        schema, in_order, lifetimes = result.plan.schema, result.in_order, (LE, RE, WEIGHT)
        inputs = [PortInput(paths, PortColumns(all_columns(schema)), lifetimes)]
        opened = [p.first_steps(p.open_end) for p in paths if p.open_end is not None]
        inputs += [PortInput(opened, PortColumns(()), lifetimes)] * bool(opened)
        kernel = CtisKernel(arrow_schema(schema), in_order, bool(opened))
        lines = (
            f"ctis: the result in one bucket, {'in order of time, ' if in_order else ''}with its CTI when it has moved",
            *ctis_footprint(in_order=in_order, reads_ends=bool(opened)).lines(kernel.progress_rule.cti.shown()),
        )
        # rows that one level holds back another lets go: the level is no part of the name
        state = state_name(self.program, [bool(opened)], "ctis", inputs)
        form = FINAL if in_order else OPEN
        return self._host(OF_CTIS, kernel, inputs, schema, lines, state, retracts=True, after=after, form=form)

    def _host_latest(self, result: Result, paths: list[Path]) -> Path:
        """Host a kernel that sends of each key of a result the latest row; return the path of its rows."""
        schema, key = result.plan.schema, result.egress.columns
        rows = PortInput(paths, PortColumns(all_columns(schema), key), (LE, RE, WEIGHT))
        kernel = LatestRowsKernel(schema.names, key)
        lines = (
            f"latest: of each {', '.join(key)} the row that starts last",
            *LATEST_FOOTPRINT.lines(Cti.INPUT.shown()),
        )
        return self._host(
            OF_LATEST, kernel, [rows], schema, lines, state_name(self.program, key, "latest", [rows]), retracts=True
        )


def compile_stages(written: Results, options: Options, rules: Sequence[Rule] = RULES) -> StagedPlan:
    """Compile plans, as they were written, to one chain of stages: rewrite them, and choose the kernels.

    Raises PlanError for a plan that has no streaming form. A source that ``rules`` have taken out is still a source of a stream,
    whose events nobody reads; a batch does not read it.

    The names of kernels, which name their state in a checkpoint, depend neither on the sources' policies nor on the level of
    consistency: a run may continue from a checkpoint with other policies and at another level.
    """
    with answers_kept():
        rewriting = rewrite(replace(written, egresses=options.egresses), rules, expected=options.expected)
        # late rows are shown with their payload, and rows that a level holds back are there for queries that read other columns
        shows_all = options.late_output or options.counted_level.block != 0
        plan = rewriting.plan if shows_all else without_unread_columns(rewriting.plan)
        plan, policies = without_policies(as_results(plan))
        plan = with_relays(with_copies(plan))
        of_queries = [node for node in nodes(written) if isinstance(node, Source) and options.streaming]
        unread = {source.table: source for source in of_queries if source.table not in policies}
        program = StagedPlan(written, rewriting, plan, options)
        return _Compiler(program, policies, tuple(unread.values())).compile()


class SchemaLeaf(Node):
    """A leaf that stands for the input of a select that the compiler adds; its schema is there to check columns against."""

    @staticmethod
    def with_schema(schema: Schema) -> Node:
        """Return a leaf with this schema, and traits as of events that all end and are never retracted."""
        placeholder = SchemaLeaf()
        placeholder.schema, placeholder.traits, placeholder.digest = schema, Traits(), f"given:{schema.names}"
        placeholder.children = ()
        return placeholder

    def _schema(self) -> Schema:
        return self.schema


def kernel_site(
    node: EvaluatedOperator, evaluation: Evaluation, first: Sequence[Path], options: Options, *, final: bool
) -> KernelSite:
    """Return the site of an operator's kernel; ``first``: the paths of its first input. ``final``: rows wait for their end."""
    schemas = tuple(
        pa.schema([(name, arrow_type(infer(expr, child.schema, "stream"))) for name, expr in columns.columns])
        for columns, child in zip(evaluation.inputs, node.children, strict=True)
    )
    return KernelSite(
        inputs=schemas,
        result=evaluation.schema.names,
        final=final,
        early=options.early,
        late_output=options.late_output,
        ends_move=any(path.moves for path in first),
        retracts=any(path.retracts for path in first),
        points=all(path.points for path in first),
        blocks=options.counted_level.block != 0,
    )


def moves_members(path: Path, port: PortColumns) -> bool:
    """Return True if a moving end may make a row pass a filter or not, or change its group or its place among others.

    The window of another group, which the row would then be in, may be final already.
    """
    return path.filters_open_end or not path.moving.isdisjoint((*port.hashed, *port.ordered))


def settle_footprint(*, at_once: bool) -> Footprint:
    """Return the footprint of the kernel ``settle``, which sends rows at once, or once they are settled."""
    cti = "the least start of a row not settled, at most c"
    if at_once:
        return Footprint(
            cti=cti,
            keeps="lifetimes not settled",
            opens="parts, the lifetimes that settle",
            cost="a pass over what is new and what settles",
        )
    return Footprint(
        cti=cti,
        final="every row passed on",
        keeps="rows not settled",
        opens="parts, the rows that settle",
        cost="a group by of the rows that settle",
    )


HOLDING = Footprint(
    final="every row that is let through",
    keeps="rows that the level holds back",
    opens="parts, the rows that are due, and those of their events",
    cost="a group by of what is new and what is read",
)
"""The footprint of the rows that a level of consistency holds back."""


LATEST_FOOTPRINT = Footprint(
    cti="c",
    keeps="of each key the rows from c on, and those of the last start before c",
    opens="parts of the keys, those with new rows",
    cost="a pass over the rows of these parts",
)
"""The footprint of the kernel of latest rows."""


def ctis_footprint(*, in_order: bool, reads_ends: bool) -> Footprint:
    """Return the footprint of the kernel ``ctis``, which may send rows in order, and wait for ends that are read."""
    keeps = ["rows that the CTI has not passed"] * in_order + ["rows whose open ends are read"] * reads_ends
    opens = ["parts, the rows that are due"] * in_order + ["parts, the rows that settle"] * reads_ends
    return Footprint(
        cti="c" + "; at most the least start of a row whose end is read and may still move" * reads_ends,
        final="as of the result",
        keeps="; ".join(keeps) or "none",
        opens="; ".join(opens) or "nothing",
        cost="a pass over what is new and what is read",
    )
