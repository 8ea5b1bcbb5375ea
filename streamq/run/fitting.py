"""Compile a changed query so that it goes on from the state in a checkpoint, if it can."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from streamq.run.checkpoint import identity_of
from streamq.runtime.identity import Identity
from streamq.runtime.state_fit import fit_to_state

if TYPE_CHECKING:
    from streamq.compiler.options import Options
    from streamq.compiler.results import Results
    from streamq.compiler.staged_plan import StagedPlan

BELOW_STATE = ("push_where_below_window", "push_where_below_udo", "prune_aggregates")
"""The rules that change what an operator with state keeps, by what stands above it."""


def compile_to_fit(plan: Results, options: Options, stored: Identity) -> tuple[StagedPlan, Identity]:
    """Compile queries so that they go on from a stored state; return the program and its identity.

    ``plan`` holds them as they were written, with their sources numbered. Operators stay in the stages that have their state. A
    rule that moves work below an operator with state changes what that keeps, so some of these rules are left out if the queries
    fit only without them. If they fit in no way, all rules are applied.
    """
    from streamq.compiler.options import Placement
    from streamq.compiler.results import rewritten
    from streamq.compiler.rules import RULES
    from streamq.compiler.stages import compile_stages

    by_name = {operator.name: operator.stage for operator in stored.operators}
    placement = Placement(by_name=by_name, stages=stored.stages, sources=stored.sources, windows=stored.windows)
    programs = []
    for left_out in (subset for n in range(len(BELOW_STATE) + 1) for subset in combinations(BELOW_STATE, n)):
        rules = [rule for rule in RULES if rule.name not in left_out]
        program = compile_stages(rewritten(plan, rules), replace(options, placement=placement), plan)
        programs.append((program, identity_of(program)))
        if not fit_to_state(stored, programs[-1][1]).misfits:
            return programs[-1]
    return programs[0]


__all__ = ["compile_to_fit"]
