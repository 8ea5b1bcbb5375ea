"""The strategy of a streaming program: what runs each operator with state, where the lateness of a source is judged, and why.

What an operator's form in batch is, its room decides (``Operator.batch_choice``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from streamq.compiler.consumers import Consumer, consumers
from streamq.compiler.options import Options
from streamq.grid import Grid
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.kernel_factory import ExecutionMethod
from streamq.operators.operator import Operator
from streamq.operators.source import Source
from streamq.plan.node import Node, nodes


class JudgePlace(StrEnum):
    """Who holds a source's items against its CTI."""

    OWN_KERNEL = "by the kernel that makes events of its items"
    STAGE = "in a stage of its own"
    FIRST_KERNEL = "by the kernel that reads it first"


@dataclass(frozen=True, kw_only=True)
class JudgeChoice:
    """Where a source's lateness is judged; ``reason``: why, where there was a choice.

    ``grid``: windows that take the source's own starts first, to whose starts its CTI may be rounded down.
    """

    at: JudgePlace
    reason: str = ""
    grid: Grid | None = None


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """What was chosen for a plan: where each source, by its table, is judged; what runs an operator with state, by its digest."""

    judging: Mapping[str, JudgeChoice]
    run_by: Mapping[str, ExecutionMethod]


def choose(plan: Node, options: Options) -> Strategy:
    """Choose for every source of a plan, and for every operator with state."""
    ways = consumers(plan)
    sources = [node for node in nodes(plan) if isinstance(node, Source)]
    run_by = {node.digest: by for node in nodes(plan) if (by := _run_by(node)) is not None}
    return Strategy(judging={s.table: _judging(s, ways[s.digest], options) for s in sources}, run_by=run_by)


def _run_by(node: Node) -> ExecutionMethod | None:
    if isinstance(node, Operator) and node.grid_windows() is not None:
        return ExecutionMethod.MERGED_WINDOWS
    if isinstance(node, EvaluatedOperator):
        return node.evaluation.factory.run_by
    return None


def _judging(source: Source, ways: Sequence[Consumer], options: Options) -> JudgeChoice:
    if source.ingress is not None:
        return JudgeChoice(at=JudgePlace.OWN_KERNEL)
    way = ways[0] if len(ways) == 1 else None
    grid = way.window.grid if way is not None and way.window is not None and not way.moves_starts else None
    reason = _reason_for_a_stage(source, ways, options)
    return JudgeChoice(at=JudgePlace.STAGE if reason else JudgePlace.FIRST_KERNEL, reason=reason, grid=grid)


def _reason_for_a_stage(source: Source, ways: Sequence[Consumer], options: Options) -> str:
    """Why lateness is judged before everything else; none: the first kernel can do it."""
    if source.ids:
        return "each id counts once"
    if options.late_output:
        return "late rows are an output"
    if len(ways) > 1:
        return "it is read several times"
    (way,) = ways
    if not way.has_state:
        return "no kernel reads it"
    keeps_order = _drops_what_is_late(source) and way.moves_alike and way.window is None
    if way.changes_rows and not keeps_order:
        return "rows are judged before they are moved, or become several"
    if way.reads_lifetime and not keeps_order:
        return "what may be adjusted is read from the CTI on only"
    if way.bounds_windows:
        return "what bounds windows of endless lifetimes must be on time"
    if way.window is not None and way.window.grid is not None and not way.window.grid.divides:
        return "what is left of a late event cannot be told from windows that overlap unevenly"
    return ""


def _drops_what_is_late(source: Source) -> bool:
    """Whether a late item is gone, whatever it would be once steps have moved it: nothing is left of a point, or shown of it."""
    return source.gives_points and not source.policy.late.shows_items


__all__ = ["JudgePlace", "JudgeChoice", "Strategy", "choose"]
