"""Names of operators' states: digests of what an operator computes from its sources, whatever stands above or beside it.

The name does not depend on the code of modules, on the names of results, on sinks, levels, policies or the number of a stage. So
a query may change around an operator, and a checkpoint finds its state (``streamq.runtime.state_fit``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from pyspark.sql.types import DataType

from streamq.compiler.staged_plan import INGRESS, Path, PortInput, StagedPlan
from streamq.operators.select import Select
from streamq.operators.source import Source
from streamq.plan.expr import Col, Expr
from streamq.plan.folding import fold
from streamq.plan.inference import types
from streamq.plan.named_object import NamedObject, VersionedCode
from streamq.plan.node import Node, expressions, identity_values
from streamq.plan.partial import Partial
from streamq.plan.passes import expression_nodes, functions
from streamq.plan.schema import Schema
from streamq.plan.tree import PLAIN_JSON, Tree
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
    partials: Iterable[Partial] = (),
) -> StateName:
    """Return the name of the state of an operator.

    ``own``: its parameters, of any kind that plans hold; ``shown``: the same for messages. ``nodes`` and ``partials``: the nodes
    and partial results that it computes, for the modules that they call; the steps on its paths are added.
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
            parts += [f"{port}behind {step.line}" for step in path.steps if _counts(step)]
            parts += [f"{port}reads rows that may be taken back"] * path.retracts
            called += path.steps
    exprs = [expr for one in inputs for _, expr in one.columns.columns]
    return StateName(digest=_hash(values), parts=tuple(parts), modules=_modules(called, exprs, partials))


def free_name(program: StagedPlan, name: str) -> str:
    """Return a name for a kernel, numbered if other kernels have it: their operators differ only in the code of modules."""
    names = chain([name], (f"{name}~{number}" for number in count(2)))
    return next(one for one in names if one not in program.relations)


def path_text(program: StagedPlan, path: Path) -> Any:
    """Return, as JSON, what makes a path: its relation, and the steps that change rows, with the types of what they read."""
    source = program.relations[path.relation].source
    relation = path.relation if source is None else text_of_source(source)
    steps = [_step_text(step) for step in path.steps if _counts(step)]
    return [relation, steps, path.retracts, path.moves]


def path_key(program: StagedPlan, path: Path) -> str:
    """Return a short text that distinguishes a path from others into the same kernel."""
    return _hash(path_text(program, path))[:8]


def text_of_source(source: Source) -> Any:
    """Return, as JSON, what makes a source: all but its policy, and columns that nobody may read."""
    values = {n: v for n, v in identity_values(source).items() if n not in ("policy", "columns")}
    return [type(source).__name__, source.schema.axis, {n: state_text(v) for n, v in values.items()}]


def ingress_name(source: Source) -> str:
    """Return the name of the kernel that makes events of a source's items; of its columns only if its state holds rows."""
    holds_rows = bool(source.ids) or not source.insert_only
    return f"{INGRESS}{source.table}:{_hash([text_of_source(source), columns_text(source) if holds_rows else ''])}"


def columns_text(source: Source) -> str:
    """Return a text that differs for other columns of a source's events."""
    return _hash([[f.name, f.type.json()] for f in source.schema.fields])[:8]


def _counts(step: Node) -> bool:
    """True unless a step only leaves out columns: what is read above it says which."""
    return not (isinstance(step, Select) and all(isinstance(e, Col) and e.name == n for n, e in step.columns))


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


def _modules(called: Sequence[Node], exprs: Sequence[Expr], partials: Iterable[Partial]) -> tuple[ModuleCode, ...]:
    """Return the modules that nodes, expressions and partial results call, in a fixed order."""
    exprs = [*exprs, *(expr for node in called for expr in expressions(node))]
    called_functions = [function for expr in exprs for function in functions(expr)]
    operators = [getattr(node, "operator", None) for node in called]
    modules = {
        (m.name, m.code_text): ModuleCode(
            name=m.name, version=m.version, code=m.code_text, compatible_with=m.compatible_with
        )
        for m in (*called_functions, *operators, *(module for partial in partials for module in partial.modules))
        if isinstance(m, VersionedCode)
    }
    return tuple(modules[key] for key in sorted(modules))


def state_text(value: Any) -> Any:
    """Return a value that a plan holds as JSON, for names of states: without the code of modules, and the inputs of nodes."""
    if type(value) in PLAIN_JSON:
        return value
    match value:
        case tuple() | list():
            return [state_text(one) for one in value]
        case Node():
            fields = {n: v for n, v in identity_values(value).items() if not _holds_nodes(v)}
            return [type(value).__name__, {n: state_text(v) for n, v in fields.items()}]
        case Tree():
            return fold(value, _tree_text)
        case NamedObject():
            return value.state_identity
        case DataType():
            return value.json()
        case None | bool() | int() | str():
            return value
    if dataclasses.is_dataclass(value):
        return [type(value).__name__, {n: state_text(v) for n, v in identity_values(value).items()}]
    return [type(value).__name__, repr(value)]


def _tree_text(tree: Tree, operands: list[str]) -> str:
    """Return a hash of a part of an expression, from those of its operands."""
    fields = [f.name for f in dataclasses.fields(tree) if f.name not in ("digest", "shown", "origin")]
    return _hash([type(tree).__name__, [_without_operands(getattr(tree, name)) for name in fields], operands])


def _holds_nodes(value: Any) -> bool:
    """True for a node, and for a tuple of which one is a node."""
    return isinstance(value, Node) or (isinstance(value, tuple) and any(isinstance(v, Node) for v in value))


def _without_operands(value: Any) -> Any:
    """Return a field of an expression as JSON, with a word in the place of each operand."""
    if isinstance(value, tuple):
        return [_without_operands(one) for one in value]
    return "operand" if isinstance(value, Tree) else state_text(value)


def _hash(value: Any) -> str:
    """Return a hash of JSON in 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


__all__ = ["StateName", "columns_text", "free_name", "ingress_name", "path_key", "text_of_source", "state_name"]
