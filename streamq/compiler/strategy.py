"""The strategy of a streaming program: chooses where to judge each source's lateness.

Kernels and batch forms are chosen by the operators themselves (``Evaluation.factory``, ``EvaluatedOperator.batch_forms``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamq.compiler.options import Options
from streamq.compiler.rewriter import Consumer, consumers
from streamq.operators.source import Source
from streamq.plan.lowering import has_float
from streamq.plan.node import Node, nodes
from streamq.plan.schema import Schema
from streamq.time import WindowEnds


@dataclass(frozen=True, kw_only=True)
class JudgeChoice:
    """The place at which a source's lateness is judged: a stage of its own for a ``reason``, else the kernel that reads it first.

    ``ends``: the ends of the windows that read the source, to which its CTI is rounded down; None unless all that reads the
    source are fixed windows, and no step before them moves a start. ``spread``: the columns by which a stage of its own spreads
    the source's events, those of all that reads them one by one; () for their starts.
    """

    reason: str = ""
    ends: WindowEnds | None = None
    spread: tuple[str, ...] = ()


UNREAD = JudgeChoice(reason="no operator reads the source once the rules are applied")
"""The choice for a source of the query that rules have taken out of the plan."""


def choose_judges(plan: Node, options: Options) -> dict[str, JudgeChoice]:
    """Return the place at which lateness is judged for every source of a plan, by its table.

    Of ``options`` only ``late_output`` counts.
    """
    ways = consumers(plan)
    sources = [node for node in nodes(plan) if isinstance(node, Source)]
    return {source.table: _judging(source, ways[source.digest], options) for source in sources}


def _judging(source: Source, ways: Sequence[Consumer], options: Options) -> JudgeChoice:
    """Return the place at which a source's lateness is judged; ``ways`` lead to the operators that read it first."""
    if source.ingress is not None:
        # by the kernel that makes events of its items
        return JudgeChoice()
    way = ways[0] if len(ways) == 1 else None
    ends = None if way is None else way.ends
    reason = _reason_for_a_stage(source, ways, options)
    return JudgeChoice(reason=reason, ends=ends, spread=_common_spread(source, ways))


def _common_spread(source: Source, ways: Sequence[Consumer]) -> tuple[str, ...]:
    """Return the columns by which all operators that read a source's events one by one spread them; () if there are none."""
    asked = {way.spread for way in ways if way.spread is not None}
    spread = asked.pop() if len(asked) == 1 else ()
    return spread if can_spread(source.schema, spread) else ()


def can_spread(schema: Schema, names: Sequence[str]) -> bool:
    """Return True if events can be spread by these columns and pass on as they are: floats would be normalized to be keys."""
    return all(name in schema.names and not has_float(schema.type_of(name)) for name in names)


def _reason_for_a_stage(source: Source, ways: Sequence[Consumer], options: Options) -> str:
    """Return the reason why lateness must be judged in a stage of its own; "" if the first kernel can judge it."""
    if source.ids:
        return "each id counts once"
    if options.late_output:
        return "late rows are an output"
    if len(ways) > 1:
        return "the source is read several times"
    (way,) = ways
    if not way.has_state:
        return "no operator with state reads the source"
    if way.reads_judged_rows:
        return "windows of several sizes read the source"
    keeps_order = _drops_what_is_late(source) and way.moves_alike and way.window is None
    if way.changes_rows and not keeps_order:
        return "rows are judged before they are moved, or become several"
    if way.reads_lifetime and not keeps_order:
        return "what may be adjusted is read from the CTI on only"
    # the input has come further than a late point
    if way.bounds_windows and (not source.gives_points or way.changes_rows):
        return "late events must not decide how far windows go at the end"
    if way.window is not None and way.window.grid is not None and not way.window.grid.divides:
        return "what is left of a late event cannot be told from windows that overlap unevenly"
    return ""


def _drops_what_is_late(source: Source) -> bool:
    """Return True if a late item is dropped, wherever steps would move it: nothing of a point is adjusted or shown."""
    return source.gives_points and not source.policy.late.shows_items
