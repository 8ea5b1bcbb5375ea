"""The lines of explain on a stage's operators: the method that runs them, their state, when rows are final, and the cost."""

from __future__ import annotations

from streamq.operators.grid_aggregation import GridAggregation
from streamq.operators.kernel_factory import ExecutionMethod
from streamq.operators.merge_partials import MergePartials
from streamq.operators.partial_aggregate import show_partials
from streamq.plan.node import Node, read_statements, statements_of
from streamq.plan.own_names import show_keys
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel


def window_lines(node: Node, windows: GridAggregation, kernel: WindowAggregateKernel) -> tuple[str, ...]:
    """Return the lines of explain on the kernel of windows of a grid.

    Of ``node`` only the time axis counts.
    """
    grid, shown = windows.window.shown(node.schema.axis), show_partials(windows.arguments, windows.partials)
    bound = "windows not final, and members not settled" if kernel.reads_end else "windows not final"
    return (
        f"{windows.window.name} {grid}{show_keys(windows.keys)}: {shown}",
        f"run by: {ExecutionMethod.MERGED_WINDOWS}",
        ("partial results" if kernel.merges else "values with weights")
        + (", combined before the shuffle" if windows.combined else ""),
        f"basket: {bound}" + ("" if kernel.final else "; rows reported and not final"),
        f"CTI: {kernel.progress_rule.cti.shown()}",
        f"final: {kernel.progress_rule.final_rows}",
        f"cost: {read_statements(MergePartials)['Cost']}",
    )


def final_and_cost_lines(node: Node) -> tuple[str, str]:
    """Return the lines of explain on when an operator's rows are final and on its cost, from its class's docstring."""
    statements = statements_of(node)
    return f"final: {statements['Final']}", f"cost: {statements['Cost']}"


__all__ = ["final_and_cost_lines", "window_lines"]
