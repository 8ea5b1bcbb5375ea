"""Names of operators' states: digests of what an operator computes from its sources, whatever stands above or beside it.

The name does not depend on the code of modules, on the names of results, on sinks, levels, policies or the number of a stage. So
a query may change around an operator, and a checkpoint finds its state (``streamq.runtime.state_fit``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from streamq.compiler.staged_plan import INGRESS, Path, PortInput, StagedPlan
from streamq.compiler.state_texts import leaves_out_columns, modules_called, text_of_source
from streamq.operators.source import Source
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node, expressions
from streamq.plan.passes import expression_nodes, types
from streamq.plan.schema import Schema
from streamq.plan.state_text import short_hash, state_text
from streamq.runtime.identity import ModuleCode


@dataclass(frozen=True, kw_only=True)
class StateName:
    """The name of an operator's state: ``digest`` of all ``parts``, which are texts for messages; and the modules it calls."""

    digest: str
    parts: tuple[str, ...]
    modules: tuple[ModuleCode, ...]


def state_name(
    program: StagedPlan,
    own: Any,
    shown: str,
    inputs: Sequence[PortInput],
    nodes: Iterable[Node] = (),
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
            parts += [f"{port}behind {step.line}" for step in path.steps if not leaves_out_columns(step)]
            parts += [f"{port}reads rows that may be taken back"] * path.retracts
            called += path.steps
    exprs = [expr for one in inputs for _, expr in one.columns.columns]
    return StateName(digest=short_hash(values), parts=tuple(parts), modules=modules_called(called, exprs))


def free_name(program: StagedPlan, name: str, partials: Iterable[str] = ()) -> str:
    """Return a name for a kernel, numbered if others have it: their operators differ only in code of modules, or in partials.

    It is that of a state which has the partial results ``partials``; or, where windows are apart, that of a new one.
    """
    placement, asked = program.options.placement, frozenset(partials)
    numbered = chain([name], (f"{name}~{number}" for number in count(2)))
    free = (one for one in numbered if one not in program.relations)
    first = next(free)
    for one in chain([first], free):
        if one not in placement.partials:
            return one if placement.apart else first
        if asked <= placement.partials[one]:
            return one
    return first


def path_text(program: StagedPlan, path: Path) -> Any:
    """Return, as JSON, what makes a path: its relation, and the steps that change rows, with the types of what they read."""
    source = program.relations[path.relation].source
    relation = path.relation if source is None else text_of_source(source)
    steps = [_step_text(step) for step in path.steps if not leaves_out_columns(step)]
    return [relation, steps, path.retracts, path.moves]


def path_key(program: StagedPlan, path: Path) -> str:
    """Return a short text that distinguishes a path from others into the same kernel."""
    return short_hash(path_text(program, path))[:8]


def ingress_name(source: Source) -> str:
    """Return the name of the kernel that makes events of a source's items; of its columns only if its state holds rows."""
    holds_rows = bool(source.ids) or not source.insert_only
    text = short_hash([text_of_source(source), columns_text(source) if holds_rows else ""])
    return f"{INGRESS}{source.table}:{text}"


def columns_text(source: Source) -> str:
    """Return a text that differs for other columns of a source's events."""
    return short_hash([[f.name, f.type.json()] for f in source.schema.fields])[:8]


def _step_text(step: Node) -> Any:
    """Return a step as JSON, without its input, but with the types of the columns that it reads there."""
    (below,) = step.children
    read = {part.name for expr in expressions(step) for part in expression_nodes(expr) if isinstance(part, Col)}
    kinds = {name: below.schema.type_of(name).json() for name in sorted(read) if name in below.schema.names}
    return [state_text(step), kinds]


def _shown_type(expr: Expr, schema: Schema) -> str:
    """Return the type of a column as text; "unknown" where only Spark knows it."""
    kind = types(expr, schema, "stream")[expr.digest]
    return "unknown" if kind is None else kind.simpleString()


__all__ = ["StateName", "columns_text", "free_name", "ingress_name", "path_key", "state_name"]
