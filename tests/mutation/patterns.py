"""Mistakes about patterns: what follows what within which scope, what is chosen, consumed, negated and cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamq.choices import Consumption, Selection
from streamq.patterns import definitions
from streamq.patterns.correlation import CorrelationKeys
from streamq.patterns.definition_lowering import DefinitionLowering
from streamq.patterns.operators import sequence
from streamq.patterns.operators.negation import CancelWhen, Unless
from streamq.plan.expr import Expr, Lit
from streamq.runtime.candidates import EventRows, ScannedPart
from streamq.runtime.whole_matches import CrowdStep, WholeMatchStep
from tests.mutation.mutant import Mutant, wrapped


def scope_a_tick_short(right: Any, stream: Any, scope: int) -> Any:
    return right(stream, scope - 1)


def without_keys(right: Any, *given: Any) -> Any:
    _, conjuncts = right(*given)
    return CorrelationKeys({}, {}), conjuncts


def last_for_first(right: Any, part: ScannedPart, fitting: Any, begin: int, end: int) -> Any:
    return right(replace(part, selection=Selection.LAST) if part.selects else part, fitting, begin, end)


def nothing_consumed(right: Any, step: WholeMatchStep, rows: EventRows) -> Any:
    parts = tuple(replace(p, consumption=Consumption.REUSE) for p in step.parts)
    return right(replace(step, parts=parts), rows)


def crowd_a_tick_longer(right: Any, step: CrowdStep, rows: EventRows) -> Any:
    return right(replace(step, within=step.within + 1), rows)


def unless_closed(right: Any, pattern: Unless, low: DefinitionLowering) -> Any:
    return right(replace(pattern, within=pattern.scope + 1), low)


def slice_with_its_end(right: Any, cut: Any, axis: str) -> tuple[Expr | None, Expr | None]:
    low, high = right(cut, axis)
    return low, high + 1 if isinstance(high, Lit) and isinstance(high.value, int) else high


def cancelled_from_the_last(right: Any, pattern: CancelWhen, low: DefinitionLowering) -> Any:
    matches, negated = low.lowered(pattern.pattern), low.lowered(pattern.negated)
    return low.without_between(matches, negated, matches.contributors[0], low.extent(pattern.pattern).span)


MUTANTS = (
    Mutant(
        "scope of a sequence a tick short",
        "an event just a scope after the first is no part of a sequence",
        "sequence",
        (wrapped(sequence, "open_matches", scope_a_tick_short),),
    ),
    Mutant(
        "correlation keys forgotten",
        "events of different keys are one match",
        "sequence by key",
        (wrapped(definitions, "extract_keys", without_keys),),
    ),
    Mutant(
        "LAST for FIRST",
        "a parameter on FIRST has the last event that a match could have",
        "sequence that chooses",
        (wrapped(ScannedPart, "preferred", last_for_first),),
    ),
    Mutant(
        "nothing consumed",
        "an event on CONSUME is in later matches, too",
        "sequence that chooses",
        (wrapped(WholeMatchStep, "walk", nothing_consumed),),
    ),
    Mutant(
        "ATMOST a tick longer",
        "an event just a scope before counts",
        "at most",
        (wrapped(CrowdStep, "walk", crowd_a_tick_longer),),
    ),
    Mutant(
        "UNLESS closed",
        "an event at the end of the scope is one in it",
        "unless",
        (wrapped(Unless, "matches", unless_closed),),
    ),
    Mutant(
        "slice with its end",
        "a slice holds the instant at which it ends",
        "slice",
        (wrapped(definitions, "_bounds", slice_with_its_end),),
    ),
    Mutant(
        "cancelled from the first contributor",
        "CANCEL_WHEN looks from the first of the match's own contributors on, not from its root",
        "cancel_when",
        (wrapped(CancelWhen, "matches", cancelled_from_the_last),),
    ),
)
