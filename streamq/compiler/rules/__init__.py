"""The laws by which plans are rewritten, one module each; ``RULES`` is their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamq.compiler.rules import (
    drop_identity_select,
    merge_selects,
    merge_wheres,
    prune_aggregates,
    prune_columns,
    push_select_below_union,
    push_where_below_alter_lifetime,
    push_where_below_explode,
    push_where_below_select,
    push_where_below_udo,
    push_where_below_union,
    push_where_below_window,
    restate_aggregates,
    split_basic_windows,
)
from streamq.plan.node import Node


@dataclass(frozen=True)
class Rule:
    """A law as the rewriter takes it: a function that returns the node in the place of another one, or None.

    ``why_not`` returns why the law does not fire at a node where a user might expect it to, or None; ``explain()`` shows it.
    ``phase``: rules of phase 0 are applied until none fires, then those of phases 0 and 1 together. ``recomputes``: True if the
    rule changes a window below the node; where others read that window too, it would be computed twice, so the rule is skipped.
    """

    function: Callable[[Node], Node | None]
    why_not: Callable[[Node], str | None] | None = None
    phase: int = 0
    recomputes: bool = False

    @property
    def name(self) -> str:
        """The function's name, and the module's."""
        return self.function.__name__

    @property
    def law(self) -> str:
        """``left => right``: how the function's docstring begins."""
        return (self.function.__doc__ or "").split("``")[1]


RULES: tuple[Rule, ...] = (
    Rule(drop_identity_select.drop_identity_select),
    Rule(merge_wheres.merge_wheres, merge_wheres.why_not),
    Rule(merge_selects.merge_selects, merge_selects.why_not),
    Rule(push_where_below_select.push_where_below_select, push_where_below_select.why_not),
    Rule(push_where_below_union.push_where_below_union, push_where_below_union.why_not),
    Rule(push_where_below_alter_lifetime.push_where_below_alter_lifetime, push_where_below_alter_lifetime.why_not),
    Rule(push_where_below_explode.push_where_below_explode, push_where_below_explode.why_not),
    Rule(push_where_below_window.push_where_below_window, push_where_below_window.why_not, recomputes=True),
    Rule(push_where_below_udo.push_where_below_udo, push_where_below_udo.why_not, recomputes=True),
    Rule(push_select_below_union.push_select_below_union, push_select_below_union.why_not),
    Rule(prune_columns.prune_columns, prune_columns.why_not),
    Rule(prune_aggregates.prune_aggregates, recomputes=True),
    Rule(restate_aggregates.restate_aggregates, phase=1),
    Rule(split_basic_windows.split_basic_windows, phase=1),
)
"""Every law. Any subset, in any order, gives a legal plan of the same meaning."""

__all__ = ["RULES", "Rule"]
