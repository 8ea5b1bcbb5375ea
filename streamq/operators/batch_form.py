"""Batch forms: the ways to compute an operator in batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamq.choices import Word


class BatchForm(Word):
    """The ways to compute windows in batch."""

    DIRECT = "direct"
    """Copy each event into its windows, and aggregate the copies by Spark's own aggregates."""

    EXPLODE = "explode"
    """Copy each partial result into every window of its range, and merge by window."""

    DIFFERENCE = "difference"
    """Add each partial result where its range starts and subtract it where the range ends: a running sum."""

    BLOCKS = "blocks"
    """Divide the basic windows into blocks; merge a suffix of one block and a prefix of the next into each window."""

    DYADIC = "dyadic"
    """Cut each range into nodes of 2^k windows; each window merges the nodes that contain it."""

    SWEEP = "sweep"
    """Add the events that start and subtract those that end, at each endpoint of a group: a running sum."""

    EVALUATED = "evaluated"
    """Run the evaluator that streams use over the whole histories, bucket by bucket."""


@dataclass(frozen=True, kw_only=True)
class BatchChoice:
    """The form chosen for an operator, and the reason that explain shows."""

    form: BatchForm
    reason: str

    def __str__(self) -> str:
        return f"{self.form} ({self.reason})"


@dataclass(frozen=True, kw_only=True)
class BatchForms:
    """The forms of an operator: the one of the least cost, and those that it cannot take, each with the reason."""

    cheapest: BatchChoice
    refused: Mapping[BatchForm, str]

    @property
    def possible(self) -> list[BatchForm]:
        """The forms that the operator can take."""
        return [form for form in BatchForm if form not in self.refused]

    def choose(self, hint: BatchForm | None) -> BatchChoice:
        """Return the form that a user asks for by ``hint`` if the operator can take it; else the cheapest form."""
        cheapest = self.cheapest
        if hint is None:
            return cheapest
        if hint in self.refused:
            return BatchChoice(
                form=cheapest.form, reason=f"{cheapest.reason}; not {hint}, as asked: {self.refused[hint]}"
            )
        reason = f"as asked; {cheapest.reason}" if hint is cheapest.form else f"as asked, instead of {cheapest}"
        return BatchChoice(form=hint, reason=reason)


def shown_costs(per_event: float | None, what: str, costs: Mapping[BatchForm, float]) -> str:
    """Return the costs of forms by which one is chosen, after the number of ``what`` an event; "" if that is not known."""
    if per_event is None:
        return ""
    each = ", ".join(f"{form} {cost:.3g}" if cost < 1_000 else f"{form} {cost:,.0f}" for form, cost in costs.items())
    return f"; {per_event:.3g} {what} an event, so it costs: {each}"


def only_evaluated(reason: str) -> BatchForms:
    """Return the forms of an operator that only its evaluator computes, for a reason."""
    refused: dict[BatchForm, str] = {form: reason for form in BatchForm if form is not BatchForm.EVALUATED}
    return BatchForms(cheapest=BatchChoice(form=BatchForm.EVALUATED, reason=reason), refused=refused)


__all__ = ["BatchChoice", "BatchForm", "BatchForms", "only_evaluated", "shown_costs"]
