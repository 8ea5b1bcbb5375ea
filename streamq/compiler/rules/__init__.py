"""The laws by which the rewriter changes plans; a room holds those on operators of one kind, in their order."""

from __future__ import annotations

from streamq.compiler.rules.filters_below_state import BELOW_STATE
from streamq.compiler.rules.join_order import JOIN_ORDER
from streamq.compiler.rules.rule import Rule
from streamq.compiler.rules.steps import COLUMNS_DOWN, FILTERS_DOWN, PROJECTIONS
from streamq.compiler.rules.window_aggregates import WINDOW_AGGREGATES

RULES: tuple[Rule, ...] = (*FILTERS_DOWN, *BELOW_STATE, *PROJECTIONS, *WINDOW_AGGREGATES, *JOIN_ORDER, *COLUMNS_DOWN)
"""All laws. Any subset, in any order, produces a legal plan of the same meaning."""

__all__ = ["RULES", "Rule"]
