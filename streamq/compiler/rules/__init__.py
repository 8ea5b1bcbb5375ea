"""The laws by which the rewriter changes plans, one module each, in the order ``RULES``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamq.compiler.rules import (
    drop_identity_select,
    merge_selects,
    merge_wheres,
    pair_basic_windows,
    prune_aggregates,
    prune_columns,
    push_condition_below_join,
    push_select_below_union,
    push_where_below_alter_lifetime,
    push_where_below_explode,
    push_where_below_select,
    push_where_below_state,
    push_where_below_udo,
    push_where_below_union,
    restate_aggregates,
    split_basic_windows,
)
from streamq.plan.node import Node


@dataclass(frozen=True)
class Rule:
    """A law for the rewriter: ``function`` returns the node that replaces another one, or None if the law does not apply.

    ``why_not`` returns the reason why the law does not fire at a node where a user might expect it, or None; ``explain()`` shows
    it. ``phase``: rules of phase 0 are applied until none fires, then those of phases 0 and 1 together. ``recomputes``: the rule
    changes a window below the node, so it is skipped if other nodes read that window, which would then be computed twice.
    ``crosses_state``: it changes what an operator with state keeps, by what stands above it.
    """

    function: Callable[[Node], Node | None]
    why_not: Callable[[Node], str | None] | None = None
    phase: int = 0
    recomputes: bool = False
    crosses_state: bool = False

    @property
    def name(self) -> str:
        """The name of the rule: that of its function and of its module."""
        return self.function.__name__

    @property
    def law(self) -> str:
        """The law ``left => right``, with which the function's docstring begins."""
        return (self.function.__doc__ or "").split("``")[1]


RULES: tuple[Rule, ...] = (
    Rule(drop_identity_select.drop_identity_select),
    Rule(merge_wheres.merge_wheres, merge_wheres.why_not),
    Rule(merge_selects.merge_selects, merge_selects.why_not),
    Rule(push_where_below_select.push_where_below_select, push_where_below_select.why_not),
    Rule(push_where_below_union.push_where_below_union, push_where_below_union.why_not),
    Rule(push_where_below_alter_lifetime.push_where_below_alter_lifetime, push_where_below_alter_lifetime.why_not),
    Rule(push_where_below_explode.push_where_below_explode, push_where_below_explode.why_not),
    Rule(
        push_where_below_state.push_where_below_state,
        push_where_below_state.why_not,
        recomputes=True,
        crosses_state=True,
    ),
    Rule(
        push_condition_below_join.push_condition_below_join,
        push_condition_below_join.why_not,
        crosses_state=True,
    ),
    Rule(push_where_below_udo.push_where_below_udo, push_where_below_udo.why_not, recomputes=True, crosses_state=True),
    Rule(push_select_below_union.push_select_below_union, push_select_below_union.why_not),
    Rule(prune_columns.prune_columns, prune_columns.why_not),
    Rule(prune_aggregates.prune_aggregates, recomputes=True, crosses_state=True),
    Rule(pair_basic_windows.pair_basic_windows, pair_basic_windows.why_not, phase=1),
    Rule(restate_aggregates.restate_aggregates, phase=1),
    Rule(split_basic_windows.split_basic_windows, split_basic_windows.why_not, phase=1),
)
"""All laws. Any subset, in any order, produces a legal plan of the same meaning."""

__all__ = ["RULES", "Rule"]
