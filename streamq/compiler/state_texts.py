"""Texts of what plans hold, for the names of states in a checkpoint: without policies, unread columns and the code of modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from streamq.operators.merge_partials import MergePartials
from streamq.operators.select import Select
from streamq.operators.source import Source
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.expr import Expr
from streamq.plan.function import VersionedCode
from streamq.plan.node import Node, expressions, identity_values
from streamq.plan.passes import functions
from streamq.plan.state_text import short_hash, state_text
from streamq.plan.tree import fold
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


__all__ = ["leaves_out_columns", "modules_called", "query_text", "text_of_source"]
