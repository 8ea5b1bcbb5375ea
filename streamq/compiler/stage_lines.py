"""The lines of explain on a stage's operators: the method that runs them, their state and its cost, and when rows are final."""

from __future__ import annotations

from dataclasses import replace

from streamq.choices import ClipInput
from streamq.operators.grid_aggregation import GridAggregation
from streamq.operators.kernel_factory import ExecutionMethod
from streamq.operators.operator import Operator
from streamq.operators.partial_aggregate import show_partials
from streamq.plan.footprint import Footprint
from streamq.plan.node import Node
from streamq.plan.own_names import show_keys
from streamq.plan.tree import show
from streamq.runtime.counted_values import value_columns
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel


def window_lines(node: Operator, windows: GridAggregation, kernel: WindowAggregateKernel) -> tuple[str, ...]:
    """Return the lines of explain on the kernel of windows of a grid.

    Of a ``node`` of aggregates only the time axis counts.
    """
    footprint, title = windows.footprint, _title_of_merging(node, windows)
    if windows.ranking is not None:
        footprint, title = node.footprint, node.line
    bound = "windows not final, and members not settled" if kernel.reads_end else "windows not final"
    footprint = replace(
        footprint,
        final=kernel.progress_rule.final_rows,
        keeps=bound + ("" if kernel.final else "; rows reported and not final"),
        for_good="",
    )
    return (
        title,
        f"run by: {ExecutionMethod.MERGED_WINDOWS}",
        f"{kernel.held_form}, combined before the shuffle",
        *_lines_of_sizes(node, windows),
        *footprint.lines(kernel.progress_rule.cti.shown()),
    )


def _title_of_merging(node: Node, windows: GridAggregation) -> str:
    """Return the first line on windows of aggregates."""
    grid = windows.window.shown_with(ClipInput.FULL, windows.stamp, node.schema.axis)
    shown = show_partials(windows.arguments, windows.partials) + _show_values(windows)
    return f"{windows.window.name} {grid}{show_keys(windows.keys)}: {shown}"


def _lines_of_sizes(node: Node, windows: GridAggregation) -> tuple[str, ...]:
    """Return explain's line on the windows that read the basic windows of the longest ones; () if there are none."""
    sizes = "; ".join(one.window.shown(node.schema.axis) for one in windows.shown)
    return (f"windows that are shown: {sizes}",) if sizes else ()


def _show_values(windows: GridAggregation) -> str:
    """Return the expressions whose values are counted, to be added to the partial results; "" if there are none."""
    arguments = dict(windows.arguments)
    return "".join(f", the values of {show(arguments[name])}" for name in value_columns(windows.reductions))


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


__all__ = ["HOLDING", "ctis_footprint", "settle_footprint", "window_lines"]
