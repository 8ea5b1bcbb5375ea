"""Every mutant, by what it is a mistake about."""

from __future__ import annotations

from tests.mutation import aggregates, ingress, on_spark, operators, patterns, progress, rooms, rules, windows
from tests.mutation.mutant import Mutant

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for module in (windows, aggregates, operators, patterns, ingress, progress, rules, on_spark, rooms)
    for mutant in module.MUTANTS
}
"""By name, in the order of the table in docs/mutants.md."""

__all__ = ["MUTANTS"]
