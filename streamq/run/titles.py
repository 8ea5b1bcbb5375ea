"""The names of operators, and of the inputs of binary operators, in ``run.why()``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamq.compiler.staged_plan import StagedPlan
    from streamq.runtime.hosted_kernel import HostedKernel


def title(program: StagedPlan, hosted: HostedKernel) -> str:
    """Return a kernel's name as in explain; for a kernel that computes a part of a pattern, the pattern's text."""
    node = program.nodes.get(hosted.number)
    columns = [] if node is None else [name for n in (node, *node.children) for name in n.schema.names]
    there = {pattern: variables for pattern in program.patterns if (variables := pattern.variables_in(columns))}
    if not there:
        return f"{program.titles[hosted.name][0]}"
    pattern = max(there, key=lambda p: (len(there[p]), -len(p.variables)))
    part = f", its {', '.join(there[pattern])}" if len(there[pattern]) < len(pattern.variables) else ""
    return f"pattern {pattern.name}{part}: {pattern.text}"


def input_title(program: StagedPlan, hosted: HostedKernel, port: int) -> str:
    """Return a text for an input of a join: its side, or the events of a pattern that it provides."""
    columns = program.nodes[hosted.number].children[port].schema.names
    variables = dict.fromkeys(v for pattern in program.patterns for v in pattern.variables_in(columns))
    return f"for {', '.join(variables)}" if variables else f"from the {('left', 'right')[port]}"


__all__ = ["input_title", "title"]
