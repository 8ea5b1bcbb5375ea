"""From an incremental plan, a DAG, to one linear chain of stages (DESIGN D4b): which kernels, fed by which paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import types as t

from streamq.choices import Late, OutputForm
from streamq.compiler.consumers import consumers, readers, reads
from streamq.compiler.hosting import AS_INPUTS, HOSTED, reads_ends
from streamq.compiler.ports import Input, Port, feed_result, host, with_ctis
from streamq.compiler.program import Options, Path, Program, Relation
from streamq.errors import PlanError, sentence
from streamq.operators import (
    Edges,
    MergePartials,
    PartialAggregate,
    Physical,
    Select,
    Source,
    Union,
    Where,
    WindowAggregate,
)
from streamq.operators.alter_lifetime import AlterLifetime, Start
from streamq.operators.join_table import JoinTable
from streamq.operators.partial_aggregate import partial_fields, show_partials
from streamq.operators.window import show_keys, show_window
from streamq.operators.window_aggregate import is_grid
from streamq.plan.aggregation import Expansion, expand
from streamq.plan.expr import Col, Expr
from streamq.plan.inference import infer
from streamq.plan.node import Node, Traits, fold, nodes, stated, states
from streamq.plan.partial import Partial
from streamq.plan.passes import reads_end
from streamq.plan.schema import POINT, Field, Schema
from streamq.policies import SourcePolicy
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.consistency import CLOSED, OPENED
from streamq.runtime.endpoints import Bound
from streamq.runtime.event import KIND, LE, NEW_END, OPENS, RE, WEIGHT
from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.edges import EdgesKernel
from streamq.runtime.kernels.insert_ingress import InsertIngressKernel
from streamq.runtime.kernels.physical import PhysicalKernel
from streamq.runtime.kernels.recompute import RecomputeKernel
from streamq.runtime.kernels.relay import RelayKernel
from streamq.runtime.kernels.settle import SettleKernel
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.stage import IN, OUT
from streamq.windows import Hopping


class _Compiler:
    def __init__(self, plan: Node, policies: Mapping[str, SourcePolicy], options: Options):
        if options.output == OutputForm.FINAL:
            # rows wait until they are final, which is as long as input can be blocked
            options = replace(options, level=replace(options.level, block=0))
        self.program = Program(plan, options)
        self.options = options
        self.policies = policies
        self.ports: list[Port] = []
        self.consumers = consumers(plan)
        self.readers = readers(plan)

    def compile(self) -> Program:
        paths = fold(self.program.plan, self._visit)
        if self.options.output == OutputForm.FINAL:
            paths = [self._told_when_final(p) for p in paths]
            moving = [p for p in paths if p.retracts]
            if moving:
                settled = self._settle(moving, self.program.plan.schema, f"settle:{self.program.plan.digest}")
                paths = [*(p for p in paths if p not in moving), settled]
        # c must be kept somewhere: late rows and rows that are no events are judged and counted there
        paths = [self._ingress_of(p) if p.level == 0 else p for p in paths]
        if self.options.ctis:
            paths = [with_ctis(self.program, self.ports, paths)]
        host(self.program, self.ports)
        feed_result(self.program, paths)
        return self.program

    def _told_when_final(self, path: Path) -> Path:
        """A path whose kernel nobody else reads: the kernel itself holds its rows back until they are final."""
        port = next((p for p in self.ports if p.name == path.relation), None)
        if port is None or not isinstance(port.kernel, RecomputeKernel):
            return path
        if any(p.relation == path.relation for other in self.ports for p in other.paths):
            return path
        port.kernel = replace(port.kernel, final=True)
        return replace(path, retracts=False, moves=False)

    def _visit(self, node: Node, inputs: list[list[Path]]) -> list[Path]:
        match node:
            case Source():
                return [self._source(node)]
            case Where() | Select():
                return [p.then(node) for p in inputs[0]]
            case JoinTable():
                return [self._alone(node.input, p).then(node) for p in inputs[0]]
            case AlterLifetime():
                return [self._settled(p.then(node)) for p in inputs[0]]
            case Union():
                return [p for paths in inputs for p in paths]
            case PartialAggregate():
                return inputs[0]
            case MergePartials(input=part):
                split = Expansion(part.arguments, part.partials, ())
                return [self._window(node, part.input, part.keys, part.window, split, inputs[0], True)]
            case WindowAggregate(window=Hopping() as grid) if is_grid(node):
                split = expand(node.aggregates, node.input.schema)
                merged = self._window(node, node.input, node.keys, grid, split, inputs[0], False)
                columns = (*((k, Col(k)) for k in node.keys), *split.outputs)
                return [merged.then(Select(_Given.of(merged.schema), columns))]
        if type(node) in HOSTED:
            return [self._hosted(node, inputs)]
        raise PlanError(sentence("stream", f"no streaming form of {type(node).__name__}"))

    # operators that the kernel `recompute` hosts

    def _hosted(self, node: Node, inputs: list[list[Path]]) -> Path:
        found = HOSTED[type(node)](node)
        ports = []
        for taken, child, paths in zip(found.inputs, node.children, inputs, strict=True):
            # what bounds windows is said on the map side, before a kernel could judge: late rows must be gone by then
            paths = [self._ingress_of(p) if found.bound is not Bound.NONE and p.level == 0 else p for p in paths]
            paths = [self._settled(p) for p in paths]
            moving = [p for p in paths if p.moves]
            if moving and (found.settled or reads_ends(taken)):
                waiting = self._settle(moving, child.schema, f"settle:{child.digest}")
                paths = [*(p for p in paths if not p.moves), waiting]
            lifetimes = (LE,) if all(p.points for p in paths) else (LE, RE)
            if any(p.retracts for p in paths):
                lifetimes = (*lifetimes, WEIGHT)
            ports.append(Input(paths, taken.columns, lifetimes, taken.hashed))
        schemas = tuple(
            pa.schema([(n, arrow_type(infer(e, child.schema, "stream"))) for n, e in taken.columns])
            for taken, child in zip(found.inputs, node.children, strict=True)
        )
        every = [p for port in ports for p in port.paths]
        level = max(p.level for p in every)
        name = f"{node.title.replace(' ', '_')}:{node.digest}"
        moves = any(p.moves for p in every) if found.moves is AS_INPUTS else found.moves
        retracts = True
        if found.kernel is not None:
            kernel: Kernel = found.kernel(schemas, found.schema.names)
            retracts = any(p.retracts for p in every)
        else:
            unmoved = None if any(p.moves for p in ports[0].paths) else found.unmoved
            kernel = RecomputeKernel(
                found.evaluator if unmoved is None else unmoved,
                schemas,
                found.schema.names,
                bound=found.bound,
                pointwise=found.pointwise,
            )
        lines = (
            f"{node.title} {node.detail()}".rstrip(),
            f"basket: {states(node)['State']}" + ("" if found.kernel else "; rows reported and not settled"),
            f"CTI: {kernel.progress_rule.cti.shown(len(node.children))}",
            *_told(node),
        )
        made = Path(name, level + 1, found.schema, retracts=retracts, moves=moves)
        self.ports.append(Port(name, kernel, ports, found.schema, lines, level, IN))
        self.program.relations[name] = Relation(name, level + 1, found.schema)
        return made.then(Select(_Given.of(found.schema), found.outputs)) if found.outputs else made

    def _settled(self, path: Path) -> Path:
        """A path whose steps read ends that may still move: its rows wait, before those steps, until they are settled."""
        if path.open_end is None:
            return path
        base = path.upto(path.open_end)
        # below a union several paths lead to one node: what waits is told apart by its own
        made = self._settle([base], base.schema, f"settle:{base.digest}")
        for step in path.steps[path.open_end :]:
            made = made.then(step)
        return made

    def _alone(self, node: Node, path: Path) -> Path:
        """A path that nobody else shares its relation with: a row of it may become several."""
        below = node
        while self.readers[below.digest] == 1 and isinstance(below, Where | Select | AlterLifetime | JoinTable):
            below = below.input
        if self.readers[below.digest] == 1 and not isinstance(below, Union):
            return path
        path = self._settled(path)
        name = f"relay:{node.digest}:{path.relation}:{len(self.ports)}"
        columns = tuple((f.name, Col(f.name)) for f in path.schema.fields)
        kernel = RelayKernel()
        cti = kernel.progress_rule.cti.shown()
        lines = ("relay: rows that are looked up in a table", "basket: none", f"CTI: {cti}")
        lifetimes = (LE, RE, WEIGHT)
        path = self._ingress_of(path) if path.level == 0 else path
        self.ports.append(
            Port(name, kernel, [Input([path], columns, lifetimes, (LE,))], path.schema, lines, path.level)
        )
        self.program.relations[name] = Relation(name, path.level + 1, path.schema)
        return Path(name, path.level + 1, path.schema, retracts=path.retracts, moves=path.moves)

    # sources

    def _source(self, node: Source) -> Path:
        name = f"source:{node.table}"
        policy = self.policies[node.table]
        self.program.relations[name] = Relation(name, 0, node.schema, replace(node, policy=policy))
        path = Path(name, 0, node.schema, points=node.schema.shape == POINT)
        if isinstance(node, Edges):
            kernel: Kernel = EdgesKernel(node.key, node.payload_from == "end")
            return self._ingress(path, kernel, (OPENS,), node.key, f"edges by {', '.join(node.key)}")
        if isinstance(node, Physical):
            columns = tuple(f.name for f in node.payload)
            kernel = PhysicalKernel(columns, node.id)
            hashed = (node.id,) if node.id else (LE,)
            return self._ingress(path, kernel, (KIND, RE, NEW_END), hashed, "match retractions with their events")
        if node.ids:
            return self._ingress_of(path)
        chains = self.consumers[node.digest]
        judged_by_kernel = len(chains) == 1 and chains[0][-1] is not None
        # what is left of an event whose window began before another ended cannot be told from its windows
        grid = chains[0][-1] if len(chains) == 1 else None
        uneven = isinstance(grid, Hopping) and grid.size % grid.hop != 0
        # a source's rows are judged before they are moved, or become several
        changed = any(isinstance(step, AlterLifetime | JoinTable) for c in chains for step in c)
        # what may be adjusted, by its policy or at a weak level, is read from c on only
        cut = any(reads(c, "start", "end", "duration") for c in chains)
        asks = self.options.late_output or policy.late != Late.DROP
        if self.options.late_output or len(chains) > 1 or cut or changed or uneven or (asks and not judged_by_kernel):
            return self._ingress_of(path)
        return path

    def _ingress_of(self, path: Path) -> Path:
        """An insert-only source judged in a stage of its own, with the steps after it."""
        source = self.program.relations[path.relation].source
        assert source is not None
        chains = self.consumers[replace(source, policy=SourcePolicy()).digest]
        # c is rounded down to the grid of a window that is first to take the source's own starts
        grid = chains[0][-1] if len(chains) == 1 and not any(_moves_start(step) for step in chains[0]) else None
        bare = Path(path.relation, 0, source.schema, points=source.schema.shape == POINT)
        kernel = InsertIngressKernel(bare.points, grid if isinstance(grid, Hopping) else None, source.ids)
        title = f"each id once ({', '.join(source.ids)}), judge lateness" if source.ids else "judge lateness"
        made = self._ingress(bare, kernel, () if bare.points else (RE,), source.ids or (LE,), title)
        for step in path.steps:
            made = made.then(step)
        return made

    def _ingress(self, path: Path, kernel: Kernel, extra: tuple[str, ...], hashed: tuple[str, ...], title: str) -> Path:
        name = f"ingress:{path.relation.removeprefix('source:')}"
        columns = tuple((f.name, Col(f.name)) for f in path.schema.fields)
        source = self.program.relations[path.relation].source
        assert source is not None
        state = "none" if isinstance(kernel, InsertIngressKernel) and not kernel.ids else states(source)["State"]
        cti, aligns = kernel.progress_rule.cti.shown(), OUT
        if isinstance(kernel, EdgesKernel):
            aligns = CLOSED if kernel.from_end else OPENED
        lines = (f"ingress of {source.shown_name()}: {title}", f"basket: {state}", f"CTI: {cti}", *_told(source))
        self.ports.append(
            Port(name, kernel, [Input([path], columns, (LE, *extra), hashed)], path.schema, lines, aligns=aligns)
        )
        retracts = not source.insert_only
        self.program.relations[name] = Relation(name, 1, path.schema)
        return Path(name, 1, path.schema, retracts=retracts, points=False, moves=retracts)

    # windows

    def _window(
        self,
        node: Node,
        source: Node,
        keys: tuple[str, ...],
        window: Hopping,
        split: Expansion,
        paths: list[Path],
        ahead: bool,
    ) -> Path:
        final = self.options.output == OutputForm.FINAL
        # what a filter lets in once an end has moved must not come into a window that is final
        paths = [self._settled(p) if p.filters_open_end else p for p in paths]
        points = all(p.points for p in paths)
        retracts = any(p.retracts for p in paths)
        # a speculative window below hands on rows that are taken back when they are corrected
        steps = [step for p in paths for step in p.steps if not isinstance(step, AlterLifetime)]
        reads = any(p.moves for p in paths) and (
            any(step.reads_open_end for step in steps) or any(reads_end(expr) for _, expr in split.arguments)
        )
        kernel = WindowAggregateKernel(
            keys,
            window,
            split.partials,
            points,
            merges=not retracts and ahead,
            ahead=ahead,
            infinite=source.traits.infinite,
            reads_end=reads,
            final=final,
        )
        columns: list[tuple[str, Expr]] = [(k, Col(k)) for k in keys]
        columns += split.arguments
        lifetimes = (LE,) if points else (LE, RE)
        if retracts:
            lifetimes = (*lifetimes, WEIGHT)
        level = max(p.level for p in paths)
        name = f"window:{node.digest}"
        bound = "windows not final" if not reads else "windows not final, and members not settled"
        lines = (
            f"hopping {show_window(window, node.schema.axis)}{show_keys(keys)}: {show_partials(split.arguments, split.partials)}",
            ("partial results" if kernel.merges else "values with weights")
            + (", combined before the shuffle" if ahead else ""),
            f"basket: {bound}" + ("" if final else "; rows reported and not final"),
            f"CTI: {kernel.progress_rule.cti.shown()}",
            f"final: {kernel.progress_rule.final_rows}",
            f"cost: {stated(MergePartials)['Cost']}",
        )
        self.ports.append(
            Port(name, kernel, [Input(paths, tuple(columns), lifetimes, keys)], node.schema, lines, level)
        )
        schema = (
            node.schema
            if ahead
            else node.schema.with_fields(
                [*(f for f in node.schema.fields if f.name in keys), *_partial_fields(split.partials)]
            )
        )
        self.program.relations[name] = Relation(name, level + 1, schema)
        return Path(name, level + 1, schema, retracts=not final)

    def _settle(self, paths: list[Path], schema: Schema, name: str) -> Path:
        """Rows wait until they are settled; then they are never taken back."""
        if name in self.program.relations:
            return Path(name, self.program.relations[name].level, schema)
        level = max(p.level for p in paths)
        columns = tuple((f.name, Col(f.name)) for f in schema.fields)
        kernel = SettleKernel()
        lines = (
            "settle: pass on what can no longer change",
            "basket: rows not settled",
            f"CTI: {kernel.progress_rule.cti.shown()}",
            "final: every row passed on",
            "cost: a group by of the rows that wait",
        )
        hashed = (LE,)
        self.ports.append(Port(name, kernel, [Input(paths, columns, (LE, RE, WEIGHT), hashed)], schema, lines, level))
        self.program.relations[name] = Relation(name, level + 1, schema)
        return Path(name, level + 1, schema, retracts=False)


class _Given(Node):
    """A stream with a schema and nothing behind it: what a lowered select is checked against."""

    @staticmethod
    def of(schema: Schema) -> Node:
        made = _Given()
        made.schema, made.traits, made.digest = schema, Traits(), f"given:{schema.names}"
        return made


def _partial_fields(partials: tuple[Partial, ...]) -> list[Field]:
    return [Field("__n", t.LongType()), *partial_fields(partials)]


def compile_stages(plan: Node, options: Options) -> Program:
    """The chain of stages of a (rewritten) plan. Raises PlanError for a plan that has no streaming form.

    Policies of sources are no part of the program's identity, as its level is none: a run may go on with others.
    """
    return _Compiler(*_without_policies(plan), options).compile()


def _without_policies(plan: Node) -> tuple[Node, dict[str, SourcePolicy]]:
    """The plan with every source under the same policy, and their own by table."""
    sources: dict[str, Source] = {}
    for found in (n for n in nodes(plan) if isinstance(n, Source)):
        if sources.setdefault(found.table, found) != found:
            wrong = f"two sources of one table, {found.shown_name()}"
            raise PlanError(sentence("stream", wrong, "they read it in different ways", "Give each its own name=."))

    def visit(found: Node, inputs: list[Node]) -> Node:
        if isinstance(found, Source):
            return replace(found, policy=SourcePolicy())
        return found.with_children(inputs)

    return fold(plan, visit), {table: found.policy for table, found in sources.items()}


def _told(node: Node) -> tuple[str, str]:
    found = states(node)
    return f"final: {found['Final']}", f"cost: {found['Cost']}"


def _moves_start(step: object) -> bool:
    return isinstance(step, AlterLifetime) and step.start != Start()
