"""Names of states in a checkpoint, from texts of what plans hold: without policies, unread columns and the code of modules."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count, takewhile
from typing import Any

from streamq.compiler.staged_plan import INGRESS, Path, PortInput, StagedPlan
from streamq.operators.evaluation import PortColumns, all_columns
from streamq.operators.merge_partials import MergePartials
from streamq.operators.select import Select
from streamq.operators.source import Source
from streamq.operators.source_arguments import SourcePolicy
from streamq.operators.step import Step
from streamq.plan.expr import Col, Expr, fold
from streamq.plan.function import VersionedCode
from streamq.plan.node import Node, expressions, identity_values, short_hash, state_text
from streamq.plan.passes import expression_nodes, functions, kept_answer, types
from streamq.plan.schema import Schema
from streamq.runtime.hosts.identity import ModuleCode


def text_of_source(source: Source) -> Any:
    """Return, as JSON, what makes a source: all but its policy, and columns that nobody may read."""
    values = {n: v for n, v in identity_values(source).items() if n not in ("policy", "columns")}
    return [type(source).__name__, source.schema.axis, {n: state_text(v) for n, v in values.items()}]


def query_text(plan: Node) -> str:
    """Return a hash of a query that its sources' policies do not change; unlike a plan without these, it makes no node anew."""

    def visit(node: Node, inputs: list[str]) -> str:
        is_other = isinstance(node, Source) and node.policy != SourcePolicy()
        return short_hash([state_text(dataclasses.replace(node, policy=SourcePolicy()) if is_other else node), inputs])

    return fold(plan, visit)


def modules_called(called: Sequence[Node], exprs: Sequence[Expr] = ()) -> tuple[ModuleCode, ...]:
    """Return the modules that nodes, with their partial results, and expressions call, in a fixed order."""
    exprs = [*exprs, *(expr for node in called for expr in expressions(node))]
    called_functions = [function for expr in exprs for function in functions(expr)]
    partials = [partial for node in called if isinstance(node, MergePartials) for partial in node.partials]
    operators = [getattr(node, "operator", None) for node in called]
    modules = {
        (m.name, m.code_text): ModuleCode(
            name=m.name, version=m.version, code=m.code_text, compatible_with=m.compatible_with
        )
        for m in (*called_functions, *operators, *(module for partial in partials for module in partial.modules))
        if isinstance(m, VersionedCode)
    }
    return tuple(modules[key] for key in sorted(modules))


@dataclass(frozen=True, kw_only=True)
class StateName:
    """The name of an operator's state: ``digest`` of all ``parts``, which are texts for messages; and the modules it calls."""

    digest: str
    parts: tuple[str, ...]
    modules: tuple[ModuleCode, ...]


def state_name(
    program: StagedPlan, own: Any, shown: str, inputs: Sequence[PortInput], nodes: Iterable[Node] = ()
) -> StateName:
    """Return the name of the state of an operator.

    ``own``: its parameters, of any kind that plans hold; ``shown``: the same for messages. ``nodes``: the nodes that it computes,
    for the modules that they call; the steps on its paths are added.
    """
    parts = [shown]
    values: list[Any] = [state_text(own)]
    called = list(nodes)
    for number, one in enumerate(inputs, start=1):
        port = f"input {number} " if len(inputs) > 1 else ""
        values.append([list(one.columns.hashed), list(one.lifetimes)])
        for path in one.paths:
            kinds = {n: _shown_type(expr, path.schema) for n, expr in one.columns.columns}
            columns = [[name, state_text(expr), kinds[name]] for name, expr in one.columns.columns]
            values.append([number, columns, path_text(program, path)])
            parts.append(f"{port}reads {', '.join(f'{n} {kind}' for n, kind in kinds.items()) or 'no column'}")
            parts += [f"{port}behind {step.line}" for step in changing_steps(path)]
            parts += [f"{port}reads rows that may be taken back"] * path.retracts
            called += path.steps
    exprs = [expr for one in inputs for _, expr in one.columns.columns]
    return StateName(digest=short_hash(values), parts=tuple(parts), modules=modules_called(called, exprs))


def free_name(program: StagedPlan, name: str, partials: Iterable[str] = ()) -> str:
    """Return a name for a kernel, numbered if others have it: their operators differ only in code of modules, or in partials.

    It is that of a state which has the partial results ``partials``, if there is one.
    """
    stored, asked = program.options.placement.partials, frozenset(partials)
    numbered = chain([name], (f"{name}~{number}" for number in count(2)))
    free = (one for one in numbered if one not in program.relations)
    first = next(free)
    there = takewhile(stored.__contains__, chain([first], free))
    return next((one for one in there if asked <= stored[one]), first)


def path_text(program: StagedPlan, path: Path) -> Any:
    """Return, as JSON, what makes a path: its relation, and the steps that change rows, with the types of what they read."""
    source = program.relations[path.relation].source
    relation = path.relation if source is None else text_of_source(source)
    return [relation, [_step_text(step) for step in changing_steps(path)], path.retracts, path.moves]


def changing_steps(path: Path) -> list[Step]:
    """Return the steps of a path but those that only leave out columns."""
    return [step for step in path.steps if not (isinstance(step, Select) and step.leaves_out_columns)]


def path_key(program: StagedPlan, path: Path) -> str:
    """Return a short text that distinguishes a path from others into the same kernel."""
    return short_hash(path_text(program, path))[:8]


SPREAD_BY = " by "
"""The text before the columns, as JSON, by which an ingress spreads events that it could spread by their starts."""


def ingress_state(program: StagedPlan, path: Path, spread: Sequence[str] = ()) -> StateName:
    """Return the name of the state in which a source's items become events; it has columns only if that state holds rows.

    ``spread``: the columns of those that read the events, if events are spread by these.
    """
    source = program.relations[path.relation].source
    assert source is not None
    columns = all_columns(path.schema) if source.ids or not source.insert_only else ()
    name = state_name(program, INGRESS, source.detail(), [PortInput([path], PortColumns(columns), ())])
    if not spread:
        return name
    # a slash would be read as the beginning of a scope's name
    columns_as_json = json.dumps(spread).replace("/", r"\u002f")
    return dataclasses.replace(name, digest=f"{name.digest}{SPREAD_BY}{columns_as_json}")


def placed_spread(program: StagedPlan, path: Path) -> tuple[str, ...] | None:
    """Return the columns by which the checkpoint that a run goes on from spreads a source's events; () by their starts.

    None if it has no stage that judges their lateness.
    """
    name = f"{INGRESS}:{ingress_state(program, path).digest}"
    for placed in program.options.placement.by_name:
        before, _, spread = placed.partition(SPREAD_BY)
        if before == name:
            return tuple(json.loads(spread or "[]"))
    return None


def columns_text(source: Source) -> str:
    """Return a text that differs for other columns of a source's events."""
    return short_hash([[f.name, f.type.json()] for f in source.schema.fields])[:8]


def _step_text(step: Node) -> Any:
    """Return a step as JSON, without its input, but with the types of the columns that it reads there."""
    (below,) = step.children

    def text() -> Any:
        read = {part.name for expr in expressions(step) for part in expression_nodes(expr) if isinstance(part, Col)}
        kinds = {name: below.schema.type_of(name).json() for name in sorted(read) if name in below.schema.names}
        return [state_text(step), kinds]

    return kept_answer(("step", step.digest, below.schema.digest), text)


def _shown_type(expr: Expr, schema: Schema) -> str:
    """Return the type of a column as text; "unknown" where only Spark knows it."""
    kind = types(expr, schema, "stream")[expr.digest]
    return "unknown" if kind is None else kind.simpleString()
