"""Compile a changed query so that it goes on from the state in a checkpoint, if it can."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streamq.run.checkpoint import identity_of
from streamq.runtime.identity import Identity
from streamq.runtime.state_fit import fit_to_state

if TYPE_CHECKING:
    from streamq.compiler.options import Options
    from streamq.compiler.results import Results
    from streamq.compiler.staged_plan import StagedPlan


def compile_to_fit(plan: Results, options: Options, stored: Identity) -> tuple[StagedPlan, Identity]:
    """Compile queries so that they go on from a stored state; return the program and its identity.

    ``plan`` holds them as they were written, with their sources numbered. Operators stay in the stages that have their state. If
    they do not fit, they are compiled once more: windows then share only what they share in the state, so that others may begin
    beside them, and no rule changes what an operator keeps by what stands above it. If they fit in neither way, it is the first.
    """
    from streamq.compiler.options import Placement
    from streamq.compiler.results import rewritten
    from streamq.compiler.rules import RULES
    from streamq.compiler.stages import compile_stages

    by_name = {operator.name: operator.stage for operator in stored.operators}
    partials = {operator.name: frozenset(dict(operator.partials)) for operator in stored.operators if operator.partials}
    placement = Placement(by_name=by_name, stages=stored.stages, sources=stored.sources, partials=partials)
    programs = []
    for apart in (False, True):
        rules = [rule for rule in RULES if not (apart and rule.crosses_state)]
        placed = replace(options, placement=replace(placement, apart=apart))
        program = compile_stages(rewritten(plan, rules), placed, plan)
        programs.append((program, identity_of(program)))
        if not fit_to_state(stored, programs[-1][1]).misfits:
            return programs[-1]
    return programs[0]


__all__ = ["compile_to_fit"]
