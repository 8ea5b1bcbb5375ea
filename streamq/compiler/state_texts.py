"""Texts of what plans hold, for the names of states in a checkpoint: without policies, unread columns and the code of modules."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import DataType

from streamq.operators.merge_partials import MergePartials
from streamq.operators.select import Select
from streamq.operators.source import Source
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.expr import Expr
from streamq.plan.function import NamedObject, VersionedCode
from streamq.plan.node import Node, expressions, identity_values
from streamq.plan.passes import functions
from streamq.plan.tree import PLAIN_JSON, Tree, fold
from streamq.runtime.identity import ModuleCode


def leaves_out_columns(node: Node) -> bool:
    """Return True for a select that only leaves out columns: what is read above it says which."""
    return isinstance(node, Select) and all(expr.copied_column == name for name, expr in node.columns)


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


def short_hash(value: Any) -> str:
    """Return a hash of JSON in 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _tree_text(tree: Tree, operands: list[str]) -> str:
    """Return a hash of a part of an expression, from those of its operands."""
    fields = [f.name for f in dataclasses.fields(tree) if f.name not in ("digest", "shown", "origin")]
    return short_hash([type(tree).__name__, [_without_operands(getattr(tree, name)) for name in fields], operands])


def _holds_nodes(value: Any) -> bool:
    """True for a node, and for a tuple of which one is a node."""
    return isinstance(value, Node) or (isinstance(value, tuple) and any(isinstance(v, Node) for v in value))


def _without_operands(value: Any) -> Any:
    """Return a field of an expression as JSON, with a word in the place of each operand."""
    if isinstance(value, tuple):
        return [_without_operands(one) for one in value]
    return "operand" if isinstance(value, Tree) else state_text(value)


__all__ = ["leaves_out_columns", "modules_called", "query_text", "short_hash", "state_text", "text_of_source"]
