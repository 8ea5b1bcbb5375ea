"""The lines of explain on a stage's operators: the method that runs them, their state and its cost, and when rows are final."""

from __future__ import annotations

from dataclasses import replace

from streamq.choices import ClipInput
from streamq.operators.grid_aggregation import GridAggregation
from streamq.operators.kernel_factory import ExecutionMethod
from streamq.operators.merge_partials import MergePartials
from streamq.operators.operator import Operator
from streamq.operators.partial_aggregate import show_partials
from streamq.plan.node import Node
from streamq.plan.own_names import show_keys
from streamq.plan.statements import Statements, statements_in_case, statements_of
from streamq.plan.tree import show
from streamq.runtime.counted_values import value_columns
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel


def window_lines(node: Operator, windows: GridAggregation, kernel: WindowAggregateKernel) -> tuple[str, ...]:
    """Return the lines of explain on the kernel of windows of a grid.

    Of a ``node`` of aggregates only the time axis counts.
    """
    if windows.ranking is not None:
        statements, title = statements_of(node), node.line
    else:
        statements, title = _of_merging(windows, kernel), _title_of_merging(node, windows)
    bound = "windows not final, and members not settled" if kernel.reads_end else "windows not final"
    statements = replace(statements, final=kernel.progress_rule.final_rows)
    statements = statements.keeping(bound + ("" if kernel.final else "; rows reported and not final"))
    return (
        title,
        f"run by: {ExecutionMethod.MERGED_WINDOWS}",
        f"{kernel.held_form}, combined before the shuffle",
        *_lines_of_sizes(node, windows),
        *kernel_lines(statements, kernel.progress_rule.cti.shown()),
    )


def _title_of_merging(node: Node, windows: GridAggregation) -> str:
    """Return the first line on windows of aggregates."""
    grid = windows.window.shown_with(ClipInput.FULL, windows.stamp, node.schema.axis)
    shown = show_partials(windows.arguments, windows.partials) + _show_values(windows)
    return f"{windows.window.name} {grid}{show_keys(windows.keys)}: {shown}"


def _of_merging(windows: GridAggregation, kernel: WindowAggregateKernel) -> Statements:
    """Return the statements on windows of aggregates."""
    case = "in blocks" if kernel.may_have_blocks else "one by one"
    statements = statements_in_case(MergePartials, (case,), {})
    if windows.reductions:
        cost = f"{statements.state.cost}; a sort of the values in it"
        statements = replace(statements, state=replace(statements.state, cost=cost))
    return statements


def _lines_of_sizes(node: Node, windows: GridAggregation) -> tuple[str, ...]:
    """Return explain's line on the windows that read the basic windows of the longest ones; () if there are none."""
    sizes = "; ".join(one.window.shown(node.schema.axis) for one in windows.shown)
    return (f"windows that are shown: {sizes}",) if sizes else ()


def _show_values(windows: GridAggregation) -> str:
    """Return the expressions whose values are counted, to be added to the partial results; "" if there are none."""
    arguments = dict(windows.arguments)
    return "".join(f", the values of {show(arguments[name])}" for name in value_columns(windows.reductions))


def kernel_lines(statements: Statements, cti: str, growth: str = "") -> tuple[str, ...]:
    """Return the lines of explain on a kernel: what it keeps, reads and costs, its ``cti``, and its final rows.

    ``growth``: the rows that it keeps for good; "" if all of them go.
    """
    for_good = (f"kept for good: {growth}",) if growth else ()
    return *statements.state.lines(), *for_good, f"CTI: {cti}", f"final: {statements.final}"


__all__ = ["kernel_lines", "window_lines"]
